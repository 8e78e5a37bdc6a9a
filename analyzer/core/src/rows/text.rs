//! CSV (RFC 4180) and JSON lines. In CSV null is an empty cell and an empty text is `""`.

use super::{Cells, Column, Values, are_same};

/// A format of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A structure is a column for each part.
    Csv,
    /// One object per row.
    Json,
}

impl Style {
    fn null(self) -> &'static [u8] {
        if self == Self::Json { b"null" } else { b"" }
    }

    fn quote(self, text: &str) -> Vec<u8> {
        match self {
            Self::Json => quote_json(text),
            Self::Csv if text.is_empty() || text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\"")).into_bytes()
            }
            Self::Csv => text.as_bytes().to_vec(),
        }
    }
}

fn quote_json(text: &str) -> Vec<u8> {
    // a text always has a form in JSON
    serde_json::to_vec(text).unwrap_or_default()
}

/// Writes the names of the columns as the first line of CSV.
pub fn write_header(columns: &[Column<'_>], out: &mut Vec<u8>) {
    let mut names = Vec::new();
    for column in columns {
        match &column.values {
            Values::Parts { names: parts, .. } => {
                names.extend(parts.iter().flatten().map(|part| format!("{}_{part}", column.name)));
            }
            _ => names.push(column.name.to_owned()),
        }
    }
    let quoted: Vec<_> = names.iter().map(|name| Style::Csv.quote(name)).collect();
    out.extend_from_slice(&quoted.join(&b','));
    out.push(b'\n');
}

/// Writes rows. Lists have no form here: they are left empty.
pub fn write(columns: &[Column<'_>], rows: usize, style: Style, out: &mut Vec<u8>) {
    let mut line = Line { fields: Vec::new(), text: Vec::new(), null: style.null() };
    for (at, column) in columns.iter().enumerate() {
        line.add_column(column, at == 0, style);
    }
    line.text.extend_from_slice(if style == Style::Json { b"}\n" } else { b"\n" });
    for row in 0..rows {
        for Field { before, cells } in &line.fields {
            write_short(before, out);
            cells.write(row, line.null, out);
        }
        write_short(&line.text, out);
    }
}

/// What a line consists of. A column whose cells are all the same is text like what is between columns.
struct Line<'a> {
    fields: Vec<Field<'a>>,
    /// What is behind the last field.
    text: Vec<u8>,
    null: &'static [u8],
}

/// Cells that differ, with the text before each.
struct Field<'a> {
    before: Vec<u8>,
    cells: Content<'a>,
}

enum Content<'a> {
    Plain(Cells<'a>, Option<i64>),
    Texts(Cells<'a>, Vec<Option<Vec<u8>>>),
    Hex(&'a [&'a [u64]], &'static [u8]),
    /// One of so many parts.
    Part {
        cells: &'a [i64],
        part: usize,
        parts: usize,
    },
    Nothing,
}

impl<'a> Line<'a> {
    fn add_column(&mut self, column: &'a Column<'a>, is_first: bool, style: Style) {
        let is_json = style == Style::Json;
        match style {
            Style::Json => {
                self.text.push(if is_first { b'{' } else { b',' });
                self.text.extend([quote_json(column.name).as_slice(), b":"].concat());
            }
            Style::Csv if is_first => {}
            Style::Csv => self.text.push(b','),
        }
        match &column.values {
            Values::Plain(cells, null) => self.add(Content::Plain(*cells, *null), cells.are_same()),
            Values::Texts { cells, texts, .. } => {
                let texts = texts.iter().map(|text| text.as_ref().map(|text| style.quote(text))).collect();
                self.add(Content::Texts(*cells, texts), cells.are_same());
            }
            Values::Hex(words) => {
                let are_same = words.iter().all(|word| are_same(word));
                self.add(Content::Hex(words, if is_json { b"\"" } else { b"" }), are_same);
            }
            Values::Parts { cells, names } => {
                if is_json {
                    self.text.push(b'{');
                }
                let differ = list_differing(cells, names.len());
                for (part, (name, differ)) in names.iter().zip(differ).enumerate() {
                    if part > 0 {
                        self.text.push(b',');
                    }
                    if let Some(name) = name.as_deref().filter(|_| is_json) {
                        self.text.extend([&*quote_json(name), b":"].concat());
                    }
                    self.add(Content::Part { cells, part, parts: names.len() }, !differ);
                }
                if is_json {
                    self.text.push(b'}');
                }
            }
            Values::Lists { .. } => self.add(Content::Nothing, true),
        }
    }

    fn add(&mut self, cells: Content<'a>, are_same: bool) {
        if are_same {
            cells.write(0, self.null, &mut self.text);
        } else {
            self.fields.push(Field { before: std::mem::take(&mut self.text), cells });
        }
    }
}

/// Which parts differ between rows.
fn list_differing(cells: &[i64], parts: usize) -> Vec<bool> {
    let mut differ = vec![false; parts];
    let first = cells.get(..parts).unwrap_or_default();
    for row in cells.chunks_exact(parts.max(1)) {
        for (differs, (cell, first)) in differ.iter_mut().zip(row.iter().zip(first)) {
            *differs |= cell != first;
        }
    }
    differ
}

impl Content<'_> {
    #[inline]
    fn write(&self, row: usize, null: &[u8], out: &mut Vec<u8>) {
        let is_written = match self {
            Self::Plain(cells, null) => write_plain(cells, *null, row, out),
            Self::Texts(cells, texts) => {
                let text = texts.get(cells.number(row)).and_then(Option::as_ref);
                text.map(|text| out.extend_from_slice(text)).is_some()
            }
            Self::Hex(words, quote) => write_hex(words, quote, row, out),
            Self::Part { cells, part, parts } => {
                cells.get(row * parts + part).map(|&cell| write_integer(cell, out)).is_some()
            }
            Self::Nothing => false,
        };
        if !is_written {
            out.extend_from_slice(null);
        }
    }
}

/// Writes a cell unless it is null.
#[inline]
fn write_plain(cells: &Cells<'_>, null: Option<i64>, row: usize, out: &mut Vec<u8>) -> bool {
    macro_rules! integers {
        ($($kind:ident),*) => {
            match cells {
                $(Cells::$kind(cells) => match cells.get(row) {
                    Some(&cell) if null.is_none_or(|null| i64::try_from(cell) != Ok(null)) => write_integer(cell, out),
                    _ => return false,
                },)*
                Cells::Bool(cells) => {
                    out.extend_from_slice(if cells.get(row) == Some(&true) { b"true" } else { b"false" });
                }
                Cells::F64(cells) => match cells.get(row) {
                    // writing to memory does not fail
                    Some(cell) if !cell.is_nan() => drop(serde_json::to_writer(out, cell)),
                    _ => return false,
                },
            }
        };
    }
    integers!(I64, U64, U32, U16, U8);
    true
}

/// Writes what is a comma as a rule, for which copying would cost a call.
#[inline]
fn write_short(text: &[u8], out: &mut Vec<u8>) {
    match text {
        &[octet] => out.push(octet),
        _ => out.extend_from_slice(text),
    }
}

/// Writes an integer; most have one digit.
#[inline]
fn write_integer(cell: impl itoa::Integer + TryInto<u64> + Copy, out: &mut Vec<u8>) {
    match cell.try_into() {
        Ok(digit @ 0..=9) => out.push(b'0' + digit as u8),
        Ok(number) => write_digits(number, out),
        Err(_) => out.extend_from_slice(itoa::Buffer::new().format(cell).as_bytes()),
    }
}

/// Digits of the numbers below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Most digits of an integer.
const MOST_DIGITS: usize = 20;

/// Writes digits behind one another at once: a copy of constant length needs no call.
#[inline]
fn write_digits(number: u64, out: &mut Vec<u8>) {
    let digits = number.checked_ilog10().map_or(1, |power| power as usize + 1);
    let mut text = [0; MOST_DIGITS];
    let (mut rest, mut at) = (number, digits);
    while at >= 2 {
        at -= 2;
        text[at..at + 2].copy_from_slice(&PAIRS[(rest % 100) as usize]);
        rest /= 100;
    }
    if at == 1 {
        text[0] = b'0' + rest as u8;
    }
    let end = out.len() + digits;
    out.extend_from_slice(&text);
    out.truncate(end);
}

/// Writes an identifier unless it is null.
#[inline]
fn write_hex(words: &[&[u64]], quote: &[u8], row: usize, out: &mut Vec<u8>) -> bool {
    if words.iter().all(|word| word.get(row).is_none_or(|&word| word == 0)) {
        return false;
    }
    out.extend_from_slice(quote);
    out.extend_from_slice(format_hex(words, row).as_bytes());
    out.extend_from_slice(quote);
    true
}

/// An identifier in hexadecimal.
#[must_use]
pub fn format_hex(words: &[&[u64]], row: usize) -> String {
    words.iter().filter_map(|word| word.get(row)).map(|word| format!("{word:016x}")).collect()
}
