//! How parameters become shards: the one file that knows. Numbers only: no buffer is touched here.
//!
//! A parameter is divided along its first dimension, `ceil(rows / world)` rows a rank, so that the last ranks may have fewer or none.
//! The buffer of a unit is a row for each rank, and a row holds that rank's part of each parameter, padded to the same length.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Range;

use phalanx_core::{Class, DType, Error, Result};

use crate::spec::{ParamSpec, Role, UnitSpec};

/// How one parameter is divided among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Division {
    rows: usize,
    row_len: usize,
    world: usize,
}

/// All divisions of one unit, and where its parameters lie in its buffers.
#[derive(Debug)]
pub(crate) struct UnitLayout {
    /// Of each parameter, the one whose memory it is: another one's where they are tied, none where it is ignored.
    pub(crate) owners: Vec<Option<usize>>,
    /// For each parameter.
    pub(crate) divisions: Vec<Division>,
    /// Where owners lie when they are gathered.
    pub(crate) gather: Row,
    /// The same among the smaller group.
    pub(crate) narrow: Option<Row>,
    /// Where the gradients of trained owners lie when they are reduced.
    pub(crate) reduce: Row,
}

/// What the buffers of a unit hold for one rank.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) world: usize,
    pub(crate) byte_len: usize,
    /// The type of all elements, where there is only one.
    pub(crate) dtype: Option<DType>,
    spans: Vec<Option<Span>>,
    /// Where the inputs of parameters lie that are gathered in another form.
    extended: Vec<Option<Vec<Range<usize>>>>,
}

/// One parameter in a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first byte in the row.
    start: usize,
    pub(crate) dtype: DType,
    pub(crate) division: Division,
}

/// How one parameter lies in a row.
#[derive(Debug)]
enum Form {
    Absent,
    Elements(DType),
    /// Types and lengths.
    Inputs(Vec<(DType, usize)>),
}

/// What a layout depends on beside the unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) world: usize,
    /// Ranks of the smaller group, where the unit is kept by one after forward.
    pub(crate) smaller: Option<usize>,
    pub(crate) compute: Option<DType>,
    pub(crate) reduce: Option<DType>,
}

impl Division {
    /// The division of a tensor of this shape. None where its length is beyond all memory, and among no ranks.
    pub fn new(shape: &[usize], world: usize) -> Option<Division> {
        let (rows, inner) = shape.split_first().map_or((1, shape), |(rows, inner)| (*rows, inner));
        let row_len = inner.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent))?;
        let padded =
            rows.checked_add(world.checked_sub(1)?)?.checked_div(world)?.checked_mul(world)?.checked_mul(row_len)?;
        padded.checked_mul(LARGEST_ELEMENT).filter(|byte_len| isize::try_from(*byte_len).is_ok())?;
        Some(Division { rows, row_len, world })
    }

    /// The rows of the full tensor that this rank holds; the last ranks may hold fewer than the others, or none, and those beyond the world
    /// hold none.
    pub fn rows(&self, rank: usize) -> Range<usize> {
        let each = self.rows.div_ceil(self.world);
        let start = rank.saturating_mul(each).min(self.rows);
        start..start.saturating_add(each).min(self.rows)
    }

    /// The same as elements.
    pub fn elements(&self, rank: usize) -> Range<usize> {
        let rows = self.rows(rank);
        rows.start * self.row_len..rows.end * self.row_len
    }

    /// Elements of the full tensor.
    pub fn full_len(&self) -> usize {
        self.rows * self.row_len
    }

    /// Elements that each rank has room for in a buffer, the padding included.
    pub fn padded_len(&self) -> usize {
        self.rows.div_ceil(self.world) * self.row_len
    }

    /// Ranks.
    pub fn world(&self) -> usize {
        self.world
    }
}

impl UnitLayout {
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) for what cannot be sharded, by its name.
    pub(crate) fn new(spec: &UnitSpec, terms: Terms) -> Result<UnitLayout> {
        check_types(spec, terms)?;
        let owners = owners(spec)?;
        let divide = |world| spec.params.iter().map(|param| division(param, world)).collect::<Result<Vec<_>>>();
        let divisions = divide(terms.world)?;
        let stored = |index: usize| owners[index] == Some(index);
        let dtype = |index: usize| terms.compute.unwrap_or(spec.params[index].dtype);
        let form = |index: usize, division: &Division| match &spec.params[index].extension {
            _ if !stored(index) => Form::Absent,
            Some(extension) => Form::Inputs(extension.inputs(division.padded_len())),
            None => Form::Elements(dtype(index)),
        };
        let fitting = |row: Option<Row>| {
            let expected = "must have parameters that fit into memory together";
            row.ok_or_else(|| Error::usage(CALL, "unit", format!("{:?}", spec.name), expected))
        };
        let gather = fitting(Row::new(terms.world, &divisions, form))?;
        let narrow = match terms.smaller {
            Some(world) => Some(fitting(Row::new(world, &divide(world)?, form))?),
            None => None,
        };
        check_extensions(spec, terms.smaller)?;
        let reduce = |index: usize| terms.reduce.unwrap_or(dtype(index));
        let trained = |index: usize| spec.params[index].role == Role::Trained;
        let form =
            |index: usize, _: &Division| if trained(index) { Form::Elements(reduce(index)) } else { Form::Absent };
        let reduce = fitting(Row::new(terms.world, &divisions, form))?;
        check_one_dtype(spec, &reduce)?;
        Ok(UnitLayout { owners, divisions, gather, narrow, reduce })
    }

    /// A parameter of the unit by number, and the one that owns its memory.
    ///
    /// # Errors
    ///
    /// [`Usage`](phalanx_core::ErrorKind::Usage) where there is none, or it is ignored.
    pub(crate) fn owner<'a>(
        &self,
        spec: &'a UnitSpec,
        call: &'static str,
        index: usize,
    ) -> Result<(&'a ParamSpec, usize)> {
        let Some(param) = spec.params.get(index) else {
            let expected = format!("must be below {}, the parameters of unit {:?}", spec.params.len(), spec.name);
            return Err(Error::usage(call, "param", index, expected));
        };
        match self.owners[index] {
            Some(owner) => Ok((param, owner)),
            None => Err(Error::usage(call, "param", format!("{:?}", param.name), "must not be an ignored one")),
        }
    }

    /// How a gathered unit lies, which came from the smaller group or from all.
    pub(crate) fn gathered(&self, is_narrow: bool) -> &Row {
        self.narrow.as_ref().filter(|_| is_narrow).unwrap_or(&self.gather)
    }
}

impl Row {
    /// Each parameter in its form, in their order. None where that is beyond all memory.
    fn new(world: usize, divisions: &[Division], form: impl Fn(usize, &Division) -> Form) -> Option<Row> {
        let (mut end, mut align, mut dtypes) = (0_usize, 1, Vec::new());
        let mut place = |dtype: DType, len: usize| {
            let start = end.checked_next_multiple_of(dtype.byte_len())?;
            end = start.checked_add(len.checked_mul(dtype.byte_len())?)?;
            align = align.max(dtype.byte_len());
            dtypes.push(dtype);
            Some(start..end)
        };
        let (mut spans, mut extended) = (Vec::new(), Vec::new());
        for (index, division) in divisions.iter().enumerate() {
            let (mut span, mut inputs) = (None, None);
            match form(index, division) {
                Form::Absent => {}
                Form::Elements(dtype) => {
                    let start = place(dtype, division.padded_len())?.start;
                    span = Some(Span { start, dtype, division: *division });
                }
                Form::Inputs(each) => {
                    let places = each.iter().map(|(dtype, len)| place(*dtype, *len));
                    inputs = Some(places.collect::<Option<_>>()?);
                }
            }
            spans.push(span);
            extended.push(inputs);
        }
        let first = dtypes.first().copied();
        let dtype = first.filter(|first| dtypes.iter().all(|dtype| dtype == first));
        let byte_len = end.checked_next_multiple_of(align)?;
        byte_len.checked_mul(world).filter(|total| isize::try_from(*total).is_ok())?;
        Some(Row { world, byte_len, dtype, spans, extended })
    }

    /// The bytes of all ranks' rows.
    pub(crate) fn total(&self) -> usize {
        self.byte_len * self.world
    }

    /// Where a rank's row lies.
    pub(crate) fn of(&self, rank: usize) -> Range<usize> {
        rank * self.byte_len..(rank + 1) * self.byte_len
    }

    /// The parameters that lie here, by number.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (usize, Span)> + '_ {
        self.spans.iter().enumerate().filter_map(|(index, span)| Some((index, (*span)?)))
    }

    /// One parameter, if it lies here.
    pub(crate) fn span(&self, index: usize) -> Option<Span> {
        self.spans.get(index).copied().flatten()
    }

    /// Parameters that lie here in another form, by number, and where each of their inputs lies in a row.
    pub(crate) fn extended(&self) -> impl Iterator<Item = (usize, &[Range<usize>])> + '_ {
        self.extended.iter().enumerate().filter_map(|(index, inputs)| Some((index, inputs.as_deref()?)))
    }

    /// Where the elements of a parameter that this rank holds lie in the buffer of all rows.
    pub(crate) fn piece(&self, span: &Span, rank: usize) -> Range<usize> {
        let start = rank * self.byte_len + span.start;
        start..start + span.division.elements(rank).len() * span.dtype.byte_len()
    }

    /// Where the whole parameter lies, if it lies in one piece.
    pub(crate) fn whole(&self, span: &Span) -> Option<Range<usize>> {
        let byte_len = span.division.full_len() * span.dtype.byte_len();
        let padded = span.division.padded_len() * span.dtype.byte_len();
        (padded == self.byte_len || byte_len <= padded).then(|| span.start..span.start + byte_len)
    }

    /// Where the padding after the elements of a parameter lies, in the buffer of all rows.
    pub(crate) fn padding(&self, span: &Span, rank: usize) -> Range<usize> {
        let end = rank * self.byte_len + span.start + span.division.padded_len() * span.dtype.byte_len();
        self.piece(span, rank).end..end
    }
}

/// Of each parameter, the one whose memory it is.
fn owners(spec: &UnitSpec) -> Result<Vec<Option<usize>>> {
    let mut owners: Vec<Option<usize>> = Vec::with_capacity(spec.params.len());
    for (index, param) in spec.params.iter().enumerate() {
        let before = &spec.params[..index];
        if before.iter().any(|other| other.name == param.name) {
            let value = format!("{:?} twice in unit {:?}", param.name, spec.name);
            return Err(Error::usage(CALL, "param", value, "must have a name of its own"));
        }
        owners.push(match &param.role {
            Role::Trained | Role::Frozen => Some(index),
            Role::Ignored => None,
            Role::Tied(other) => Some(tied(spec, index, other, &owners)?),
        });
    }
    Ok(owners)
}

/// The parameter that owns what `index` is tied to.
fn tied(spec: &UnitSpec, index: usize, other: &str, owners: &[Option<usize>]) -> Result<usize> {
    let param = &spec.params[index];
    let refused = |expected: &str| {
        let value = format!("{:?} tied to {other:?} in unit {:?}", param.name, spec.name);
        Err(Error::usage(CALL, "param", value, expected))
    };
    let Some(at) = spec.params[..index].iter().position(|before| before.name == other) else {
        return refused("must be tied to a parameter that stands before it in the same unit");
    };
    match owners[at] {
        None => refused("must be tied to a parameter that is not ignored"),
        Some(_) if spec.params[at].shape != param.shape || spec.params[at].dtype != param.dtype => {
            refused("must have the shape and dtype of the other")
        }
        Some(owner) => Ok(owner),
    }
}

fn division(param: &ParamSpec, world: usize) -> Result<Division> {
    if param.role != Role::Ignored {
        check_real(format_args!("{:?}", param.name), param.dtype)?;
    }
    let expected = "must have a shape that fits into memory";
    Division::new(&param.shape, world)
        .ok_or_else(|| Error::usage(CALL, "param", format!("{:?} of shape {:?}", param.name, param.shape), expected))
}

/// That what the policy says, or the unit in its place, are types that parameters have.
fn check_types(spec: &UnitSpec, terms: Terms) -> Result<()> {
    for (own, dtype) in [(spec.compute, terms.compute), (spec.reduce, terms.reduce)] {
        match (own, dtype) {
            (Some(dtype), _) => check_real(format_args!("unit {:?}", spec.name), dtype)?,
            (None, Some(dtype)) => check_real(format_args!("the policy"), dtype)?,
            (None, None) => {}
        }
    }
    Ok(())
}

fn check_real(what: fmt::Arguments<'_>, dtype: DType) -> Result<()> {
    if dtype.class() == Class::Float {
        return Ok(());
    }
    Err(Error::usage(CALL, "dtype", format!("{dtype} for {what}"), "must be f64, f32, f16 or bf16"))
}

/// That what is gathered in another form is not divided a second time.
fn check_extensions(spec: &UnitSpec, smaller: Option<usize>) -> Result<()> {
    match spec.params.iter().find(|param| param.extension.is_some() && smaller.is_some()) {
        Some(param) => {
            let value = format!("{:?} in unit {:?}", param.name, spec.name);
            Err(Error::usage(CALL, "param", value, "must not be gathered in another form from a smaller group"))
        }
        None => Ok(()),
    }
}

/// That gradients which are reduced together are of one type.
fn check_one_dtype(spec: &UnitSpec, reduce: &Row) -> Result<()> {
    if reduce.dtype.is_some() || reduce.spans().next().is_none() {
        return Ok(());
    }
    let each = reduce.spans().map(|(index, span)| format!("{:?} {}", spec.params[index].name, span.dtype));
    let value = format!("{} in unit {:?}", each.collect::<Vec<_>>().join(", "), spec.name);
    let expected = "must be one for all gradients of a unit, or set by the policy or the unit";
    Err(Error::usage(CALL, "dtype", value, expected))
}

const CALL: &str = "Sharded::new";
/// Bytes of the widest element a parameter may have.
const LARGEST_ELEMENT: usize = 8;
