//! The reader: a stack of values, a stack of marks and a memo, moved by one opcode at a time. It makes values and nothing else.

use std::cell::Cell;
use std::collections::HashMap;

use super::opcode::{self, *};
use super::scan::Scan;
use super::{Error, Limit, Limits, Node, Tree};

/// Reads one pickle of plain data, of any protocol from 2 on.
///
/// # Errors
///
/// Names the opcode or the limit, and the byte where it stands.
pub fn read<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Tree<'a>, Error> {
    if bytes.len() > limits.bytes {
        return Err(Error::Beyond { limit: Limit::Bytes, most: limits.bytes, offset: limits.bytes });
    }
    let mut machine = Machine::new(bytes, limits);
    while machine.step()? {}
    machine.finish()
}

struct Machine<'a, 'l> {
    scan: Scan<'a>,
    limits: &'l Limits,
    nodes: Vec<Node<'a>>,
    /// Levels below each node.
    depths: Vec<usize>,
    stack: Vec<usize>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, usize>,
    /// Where the opcode stands that is being carried out.
    offset: usize,
    looks: usize,
}

impl<'a, 'l> Machine<'a, 'l> {
    fn new(bytes: &'a [u8], limits: &'l Limits) -> Machine<'a, 'l> {
        let (nodes, depths, stack, marks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let scan = Scan::new(bytes);
        Machine { scan, limits, nodes, depths, stack, marks, memo: HashMap::new(), offset: 0, looks: 0 }
    }

    /// Carries one opcode out; false after the last.
    fn step(&mut self) -> Result<bool, Error> {
        self.offset = self.scan.offset();
        let code = self.scan.byte()?;
        match code {
            STOP => return Ok(false),
            PROTO => self.protocol()?,
            FRAME => self.frame()?,
            MARK => self.mark()?,
            NONE | NEWTRUE | NEWFALSE | BININT | BININT1 | BININT2 | LONG1 | BINFLOAT => self.number(code)?,
            SHORT_BINUNICODE | BINUNICODE | BINUNICODE8 => self.text(code)?,
            EMPTY_TUPLE | EMPTY_LIST | TUPLE | TUPLE1 | TUPLE2 | TUPLE3 => self.sequence(code)?,
            EMPTY_DICT => self.push(Node::Dict(Vec::new()), 1)?,
            APPEND | APPENDS => self.append(code)?,
            SETITEM | SETITEMS => self.set_items(code)?,
            BINPUT | LONG_BINPUT | MEMOIZE => self.put(code)?,
            BINGET | LONG_BINGET => self.fetch(code)?,
            other => return Err(self.not_read(other)),
        }
        Ok(true)
    }

    fn finish(self) -> Result<Tree<'a>, Error> {
        let [root] = self.stack[..] else { return Err(self.malformed("the pickle is not one value")) };
        if !self.marks.is_empty() {
            return Err(self.malformed("a mark was never used"));
        }
        Ok(Tree { nodes: self.nodes, root, most_looks: self.limits.looks, looks: Cell::new(0) })
    }

    fn protocol(&mut self) -> Result<(), Error> {
        let version = self.scan.byte()?;
        if (2..=5).contains(&version) { Ok(()) } else { Err(self.malformed("the protocol must be 2 to 5")) }
    }

    /// How much to read at once, which a reader from memory need not know.
    fn frame(&mut self) -> Result<(), Error> {
        self.scan.take(size_of::<u64>()).map(|_| ())
    }

    fn mark(&mut self) -> Result<(), Error> {
        self.within(Limit::Depth, self.marks.len(), self.limits.depth)?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn number(&mut self, code: u8) -> Result<(), Error> {
        let node = match code {
            NONE => Node::None,
            NEWTRUE => Node::Bool(true),
            NEWFALSE => Node::Bool(false),
            BININT => Node::Int(i32::from_le_bytes(self.scan.array()?).into()),
            BININT1 => Node::Int(self.scan.byte()?.into()),
            BININT2 => Node::Int(u16::from_le_bytes(self.scan.array()?).into()),
            BINFLOAT => Node::Float(f64::from_be_bytes(self.scan.array()?)),
            _ => Node::Int(self.long()?),
        };
        self.push(node, 0)
    }

    /// An integer of up to 16 bytes, little-endian with sign.
    fn long(&mut self) -> Result<i128, Error> {
        let len = self.scan.byte()?.into();
        if len > size_of::<i128>() {
            return Err(self.malformed("an integer is longer than 16 bytes"));
        }
        let bytes = self.scan.take(len)?;
        let fill = if bytes.last().is_some_and(|top| top & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [fill; size_of::<i128>()];
        whole[..len].copy_from_slice(bytes);
        Ok(i128::from_le_bytes(whole))
    }

    fn text(&mut self, code: u8) -> Result<(), Error> {
        let len = match code {
            SHORT_BINUNICODE => self.scan.byte()?.into(),
            BINUNICODE => u32::from_le_bytes(self.scan.array()?).into(),
            _ => u64::from_le_bytes(self.scan.array()?),
        };
        let text = self.scan.text(len)?;
        self.push(Node::Text(text), 0)
    }

    fn sequence(&mut self, code: u8) -> Result<(), Error> {
        let items = match code {
            TUPLE => self.since_mark()?,
            TUPLE1 => self.last(1)?,
            TUPLE2 => self.last(2)?,
            TUPLE3 => self.last(3)?,
            _ => Vec::new(),
        };
        let depth = 1 + self.deepest(&items);
        self.push(Node::List(items), depth)
    }

    fn append(&mut self, code: u8) -> Result<(), Error> {
        let items = if code == APPEND { self.last(1)? } else { self.since_mark()? };
        let wrong = self.malformed("items are appended to no list");
        let into = self.container(&items)?;
        let Node::List(list) = &mut self.nodes[into] else { return Err(wrong) };
        list.extend(items);
        Ok(())
    }

    fn set_items(&mut self, code: u8) -> Result<(), Error> {
        let items = if code == SETITEM { self.last(2)? } else { self.since_mark()? };
        let wrong = self.malformed("pairs are set in no dictionary");
        if items.len() % 2 != 0 {
            return Err(self.malformed("a key has no value"));
        }
        let into = self.container(&items)?;
        let Node::Dict(pairs) = &mut self.nodes[into] else { return Err(wrong) };
        pairs.extend(items);
        Ok(())
    }

    fn put(&mut self, code: u8) -> Result<(), Error> {
        let key = match code {
            BINPUT => self.scan.byte()?.into(),
            LONG_BINPUT => u32::from_le_bytes(self.scan.array()?),
            // Bounded by the limit of the memo, which is below.
            _ => u32::try_from(self.memo.len()).unwrap_or(u32::MAX),
        };
        let top = self.top()?;
        self.within(Limit::Memo, self.memo.len(), self.limits.memo)?;
        self.memo.insert(key, top);
        Ok(())
    }

    fn fetch(&mut self, code: u8) -> Result<(), Error> {
        let key = match code {
            BINGET => self.scan.byte()?.into(),
            _ => u32::from_le_bytes(self.scan.array()?),
        };
        let at = *self.memo.get(&key).ok_or_else(|| self.malformed("what is used again was never remembered"))?;
        self.looks += 1;
        self.within(Limit::Values, self.nodes.len() + self.looks, self.limits.values)?;
        self.stack.push(at);
        Ok(())
    }

    /// The list or dictionary on top, which is to take these items.
    fn container(&mut self, items: &[usize]) -> Result<usize, Error> {
        let into = self.top()?;
        let depth = 1 + self.deepest(items);
        self.within(Limit::Depth, depth, self.limits.depth + 1)?;
        self.depths[into] = self.depths[into].max(depth);
        Ok(into)
    }

    fn push(&mut self, node: Node<'a>, depth: usize) -> Result<(), Error> {
        self.within(Limit::Values, self.nodes.len() + self.looks, self.limits.values)?;
        self.within(Limit::Depth, depth, self.limits.depth + 1)?;
        self.stack.push(self.nodes.len());
        self.nodes.push(node);
        self.depths.push(depth);
        Ok(())
    }

    /// The value on top. What stands below the last mark belongs to somebody else.
    fn top(&self) -> Result<usize, Error> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let above = self.stack.get(floor..).unwrap_or_default();
        above.last().copied().ok_or_else(|| self.malformed("a value is missing"))
    }

    fn last(&mut self, count: usize) -> Result<Vec<usize>, Error> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count).filter(|from| *from >= floor);
        from.map(|from| self.stack.split_off(from)).ok_or_else(|| self.malformed("a value is missing"))
    }

    fn since_mark(&mut self) -> Result<Vec<usize>, Error> {
        let mark = self.marks.pop().ok_or_else(|| self.malformed("a mark is missing"))?;
        Ok(self.stack.split_off(mark))
    }

    fn deepest(&self, items: &[usize]) -> usize {
        items.iter().map(|&at| self.depths[at]).max().unwrap_or(0)
    }

    /// Whether there may be one more.
    fn within(&self, limit: Limit, count: usize, most: usize) -> Result<(), Error> {
        if count < most { Ok(()) } else { Err(Error::Beyond { limit, most, offset: self.offset }) }
    }

    fn malformed(&self, what: &'static str) -> Error {
        Error::Malformed { what, offset: self.offset }
    }

    fn not_read(&self, byte: u8) -> Error {
        let offset = self.offset;
        opcode::refused(byte).map_or(Error::Unknown { byte, offset }, |name| Error::Refused { name, offset })
    }
}
