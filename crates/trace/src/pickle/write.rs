//! The writer: protocol 2, which every Python 3 reads, and no memo.

use super::Value;
use super::opcode::*;

/// The value as a pickle.
pub fn write(value: &Value) -> Vec<u8> {
    let mut out = vec![PROTO, 2];
    put(value, &mut out);
    out.push(STOP);
    out
}

fn put(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::None => out.push(NONE),
        Value::Bool(flag) => out.push(if *flag { NEWTRUE } else { NEWFALSE }),
        Value::Int(number) => put_int(*number, out),
        Value::Float(number) => {
            out.push(BINFLOAT);
            out.extend(number.to_be_bytes());
        }
        Value::Text(text) => put_text(text, out),
        Value::List(items) => {
            out.extend([EMPTY_LIST, MARK]);
            items.iter().for_each(|item| put(item, out));
            out.push(APPENDS);
        }
        Value::Tuple(items) => {
            out.push(MARK);
            items.iter().for_each(|item| put(item, out));
            out.push(TUPLE);
        }
        Value::Dict(pairs) => {
            out.extend([EMPTY_DICT, MARK]);
            pairs.iter().for_each(|(key, value)| {
                put_text(key, out);
                put(value, out);
            });
            out.push(SETITEMS);
        }
    }
}

fn put_int(number: i64, out: &mut Vec<u8>) {
    if let Ok(byte) = u8::try_from(number) {
        out.extend([BININT1, byte]);
    } else if let Ok(word) = i32::try_from(number) {
        out.push(BININT);
        out.extend(word.to_le_bytes());
    } else {
        out.extend([LONG1, 8]);
        out.extend(number.to_le_bytes());
    }
}

/// A text beyond four gigabytes, which nobody has, is left out.
fn put_text(text: &str, out: &mut Vec<u8>) {
    let len = u32::try_from(text.len()).unwrap_or(0);
    out.push(BINUNICODE);
    out.extend(len.to_le_bytes());
    out.extend(&text.as_bytes()[..len as usize]);
}
