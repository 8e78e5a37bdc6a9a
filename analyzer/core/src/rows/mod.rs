//! Rows written as CSV and JSON lines: pieces of columns become bytes, and little is kept between pieces. The crate
//! `grpcdiag-parquet` writes the same columns as Parquet.

pub mod text;

/// Cells of one type.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Cells<'a> {
    I64(&'a [i64]),
    U64(&'a [u64]),
    U32(&'a [u32]),
    U16(&'a [u16]),
    U8(&'a [u8]),
    Bool(&'a [bool]),
    /// Not a number stands for null.
    F64(&'a [f64]),
}

/// What the cells of a column stand for.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the variants describe their fields")]
pub enum Values<'a> {
    /// Themselves; those equal to the number are null.
    Plain(Cells<'a>, Option<i64>),
    /// Texts by their numbers; numbers without a text are null. `is_enum` where the texts are all that may occur.
    Texts { cells: Cells<'a>, texts: &'a [Option<String>], is_enum: bool },
    /// Identifiers of 64 bits a word in hexadecimal; null where all words are zero.
    Hex(Vec<&'a [u64]>),
    /// A structure of integers, row by row.
    Parts { cells: &'a [i64], names: &'a [Option<String>] },
    /// Lists of the lengths, -1 for null, of items that follow one another.
    Lists { lengths: &'a [i64], items: Box<Values<'a>> },
}

/// A column of a piece of rows.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its cells.
    pub values: Values<'a>,
}

impl Cells<'_> {
    /// Number of cells.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self {
            Self::I64(cells) => cells.len(),
            Self::U64(cells) => cells.len(),
            Self::U32(cells) => cells.len(),
            Self::U16(cells) => cells.len(),
            Self::U8(cells) => cells.len(),
            Self::Bool(cells) => cells.len(),
            Self::F64(cells) => cells.len(),
        }
    }

    /// Whether all cells are the same; false where they are not numbers.
    fn are_same(&self) -> bool {
        match self {
            Self::I64(cells) => are_same(cells),
            Self::U64(cells) => are_same(cells),
            Self::U32(cells) => are_same(cells),
            Self::U16(cells) => are_same(cells),
            Self::U8(cells) => are_same(cells),
            Self::Bool(cells) => are_same(cells),
            Self::F64(cells) => are_same(cells),
        }
    }

    /// A cell as the number of a text; `usize::MAX`, which no text has, for what cannot be one.
    #[inline]
    #[must_use]
    pub fn number(&self, row: usize) -> usize {
        match self {
            Self::U32(cells) => cells.get(row).map_or(usize::MAX, |&cell| cell as usize),
            Self::U16(cells) => cells.get(row).map_or(usize::MAX, |&cell| usize::from(cell)),
            Self::U8(cells) => cells.get(row).map_or(usize::MAX, |&cell| usize::from(cell)),
            Self::I64(cells) => cells.get(row).and_then(|&cell| usize::try_from(cell).ok()).unwrap_or(usize::MAX),
            _ => usize::MAX,
        }
    }
}

impl Values<'_> {
    /// Number of rows; `None` where cells differ in number.
    pub fn rows(&self) -> Option<usize> {
        match self {
            Self::Plain(cells, _) | Self::Texts { cells, .. } => Some(cells.rows()),
            Self::Hex(words) => {
                let rows = words.first()?.len();
                words.iter().all(|word| word.len() == rows).then_some(rows)
            }
            Self::Parts { cells, names } => {
                let rows = cells.len().checked_div(names.len())?;
                (rows * names.len() == cells.len()).then_some(rows)
            }
            Self::Lists { lengths, items } => {
                let items_needed = lengths.iter().try_fold(0_usize, |sum, &length| {
                    if length < -1 { None } else { sum.checked_add(usize::try_from(length).unwrap_or(0)) }
                });
                (items_needed? == items.rows()?).then_some(lengths.len())
            }
        }
    }
}

fn are_same<T: PartialEq>(cells: &[T]) -> bool {
    cells.first().is_none_or(|first| cells.iter().all(|cell| cell == first))
}

/// Number of rows of a piece; `None` where its columns differ.
pub fn count_rows(columns: &[Column<'_>]) -> Option<usize> {
    let rows = columns.first().map_or(Some(0), |column| column.values.rows())?;
    columns.iter().all(|column| column.values.rows() == Some(rows)).then_some(rows)
}

#[cfg(test)]
mod tests;
