//! The columns handed to numpy. Rows are added here only; meaning and unit of each column stand in
//! `analyzer/tables/`.

/// A column on its way to numpy.
#[derive(Debug)]
pub enum Column {
    /// Instants and durations, nanoseconds; -1 stands for "not known" where a column allows it.
    I64(Vec<i64>),
    /// Byte counts.
    U64(Vec<u64>),
    /// Row, packet and stream numbers, counts.
    U32(Vec<u32>),
    /// HTTP statuses.
    U16(Vec<u16>),
    /// Small codes and flags.
    U8(Vec<u8>),
}

/// A type a column can hold.
pub trait Cell: Sized {
    /// Wraps a vector of cells.
    fn column(cells: Vec<Self>) -> Column;
}

macro_rules! cells {
    ($($cell:ty => $column:ident),*) => { $(impl Cell for $cell {
        fn column(cells: Vec<Self>) -> Column { Column::$column(cells) }
    })* };
}
cells!(i64 => I64, u64 => U64, u32 => U32, u16 => U16, u8 => U8);

/// Declares a table, its row and their conversion: one `Vec` per column.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident, $row:ident { $($column:ident: $cell:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "columns are described in analyzer/tables/")]
        pub struct $table { $(pub $column: Vec<$cell>),* }

        /// One row.
        #[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "columns are described in analyzer/tables/")]
        pub struct $row { $(pub $column: $cell),* }

        impl $table {
            /// Adds a row.
            #[inline]
            pub fn push(&mut self, row: $row) { $(self.$column.push(row.$column);)* }

            /// Number of rows.
            pub fn len(&self) -> usize { [$(self.$column.len()),*].into_iter().min().unwrap_or(0) }

            /// Bytes that the rows take.
            pub fn bytes(&self) -> usize { self.len() * [$(size_of::<$cell>()),*].into_iter().sum::<usize>() }

            /// Whether there is no row.
            pub fn is_empty(&self) -> bool { self.len() == 0 }

            /// Moves the rows of `other` to the end, column by column.
            pub fn append(&mut self, other: &mut Self) { $(self.$column.append(&mut std::mem::take(&mut other.$column));)* }

            /// Takes the first rows out as named columns, in the order of `places` if there are any.
            pub fn take_first(&mut self, rows: usize, places: Option<&[u32]>) -> Vec<(&'static str, Column)> {
                vec![$((stringify!($column), <$cell as Cell>::column(take_first(&mut self.$column, rows, places)))),*]
            }

            /// One row.
            pub fn get(&self, row: usize) -> Option<$row> {
                Some($row { $($column: *self.$column.get(row)?),* })
            }

            /// Keeps the rows with these numbers, in this order.
            pub fn arrange(&mut self, order: &[u32]) {
                $(self.$column = order.iter().filter_map(|&row| self.$column.get(row as usize).copied()).collect();)*
            }

            /// Takes all rows out as named columns.
            pub fn take_columns(&mut self) -> Vec<(&'static str, Column)> {
                vec![$((stringify!($column), <$cell as Cell>::column(std::mem::take(&mut self.$column)))),*]
            }
        }
    };
}

/// Takes the first cells out, or all when there are fewer, in the order of their `places` if there are any.
pub fn take_first<T: Copy>(cells: &mut Vec<T>, rows: usize, places: Option<&[u32]>) -> Vec<T> {
    let rows = rows.min(cells.len());
    match places {
        None => cells.drain(..rows).collect(),
        Some(places) => {
            let first = places.iter().filter_map(|&place| cells.get(place as usize).copied()).collect();
            cells.drain(..rows);
            first
        }
    }
}

// behind the macro that they use
mod calls;
mod connections;
mod problems;
mod waits;
mod wire;

pub use calls::*;
pub use connections::*;
pub use problems::*;
pub use waits::*;
pub use wire::*;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_out_once() {
        let mut table = Frames::default();
        table.push(FrameRow { stream: 7, ..FrameRow::default() });
        assert_eq!(table.len(), 1);
        let columns = table.take_columns();
        assert!(matches!(columns.iter().find(|(name, _)| *name == "stream"), Some((_, Column::U32(v))) if v == &[7]));
        assert!(table.is_empty());
    }
}
