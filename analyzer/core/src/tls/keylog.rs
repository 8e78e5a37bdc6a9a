//! Secrets of TLS connections, read from key logs: the SSLKEYLOGFILE format (RFC 9850), which browsers, OpenSSL,
//! BoringSSL, Go, rustls, NSS and JSSE agents write and pcapng Decryption Secrets Blocks embed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use super::KeyFile;
use crate::limits::{TLS_KEY_LOG_CONNECTIONS, TLS_KEY_LOG_LINE};

/// The random bytes of a ClientHello: what a key log names a connection by.
pub type Random = [u8; 32];

/// A secret of at most 48 bytes: a TLS 1.2 master secret, or a TLS 1.3 traffic secret as long as its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; 48],
    length: u8,
}

impl Secret {
    /// Takes the secret's bytes; `None` when there are none or more than 48.
    pub fn new(secret: &[u8]) -> Option<Self> {
        let mut bytes = [0; 48];
        bytes.get_mut(..secret.len()).filter(|room| !room.is_empty())?.copy_from_slice(secret);
        Some(Self { bytes, length: secret.len() as u8 })
    }

    /// The secret's bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }
}

impl fmt::Debug for Secret {
    /// Never shows the secret, for it opens a recording of somebody's traffic.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.length)
    }
}

/// What a key log tells about one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The TLS 1.2 master secret.
    pub master: Option<Secret>,
    /// The TLS 1.3 handshake traffic secrets, of client and server.
    pub handshake: [Option<Secret>; 2],
    /// The first TLS 1.3 application traffic secrets, of client and server.
    pub traffic: [Option<Secret>; 2],
}

impl Secrets {
    /// Whether they open application data of both sides, in the version of TLS to which they belong.
    pub fn has_application(&self) -> bool {
        self.master.is_some() || self.traffic.iter().all(Option::is_some)
    }
}

/// Secrets of many connections.
#[derive(Clone, Debug, Default)]
pub struct KeyLog {
    connections: HashMap<Random, Secrets, foldhash::quality::RandomState>,
    /// Where further ones are written.
    file: Option<KeyFile>,
    /// Lines that are neither empty nor a comment.
    pub lines: u64,
    /// Lines that are not of the format.
    pub damaged: u64,
    /// The number of the first damaged line, from 1, in the text that it was in.
    pub first_damaged: Option<u64>,
    /// Lines of a label that decryption has no use for: early data, exporters, later traffic secrets (which follow from
    /// the first).
    pub unused: u64,
    /// Lines of connections above [`TLS_KEY_LOG_CONNECTIONS`].
    pub over_limit: u64,
}

impl KeyLog {
    /// Reads a key log. Damaged lines are counted, never an error: programs die while they write one.
    pub fn parse(text: &[u8]) -> Self {
        let mut log = Self::default();
        log.extend(text);
        log
    }

    /// Reads a further key log. What is known of a connection already stays.
    pub fn extend(&mut self, text: &[u8]) {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for (line, number) in text.split(|&b| b == b'\n').zip(1..) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.lines += 1;
            if self.line(line).is_none() {
                self.damaged += 1;
                self.first_damaged.get_or_insert(number);
            }
        }
    }

    /// Reads further secrets from a file when they are asked for.
    pub fn follow(&mut self, file: KeyFile) {
        self.file = Some(file);
    }

    /// Whether further secrets may come.
    pub fn grows(&self) -> bool {
        self.file.is_some()
    }

    /// Reads what was written to the file since; whether that was anything.
    pub fn read_on(&mut self) -> bool {
        let lines = self.file.as_mut().map(KeyFile::read_new).unwrap_or_default();
        self.extend(&lines);
        !lines.is_empty()
    }

    /// Number of connections with secrets.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The secrets of the connection whose ClientHello has `random`.
    pub fn get(&self, random: &Random) -> Option<&Secrets> {
        self.connections.get(random)
    }

    /// Takes one line; `None` when it is damaged.
    fn line(&mut self, line: &[u8]) -> Option<()> {
        if line.len() > TLS_KEY_LOG_LINE {
            return None;
        }
        let mut words = line.split(|&b| b == b' ' || b == b'\t').filter(|word| !word.is_empty());
        let (label, random, secret) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        let Some(place) = place_of(label) else {
            let is_known_form = is_label(label);
            self.unused += u64::from(is_known_form);
            return is_known_form.then_some(());
        };
        let (random, secret) = (random_from_hex(random)?, secret_from_hex(secret)?);
        // a master secret has 48 bytes (RFC 5246 section 8.1), a traffic secret as many as its hash (RFC 8446, 7.1)
        if secret.bytes().len() != 48 && (secret.bytes().len() != 32 || label == b"CLIENT_RANDOM") {
            return None;
        }
        let mut full = self.connections.len() >= TLS_KEY_LOG_CONNECTIONS;
        if full && self.grows() {
            self.connections.clear(); // connections have the secrets that they need
            full = false;
        }
        let secrets = match self.connections.entry(random) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if full => {
                self.over_limit += 1;
                return Some(());
            }
            Entry::Vacant(entry) => entry.insert(Secrets::default()),
        };
        place(secrets).get_or_insert(secret);
        Some(())
    }
}

/// Where a secret goes.
type Place = fn(&mut Secrets) -> &mut Option<Secret>;

/// Where a label's secret goes; `None` for a label that decryption has no use for.
fn place_of(label: &[u8]) -> Option<Place> {
    let place: Place = match label {
        b"CLIENT_RANDOM" => |secrets| &mut secrets.master,
        b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => |secrets| &mut secrets.handshake[0],
        b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => |secrets| &mut secrets.handshake[1],
        b"CLIENT_TRAFFIC_SECRET_0" => |secrets| &mut secrets.traffic[0],
        b"SERVER_TRAFFIC_SECRET_0" => |secrets| &mut secrets.traffic[1],
        _ => return None,
    };
    Some(place)
}

/// Whether a word has the form of a label, of which programs invent further ones.
fn is_label(word: &[u8]) -> bool {
    word.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')
}

fn random_from_hex(text: &[u8]) -> Option<Random> {
    let mut random = [0; 32];
    (from_hex(text, &mut random)? == random.len()).then_some(random)
}

fn secret_from_hex(text: &[u8]) -> Option<Secret> {
    let mut bytes = [0; 48];
    let length = from_hex(text, &mut bytes)?;
    Secret::new(bytes.get(..length)?)
}

/// Decodes hexadecimal digits into the begin of `out`; how many bytes they are.
fn from_hex(text: &[u8], out: &mut [u8]) -> Option<usize> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let out = out.get_mut(..pairs.len())?;
    for (byte, &[high, low]) in out.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(pairs.len())
}

fn digit(character: u8) -> Option<u8> {
    char::from(character).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "ab6de7603a19433abcb6a92041241fcd747b249c59ec4fa954af07eecd76279c";

    fn hex(byte: u8, length: usize) -> String {
        format!("{byte:02x}").repeat(length)
    }

    #[test]
    fn labels_comments_and_line_ends() {
        let text = format!(
            "\u{feff}# made by a test\r\n\r\nCLIENT_RANDOM {RANDOM} {}\r\n\
             CLIENT_HANDSHAKE_TRAFFIC_SECRET {RANDOM} {}\nSERVER_HANDSHAKE_TRAFFIC_SECRET {} {}\n\
             CLIENT_TRAFFIC_SECRET_0\t{RANDOM}  {}\nSERVER_TRAFFIC_SECRET_0 {RANDOM} {}\n\
             SERVER_TRAFFIC_SECRET_1 {RANDOM} {}\nEXPORTER_SECRET {RANDOM} {}",
            hex(1, 48),
            hex(2, 32),
            RANDOM.to_uppercase(),
            hex(3, 32),
            hex(4, 48),
            hex(5, 48),
            hex(6, 48),
            hex(7, 48),
        );
        let log = KeyLog::parse(text.as_bytes());
        assert_eq!((log.connections(), log.lines, log.damaged, log.unused, log.first_damaged), (1, 7, 0, 2, None));
        let secrets = log.get(&random_from_hex(RANDOM.as_bytes()).unwrap()).unwrap();
        assert_eq!(secrets.master.unwrap().bytes(), [1; 48]);
        assert_eq!(secrets.handshake.map(|s| s.unwrap().bytes().to_vec()), [vec![2; 32], vec![3; 32]]);
        assert_eq!(secrets.traffic.map(|s| s.unwrap().bytes().to_vec()), [vec![4; 48], vec![5; 48]]);
        assert_eq!(log.get(&[0; 32]), None);
    }

    #[test]
    fn damaged_lines_are_counted() {
        let good = format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}", hex(9, 32));
        let damaged = [
            format!("CLIENT_RANDOM {RANDOM}"),
            format!("CLIENT_RANDOM {RANDOM} {}", hex(1, 47)),
            format!("CLIENT_RANDOM {} {}", &RANDOM[2..], hex(1, 48)),
            format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}x", hex(1, 31)),
            format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {} more", hex(1, 32)),
            format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}", hex(1, 33)),
            format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}", hex(1, 2000)),
            "not a key log".to_owned(),
            "\u{0}\u{1}\u{2}".to_owned(),
        ];
        let log = KeyLog::parse(format!("{good}\n{}\n", damaged.join("\n")).as_bytes());
        assert_eq!((log.connections(), log.lines, log.damaged, log.first_damaged), (1, 10, 9, Some(2)));
    }

    #[test]
    fn the_first_secret_of_a_connection_stays() {
        let mut log = KeyLog::parse(format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}", hex(1, 32)).as_bytes());
        log.extend(format!("CLIENT_TRAFFIC_SECRET_0 {RANDOM} {}", hex(2, 32)).as_bytes());
        let secrets = log.get(&random_from_hex(RANDOM.as_bytes()).unwrap()).unwrap();
        assert_eq!(secrets.traffic[0].unwrap().bytes(), [1; 32]);
        assert_eq!(format!("{:?}", secrets.traffic[0].unwrap()), "Secret(32 bytes)");
    }

    #[test]
    fn connections_are_bounded() {
        let mut text = String::new();
        for number in 0..TLS_KEY_LOG_CONNECTIONS + 3 {
            text.push_str(&format!("CLIENT_TRAFFIC_SECRET_0 {number:064x} {}\n", hex(1, 32)));
        }
        let log = KeyLog::parse(text.as_bytes());
        assert_eq!((log.connections(), log.over_limit, log.damaged), (TLS_KEY_LOG_CONNECTIONS, 3, 0));
    }
}
