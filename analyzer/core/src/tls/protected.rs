//! Encrypted records: opening them in sequence, and finding the sequence again.

use crate::limits::{TLS_OPEN_FAILURES, TLS_SEQUENCE_STEPS, TLS_TRIAL_RECORDS, TLS13_RECORD_LENGTH};

use super::direction::{Seek, Stage};
use super::record::{HEADER_LENGTH, Record, kind, split_whole};
use super::session::{Io, Out, Session, alert};
use super::{Event, Reason};

/// Octets of an encrypted alert in TLS 1.3: two, their type, and a tag of sixteen (RFC 8446 sections 5.2 and 6).
/// A Finished has 32 octets or more.
pub const ALERT_LENGTH: usize = 19;

impl<A: Copy> Session<A> {
    /// Opens the records of application data that are whole in `bytes`, which needs no state between packets: as a rule
    /// all. What is left begins with a record of another kind, or one that does not open.
    #[inline]
    pub(super) fn open_whole<'b>(
        &mut self,
        side: usize,
        bytes: &'b [u8],
        at: A,
        io: &mut Io<'_, impl Out<A>>,
    ) -> &'b [u8] {
        let Self { directions: [first, second], facts, .. } = self;
        let direction = if side == 0 { first } else { second };
        let is_usual =
            direction.stage == Stage::Application && direction.seek.is_none() && direction.framer.is_between();
        let Some(opener) = direction.opener.as_ref().filter(|_| is_usual) else { return bytes };
        let Some(mut buffer) = io.decryptor.take_buffer() else { return bytes };
        let counts = facts.counts(side);
        let mut left = bytes;
        while let Some((header, body, rest)) = split_whole(left)
            && header.kind() == kind::APPLICATION_DATA
            && body.len() <= TLS13_RECORD_LENGTH
        {
            buffer.clear();
            buffer.extend_from_slice(body);
            let Some(opened) = opener.open(&header.0, direction.sequence, &mut buffer) else { break };
            if opened.kind != kind::APPLICATION_DATA {
                break;
            }
            direction.sequence = direction.sequence.wrapping_add(1);
            direction.failures = 0;
            counts.records += 1;
            counts.bytes += (HEADER_LENGTH + body.len()) as u64;
            counts.opened += 1;
            counts.plaintext += opened.bytes.len() as u64;
            io.emit(Event::Data { side, bytes: opened.bytes, first: at }, at);
            left = rest;
        }
        io.decryptor.give_buffer(buffer);
        left
    }

    /// Takes an encrypted record.
    pub(super) fn protected(
        &mut self,
        side: usize,
        record: &Record<A>,
        body: Option<&mut [u8]>,
        at: A,
        io: &mut Io<'_, impl Out<A>>,
    ) {
        if !self.is_tls13() && record.header.kind() == kind::HANDSHAKE {
            // The first encrypted message of TLS 1.2 is Finished (RFC 5246 section 7.4.9).
            self.finished(side, Some(at), at, io);
        }
        let too_long = self.is_tls13() && record.length() > TLS13_RECORD_LENGTH;
        match body.filter(|_| !too_long) {
            _ if self.direction(side).opener.is_none() => self.closed(side, record, at, io),
            None => self.missing(side, record, at, io),
            Some(body) if self.direction(side).seek.is_some() => self.seek(side, record, body, at, io),
            Some(body) => self.open(side, record, body, at, io),
        }
    }

    /// A record for which there are no keys.
    fn closed(&mut self, side: usize, record: &Record<A>, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.counts(side).closed += 1;
        if !self.established {
            self.lose(side, Reason::HandshakeMissing, at, io);
        }
        io.emit(Event::Record { side, length: record.length(), first: record.first }, at);
        // a client that refuses its server sends an alert in place of its Finished
        let is_alert = record.length() == ALERT_LENGTH;
        if self.established && self.is_tls13() && self.role(side) == 0 && !self.facts.early_data_offered && !is_alert {
            // The client's first encrypted record has its Finished; it answers the server's (RFC 8446 section 2).
            self.finished(side, Some(at), at, io);
            self.finished(1 - side.min(1), None, at, io);
        }
    }

    /// Opens a record with the sequence number that is due.
    fn open(&mut self, side: usize, record: &Record<A>, body: &mut [u8], at: A, io: &mut Io<'_, impl Out<A>>) {
        let direction = self.direction(side);
        let sequence = direction.sequence;
        let opened = direction.opener.as_ref().and_then(|opener| opener.open(&record.header.0, sequence, body));
        if let Some(opened) = opened {
            direction.sequence = sequence.wrapping_add(1);
            direction.failures = 0;
            self.content(side, opened.kind, opened.bytes, record.first, at, io);
            return;
        }
        let may_be_early = direction.stage == Stage::Handshake && sequence == 0 && self.role(side) == 0;
        if may_be_early && self.facts.early_data_offered {
            self.counts(side).early += 1;
            io.emit(Event::Record { side, length: record.length(), first: record.first }, at);
            return;
        }
        self.direction(side).failures += 1;
        self.missing(side, record, at, io);
        if self.direction(side).failures >= TLS_OPEN_FAILURES {
            self.lose(side, Reason::WrongKeys, at, io);
        }
    }

    /// Takes the content of a record.
    fn content(&mut self, side: usize, kind: u8, bytes: &[u8], first: A, at: A, io: &mut Io<'_, impl Out<A>>) {
        let stage = self.direction(side).stage;
        let counts = self.counts(side);
        counts.opened += 1;
        match kind {
            kind::APPLICATION_DATA if stage == Stage::Application => {
                counts.plaintext += bytes.len() as u64;
                io.emit(Event::Data { side, bytes, first }, at);
            }
            kind::HANDSHAKE => self.messages(side, bytes, at, io),
            kind::ALERT => alert(side, bytes, at, io),
            kind::CHANGE_CIPHER_SPEC => self.change_cipher_spec(side, at, io),
            _ => {}
        }
    }

    /// A record under the current keys whose content is lost.
    fn missing(&mut self, side: usize, record: &Record<A>, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.counts(side).closed += 1;
        let direction = self.direction(side);
        let length = record.length().saturating_sub(direction.opener.as_ref().map_or(0, |opener| opener.overhead()));
        if let Some(seek) = &mut direction.seek {
            seek.width = seek.width.saturating_add(1).min(TLS_SEQUENCE_STEPS);
            seek.skipped = seek.skipped.map(|skipped| skipped.saturating_add((HEADER_LENGTH + record.length()) as u64));
            return;
        }
        direction.sequence = direction.sequence.wrapping_add(1);
        if direction.stage == Stage::Application {
            direction.reader = Default::default();
            if record.header.kind() == kind::APPLICATION_DATA {
                io.emit(Event::Gap { side, length: Some(length as u64) }, at);
            }
            return;
        }
        match direction.reader.skip(length) {
            Ok(Some(message)) => self.message(side, message, at, io),
            Ok(None) => {}
            // Two more sequence numbers than none: the lost record may have been the last of the handshake, or not.
            Err(()) => self.seek_application(side, 2, at, io),
        }
    }

    /// TLS 1.3: waits for the first record of application data, as the end of the handshake cannot be seen.
    pub(super) fn seek_application(&mut self, side: usize, width: u64, at: A, io: &mut Io<'_, impl Out<A>>) {
        let opener = self.application_keys(side);
        if opener.is_none() {
            self.lose(side, Reason::NoKeys, at, io);
            return;
        }
        let direction = self.direction(side);
        direction.opener = opener;
        direction.seek = Some(Seek { from: 0, width, records: TLS_TRIAL_RECORDS, skipped: None });
    }

    /// A record boundary is found again after `skipped` bytes of records.
    pub(super) fn seek_after_gap(&mut self, side: usize, skipped: u64, at: A, io: &mut Io<'_, impl Out<A>>) {
        let direction = self.direction(side);
        let Some(opener) = &direction.opener else { return };
        // No record is shorter than its header and protection.
        let records = skipped / (HEADER_LENGTH + opener.overhead()) as u64;
        let width = records.min(TLS_SEQUENCE_STEPS);
        match (&mut direction.seek, direction.stage) {
            (Some(seek), _) => {
                seek.width = seek.width.saturating_add(width).min(TLS_SEQUENCE_STEPS);
                seek.skipped = seek.skipped.map(|before| before.saturating_add(skipped));
            }
            (None, Stage::Handshake) => self.seek_application(side, width, at, io),
            (seek, _) => {
                *seek = Some(Seek { from: direction.sequence, width, records: 1, skipped: Some(skipped) });
            }
        }
    }

    /// Tries the sequence numbers that are possible.
    fn seek(&mut self, side: usize, record: &Record<A>, body: &mut [u8], at: A, io: &mut Io<'_, impl Out<A>>) {
        let direction = self.direction(side);
        let (Some(seek), Some(opener)) = (direction.seek, direction.opener.take()) else { return };
        let sealed = body.to_vec(); // an attempt leaves nothing of the body
        for step in 0..=seek.width {
            if step > 0 {
                if !io.decryptor.may_attempt(body.len()) {
                    break;
                }
                body.copy_from_slice(&sealed);
            }
            let sequence = seek.from.wrapping_add(step);
            if let Some(opened) = opener.open(&record.header.0, sequence, body) {
                let overhead = (HEADER_LENGTH + opener.overhead()) as u64;
                self.direction(side).opener = Some(opener);
                self.found(side, seek, step, overhead, at, io);
                self.content(side, opened.kind, opened.bytes, record.first, at, io);
                return;
            }
        }
        self.counts(side).closed += 1;
        io.emit(Event::Record { side, length: record.length(), first: record.first }, at);
        self.direction(side).opener = Some(opener);
        self.not_found(side, seek, at, io);
    }

    fn not_found(&mut self, side: usize, seek: Seek, at: A, io: &mut Io<'_, impl Out<A>>) {
        let records = seek.records.saturating_sub(1);
        if records > 0 {
            self.direction(side).seek = Some(Seek { records, ..seek });
            return;
        }
        let reason = if seek.width > 0 { Reason::SequenceLost } else { Reason::WrongKeys };
        self.lose(side, reason, at, io);
    }

    /// The sequence goes on after `step` records that are lost.
    fn found(&mut self, side: usize, seek: Seek, step: u64, overhead: u64, at: A, io: &mut Io<'_, impl Out<A>>) {
        let direction = self.direction(side);
        direction.seek = None;
        direction.failures = 0;
        direction.sequence = seek.from.wrapping_add(step).wrapping_add(1);
        if direction.stage == Stage::Handshake {
            direction.stage = Stage::Application;
            self.finished(side, None, at, io);
        }
        let length = seek.skipped.map(|skipped| skipped.saturating_sub(step.saturating_mul(overhead)));
        if step > 0 {
            io.emit(Event::Gap { side, length }, at);
        }
    }
}
