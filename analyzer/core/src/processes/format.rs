//! Where the fields of the kernel's trace events are: tracefs describes each event in a file `format`.

use crate::limits;

/// A field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, without an array's length.
    pub name: String,
    /// First byte, from the event's begin.
    pub offset: usize,
    /// Bytes; of a `__data_loc` those of the reference.
    pub size: usize,
    /// It is an address of the kernel.
    pub is_pointer: bool,
    /// Its text lies elsewhere in the event.
    pub is_located: bool,
}

/// The layout of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// The event's name.
    pub name: String,
    /// The number that its records begin with.
    pub id: u16,
    /// All fields, common ones too.
    pub fields: Vec<Field>,
}

impl Format {
    /// Reads a `format` file; `None` if it has no name, number or fields.
    pub fn parse(text: &str) -> Option<Self> {
        let mut format = Self::default();
        for line in text.lines().map(str::trim).take(limits::TRACE_FORMAT_LINES) {
            if let Some(name) = line.strip_prefix("name:") {
                name.trim().clone_into(&mut format.name);
            } else if let Some(id) = line.strip_prefix("ID:") {
                format.id = id.trim().parse().ok()?;
            } else if let Some(field) = line.strip_prefix("field:") {
                format.fields.push(parse_field(field)?);
            }
        }
        (!format.name.is_empty() && format.id != 0 && !format.fields.is_empty()).then_some(format)
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// Reads `pid_t prev_pid; offset:24; size:4; signed:1;`.
fn parse_field(text: &str) -> Option<Field> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut numbers = parts.filter_map(|part| part.split_once(':'));
    let mut number = |name| numbers.by_ref().find(|(key, _)| *key == name)?.1.parse::<usize>().ok();
    let (offset, size) = (number("offset")?, number("size")?);
    let (kind, name) = declaration.rsplit_once(' ')?;
    let name = name.split('[').next()?.trim_start_matches('*').to_owned();
    let is_pointer = declaration.contains('*') && size == 8;
    let within = offset.checked_add(size)? <= limits::TRACE_EVENT_BYTES;
    within.then_some(Field { name, offset, size, is_pointer, is_located: kind.contains("__data_loc") })
}

/// Reads a little-endian number of up to eight bytes; `None` beyond the event's end.
pub fn read_number(event: &[u8], field: &Field) -> Option<u64> {
    let bytes = event.get(field.offset..field.offset + field.size.min(8))?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
