//! From secrets to keys, and from records to plaintext: the key schedules of TLS 1.3 (RFC 8446 section 7) and TLS 1.2
//! (RFC 5246 sections 5 and 6.3), and the opening of records (RFC 8446 section 5.2, RFC 5288, RFC 7905).

use ring::aead::{self, LessSafeKey, UnboundKey};
use ring::{hkdf, hmac};

use super::keylog::{Random, Secret};
use super::record::HEADER_LENGTH;
use super::suite::{Cipher, Hash, Suite};

/// Bytes of the authentication tag of every suite here.
const TAG_LENGTH: usize = 16;
/// Bytes of the part of an AES-GCM nonce that TLS 1.2 sends with each record (RFC 5288 section 3).
const EXPLICIT_NONCE_LENGTH: usize = 8;
/// Bytes of nonces and initialisation vectors.
const IV_LENGTH: usize = 12;

struct Aead(Box<LessSafeKey>);

impl Aead {
    fn new(cipher: Cipher, key: &[u8]) -> Option<Self> {
        let algorithm = match cipher {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        Some(Self(Box::new(LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?))))
    }

    /// Decrypts `text`, which ends with its tag, in place; it is of no use any more when that does not fit.
    fn open<'a>(&self, nonce: [u8; IV_LENGTH], aad: &[u8], text: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let nonce = aead::Nonce::assume_unique_for_key(nonce); // which is the sender's duty
        self.0.open_in_place(nonce, aead::Aad::from(aad), text).ok()
    }
}

/// How the nonce and the authenticated data of a record are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// TLS 1.3: the nonce from the sequence number, an inner content type (RFC 8446 sections 5.2 and 5.3).
    Tls13,
    /// TLS 1.2 with AES-GCM: half the nonce is sent (RFC 5288 section 3).
    Tls12Explicit,
    /// TLS 1.2 with ChaCha20-Poly1305: the nonce from the sequence number (RFC 7905 section 2).
    Tls12,
}

/// The plaintext of a record.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The content type, in TLS 1.3 the one that was encrypted.
    pub kind: u8,
    /// The content, without padding.
    pub bytes: &'a [u8],
}

/// The keys with which one side protects its records.
pub struct Opener {
    aead: Aead,
    iv: [u8; IV_LENGTH],
    form: Form,
}

impl Opener {
    /// The keys that follow from a TLS 1.3 traffic secret (RFC 8446 section 7.3).
    pub fn tls13(suite: &Suite, secret: &Secret) -> Option<Self> {
        let (mut key, mut iv) = ([0; 32], [0; IV_LENGTH]);
        let key = key.get_mut(..suite.cipher.key_length())?;
        expand_label(suite.hash, secret.bytes(), b"key", key)?;
        expand_label(suite.hash, secret.bytes(), b"iv", &mut iv)?;
        Some(Self { aead: Aead::new(suite.cipher, key)?, iv, form: Form::Tls13 })
    }

    /// The keys of the client (`role` 0) or server (1) that follow from a TLS 1.2 master secret (RFC 5246 section 6.3).
    pub fn tls12(suite: &Suite, master: &Secret, client: &Random, server: &Random, role: usize) -> Option<Self> {
        let form = if suite.cipher == Cipher::ChaCha20Poly1305 { Form::Tls12 } else { Form::Tls12Explicit };
        // AES-GCM has four secret bytes of nonce ("salt"), ChaCha20 all twelve.
        let iv_length = if form == Form::Tls12 { IV_LENGTH } else { IV_LENGTH - EXPLICIT_NONCE_LENGTH };
        let key_length = suite.cipher.key_length();
        let mut block = [0; 2 * (32 + IV_LENGTH)];
        key_block(suite.hash, master.bytes(), &[server, client], &mut block)?;
        let key = block.get(role * key_length..)?.get(..key_length)?;
        let salt = block.get(2 * key_length + role * iv_length..)?.get(..iv_length)?;
        let mut iv = [0; IV_LENGTH];
        iv.get_mut(..iv_length)?.copy_from_slice(salt);
        Some(Self { aead: Aead::new(suite.cipher, key)?, iv, form })
    }

    /// Bytes that protection adds to the content: of TLS 1.3 without padding.
    pub fn overhead(&self) -> usize {
        match self.form {
            Form::Tls13 => 1 + TAG_LENGTH,
            Form::Tls12Explicit => EXPLICIT_NONCE_LENGTH + TAG_LENGTH,
            Form::Tls12 => TAG_LENGTH,
        }
    }

    /// Decrypts the record with this header and sequence number in place. `None` when it does not authenticate: nothing is
    /// left of `body` then.
    pub fn open<'a>(&self, header: &[u8; HEADER_LENGTH], sequence: u64, body: &'a mut [u8]) -> Option<Opened<'a>> {
        let sequence = sequence.to_be_bytes();
        match self.form {
            Form::Tls13 => strip_padding(self.aead.open(xor(self.iv, sequence), header, body)?),
            Form::Tls12 => {
                let aad = authenticated(header, sequence, body.len().checked_sub(TAG_LENGTH)?);
                let bytes = self.aead.open(xor(self.iv, sequence), &aad, body)?;
                Some(Opened { kind: header[0], bytes })
            }
            Form::Tls12Explicit => {
                let (explicit, body) = body.split_first_chunk_mut::<EXPLICIT_NONCE_LENGTH>()?;
                let aad = authenticated(header, sequence, body.len().checked_sub(TAG_LENGTH)?);
                // The salt fills the first four bytes, the rest is zero.
                let bytes = self.aead.open(xor(self.iv, *explicit), &aad, body)?;
                Some(Opened { kind: header[0], bytes })
            }
        }
    }
}

/// Combines the last eight bytes of an initialisation vector with eight others.
fn xor(mut iv: [u8; IV_LENGTH], other: [u8; 8]) -> [u8; IV_LENGTH] {
    for (byte, other) in iv.iter_mut().skip(IV_LENGTH - 8).zip(other) {
        *byte ^= other;
    }
    iv
}

/// The additional data of TLS 1.2: sequence number, type, version and length of the content (RFC 5246 section 6.2.3.3).
fn authenticated(header: &[u8; HEADER_LENGTH], sequence: [u8; 8], length: usize) -> [u8; 13] {
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sequence;
    let [high, low] = (length as u16).to_be_bytes();
    [s0, s1, s2, s3, s4, s5, s6, s7, header[0], header[1], header[2], high, low]
}

/// Finds the content type behind the content of TLS 1.3: the last byte that is not zero (RFC 8446 section 5.4).
fn strip_padding(text: &[u8]) -> Option<Opened<'_>> {
    let end = text.iter().rposition(|&b| b != 0)?;
    let (bytes, rest) = text.split_at_checked(end)?;
    Some(Opened { kind: *rest.first()?, bytes })
}

/// The traffic secret after a KeyUpdate (RFC 8446 section 7.2).
pub fn next_secret(hash: Hash, secret: &Secret) -> Option<Secret> {
    let mut next = [0; 48];
    let next = next.get_mut(..hash.length())?;
    expand_label(hash, secret.bytes(), b"traffic upd", next)?;
    Secret::new(next)
}

/// So many bytes are derived.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
fn expand_label(hash: Hash, secret: &[u8], label: &[u8], out: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    let mut info = [0; 32];
    let label_length = PREFIX.len() + label.len();
    let (length, rest) = info.split_first_chunk_mut::<2>()?;
    *length = u16::try_from(out.len()).ok()?.to_be_bytes();
    *rest.first_mut()? = label_length as u8;
    rest.get_mut(1..=PREFIX.len())?.copy_from_slice(PREFIX);
    rest.get_mut(1 + PREFIX.len()..=label_length)?.copy_from_slice(label);
    // Two bytes of length, the label with its length, and an empty context's length.
    let info = info.get(..2 + 1 + label_length + 1)?;
    let algorithm = match hash {
        Hash::Sha256 => hkdf::HKDF_SHA256,
        Hash::Sha384 => hkdf::HKDF_SHA384,
    };
    if secret.len() < hash.length() {
        return None; // a secret of another hash
    }
    let secret = hkdf::Prk::new_less_safe(algorithm, secret);
    secret.expand(&[info], Length(out.len())).ok()?.fill(out).ok()
}

/// Fills `out` with the TLS 1.2 key block (RFC 5246 section 6.3): `P_hash` with the label "key expansion" (section 5).
fn key_block(hash: Hash, master: &[u8], [server, client]: &[&Random; 2], out: &mut [u8]) -> Option<()> {
    let algorithm = match hash {
        Hash::Sha256 => hmac::HMAC_SHA256,
        Hash::Sha384 => hmac::HMAC_SHA384,
    };
    let key = hmac::Key::new(algorithm, master);
    let sign = |parts: &[&[u8]]| {
        let mut mac = hmac::Context::with_key(&key);
        parts.iter().for_each(|part| mac.update(part));
        mac.sign()
    };
    let seed: [&[u8]; 3] = [b"key expansion", *server, *client];
    let mut a = sign(&seed);
    for chunk in out.chunks_mut(hash.length()) {
        let block = sign(&[a.as_ref(), seed[0], seed[1], seed[2]]);
        chunk.copy_from_slice(block.as_ref().get(..chunk.len())?);
        a = sign(&[a.as_ref()]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::support::hex;

    /// RFC 8448 section 3, "Simple 1-RTT Handshake": the server's application traffic secret, key and IV.
    #[test]
    fn tls13_schedule_of_rfc_8448() {
        let secret = hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        expand_label(Hash::Sha256, &secret, b"key", &mut key).unwrap();
        expand_label(Hash::Sha256, &secret, b"iv", &mut iv).unwrap();
        assert_eq!(key.to_vec(), hex("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!(iv.to_vec(), hex("cf782b88dd83549aadf1e984"));
    }

    /// RFC 8448 section 3: the server's second application record, an alert (sequence number 2).
    #[test]
    fn tls13_record_of_rfc_8448() {
        let secret = Secret::new(&hex("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643")).unwrap();
        let opener = Opener::tls13(Suite::find(0x1301).unwrap(), &secret).unwrap();
        let header = [0x17, 3, 3, 0, 0x13];
        let body = hex("b58fd67166ebf599d24720cfbe7efa7a8864a9");
        assert_eq!(opener.open(&header, 1, &mut body.clone()), None);
        assert_eq!(opener.open(&header, 2, &mut body.clone()), Some(Opened { kind: 21, bytes: &[1, 0] }));
    }

    #[test]
    fn padding_and_type_of_tls13() {
        assert_eq!(strip_padding(&[7, 0, 0, 23, 0, 0]), Some(Opened { kind: 23, bytes: &[7, 0, 0] }));
        assert_eq!(strip_padding(&[22]), Some(Opened { kind: 22, bytes: &[] }));
        assert_eq!(strip_padding(&[0, 0]), None);
        assert_eq!(strip_padding(&[]), None);
    }

    #[test]
    fn a_record_shorter_than_its_protection_does_not_open() {
        let random = [0; 32];
        for id in [0xc02f, 0xc030, 0xcca8] {
            let suite = Suite::find(id).unwrap();
            for role in 0..2 {
                let opener = Opener::tls12(suite, &Secret::new(&[0; 48]).unwrap(), &random, &random, role).unwrap();
                for length in 0..=opener.overhead() {
                    assert_eq!(opener.open(&[23, 3, 3, 0, 0], 0, &mut vec![0; length]), None);
                }
            }
        }
    }
}
