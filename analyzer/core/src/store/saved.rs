//! How arrays behind pointers are saved: serde knows those of up to 32 cells alone.

/// `Box<[T; N]>`.
pub mod boxed {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    /// Writes the cells.
    pub fn serialize<S: Serializer, T: Serialize, const N: usize>(cells: &[T; N], to: S) -> Result<S::Ok, S::Error> {
        cells.as_slice().serialize(to)
    }

    /// Reads as many cells as there must be.
    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
        from: D,
    ) -> Result<Box<[T; N]>, D::Error> {
        Vec::deserialize(from)?.try_into().map_err(|_| D::Error::custom("another number of cells"))
    }
}

/// `Arc<[T; N]>`.
pub mod shared {
    use serde::de::{Deserialize, Deserializer};
    use std::sync::Arc;

    pub use super::boxed::serialize;

    /// Reads as many cells as there must be.
    pub fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
        from: D,
    ) -> Result<Arc<[T; N]>, D::Error> {
        super::boxed::deserialize(from).map(Arc::from)
    }
}
