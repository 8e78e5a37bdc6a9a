//! Rows written as Parquet, with the types of Arrow in the file's metadata.
//!
//! A crate of its own, because Arrow and Parquet take longer to compile than the core, which does not wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::StringViewBuilder;
use arrow_array::types::{ArrowDictionaryKeyType, ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type};
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, LargeListArray, PrimitiveArray, RecordBatch, StringArray,
    StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use grpcdiag_core::rows::text::format_hex;
use grpcdiag_core::rows::{Cells, Column, Values};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, GzipLevel, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

/// Rows of a row group; readers can skip a whole group.
const ROW_GROUP: usize = 50_000;
/// Higher levels of gzip take more time and save little here.
const LEVEL: u32 = 3;
/// Where polars looks for the texts of an enum.
const POLARS_ENUM: &str = "_PL_ENUM_VALUES2";

/// Texts by name, of a file or of a column.
pub type Metadata = HashMap<String, String>;

/// Writes a file piece by piece; the first piece decides on names and types.
#[derive(Debug, Default)]
pub struct Writer {
    metadata: Vec<(String, String)>,
    /// By name of the column.
    fields: HashMap<String, Metadata>,
    file: Option<(Arc<Schema>, ArrowWriter<Vec<u8>>)>,
}

impl Writer {
    /// A file with metadata, its own and that of its columns.
    pub fn new(metadata: Vec<(String, String)>, fields: HashMap<String, Metadata>) -> Self {
        Self { metadata, fields, file: None }
    }

    /// Takes rows, and gives the bytes that are complete. Fails where the columns are not those of the first piece.
    pub fn write(&mut self, columns: &[Column<'_>]) -> Result<Vec<u8>, ParquetError> {
        let mut fields = Vec::new();
        let mut arrays = Vec::new();
        for column in columns {
            let (kind, array) = build(&column.values)?;
            let mut metadata = self.fields.get(column.name).cloned().unwrap_or_default();
            if let Values::Texts { texts, is_enum: true, .. } = &column.values {
                let listed = texts.iter().flatten().map(|text| format!("{};{text}", text.len())).collect();
                metadata.insert(POLARS_ENUM.to_owned(), listed);
            }
            let field = Field::new(column.name, kind, true).with_dict_is_ordered(true).with_metadata(metadata);
            fields.push(field);
            arrays.push(array);
        }
        let (schema, file) = match &mut self.file {
            Some(file) => file,
            None => {
                let schema = Arc::new(Schema::new(fields));
                let options = Some(properties(&self.metadata, &schema)?);
                let file = ArrowWriter::try_new(Vec::new(), Arc::clone(&schema), options)?;
                self.file.insert((schema, file))
            }
        };
        file.write(&RecordBatch::try_new(Arc::clone(schema), arrays)?)?;
        Ok(std::mem::take(file.inner_mut()))
    }

    /// Gives the rest of the file; nothing if there was no piece.
    pub fn finish(&mut self) -> Result<Vec<u8>, ParquetError> {
        self.file.take().map_or(Ok(Vec::new()), |(_, file)| file.into_inner())
    }
}

/// Integers are written as differences, which makes files a quarter as large as dictionaries do, in a third of the time:
/// times and numbers of packets hardly ever repeat, and grow.
fn properties(metadata: &[(String, String)], schema: &Schema) -> Result<WriterProperties, ParquetError> {
    let metadata = metadata.iter().map(|(name, text)| KeyValue::new(name.clone(), text.clone())).collect();
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::GZIP(GzipLevel::try_new(LEVEL)?))
        .set_max_row_group_row_count(Some(ROW_GROUP))
        .set_key_value_metadata(Some(metadata));
    for column in ArrowSchemaConverter::new().convert(schema)?.columns() {
        if matches!(column.physical_type(), Type::INT32 | Type::INT64) {
            properties = properties
                .set_column_dictionary_enabled(column.path().clone(), false)
                .set_column_encoding(column.path().clone(), Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties.build())
}

/// The type of a column and its cells as Arrow has them.
fn build(values: &Values<'_>) -> Result<(DataType, ArrayRef), ArrowError> {
    let array: ArrayRef = match values {
        Values::Plain(cells, null) => build_plain(cells, *null),
        Values::Texts { cells, texts, is_enum: true } => build_enum(cells, texts)?,
        Values::Texts { cells, texts, .. } => {
            let mut builder = StringViewBuilder::with_capacity(cells.rows()).with_deduplicate_strings();
            for row in 0..cells.rows() {
                builder.append_option(texts.get(cells.number(row)).and_then(Option::as_ref));
            }
            Arc::new(builder.finish())
        }
        Values::Hex(words) => {
            let rows = words.first().map_or(0, |word| word.len());
            let mut builder = StringViewBuilder::with_capacity(rows);
            for row in 0..rows {
                let is_known = words.iter().any(|word| word.get(row).is_some_and(|&word| word != 0));
                builder.append_option(is_known.then(|| format_hex(words, row)));
            }
            Arc::new(builder.finish())
        }
        Values::Parts { cells, names } => build_parts(cells, names)?,
        Values::Lists { lengths, items } => {
            let (kind, items) = build(items)?;
            let known = NullBuffer::from_iter(lengths.iter().map(|&length| length >= 0));
            let lengths = lengths.iter().map(|&length| usize::try_from(length).unwrap_or(0));
            let element = Arc::new(Field::new("element", kind, true));
            Arc::new(LargeListArray::try_new(element, OffsetBuffer::from_lengths(lengths), items, Some(known))?)
        }
    };
    Ok((array.data_type().clone(), array))
}

fn build_plain(cells: &Cells<'_>, null: Option<i64>) -> ArrayRef {
    match cells {
        Cells::I64(cells) => build_integers::<Int64Type>(cells, null),
        Cells::U64(cells) => build_integers::<UInt64Type>(cells, null),
        Cells::U32(cells) => build_integers::<UInt32Type>(cells, null),
        Cells::U16(cells) => build_integers::<UInt16Type>(cells, null),
        Cells::U8(cells) => build_integers::<UInt8Type>(cells, null),
        Cells::Bool(cells) => Arc::new(BooleanArray::from(cells.to_vec())),
        Cells::F64(cells) => {
            Arc::new(Float64Array::from_iter(cells.iter().map(|&cell| Some(cell).filter(|cell| !cell.is_nan()))))
        }
    }
}

fn build_integers<T: ArrowPrimitiveType>(cells: &[T::Native], null: Option<i64>) -> ArrayRef
where
    T::Native: TryInto<i64>,
{
    let known = null.map(|null| cells.iter().map(|&cell| cell.try_into().ok() != Some(null)).collect());
    Arc::new(PrimitiveArray::<T>::new(cells.to_vec().into(), known))
}

/// The smallest type of numbers that has room for all texts, as polars chooses it.
fn build_enum(cells: &Cells<'_>, texts: &[Option<String>]) -> Result<ArrayRef, ArrowError> {
    match texts.len() {
        0..=255 => build_dictionary::<UInt8Type>(cells, texts),
        256..=65_535 => build_dictionary::<UInt16Type>(cells, texts),
        _ => build_dictionary::<UInt32Type>(cells, texts),
    }
}

fn build_dictionary<T: ArrowDictionaryKeyType>(
    cells: &Cells<'_>,
    texts: &[Option<String>],
) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<usize>,
{
    let key = |row| Some(cells.number(row)).filter(|&number| number < texts.len())?.try_into().ok();
    let keys: PrimitiveArray<T> = (0..cells.rows()).map(key).collect();
    Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(StringArray::from_iter(texts)))?))
}

fn build_parts(cells: &[i64], names: &[Option<String>]) -> Result<ArrayRef, ArrowError> {
    let name = |name: &Option<String>| Field::new(name.as_deref().unwrap_or_default(), DataType::Int64, true);
    let fields: Fields = names.iter().map(name).collect();
    let column = |part: usize| -> ArrayRef {
        let cells: Vec<i64> = cells.iter().skip(part).step_by(names.len()).copied().collect();
        Arc::new(PrimitiveArray::<Int64Type>::new(cells.into(), None))
    };
    Ok(Arc::new(StructArray::try_new(fields, (0..names.len()).map(column).collect(), None)?))
}

#[cfg(test)]
mod tests;
