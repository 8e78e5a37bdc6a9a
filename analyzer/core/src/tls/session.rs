//! A TLS connection: both directions' bytes to records, in an order in which they can be read.

use crate::limits::TLS_RESYNC_STEP;

use super::buffered::Held;
use super::direction::{Direction, Stage};
use super::facts::Facts;
use super::keylog::Random;
use super::record::{Record, Step, kind};
use super::record_search::Search;
use super::suite::Suite;
use super::{Decryptor, Event, Reason};

/// Hellos of one side in a handshake: with a HelloRetryRequest there are two (RFC 8446 section 4.1.4).
const MOST_HELLOS: u8 = 2;

/// One TLS connection. `A` is a place in the capture, of a packet as a rule.
pub struct Session<A> {
    pub(super) facts: Facts<A>,
    pub(super) directions: [Direction<A>; 2],
    pub(super) client_random: Option<Random>,
    pub(super) server_random: Option<Random>,
    /// The suite, once it is known to be one that can be decrypted.
    pub(super) suite: Option<&'static Suite>,
    /// Both hellos are read, and the keys looked up.
    pub(super) established: bool,
    pub(super) complete: bool,
    /// A message was seen that only a full TLS 1.2 handshake has.
    pub(super) full_handshake: bool,
}

/// Takes events.
pub trait Out<A>: FnMut(Event<'_, A>, A) {}

impl<A, F: FnMut(Event<'_, A>, A)> Out<A> for F {}

/// What everything here works with: shared memory and the receiver of events.
pub(super) struct Io<'a, F> {
    pub decryptor: &'a mut Decryptor,
    out: &'a mut F,
}

impl<F> Io<'_, F> {
    pub fn emit<A>(&mut self, event: Event<'_, A>, at: A)
    where
        F: Out<A>,
    {
        (self.out)(event, at);
    }
}

impl<A: Copy> Default for Session<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Copy> Session<A> {
    /// A connection of which nothing is known.
    pub fn new() -> Self {
        Self {
            facts: Facts::new(),
            directions: [Direction::new(), Direction::new()],
            client_random: None,
            server_random: None,
            suite: None,
            established: false,
            complete: false,
            full_handshake: false,
        }
    }

    /// What is known so far.
    pub fn facts(&self) -> &Facts<A> {
        &self.facts
    }

    /// Bytes that `side` has begun to send a record of, and not sent.
    pub fn owed(&self, side: usize) -> usize {
        let direction = self.directions.get(side).filter(|direction| direction.search.is_none() && !direction.deaf);
        direction.map_or(0, |direction| direction.framer.owed())
    }

    /// Takes the next bytes of `side` (0 or 1, whichever the client is), all carried by the packet of `at`.
    pub fn feed(&mut self, side: usize, bytes: &[u8], at: A, decryptor: &mut Decryptor, out: &mut impl Out<A>) {
        let io = &mut Io { decryptor, out };
        self.run(side, bytes, at, io);
        self.let_go(io);
    }

    /// Bytes of `side` are missing from the capture. A gap (of any length) before the first byte says that the capture
    /// begins within the connection.
    pub fn gap(&mut self, side: usize, length: u64, at: A, decryptor: &mut Decryptor, out: &mut impl Out<A>) {
        let io = &mut Io { decryptor, out };
        self.pass(side, length, at, io);
        self.let_go(io);
    }

    /// The connection is over: what still waits is told as far as possible, and shared memory returned.
    pub fn finish(&mut self, at: A, decryptor: &mut Decryptor, out: &mut impl Out<A>) {
        let io = &mut Io { decryptor, out };
        for side in 0..2 {
            self.direction(side).waived = true;
        }
        self.let_go(io);
        for side in 0..2 {
            if let Some(mut search) = self.direction(side).search.take() {
                if let Some(boundary) = search.at_end() {
                    self.resume(side, *search, boundary, at, io);
                } else {
                    io.decryptor.give_buffer(search.held.into_buffer());
                }
            }
            self.direction(side).release(io.decryptor);
        }
    }

    pub(super) fn direction(&mut self, side: usize) -> &mut Direction<A> {
        let [first, second] = &mut self.directions;
        if side == 0 { first } else { second }
    }

    pub(super) fn counts(&mut self, side: usize) -> &mut super::Counts {
        self.facts.counts(side)
    }

    /// Whether what follows this side's hello cannot be read before the other side's.
    fn must_wait(&mut self, side: usize) -> bool {
        let others = self.direction(1 - side.min(1)).hellos;
        let direction = self.direction(side);
        direction.hellos > others && direction.hellos <= MOST_HELLOS && !direction.waived
    }

    fn run(&mut self, side: usize, mut rest: &[u8], at: A, io: &mut Io<'_, impl Out<A>>) {
        while !rest.is_empty() {
            if self.direction(side).deaf || self.must_wait(side) && self.hold(side, Ok(rest), at, io) {
                return;
            }
            if self.direction(side).search.is_some() {
                rest = self.search(side, rest, at, io);
                continue;
            }
            rest = self.open_whole(side, rest, at, io);
            if rest.is_empty() {
                return;
            }
            let direction = self.direction(side);
            let opener = direction.opener.as_ref();
            let wants = |header| Direction::<A>::wants(opener, header);
            match direction.framer.push(&mut rest, at, io.decryptor, wants) {
                Step::Partial => {}
                Step::Record(record) => self.record(side, record, at, io),
                Step::Broken(passed) => {
                    let nothing_yet = self.counts(side).records == 0;
                    let reason = if nothing_yet { Reason::NotTls } else { Reason::HandshakeMalformed };
                    self.begin_search(side, passed, reason, at, io);
                }
            }
        }
    }

    /// Passes missing bytes.
    fn pass(&mut self, side: usize, length: u64, at: A, io: &mut Io<'_, impl Out<A>>) {
        if self.direction(side).deaf || self.must_wait(side) && self.hold(side, Err(length), at, io) {
            return;
        }
        let direction = self.direction(side);
        if let Some(search) = &mut direction.search {
            search.gap(length);
            return;
        }
        match direction.framer.gap(length, at, io.decryptor) {
            Ok(Step::Record(record)) => self.record(side, record, at, io),
            Ok(_) => {}
            Err(passed) => self.begin_search(side, passed, Reason::HandshakeMissing, at, io),
        }
    }

    /// Keeps bytes or a gap until the other side's hello has come; `false` when there is no memory for them.
    fn hold<F>(&mut self, side: usize, piece: Result<&[u8], u64>, at: A, io: &mut Io<'_, F>) -> bool {
        let direction = self.direction(side);
        let held = match &mut direction.held {
            Some(held) => held,
            None => {
                let Some(buffer) = io.decryptor.take_buffer() else {
                    direction.waived = true;
                    return false;
                };
                direction.held.insert(Box::new(Held::new(buffer)))
            }
        };
        match piece {
            Ok(bytes) => held.push(bytes, at),
            Err(length) => held.push_gap(length, at),
        }
        direction.waived = held.is_full();
        true
    }

    /// Goes on with what need not wait any more.
    #[inline]
    fn let_go(&mut self, io: &mut Io<'_, impl Out<A>>) {
        if self.directions.iter().any(|direction| direction.held.is_some()) {
            self.replay(io);
        }
    }

    #[cold]
    fn replay(&mut self, io: &mut Io<'_, impl Out<A>>) {
        // What one side held may end the other's waiting, once for each hello.
        for side in [0, 1].into_iter().cycle().take(2 * (usize::from(MOST_HELLOS) + 1)) {
            if self.must_wait(side) {
                continue;
            }
            let Some(held) = self.direction(side).held.take() else { continue };
            for (piece, at) in held.replay() {
                match piece {
                    Ok(bytes) => self.run(side, bytes, at, io),
                    Err(length) => self.pass(side, length, at, io),
                }
            }
            io.decryptor.give_buffer(held.into_buffer());
        }
    }

    fn begin_search(&mut self, side: usize, passed: u64, reason: Reason, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.counts(side).resyncs += 1;
        let direction = self.direction(side);
        direction.reader = Default::default();
        if direction.stage == Stage::Plain {
            self.lose(side, reason, at, io);
        }
        if let Some(buffer) = io.decryptor.take_buffer() {
            self.direction(side).search = Some(Box::new(Search::new(buffer, passed)));
        } else {
            self.direction(side).deaf = true;
            self.lose(side, Reason::SequenceLost, at, io);
        }
    }

    /// Searches a record boundary; what is to be read after it.
    fn search<'b>(&mut self, side: usize, bytes: &'b [u8], at: A, io: &mut Io<'_, impl Out<A>>) -> &'b [u8] {
        let (step, later) = bytes.split_at(bytes.len().min(TLS_RESYNC_STEP));
        let Some(mut search) = self.direction(side).search.take() else { return bytes };
        let Some((boundary, taken)) = search.push(step, at) else {
            self.direction(side).search = Some(search);
            return later;
        };
        self.resume(side, *search, boundary, at, io);
        bytes.get(taken..).unwrap_or_default()
    }

    /// Goes on at a record boundary, with the records that prove it.
    fn resume(
        &mut self,
        side: usize,
        mut search: Search<A>,
        boundary: super::record_search::Boundary,
        at: A,
        io: &mut Io<'_, impl Out<A>>,
    ) {
        let skipped = search.skipped.saturating_add(boundary.begin as u64);
        search.held.drop_front(boundary.begin);
        search.held.truncate(boundary.end - boundary.begin);
        self.seek_after_gap(side, skipped, at, io);
        for (piece, at) in search.held.replay() {
            let mut rest = piece.unwrap_or_default();
            while !rest.is_empty() {
                let direction = self.direction(side);
                let opener = direction.opener.as_ref();
                let wants = |header| Direction::<A>::wants(opener, header);
                if let Step::Record(record) = direction.framer.push(&mut rest, at, io.decryptor, wants) {
                    self.record(side, record, at, io);
                }
            }
        }
        io.decryptor.give_buffer(search.held.into_buffer());
    }

    fn record(&mut self, side: usize, mut record: Record<A>, at: A, io: &mut Io<'_, impl Out<A>>) {
        let counts = self.counts(side);
        counts.records += 1;
        counts.bytes += (super::record::HEADER_LENGTH + record.length()) as u64;
        counts.damaged += u64::from(!record.whole);
        let mut body = record.body.take();
        let is_changed = self.direction(side).stage == Stage::Application && !self.is_tls13();
        let is_encrypted = is_changed || record.header.kind() == kind::APPLICATION_DATA;
        if is_encrypted {
            self.protected(side, &record, body.as_deref_mut(), at, io);
        } else {
            self.plain(side, &record, body.as_deref(), at, io);
        }
        if let Some(body) = body {
            io.decryptor.give_buffer(body);
        }
    }

    fn plain(&mut self, side: usize, record: &Record<A>, body: Option<&[u8]>, at: A, io: &mut Io<'_, impl Out<A>>) {
        match (record.header.kind(), body) {
            (kind::CHANGE_CIPHER_SPEC, _) => self.change_cipher_spec(side, at, io),
            (kind::ALERT, Some(body)) => alert(side, body, at, io),
            // In TLS 1.3 nothing that is not encrypted belongs to the handshake any more.
            (kind::HANDSHAKE, _) if self.established && self.is_tls13() => {}
            (kind::HANDSHAKE, Some(body)) => {
                let direction = self.direction(side);
                if direction.reader.is_between() {
                    direction.message_first = Some(record.first);
                }
                self.messages(side, body, at, io);
            }
            (kind::HANDSHAKE, None) => match self.direction(side).reader.skip(record.length()) {
                Ok(Some(message)) => self.message(side, message, at, io),
                Ok(None) => {}
                Err(()) => self.lose(side, Reason::HandshakeMissing, at, io),
            },
            _ => {}
        }
    }

    /// Takes the content of a handshake record.
    pub(super) fn messages(&mut self, side: usize, mut bytes: &[u8], at: A, io: &mut Io<'_, impl Out<A>>) {
        let mut reader = std::mem::take(&mut self.direction(side).reader);
        while let Some(message) = reader.next(&mut bytes) {
            self.message(side, message, at, io);
        }
        self.direction(side).reader = reader;
    }
}

/// Tells an alert: a level and a description.
pub(super) fn alert<A>(side: usize, body: &[u8], at: A, io: &mut Io<'_, impl Out<A>>) {
    if let &[level, description] = body {
        io.emit(Event::Alert { side, level, description }, at);
    }
}
