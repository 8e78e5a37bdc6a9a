//! What the connections of one thread share besides tables.

use std::sync::Arc;

use crate::tls::{Decryptor, KeyLog};

use super::tap::Tap;

/// Secrets, and the tap.
#[derive(Debug, Default)]
pub struct Shared {
    keys: Arc<KeyLog>,
    /// Made with the first TLS connection.
    decryptor: Option<Box<Decryptor>>,
    /// Sees the bytes of all connections.
    pub tap: Option<Box<dyn Tap>>,
}

impl Shared {
    /// Decrypts TLS with these secrets.
    pub fn new(keys: Arc<KeyLog>) -> Self {
        Self { keys, decryptor: None, tap: None }
    }

    /// What all TLS connections decrypt with.
    pub(super) fn decryptor(&mut self) -> &mut Decryptor {
        self.decryptor.get_or_insert_with(|| Box::new(Decryptor::new(Arc::clone(&self.keys))))
    }
}
