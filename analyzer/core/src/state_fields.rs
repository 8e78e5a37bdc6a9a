//! How parts of a state are saved and read again. A state may be damaged: nothing in it decides how much memory is taken,
//! and no number in it is an index that does not exist.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

/// Reads a collection of at most `MOST` items. Maps are saved as sequences of pairs.
///
/// # Errors
/// It has more.
pub fn at_most<'de, const MOST: usize, C, D>(from: D) -> Result<C, D::Error>
where
    C: Default + IntoIterator + Extend<C::Item>,
    C::Item: Deserialize<'de>,
    D: Deserializer<'de>,
{
    from.deserialize_seq(AtMost::<MOST, C>(PhantomData))
}

struct AtMost<const MOST: usize, C>(PhantomData<C>);

impl<'de, const MOST: usize, C> Visitor<'de> for AtMost<MOST, C>
where
    C: Default + IntoIterator + Extend<C::Item>,
    C::Item: Deserialize<'de>,
{
    type Value = C;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<C, A::Error> {
        let (mut all, mut left) = (C::default(), MOST);
        while let Some(item) = items.next_element()? {
            left = left.checked_sub(1).ok_or_else(|| A::Error::custom("too many items"))?;
            all.extend(Some(item));
        }
        Ok(all)
    }
}

/// Reads the number of a side.
///
/// # Errors
/// There is no such side.
pub fn side<'de, T: Deserialize<'de> + PartialOrd + From<bool>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let side = T::deserialize(from)?;
    if side <= T::from(true) { Ok(side) } else { Err(D::Error::custom("no such side")) }
}

/// Reads a number below `END`.
///
/// # Errors
/// It is not below.
pub fn below<'de, const END: usize, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Copy + TryInto<usize>,
    D: Deserializer<'de>,
{
    let number = T::deserialize(from)?;
    let is_below = number.try_into().is_ok_and(|number| number < END);
    if is_below { Ok(number) } else { Err(D::Error::custom("no such place")) }
}

/// What is saved as its difference to the one before it, which takes fewer octets.
pub trait Steps: Copy + Default {
    /// The step from `before` to this.
    fn step_from(self, before: Self) -> Self;
    /// What lies this step behind `before`.
    fn step_to(self, before: Self) -> Self;
}

impl Steps for i64 {
    fn step_from(self, before: Self) -> Self {
        self.wrapping_sub(before)
    }

    fn step_to(self, before: Self) -> Self {
        before.wrapping_add(self)
    }
}

impl Steps for u32 {
    fn step_from(self, before: Self) -> Self {
        self.wrapping_sub(before)
    }

    fn step_to(self, before: Self) -> Self {
        before.wrapping_add(self)
    }
}

/// Rings of what grows little by little.
pub mod steps {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
    use serde::ser::{Serialize, SerializeTuple, Serializer};

    use crate::state_fields::Steps;

    /// Writes the steps from cell to cell.
    pub fn serialize<S: Serializer, T: Steps + Serialize, const N: usize>(
        cells: &[T; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let mut steps = to.serialize_tuple(N)?;
        let mut before = T::default();
        for &cell in cells {
            steps.serialize_element(&cell.step_from(before))?;
            before = cell;
        }
        steps.end()
    }

    /// Reads the cells.
    pub fn deserialize<'de, D: Deserializer<'de>, T: Steps + Deserialize<'de>, const N: usize>(
        from: D,
    ) -> Result<[T; N], D::Error> {
        from.deserialize_tuple(N, Cells(PhantomData))
    }

    struct Cells<T, const N: usize>(PhantomData<T>);

    impl<'de, T: Steps + Deserialize<'de>, const N: usize> Visitor<'de> for Cells<T, N> {
        type Value = [T; N];

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{N} steps")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut steps: A) -> Result<[T; N], A::Error> {
            let (mut cells, mut before) = ([T::default(); N], T::default());
            for cell in &mut cells {
                let step: T = steps.next_element()?.ok_or_else(|| A::Error::custom("too few steps"))?;
                before = step.step_to(before);
                *cell = before;
            }
            Ok(cells)
        }
    }
}

/// `Arc<[T; N]>`: serde knows arrays of up to 32 cells alone.
pub mod shared {
    use std::sync::Arc;

    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    /// Writes the cells.
    pub fn serialize<S: Serializer, T: Serialize, const N: usize>(cells: &[T; N], to: S) -> Result<S::Ok, S::Error> {
        cells.as_slice().serialize(to)
    }

    /// Reads `N` cells; any other number is an error.
    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
        from: D,
    ) -> Result<Arc<[T; N]>, D::Error> {
        let cells: Box<[T; N]> = crate::state_fields::at_most::<N, Vec<T>, D>(from)?
            .try_into()
            .map_err(|_| D::Error::custom("another number of cells"))?;
        Ok(Arc::from(cells))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Serialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Fields {
        #[serde(deserialize_with = "at_most::<2, _, _>")]
        list: Vec<u32>,
        #[serde(deserialize_with = "at_most::<1, _, _>")]
        map: HashMap<u32, u32>,
        #[serde(deserialize_with = "side")]
        side: u8,
        #[serde(deserialize_with = "below::<9, _, _>")]
        place: usize,
    }

    fn is_read_again(fields: &Fields) -> bool {
        let saved = postcard::to_stdvec(fields).unwrap();
        postcard::from_bytes::<Fields>(&saved).is_ok_and(|read| read == *fields)
    }

    #[test]
    fn what_there_cannot_be_is_refused() {
        assert!(is_read_again(&Fields { list: vec![7, 8], map: HashMap::from([(1, 2)]), side: 1, place: 8 }));
        assert!(!is_read_again(&Fields { list: vec![7, 8, 9], ..Fields::default() }));
        assert!(!is_read_again(&Fields { map: HashMap::from([(1, 2), (3, 4)]), ..Fields::default() }));
        assert!(!is_read_again(&Fields { side: 2, ..Fields::default() }));
        assert!(!is_read_again(&Fields { place: 9, ..Fields::default() }));
    }
}
