//! Collects the methods that the RPCs of one connection use.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::state_fields;
use crate::store::context::Context;
use crate::store::tables::ConnectionMethodRow;

/// Methods by number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ConnectionMethods {
    latest: Option<u32>,
    /// In the order of their numbers, that of no method last.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::INTERNED_STRINGS + 2 }, _, _>")]
    all: Vec<u32>,
}

impl ConnectionMethods {
    /// Notes that an RPC of `method` begins.
    #[inline]
    pub fn note(&mut self, method: u32) {
        if self.latest != Some(method) {
            self.change(method);
        }
    }

    #[cold]
    fn change(&mut self, method: u32) {
        self.latest = Some(method);
        if let Err(place) = self.all.binary_search(&method) {
            self.all.insert(place, method);
        }
    }

    /// Forgets all methods.
    pub fn clear(&mut self) {
        self.latest = None;
        self.all.clear();
    }

    /// Writes the rows of a connection.
    pub fn write(&self, connection: u32, cx: &mut Context) {
        for &method in &self.all {
            cx.connection_methods.push(ConnectionMethodRow { connection, method });
        }
    }
}
