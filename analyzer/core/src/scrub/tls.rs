//! TLS: record headers stay, so that it is seen to be TLS, when and how much of it there was. All else is zero: nothing
//! in it can be told from what it protects, and what is in the clear (names of servers, certificates) is not to be shown.

use super::edits::Edits;

const HEADER: usize = 5;
/// The longest record (RFC 5246 section 6.2.3).
const LONGEST: usize = crate::limits::TLS_RECORD_LENGTH;

/// Where one side is in its records.
#[derive(Debug, Default)]
pub(super) struct Records {
    head: [u8; HEADER],
    have: usize,
    /// Octets of the record that are still to come.
    left: u64,
    lost: bool,
}

impl Records {
    /// Takes the next octets, the first of them at `position`.
    pub fn feed(&mut self, position: i64, bytes: &[u8], edits: &mut Edits) {
        let (mut position, mut bytes) = (position, bytes);
        while !bytes.is_empty() && !self.lost {
            let taken = if self.left > 0 {
                bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))
            } else {
                bytes.len().min(HEADER - self.have)
            };
            let part = bytes.get(..taken).unwrap_or_default();
            if self.left > 0 {
                self.left -= taken as u64;
            } else {
                self.header(position, part, edits);
            }
            bytes = bytes.get(taken..).unwrap_or_default();
            position += taken as i64;
        }
    }

    fn header(&mut self, position: i64, part: &[u8], edits: &mut Edits) {
        if let Some(room) = self.head.get_mut(self.have..self.have + part.len()) {
            room.copy_from_slice(part);
        }
        self.have += part.len();
        if self.have < HEADER {
            return;
        }
        let [kind, major, minor, a, b] = self.head;
        let length = usize::from(u16::from_be_bytes([a, b]));
        self.have = 0;
        if !(20..=24).contains(&kind) || major != 3 || minor > 4 || length > LONGEST {
            self.lost = true;
            return;
        }
        self.left = length as u64;
        let end = position + part.len() as i64;
        edits.put(end - HEADER as i64, &self.head);
    }

    /// `length` octets are not in the capture.
    pub fn missing(&mut self, length: u64) {
        match self.left.checked_sub(length) {
            Some(left) if self.left > 0 => self.left = left,
            _ => self.lost = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_records_stay() {
        let data = b"\x16\x03\x01\0\x03abc\x17\x03\x03\0\x01d\x99secret";
        for cut in 0..data.len() {
            let (mut records, mut edits) = (Records::default(), Edits::default());
            let (front, back) = data.split_at(cut);
            records.feed(0, front, &mut edits);
            records.feed(cut as i64, back, &mut edits);
            edits.finish();
            let mut out = vec![b'.'; data.len()];
            edits.apply(0, &mut out);
            assert_eq!(&out, b"\x16\x03\x01\0\x03...\x17\x03\x03\0\x01........", "cut at {cut}");
        }
    }
}
