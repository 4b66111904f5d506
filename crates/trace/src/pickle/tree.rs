//! The values of a pickle that was read. One that stands in several places is kept once, so that a small pickle cannot become
//! a large result; whoever walks through it pays for every look.

use std::cell::Cell;

use super::{Error, Limit};

/// All values of a pickle.
#[derive(Debug)]
pub struct Tree<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: usize,
    pub(super) most_looks: usize,
    pub(super) looks: Cell<usize>,
}

/// One value; those inside are places in the tree.
#[derive(Debug)]
#[non_exhaustive]
pub enum Node<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// A tuple or a list.
    List(Vec<usize>),
    /// A dictionary: keys and values in turn, of equal keys the last counts.
    Dict(Vec<usize>),
}

/// One value in its tree.
#[derive(Clone, Copy, Debug)]
pub struct View<'t, 'a> {
    tree: &'t Tree<'a>,
    at: usize,
}

impl<'a> Tree<'a> {
    /// The value that the pickle is.
    pub fn root(&self) -> View<'_, 'a> {
        View { tree: self, at: self.root }
    }
}

impl<'t, 'a> View<'t, 'a> {
    /// The value itself.
    ///
    /// # Errors
    ///
    /// [`Error::Beyond`] when there were too many looks.
    pub fn look(self) -> Result<&'t Node<'a>, Error> {
        let Tree { looks, most_looks: most, nodes, .. } = self.tree;
        looks.set(looks.get() + 1);
        if looks.get() > *most {
            return Err(Error::Beyond { limit: Limit::Looks, most: *most, offset: 0 });
        }
        Ok(&nodes[self.at])
    }

    /// What a list or tuple holds; none when it is something else.
    ///
    /// # Errors
    ///
    /// [`Error::Beyond`] when there were too many looks.
    pub fn items(self) -> Result<Option<impl ExactSizeIterator<Item = View<'t, 'a>>>, Error> {
        let Node::List(items) = self.look()? else { return Ok(None) };
        Ok(Some(items.iter().map(move |&at| View { at, ..self })))
    }

    /// What a dictionary holds, in order; none when it is something else.
    ///
    /// # Errors
    ///
    /// [`Error::Beyond`] when there were too many looks.
    pub fn pairs(self) -> Result<Option<impl Iterator<Item = (View<'t, 'a>, View<'t, 'a>)>>, Error> {
        let Node::Dict(items) = self.look()? else { return Ok(None) };
        let view = move |at| View { at, ..self };
        Ok(Some(items.chunks_exact(2).map(move |pair| (view(pair[0]), view(pair[1])))))
    }

    /// What stands under a key; none when there is no such key, or this is no dictionary.
    ///
    /// # Errors
    ///
    /// [`Error::Beyond`] when there were too many looks.
    pub fn under(self, key: &str) -> Result<Option<View<'t, 'a>>, Error> {
        let mut found = None;
        for (name, value) in self.pairs()?.into_iter().flatten() {
            if matches!(name.look()?, Node::Text(text) if *text == key) {
                found = Some(value);
            }
        }
        Ok(found)
    }
}
