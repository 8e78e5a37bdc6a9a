//! What a capture says about itself besides packets, gathered while it is read, each list bounded.

use std::sync::Arc;

use crate::limits::{
    CAPTURE_COMMENT_LENGTH, CAPTURE_COMMENTS, CAPTURE_DAMAGE_ENTRIES, CAPTURE_INTERFACES, CAPTURE_SECRETS_BLOCKS,
    CAPTURE_SECRETS_LENGTH,
};

use super::compression::Compression;
use super::error::OpenError;

/// What is known of the capture so far; complete once the last packet is read.
#[derive(Debug, Clone, Default)]
pub struct CaptureInfo {
    /// The files in the order they are read. A pcapng file's interfaces and comments follow as they are met.
    pub files: Vec<FileInfo>,
    /// The interfaces of all files and sections; [`Packet::interface`](super::Packet::interface) is an index into this.
    pub interfaces: Vec<Interface>,
    /// Comments on any section, interface, packet or statistics; not escaped.
    pub comments: Vec<String>,
    /// Decryption secrets, in file order.
    pub secrets: Vec<Secrets>,
    /// Where the files are damaged, and what that cost.
    pub damage: Vec<Damage>,
    /// Damage beyond [`CAPTURE_DAMAGE_ENTRIES`], counted only.
    pub damage_not_listed: u64,
    /// Sources without a whole file header among others: a recording that ended as it turned to its next file.
    pub left_out: Vec<OpenError>,
    /// Packets delivered so far, over all files.
    pub packets: u32,
    /// Packets of Simple Packet Blocks, which have no time; the time of the packet before was used.
    pub packets_without_time: u32,
    secrets_length: usize,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// The path as given, "standard input", or the reader's name.
    pub name: String,
    /// The format inside the compression.
    pub format: Format,
    /// How the file is compressed, if it is.
    pub compression: Option<Compression>,
    /// The snaplen of a pcap file, in bytes; a pcapng file has one for each interface.
    pub snaplen: Option<u32>,
}

/// A capture format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// draft-ietf-opsawg-pcap
    Pcap,
    /// draft-ietf-opsawg-pcapng
    Pcapng,
}

impl Format {
    /// The format's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pcap => "pcap",
            Format::Pcapng => "pcapng",
        }
    }
}

/// Where packets were captured: a pcap file has one, a pcapng section any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Index into [`CaptureInfo::files`].
    pub file: usize,
    /// The LINKTYPE_ value (<https://www.tcpdump.org/linktypes.html>).
    pub link_type: u32,
    /// Bytes of the frame check sequence at the end of each packet, as a pcap header says; 0: not said.
    pub fcs_bytes: u32,
    /// Longest packet recorded, in bytes; 0: no limit said.
    pub snaplen: u32,
    /// `if_name`, if the file says it; not escaped.
    pub name: Option<String>,
    /// The clock's resolution; None if it has more than 2^64 ticks a second, which no clock has.
    pub ticks_per_second: Option<u64>,
    /// Packets lost in capturing (`isb_ifdrop` + `isb_osdrop`), as the last statistics of the interface say it.
    pub dropped_packets: Option<u64>,
    /// Packets received in capturing (`isb_ifrecv`), as the same statistics say it.
    pub received_packets: Option<u64>,
}

/// The contents of a Decryption Secrets Block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secrets {
    /// The format of the secrets; 0x544c534b ("TLSK") is an NSS key log.
    pub kind: u32,
    /// The secrets as they are in the file, which may be megabytes: copies share them.
    pub data: Arc<[u8]>,
}

/// A place where a file does not follow its format, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Index into [`CaptureInfo::files`].
    pub file: usize,
    /// Where it begins: bytes from the beginning of the uncompressed file.
    pub offset: u64,
    /// Number of the last packet delivered before it; 0 if none.
    pub packet: u32,
    /// What is wrong and what was done about it.
    pub reason: String,
}

impl CaptureInfo {
    /// Packets lost in capturing, over all interfaces; None if no file says anything about that.
    pub fn dropped_packets(&self) -> Option<u64> {
        let counts = self.interfaces.iter().filter_map(|i| i.dropped_packets);
        counts.reduce(u64::saturating_add)
    }

    /// Packets received in capturing, over the interfaces that lost some; `None` if one of them does not say it.
    pub fn received_packets(&self) -> Option<u64> {
        let mut counted = self.interfaces.iter().filter(|i| i.dropped_packets > Some(0)).peekable();
        counted.peek()?;
        counted.map(|i| i.received_packets).try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
    }

    /// Records damage. The reason is written only if it is kept.
    pub(super) fn add_damage(&mut self, file: usize, offset: u64, reason: impl FnOnce() -> String) {
        if self.damage.len() >= CAPTURE_DAMAGE_ENTRIES {
            self.damage_not_listed = self.damage_not_listed.saturating_add(1);
            return;
        }
        self.damage.push(Damage { file, offset, packet: self.packets, reason: reason() });
    }

    /// The last packet in front of damage after which packets came again; 0 without such damage.
    pub fn last_damage(&self) -> u32 {
        let before = self.damage.iter().map(|damage| damage.packet);
        before.filter(|&packet| packet < self.packets).max().unwrap_or(0)
    }

    /// The new interface's index, or None if there are too many.
    pub(super) fn add_interface(&mut self, interface: Interface) -> Option<u32> {
        let index = self.interfaces.len();
        if index >= CAPTURE_INTERFACES {
            return None;
        }
        self.interfaces.push(interface);
        u32::try_from(index).ok()
    }

    pub(super) fn add_comment(&mut self, text: &[u8]) {
        if self.comments.len() < CAPTURE_COMMENTS {
            self.comments.push(text_of(text, CAPTURE_COMMENT_LENGTH));
        }
    }

    /// Whether there was room.
    pub(super) fn add_secrets(&mut self, kind: u32, data: &[u8]) -> bool {
        let length = self.secrets_length.saturating_add(data.len());
        if length > CAPTURE_SECRETS_LENGTH || self.secrets.len() >= CAPTURE_SECRETS_BLOCKS {
            return false;
        }
        self.secrets_length = length;
        self.secrets.push(Secrets { kind, data: data.into() });
        true
    }
}

/// At most `limit` bytes of a text that should be UTF-8.
pub(super) fn text_of(bytes: &[u8], limit: usize) -> String {
    let kept = bytes.get(..limit).unwrap_or(bytes);
    String::from_utf8_lossy(kept).into_owned()
}
