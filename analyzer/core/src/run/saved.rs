//! Saves a run at the end of a file, so that another run goes on with the file behind it.
//!
//! Saved is what connections go on with: sequence numbers, HPACK tables without values, windows, open calls. Connections in
//! TLS are not saved: their keys are secret. To the next run they begin in the middle.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::clock_steps::Clock;
use crate::connection::Connection;
use crate::limits;
use crate::store::context::Context;
use crate::store::options::Options;
use crate::store::tables::RpcRow;
use crate::tls::KeyLog;

use super::pipeline::Pipeline;
use super::questions::Questions;
use super::router::{Known, Router};
use super::shard::Shard;

/// What is saved has this form; it is raised with changes that the sizes of types do not show.
const FORM: u32 = 10;

/// Which program saved: another one may have other types.
type Program<'a> = (u32, &'a str, Option<&'a str>, [u64; 5]);

const PROGRAM: Program<'static> = (
    FORM,
    env!("CARGO_PKG_VERSION"),
    option_env!("GRPCDIAG_COMMIT"),
    [
        size_of::<Connection>() as u64,
        size_of::<Context>() as u64,
        size_of::<Known>() as u64,
        size_of::<RpcRow>() as u64,
        size_of::<Shard>() as u64,
    ],
);

/// What goes on.
#[derive(Debug, Deserialize, Serialize)]
pub struct Saved {
    router: Router,
    shard: Shard,
    questions: Questions,
    clock: Option<Clock>,
    last_time: i64,
    end_time: i64,
    packets_before: u32,
}

impl Pipeline {
    /// Saves what goes on behind a cut.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn save(mut self) -> Result<Vec<u8>, String> {
        let not_fit = self.shards.here.prepare_saving();
        let mut free = 0_u32..;
        let known = 0..self.router.known().len() as u32;
        let numbers: Vec<Option<u32>> =
            known.map(|one| if not_fit.contains(&one) { None } else { free.next() }).collect();
        let packet = self.packets_before;
        self.forget(&numbers, packet);
        self.shards.here.forget_names();
        let Self { router, shards, questions, clock, last_time, end_time, packets_before, .. } = self;
        let saved = Saved { router, shard: shards.here, questions, clock, last_time, end_time, packets_before };
        let mut all = postcard::to_stdvec(&PROGRAM).map_err(|error| error.to_string())?;
        let (sum, state) = (all.len(), all.len() + SHA256.output_len());
        all.resize(state, 0);
        all = postcard::to_extend(&saved, all).map_err(|error| error.to_string())?;
        let found = all.get(state..).map(|state| digest(&SHA256, state));
        all.splice(sum..state, found.iter().flat_map(|found| found.as_ref()).copied());
        Ok(all)
    }

    /// Goes on with what was saved; packets are numbered from [`Pipeline::packets_before`] on.
    pub fn resume(options: Options, keys: Arc<KeyLog>, saved: Saved) -> Self {
        let Saved { router, shard, questions, clock, last_time, end_time, packets_before } = saved;
        let mut pipeline = Self::resumable(options, Arc::clone(&keys));
        let options = pipeline.shards.here.cx.options.clone();
        (pipeline.router, pipeline.shards.here, pipeline.questions) = (router, shard, questions);
        pipeline.shards.here.resume(options, keys);
        pipeline.clock = pipeline.clock.and(clock);
        (pipeline.last_time, pipeline.end_time) = (last_time, end_time);
        (pipeline.packets_before, pipeline.shards.cut) = (packets_before, packets_before);
        pipeline
    }
}

impl Saved {
    /// Packets of the captures before.
    pub fn packets_before(&self) -> u32 {
        self.packets_before
    }

    /// Reads what was saved. Damage shows by a checksum; of what has the right one, see [`crate::state_fields`].
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn parse(saved: &[u8]) -> Result<Self, String> {
        let (program, rest) = postcard::take_from_bytes::<Program<'_>>(saved).map_err(|_| "it is damaged")?;
        if program != PROGRAM {
            return Err(format!("it was saved by another build, of version {:.20}", program.1));
        }
        let (sum, state) = rest.split_at_checked(SHA256.output_len()).ok_or("it is damaged")?;
        if digest(&SHA256, state).as_ref() != sum {
            return Err("it is damaged".into());
        }
        let saved: Self = postcard::from_bytes(state).map_err(|_| "it is damaged")?;
        if saved.packets_before >= limits::LIVE_PACKETS {
            return Err("its packets have no more numbers".into());
        }
        Ok(saved)
    }
}
