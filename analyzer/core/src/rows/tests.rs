use super::text::{self, Style, write_header};
use super::*;

fn texts(texts: &[Option<&str>]) -> Vec<Option<String>> {
    texts.iter().map(|text| text.map(str::to_owned)).collect()
}

fn write_all(columns: &[Column<'_>], style: Style) -> String {
    let mut out = Vec::new();
    if style == Style::Csv {
        write_header(columns, &mut out);
    }
    text::write(columns, count_rows(columns).expect("equal lengths"), style, &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn csv_quotes_what_would_end_a_cell_and_tells_null_from_an_empty_text() {
    let texts = texts(&[Some(""), Some("a,b"), Some("say \"b\""), Some("two\nlines"), Some("é"), None]);
    let values = Values::Texts { cells: Cells::U8(&[0, 1, 2, 3, 4, 5, 6]), texts: &texts, is_enum: false };
    let columns = [Column { name: "a,b", values }];
    let expected = "\"a,b\"\n\"\"\n\"a,b\"\n\"say \"\"b\"\"\"\n\"two\nlines\"\né\n\n\n";
    assert_eq!(write_all(&columns, Style::Csv), expected);
}

#[test]
fn json_has_the_same_rows_with_structures_as_objects() {
    let names = texts(&[Some("client"), Some("server")]);
    let columns = [
        Column { name: "n", values: Values::Plain(Cells::I64(&[i64::MIN, -1]), Some(-1)) },
        Column { name: "ok", values: Values::Plain(Cells::Bool(&[true, false]), None) },
        Column { name: "share", values: Values::Plain(Cells::F64(&[0.00005, f64::NAN]), None) },
        Column { name: "id", values: Values::Hex(vec![&[0, 0], &[0xab, 0]]) },
        Column { name: "budget", values: Values::Parts { cells: &[1, 2, 3, 4], names: &names } },
    ];
    let json = "{\"n\":-9223372036854775808,\"ok\":true,\"share\":0.00005,\"id\":\"000000000000000000000000000000ab\",\
                \"budget\":{\"client\":1,\"server\":2}}\n\
                {\"n\":null,\"ok\":false,\"share\":null,\"id\":null,\"budget\":{\"client\":3,\"server\":4}}\n";
    assert_eq!(write_all(&columns, Style::Json), json);
    let csv = "n,ok,share,id,budget_client,budget_server\n\
               -9223372036854775808,true,0.00005,000000000000000000000000000000ab,1,2\n,false,,,3,4\n";
    assert_eq!(write_all(&columns, Style::Csv), csv);
}

#[test]
fn rows_are_the_same_whether_their_cells_are() {
    let (names, texts) = (texts(&[Some("a"), Some("b"), Some("c")]), texts(&[Some("OK"), None]));
    let one = |row: usize, rows: usize| -> Vec<Column<'_>> {
        let cells: &[i64] = &[7, 0, 1, 7, 0, 2, 7, 0, 0];
        let of_row = row..row + rows;
        vec![
            Column { name: "same", values: Values::Plain(Cells::U8(&[3, 3, 3][of_row.clone()]), Some(9)) },
            Column { name: "nulls", values: Values::Plain(Cells::I64(&[-1, -1, -1][of_row.clone()]), Some(-1)) },
            Column { name: "differ", values: Values::Plain(Cells::U32(&[30, 4, 30][of_row.clone()]), None) },
            Column { name: "ids", values: Values::Hex(vec![&[1, 1, 1][of_row.clone()], &[0, 0, 5][of_row.clone()]]) },
            Column { name: "parts", values: Values::Parts { cells: &cells[3 * row..3 * (row + rows)], names: &names } },
            Column {
                name: "text",
                values: Values::Texts { cells: Cells::U8(&[0, 0, 1][of_row]), texts: &texts, is_enum: true },
            },
        ]
    };
    for style in [Style::Csv, Style::Json] {
        let mut apart = Vec::new();
        (0..3).for_each(|row| text::write(&one(row, 1), 1, style, &mut apart));
        let mut together = Vec::new();
        text::write(&one(0, 3), 3, style, &mut together);
        assert_eq!(String::from_utf8(together), String::from_utf8(apart));
    }
}

#[test]
fn integers_have_all_of_their_digits() {
    let mut numbers = vec![0, 9, 10, 99, 100, 101, u64::MAX];
    numbers.extend((1..20).flat_map(|power| [10_u64.pow(power) - 1, 10_u64.pow(power), 7 * 10_u64.pow(power - 1)]));
    let columns = [Column { name: "n", values: Values::Plain(Cells::U64(&numbers), None) }];
    let lines: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    assert_eq!(write_all(&columns, Style::Csv), format!("n\n{}\n", lines.join("\n")));
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let (short, long) = (Values::Plain(Cells::U8(&[1]), None), Values::Plain(Cells::U8(&[1, 2]), None));
    let columns = [Column { name: "a", values: short }, Column { name: "b", values: long }];
    assert_eq!(count_rows(&columns), None);
    let items = Box::new(Values::Plain(Cells::U8(&[1]), None));
    for lengths in [&[2_i64] as &[i64], &[-2], &[i64::MAX, i64::MAX, 3]] {
        assert_eq!(Values::Lists { lengths, items: items.clone() }.rows(), None);
    }
    assert_eq!(Values::Parts { cells: &[1], names: &[] }.rows(), None);
    assert_eq!(Values::Hex(Vec::new()).rows(), None);
    assert_eq!(Values::Hex(vec![&[1], &[]]).rows(), None);
}
