//! The handshake: from hellos to keys (RFC 8446 section 2, RFC 5246 section 7.3).

use super::crypto::{Opener, next_secret};
use super::direction::Stage;
use super::handshake::Message;
use super::hello::{ClientHello, ServerHello};
use super::keylog::Secrets;
use super::session::{Io, Out, Session};
use super::suite::Suite;
use super::{Event, Reason};

/// TLS 1.2 (RFC 5246 section 6.2.1).
const TLS12: u16 = 0x0303;
/// TLS 1.3 (RFC 8446 section 4.2.1).
const TLS13: u16 = 0x0304;

impl<A: Copy> Session<A> {
    /// Whether the version is known to be TLS 1.3.
    pub(super) fn is_tls13(&self) -> bool {
        self.facts.version == Some(TLS13)
    }

    /// 0 when `side` is the client, 1 when it is the server.
    pub(super) fn role(&self, side: usize) -> usize {
        usize::from(self.facts.client != Some(side))
    }

    /// From here on nothing of `side` is decrypted.
    pub(super) fn lose(&mut self, side: usize, reason: Reason, at: A, io: &mut Io<'_, impl Out<A>>) {
        if self.direction(side).lost.is_none() {
            self.direction(side).lose(reason);
            io.emit(Event::Undecryptable { side, reason }, at);
        }
    }

    fn lose_both(&mut self, reason: Reason, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.lose(0, reason, at, io);
        self.lose(1, reason, at, io);
    }

    /// Takes a handshake message.
    pub(super) fn message(&mut self, side: usize, message: Message, at: A, io: &mut Io<'_, impl Out<A>>) {
        let stage = self.direction(side).stage;
        match message {
            Message::ClientHello(hello) => self.client_hello(side, hello, at, io),
            Message::ServerHello(hello) => self.server_hello(side, hello, at, io),
            Message::EncryptedExtensions(extensions) if self.is_tls13() && stage == Stage::Handshake => {
                self.facts.early_data_accepted = Some(extensions.early_data);
                self.facts.alpn = Some(extensions.alpn);
            }
            Message::FullHandshake => self.full_handshake = true,
            Message::Finished if self.is_tls13() && stage == Stage::Handshake => self.finished13(side, at, io),
            Message::KeyUpdate if self.is_tls13() && stage == Stage::Application => self.key_update(side, at, io),
            Message::NewSessionTicket if self.is_tls13() => self.counts(side).tickets += 1,
            // A hello of a type that is damaged; 1 and 2 are what all else depends on.
            Message::Malformed(1 | 2) => self.lose_both(Reason::HandshakeMalformed, at, io),
            _ => {}
        }
    }

    fn client_hello(&mut self, side: usize, hello: ClientHello, at: A, io: &mut Io<'_, impl Out<A>>) {
        if self.facts.client.is_some_and(|client| client != side) {
            self.lose_both(Reason::HandshakeMalformed, at, io);
            return;
        }
        self.facts.client = Some(side);
        self.client_random = Some(hello.random);
        let direction = self.direction(side);
        if direction.hellos == 0 {
            let first = direction.message_first;
            self.facts.client_hello = first;
            self.facts.alpn_offers = hello.alpn;
            self.facts.early_data_offered = hello.early_data;
        }
        // A hello in an established session renegotiates TLS 1.2; only its random matters.
        if !self.established {
            self.count_hello(side);
            if self.server_random.is_some() {
                self.establish(at, io);
            }
        }
    }

    fn server_hello(&mut self, side: usize, hello: ServerHello, at: A, io: &mut Io<'_, impl Out<A>>) {
        if self.facts.client == Some(side) {
            self.lose_both(Reason::HandshakeMalformed, at, io);
            return;
        }
        self.facts.client = Some(1 - side.min(1));
        self.facts.version = Some(hello.version);
        self.facts.suite = Some(hello.suite);
        if !self.established {
            self.count_hello(side);
        }
        if hello.retry {
            self.facts.retried = true;
            return;
        }
        self.server_random = Some(hello.random);
        if hello.compressed {
            self.lose_both(Reason::Compressed, at, io);
        }
        if self.facts.server_hello.is_none() {
            self.facts.server_hello = Some(at);
            if self.is_tls13() {
                self.facts.resumed = Some(hello.resumed);
            } else {
                self.facts.alpn = Some(hello.alpn);
            }
        }
        if self.client_random.is_some() {
            self.establish(at, io);
        }
    }

    fn count_hello(&mut self, side: usize) {
        let direction = self.direction(side);
        direction.hellos = direction.hellos.saturating_add(1);
    }

    /// Looks up the keys once both hellos are known.
    fn establish(&mut self, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.established = true;
        self.suite = self.facts.suite.and_then(Suite::find).filter(|suite| suite.is_tls13() == self.is_tls13());
        let secrets = self.client_random.and_then(|random| io.decryptor.secrets(&random));
        self.facts.keys_found |= secrets.is_some();
        let reason = match self.facts.version {
            Some(TLS12 | TLS13) if self.suite.is_none() => Reason::SuiteUnsupported,
            Some(TLS12 | TLS13) => Reason::NoKeys,
            _ => Reason::VersionUnsupported,
        };
        if self.is_tls13() {
            for side in 0..2 {
                self.direction(side).rekey(Stage::Handshake, None);
                self.handshake_keys(side, secrets.as_ref(), reason, at, io);
            }
        } else if self.suite.is_none()
            || (secrets.is_none_or(|secrets| secrets.master.is_none()) && !io.decryptor.keys.grows())
        {
            self.lose_both(reason, at, io);
        }
    }

    /// TLS 1.3: begins with handshake keys, or with those of application data when the log lacks the former: those
    /// open no record before their time.
    fn handshake_keys(
        &mut self,
        side: usize,
        secrets: Option<&Secrets>,
        reason: Reason,
        at: A,
        io: &mut Io<'_, impl Out<A>>,
    ) {
        let role = self.role(side);
        let suite = self.suite;
        let pick = |secrets: &[Option<super::Secret>; 2]| {
            let secret = if role == 0 { secrets[0] } else { secrets[1] };
            secret.filter(|secret| suite.is_some_and(|suite| suite.hash.length() == secret.bytes().len()))
        };
        let handshake = secrets.and_then(|secrets| pick(&secrets.handshake));
        let traffic = secrets.and_then(|secrets| pick(&secrets.traffic));
        let Some(suite) = suite.filter(|_| handshake.is_some() || traffic.is_some()) else {
            self.lose(side, reason, at, io);
            return;
        };
        let direction = self.direction(side);
        if direction.lost.is_some() {
            return;
        }
        direction.secret = traffic;
        direction.opener = handshake.and_then(|secret| Opener::tls13(suite, &secret));
        if direction.opener.is_none() {
            self.seek_application(side, 0, at, io);
        }
    }

    /// The keys of application data of a TLS 1.3 direction.
    pub(super) fn application_keys(&mut self, side: usize) -> Option<Opener> {
        let suite = self.suite?;
        Opener::tls13(suite, self.direction(side).secret.as_ref()?)
    }

    fn finished13(&mut self, side: usize, at: A, io: &mut Io<'_, impl Out<A>>) {
        let opener = self.application_keys(side);
        let has_keys = opener.is_some();
        self.direction(side).rekey(Stage::Application, opener);
        if !has_keys {
            self.lose(side, Reason::NoKeys, at, io);
        }
        self.finished(side, Some(at), at, io);
        let early = self.counts(side).early;
        if early > 0 && self.facts.early_data_accepted == Some(true) {
            io.emit(Event::Gap { side, length: None }, at);
        }
    }

    /// Notes one side's Finished, whose place is not always known, and the end of the handshake.
    pub(super) fn finished(&mut self, side: usize, place: Option<A>, at: A, io: &mut Io<'_, impl Out<A>>) {
        if std::mem::replace(&mut self.direction(side).finished, true) {
            return;
        }
        match self.role(side) {
            0 => self.facts.client_finished = place,
            _ => self.facts.server_finished = place,
        }
        let [first, second] = &self.directions;
        if first.finished && second.finished && !self.complete {
            self.complete = true;
            self.facts.is_exact = self.facts.client_finished.is_some() && self.facts.server_finished.is_some();
            io.emit(Event::HandshakeComplete, at);
        }
    }

    /// TLS 1.2: what follows in this direction is encrypted. TLS 1.3 sends it for the sake of middleboxes (RFC 8446
    /// appendix D.4).
    pub(super) fn change_cipher_spec(&mut self, side: usize, at: A, io: &mut Io<'_, impl Out<A>>) {
        if !self.established || self.is_tls13() {
            return;
        }
        let role = self.role(side);
        if role == 1 && self.facts.resumed.is_none() {
            self.facts.resumed = Some(!self.full_handshake);
        }
        let opener = if self.direction(side).lost.is_none() { self.keys12(role, io) } else { None };
        let has_keys = opener.is_some();
        self.direction(side).rekey(Stage::Application, opener);
        if !has_keys {
            self.lose(side, Reason::NoKeys, at, io);
        }
    }

    fn keys12<F>(&mut self, role: usize, io: &mut Io<'_, F>) -> Option<Opener> {
        let (client, server) = (self.client_random?, self.server_random?);
        let master = io.decryptor.secrets(&client)?.master?;
        self.facts.keys_found = true;
        Opener::tls12(self.suite?, &master, &client, &server, role)
    }

    fn key_update(&mut self, side: usize, at: A, io: &mut Io<'_, impl Out<A>>) {
        self.counts(side).key_updates += 1;
        let hash = self.suite.map(|suite| suite.hash);
        let direction = self.direction(side);
        direction.secret = hash.and_then(|hash| next_secret(hash, direction.secret.as_ref()?));
        let opener = self.application_keys(side);
        self.direction(side).rekey(Stage::Application, opener);
        io.emit(Event::KeyUpdate { side }, at);
    }
}
