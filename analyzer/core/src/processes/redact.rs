//! Removes from trace pages what is not the caller's: names of threads that may be others', and addresses of the kernel.

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use foldhash::HashMap;
use ring::digest::{SHA256, digest};

use super::format::{Field, Format};
use super::page::{Records, used};
use crate::limits;

/// Events that are recorded of all threads, or name threads of others.
const FOREIGN: [&str; 3] = ["sched_switch", "sched_waking", "sched_wakeup"];

/// Rewrites pages as they come.
pub struct Redactor {
    formats: Vec<Format>,
    key: [u8; 32],
    hashes: HashMap<u64, u64>,
}

impl Redactor {
    /// `key` is random and forgotten at the end of the recording.
    pub fn new(formats: Vec<Format>, key: [u8; 32]) -> Self {
        Self { formats, key, hashes: HashMap::default() }
    }

    /// Makes one compressed block of pages, each redacted and behind its length.
    pub fn compress(&mut self, pages: &mut [Vec<u8>]) -> Vec<u8> {
        let mut block = Vec::new();
        for page in pages {
            let page = self.redact(page);
            block.extend_from_slice(&(page.len() as u32).to_le_bytes());
            block.extend_from_slice(page);
        }
        compress_to_vec(block.as_slice(), CompressionLevel::Fastest)
    }

    /// Redacts a page and gives the bytes of it that are used; nothing of what is no page.
    pub fn redact<'a>(&mut self, page: &'a mut [u8]) -> &'a [u8] {
        let events: Vec<_> = Records::new(page).map(|(_, place)| place).collect();
        let end = events.last().map_or(used(page).unwrap_or(0).min(super::page::HEADER), |place| place.end);
        for place in events {
            let Some(event) = page.get_mut(place) else { continue };
            let id = event.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
            match self.formats.iter().position(|format| Some(format.id) == id) {
                Some(known) => self.redact_event(known, event),
                None => event.iter_mut().skip(2).for_each(|byte| *byte = 0),
            }
        }
        page.get(..end).unwrap_or_default()
    }

    fn redact_event(&mut self, known: usize, event: &mut [u8]) {
        let Self { formats, key, hashes } = self;
        let Some(format) = formats.get(known) else { return };
        let is_foreign = FOREIGN.contains(&format.name.as_str());
        for field in &format.fields {
            let Some(bytes) = event.get_mut(field.offset..field.offset + field.size) else { continue };
            if field.is_pointer {
                let Some(pointer) = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { continue };
                bytes.copy_from_slice(&hash(hashes, key, pointer).to_le_bytes());
            } else if is_foreign && field.name.ends_with("comm") {
                clear_text(event, field);
            }
        }
    }
}

/// Removes a text, which may lie elsewhere in the event: its reference holds offset and length.
fn clear_text(event: &mut [u8], field: &Field) {
    let mut place = field.offset..field.offset + field.size;
    if field.is_located {
        let Some(reference) = super::format::read_number(event, field) else { return };
        let start = (reference & 0xffff) as usize;
        place = start..start + (reference >> 16 & 0xffff) as usize;
    }
    let place = place.start.min(event.len())..place.end.min(event.len());
    event.get_mut(place).unwrap_or_default().fill(0);
}

fn hash(known: &mut HashMap<u64, u64>, key: &[u8; 32], pointer: u64) -> u64 {
    if known.len() >= limits::TRACE_SOCKETS {
        known.clear();
    }
    *known.entry(pointer).or_insert_with(|| {
        let digest = digest(&SHA256, &[&key[..], &pointer.to_le_bytes()].concat());
        digest.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    })
}
