use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt32Type};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;

fn texts(texts: &[Option<&str>]) -> Vec<Option<String>> {
    texts.iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn parquet_holds_types_nulls_and_metadata_of_all_pieces() {
    let (kinds, names) = (texts(&[Some("DATA"), Some("PING")]), texts(&[Some("client")]));
    let piece = |numbers: &'static [u32]| {
        let lengths: &[i64] = &[2, -1];
        let items = Box::new(Values::Plain(Cells::U32(&[7, 8]), None));
        let mut out = vec![Column { name: "n", values: Values::Plain(Cells::U32(numbers), Some(0)) }];
        out.push(Column { name: "list", values: Values::Lists { lengths, items } });
        out
    };
    let fields = [("n".to_owned(), Metadata::from([("unit".to_owned(), "bytes".to_owned())]))].into();
    let mut writer = Writer::new(vec![("k".to_owned(), "v".to_owned())], fields);
    let mut file = Vec::new();
    for numbers in [&[0_u32, 5] as &[u32], &[6, 0]] {
        let mut columns = piece(if numbers[0] == 0 { &[0, 5] } else { &[6, 0] });
        let cells = Cells::U8(&[1, 2]);
        columns.push(Column { name: "kind", values: Values::Texts { cells, texts: &kinds, is_enum: true } });
        columns.push(Column { name: "budget", values: Values::Parts { cells: &[1, 2], names: &names } });
        file.extend(writer.write(&columns).expect("columns of the first piece"));
    }
    assert!(writer.write(&piece(&[1, 2])).is_err(), "columns are missing");
    file.extend(writer.finish().expect("the end"));
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).expect("Parquet");
    let schema = reader.schema().clone();
    assert_eq!(schema.field(0).metadata().get("unit").map(String::as_str), Some("bytes"));
    assert_eq!(schema.field(2).metadata().get("_PL_ENUM_VALUES2").map(String::as_str), Some("4;DATA4;PING"));
    assert!(matches!(schema.field(2).data_type(), DataType::Dictionary(..)));
    let batches: Vec<_> = reader.build().expect("a reader").collect::<Result<_, _>>().expect("rows");
    let numbers: Vec<_> = batches
        .iter()
        .flat_map(|rows| rows.column(0).as_primitive::<UInt32Type>().iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(numbers, [None, Some(5), Some(6), None]);
    let kinds = batches[0].column(2).as_dictionary::<UInt8Type>();
    assert_eq!((kinds.is_valid(0), kinds.is_valid(1)), (true, false));
    let lists = batches[0].column(1).as_list::<i64>();
    assert_eq!((lists.value_length(0), lists.is_valid(1)), (2, false));
}
