//! Reading objects within bounds: a deserializer around another that counts how deep values are nested and how many elements
//! they have. Bytes alone bound neither: a recursive type nests as deep as they say, and empty elements take none.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

/// The object in these bytes, or what is wrong with them.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut reader = postcard::Deserializer::from_bytes(bytes);
    let elements = bytes.len().saturating_mul(ELEMENTS_A_BYTE).saturating_add(EMPTY_ELEMENTS);
    let count = Count { elements: Cell::new(elements), refusal: Cell::new(None) };
    let limits = Limits { depth: DEPTH, count: &count };
    let object = T::deserialize(Bounded { inner: &mut reader, limits });
    let object = object.map_err(|error| count.refusal.get().map_or_else(|| error.to_string(), str::to_owned))?;
    match reader.finalize().map_err(|error| error.to_string())?.len() {
        0 => Ok(object),
        left => Err(format!("{left} bytes are left over")),
    }
}

/// Any of the sides of reading, with what is still allowed below it.
struct Bounded<'a, I> {
    inner: I,
    limits: Limits<'a>,
}

#[derive(Clone, Copy)]
struct Limits<'a> {
    depth: usize,
    count: &'a Count,
}

/// What all levels share.
struct Count {
    elements: Cell<usize>,
    refusal: Cell<Option<&'static str>>,
}

impl<'a> Limits<'a> {
    /// The limits one level deeper.
    fn below<E: Error>(self) -> Result<Limits<'a>, E> {
        match self.depth.checked_sub(1) {
            Some(depth) => Ok(Limits { depth, ..self }),
            None => Err(self.refuse("it is nested deeper than 128 levels")),
        }
    }

    fn take_element<E: Error>(self) -> Result<(), E> {
        match self.count.elements.get().checked_sub(1) {
            Some(left) => {
                self.count.elements.set(left);
                Ok(())
            }
            None => Err(self.refuse("it has more elements than its bytes can tell")),
        }
    }

    fn refuse<E: Error>(self, why: &'static str) -> E {
        self.count.refusal.set(Some(why));
        E::custom(why)
    }

    fn around<I>(self, inner: I) -> Bounded<'a, I> {
        Bounded { inner, limits: self }
    }
}

/// What holds nothing is read as it is.
macro_rules! flat {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(visitor)
        }
    )*};
}

/// What holds other values goes one level deeper.
macro_rules! nested {
    ($($method:ident($($argument:ident: $of:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $of,)* visitor: V) -> Result<V::Value, D::Error> {
            let limits = self.limits.below()?;
            self.inner.$method($($argument,)* limits.around(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = D::Error;

    flat! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
    }

    nested! {
        deserialize_any()
        deserialize_ignored_any()
        deserialize_option()
        deserialize_seq()
        deserialize_map()
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(self.limits.around(from))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(self.limits.around(from))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(self.limits.around(from))
    }

    fn visit_map<A: MapAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(self.limits.around(from))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, from: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(self.limits.around(from))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(self.limits.around(from))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.limits.take_element()?;
        self.inner.next_element_seed(self.limits.around(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.limits.take_element()?;
        self.inner.next_key_seed(self.limits.around(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(self.limits.around(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'a, 'de, A: EnumAccess<'de>> EnumAccess<'de> for Bounded<'a, A> {
    type Error = A::Error;
    type Variant = Bounded<'a, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let (value, variant) = self.inner.variant_seed(self.limits.around(seed))?;
        Ok((value, self.limits.around(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Bounded<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.newtype_variant_seed(self.limits.around(seed))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        self.inner.tuple_variant(len, self.limits.around(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        self.inner.struct_variant(fields, self.limits.around(visitor))
    }
}

const DEPTH: usize = 128;
/// Fields count as elements too, and several of them may be written as one byte.
const ELEMENTS_A_BYTE: usize = 64;
/// Elements that are written as no bytes at all.
const EMPTY_ELEMENTS: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Tree {
        Leaf,
        Twig(Box<Tree>),
        Fork(u8, Box<Tree>),
        Bush { leaves: Vec<Tree>, named: Option<BTreeMap<String, Tree>> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Everything {
        plain: (bool, i8, u16, i128, f32, f64, char),
        text: String,
        nothing: (),
        tree: Tree,
    }

    fn sample() -> Everything {
        let named = BTreeMap::from([("a".to_owned(), Tree::Fork(3, Box::new(Tree::Leaf)))]);
        let tree = Tree::Bush { leaves: vec![Tree::Leaf, Tree::Twig(Box::new(Tree::Leaf))], named: Some(named) };
        let plain = (true, -3, 65_535, i128::MIN, 1.5, -0.0, 'ß');
        Everything { plain, text: "some".to_owned(), nothing: (), tree }
    }

    fn twigs(depth: usize) -> Vec<u8> {
        (0..depth).map(|_| 1).chain([0]).collect()
    }

    #[test]
    fn every_kind_of_value_comes_back() {
        let bytes = postcard::to_stdvec(&sample()).unwrap();
        assert_eq!(read(&bytes), Ok(sample()));
        for end in 0..bytes.len() {
            assert!(read::<Everything>(&bytes[..end]).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn bytes_of_any_kind_are_an_object_or_an_error() {
        let whole = postcard::to_stdvec(&sample()).unwrap();
        let mut dice = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            (0..dice.usize(1..4)).for_each(|_| bytes[dice.usize(..whole.len())] = dice.u8(..));
            if let Ok(object) = read::<Everything>(&bytes) {
                assert!(postcard::to_stdvec(&object).is_ok());
            }
        }
    }

    #[test]
    fn a_recursive_value_is_read_to_a_depth_and_no_deeper() {
        assert!(read::<Tree>(&twigs(DEPTH - 1)).is_ok());
        let refused = Err("it is nested deeper than 128 levels".to_owned());
        assert_eq!(read::<Tree>(&twigs(DEPTH)), refused);
        assert_eq!(read::<Tree>(&twigs(50_000_000)), refused);
    }

    #[test]
    fn elements_that_take_no_bytes_are_counted() {
        let many = postcard::to_stdvec(&u64::MAX).unwrap();
        assert_eq!(read::<Vec<()>>(&many), Err("it has more elements than its bytes can tell".to_owned()));
        assert_eq!(read::<Vec<()>>(&[3]), Ok(vec![(); 3]));
    }

    #[test]
    fn a_length_beyond_the_bytes_takes_no_memory() {
        let mut bytes = postcard::to_stdvec(&(1_u64 << 60)).unwrap();
        bytes.extend([7; 10]);
        assert!(read::<Vec<u64>>(&bytes).is_err());
        assert!(read::<String>(&bytes).is_err());
    }

    #[test]
    fn what_is_left_over_is_an_error() {
        assert_eq!(read::<u8>(&[1, 2, 3]), Err("2 bytes are left over".to_owned()));
    }
}
