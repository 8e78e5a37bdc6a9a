//! Rows that Python gives as columns, written.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use grpcdiag_core::rows::text::{self, Style};
use grpcdiag_core::rows::{Cells, Column, Values, count_rows};
#[cfg(feature = "parquet")]
use grpcdiag_parquet::Writer;

#[cfg(not(feature = "parquet"))]
use crate::without_parquet::Writer;

/// What this build has of what can be left out.
pub(super) const FEATURES: &[&str] = if cfg!(feature = "parquet") { &["parquet"] } else { &[] };

/// Texts by name, of a column.
type Metadata = HashMap<String, String>;

/// Writes a table piece by piece; see `rows`.
#[pyclass(module = "grpcdiag.analyzer._core")]
pub(super) struct RowWriter {
    inner: Mutex<Format>,
}

enum Format {
    /// The next piece needs some bytes more than the last one.
    Text {
        style: Style,
        has_header: bool,
        bytes: usize,
    },
    Parquet(Box<Writer>),
}

#[derive(FromPyObject)]
enum Array<'py> {
    I64(PyReadonlyArray1<'py, i64>),
    U64(PyReadonlyArray1<'py, u64>),
    U32(PyReadonlyArray1<'py, u32>),
    U16(PyReadonlyArray1<'py, u16>),
    U8(PyReadonlyArray1<'py, u8>),
    Bool(PyReadonlyArray1<'py, bool>),
    F64(PyReadonlyArray1<'py, f64>),
}

#[derive(FromPyObject)]
enum Data<'py> {
    Cells(Array<'py>),
    Parts(PyReadonlyArray2<'py, i64>),
    Hex(Vec<PyReadonlyArray1<'py, u64>>),
    Lists(PyReadonlyArray1<'py, i64>, Array<'py>),
}

/// Name; cells; texts or names of parts; whether the texts are an enum; the number that means null.
#[derive(FromPyObject)]
struct Given<'py>(String, Data<'py>, Option<Vec<Option<String>>>, bool, Option<i64>);

#[pymethods]
impl RowWriter {
    /// `format` is csv, jsonl or, in a build with that feature, parquet. Raises ValueError for another one.
    #[new]
    #[pyo3(signature = (format, metadata=Vec::new(), fields=HashMap::new()))]
    fn new(format: &str, metadata: Vec<(String, String)>, fields: HashMap<String, Metadata>) -> PyResult<Self> {
        let format = match format {
            "csv" => Format::Text { style: Style::Csv, has_header: true, bytes: 0 },
            "jsonl" => Format::Text { style: Style::Json, has_header: false, bytes: 0 },
            "parquet" => Format::Parquet(Box::new(Writer::new(metadata, fields))),
            _ => return Err(PyValueError::new_err(format!("rows cannot be written as {format:?}"))),
        };
        Ok(Self { inner: Mutex::new(format) })
    }

    /// Takes rows, and gives the bytes that are complete: as an array, for which they are not copied. Raises ValueError for
    /// columns that do not fit.
    fn write<'py>(&self, py: Python<'py>, columns: Vec<Given<'py>>) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let columns: Vec<Column<'_>> = columns.iter().map(borrow).collect::<PyResult<_>>()?;
        let rows = count_rows(&columns).ok_or_else(|| PyValueError::new_err("columns differ in length"))?;
        let bytes = py.detach(|| match &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner) {
            Format::Text { style, has_header, bytes } => {
                let mut out = Vec::with_capacity(*bytes);
                if std::mem::take(has_header) {
                    text::write_header(&columns, &mut out);
                }
                text::write(&columns, rows, *style, &mut out);
                *bytes = out.len() + out.len() / 8;
                Ok(out)
            }
            Format::Parquet(writer) => writer.write(&columns).map_err(|error| error.to_string()),
        });
        Ok(bytes.map_err(PyValueError::new_err)?.into_pyarray(py))
    }

    /// Gives the bytes that come last.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| match &mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner) {
            Format::Text { .. } => Ok(Vec::new()),
            Format::Parquet(writer) => writer.finish().map_err(|error| error.to_string()),
        });
        Ok(PyBytes::new(py, &bytes.map_err(PyValueError::new_err)?))
    }
}

fn borrow<'a>(Given(name, data, texts, is_enum, null): &'a Given<'_>) -> PyResult<Column<'a>> {
    let values = match (data, texts) {
        (Data::Cells(array), texts) => values_of(array, texts.as_deref(), *is_enum, *null)?,
        (Data::Parts(cells), Some(names)) => Values::Parts { cells: cells.as_slice()?, names },
        (Data::Parts(_), None) => return Err(PyValueError::new_err("parts without names")),
        (Data::Hex(words), _) => Values::Hex(words.iter().map(|word| word.as_slice()).collect::<Result<_, _>>()?),
        (Data::Lists(lengths, items), texts) => Values::Lists {
            lengths: lengths.as_slice()?,
            items: Box::new(values_of(items, texts.as_deref(), *is_enum, *null)?),
        },
    };
    Ok(Column { name, values })
}

fn values_of<'a>(
    array: &'a Array<'_>,
    texts: Option<&'a [Option<String>]>,
    is_enum: bool,
    null: Option<i64>,
) -> PyResult<Values<'a>> {
    let cells = match array {
        Array::I64(cells) => Cells::I64(cells.as_slice()?),
        Array::U64(cells) => Cells::U64(cells.as_slice()?),
        Array::U32(cells) => Cells::U32(cells.as_slice()?),
        Array::U16(cells) => Cells::U16(cells.as_slice()?),
        Array::U8(cells) => Cells::U8(cells.as_slice()?),
        Array::Bool(cells) => Cells::Bool(cells.as_slice()?),
        Array::F64(cells) => Cells::F64(cells.as_slice()?),
    };
    Ok(texts.map_or(Values::Plain(cells, null), |texts| Values::Texts { cells, texts, is_enum }))
}
