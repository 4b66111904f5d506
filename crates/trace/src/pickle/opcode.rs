//! The opcodes of all protocols by number: those of plain data, and the names of those that are refused.

pub(super) const MARK: u8 = b'(';
pub(super) const STOP: u8 = b'.';
pub(super) const BINFLOAT: u8 = b'G';
pub(super) const BININT: u8 = b'J';
pub(super) const BININT1: u8 = b'K';
pub(super) const BININT2: u8 = b'M';
pub(super) const NONE: u8 = b'N';
pub(super) const BINUNICODE: u8 = b'X';
pub(super) const APPEND: u8 = b'a';
pub(super) const EMPTY_DICT: u8 = b'}';
pub(super) const APPENDS: u8 = b'e';
pub(super) const BINGET: u8 = b'h';
pub(super) const LONG_BINGET: u8 = b'j';
pub(super) const EMPTY_LIST: u8 = b']';
pub(super) const BINPUT: u8 = b'q';
pub(super) const LONG_BINPUT: u8 = b'r';
pub(super) const SETITEM: u8 = b's';
pub(super) const TUPLE: u8 = b't';
pub(super) const EMPTY_TUPLE: u8 = b')';
pub(super) const SETITEMS: u8 = b'u';
pub(super) const PROTO: u8 = 0x80;
pub(super) const TUPLE1: u8 = 0x85;
pub(super) const TUPLE2: u8 = 0x86;
pub(super) const TUPLE3: u8 = 0x87;
pub(super) const NEWTRUE: u8 = 0x88;
pub(super) const NEWFALSE: u8 = 0x89;
pub(super) const LONG1: u8 = 0x8a;
pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
pub(super) const BINUNICODE8: u8 = 0x8d;
pub(super) const MEMOIZE: u8 = 0x94;
pub(super) const FRAME: u8 = 0x95;

/// The name of an opcode that exists and is not read, if this is one.
pub(super) fn refused(byte: u8) -> Option<&'static str> {
    REFUSED.iter().find(|(number, _)| *number == byte).map(|(_, name)| *name)
}

/// What makes objects, calls functions or asks the outside, and the words of protocol 0 and of bytes, which no dump has.
pub(super) const REFUSED: [(u8, &str); 37] = [
    (b'0', "POP"),
    (b'1', "POP_MARK"),
    (b'2', "DUP"),
    (b'F', "FLOAT"),
    (b'I', "INT"),
    (b'L', "LONG"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (b'R', "REDUCE"),
    (b'S', "STRING"),
    (b'T', "BINSTRING"),
    (b'U', "SHORT_BINSTRING"),
    (b'V', "UNICODE"),
    (b'b', "BUILD"),
    (b'c', "GLOBAL"),
    (b'd', "DICT"),
    (b'g', "GET"),
    (b'i', "INST"),
    (b'l', "LIST"),
    (b'o', "OBJ"),
    (b'p', "PUT"),
    (b'B', "BINBYTES"),
    (b'C', "SHORT_BINBYTES"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x8b, "LONG4"),
    (0x8e, "BINBYTES8"),
    (0x8f, "EMPTY_SET"),
    (0x90, "ADDITEMS"),
    (0x91, "FROZENSET"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
    (0x96, "BYTEARRAY8"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
];
