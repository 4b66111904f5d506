//! A plain value to be written.

/// What Python calls `None`, `bool`, `int`, `float`, `str`, `list`, `tuple` and `dict`.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A tuple.
    Tuple(Vec<Value>),
    /// A dictionary, in this order.
    Dict(Vec<(String, Value)>),
}

impl Value {
    /// A dictionary of these pairs.
    pub fn dict<K: Into<String>>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
        Value::Dict(pairs.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }

    /// An integer; the greatest there is in place of one beyond it.
    pub fn int(number: impl TryInto<i64>) -> Value {
        Value::Int(number.try_into().unwrap_or(i64::MAX))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Value {
        Value::Bool(flag)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::None, Into::into)
    }
}
