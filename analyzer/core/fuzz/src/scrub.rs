//! A capture written anew: as many packets, as long, at the same times, and nothing of what a payload said.

use grpcdiag_core::packet::{Dissector, Outcome};
use grpcdiag_core::scrub::{Scrub, Wishes};

use super::input;
use super::support::{Recorded, memory, packets, pcap};

/// A text that no protocol has.
const CANARY: &[u8; 24] = b"kQ9xZv7WjH4tYb2NfR6mXc8L";
/// Octets of it that no scrubbed capture has in a row. Where it stands over a frame's own fields, those are all that is
/// there: a stream, a pad length, a dependency, a weight, and before a header block's first string an index and a length
/// (4 + 1 + 4 + 1 + 1 + 1).
const WINDOW: usize = 13;

/// An input is two octets that say where the canary goes, and a file.
pub fn run(data: &[u8]) {
    let Some((place, file)) = data.split_first_chunk::<2>() else { return };
    let Some(first) = scrubbed(file.to_vec(), Wishes::default()) else { return };
    let before = packets(vec![memory("input", file.to_vec())]);
    compare(&before, &packets(vec![memory("scrubbed", first)]));
    let mut planted = before;
    let [packet, at] = place.map(usize::from);
    let link_type = planted.first().map(|packet| packet.link_type);
    planted.retain(|other| Some(other.link_type) == link_type && (0..1 << 60).contains(&other.time_ns));
    let Some(packet) = packet.checked_rem(planted.len()).and_then(|packet| planted.get_mut(packet)) else { return };
    plant(packet, at);
    // a method's name may stay
    let wishes = Wishes { hide_methods: true, ..Wishes::default() };
    let Some(written) = scrubbed(pcap(&planted), wishes) else { panic!("a capture that was written is not read") };
    compare(&planted, &packets(vec![memory("scrubbed", written.clone())]));
    for window in CANARY.windows(WINDOW) {
        assert!(!written.windows(WINDOW).any(|octets| octets == window), "{}", String::from_utf8_lossy(window));
    }
}

/// Writes the canary over a part of the packet's payload.
fn plant(packet: &mut Recorded, at: usize) {
    let mut dissector = Dissector::new();
    let outcome = dissector.dissect(packet.link_type, &packet.captured, packet.original_len, packet.time_ns);
    let Outcome::Tcp(segment) = outcome else { return };
    let from = segment.payload.as_ptr().addr().wrapping_sub(packet.captured.as_ptr().addr());
    let (from, room) = (from + at % segment.payload.len().max(1), segment.payload.len());
    let end = (from + CANARY.len()).min(packet.captured.len());
    if room > 0 && from < end {
        packet.captured[from..end].copy_from_slice(&CANARY[..end - from]);
    }
}

fn scrubbed(file: Vec<u8>, wishes: Wishes) -> Option<Vec<u8>> {
    let sources = move || vec![memory("input", file.clone())];
    let mut scrub = Scrub::open(Box::new(sources), b"key", wishes).ok()?;
    let mut written = Vec::new();
    while let Some(piece) = scrub.step(64).expect("short files are written") {
        written.extend(piece);
    }
    assert!(scrub.report().is_some());
    Some(written)
}

fn compare(before: &[Recorded], after: &[Recorded]) {
    assert_eq!(before.len(), after.len());
    for (old, new) in before.iter().zip(after) {
        assert_eq!((old.captured.len(), old.original_len), (new.captured.len(), new.original_len));
        assert_eq!(old.link_type & 0xffff, new.link_type);
        assert!(old.time_ns == new.time_ns || old.time_ns < 0, "{} became {}", old.time_ns, new.time_ns);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let slices = input::slices();
    let place = |nth: usize| [nth as u8, (nth * 37) as u8];
    slices.iter().enumerate().map(|(nth, slice)| [&place(nth)[..], &pcap(slice)].concat()).collect()
}
