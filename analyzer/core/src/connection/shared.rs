//! What the connections of one thread share besides tables.

use std::sync::Arc;

use crate::http2::hpack::Decoder;
use crate::store::strings::Strings;
use crate::tls::{Decryptor, KeyLog};

use super::tap::Tap;

/// Secrets, and the tap.
#[derive(Debug, Default)]
pub struct Shared {
    keys: Arc<KeyLog>,
    /// Made with the first TLS connection.
    decryptor: Option<Box<Decryptor>>,
    /// What the decoders of new connections are like: the meanings of HPACK's static table are kept once. Made with the first
    /// connection.
    hpack: Option<Decoder<Strings>>,
    /// Sees the bytes of all connections.
    pub tap: Option<Box<dyn Tap>>,
}

impl Shared {
    /// Decrypts TLS with these secrets.
    pub fn new(keys: Arc<KeyLog>) -> Self {
        Self { keys, ..Self::default() }
    }

    /// What the decoders of new connections are like.
    pub(super) fn hpack(&mut self, strings: &mut Strings) -> &Decoder<Strings> {
        self.hpack.get_or_insert_with(|| Decoder::new(strings))
    }

    /// Forgets the decoder, because it refers to names that were forgotten.
    pub fn forget_names(&mut self) {
        self.hpack = None;
    }

    /// What all TLS connections decrypt with.
    pub(super) fn decryptor(&mut self) -> &mut Decryptor {
        self.decryptor.get_or_insert_with(|| Box::new(Decryptor::new(Arc::clone(&self.keys))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::headers::HeaderClass;
    use crate::store::strings::UsedNames;

    #[test]
    fn new_connections_refer_to_no_name_that_was_forgotten() {
        let (mut shared, mut strings) = (Shared::default(), Strings::default());
        shared.hpack(&mut strings);
        shared.forget_names();
        strings.forget_unused(&UsedNames::default());
        strings.method(b"/another.Service/Call");
        let (mut decoder, mut paths) = (shared.hpack(&mut strings).new_like(), Vec::new());
        let path = &[0x84]; // `:path: /` (RFC 7541 appendix A)
        decoder.decode(path, &mut strings, &mut |field| paths.push(field.class)).unwrap();
        assert!(matches!(paths[..], [HeaderClass::Path(number)] if strings.methods.get(number) == Some(b"/")));
    }
}
