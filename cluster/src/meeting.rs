//! How two hosts connect queue pairs through the bulletin board. Every call has a number, so that neither host mistakes
//! an old answer for a new one.

use crate::host::{Handle, Host};
use bareverbs_core::{ConnectOptions, RemoteEndpoint};
use bareverbs_futures::{PreparedQueuePair, QueuePair};
use std::error::Error;

/// Bytes of a call number.
const NUMBER: usize = 8;

/// Connection options for a cluster whose round trips take microseconds: an unresponsive peer is given up after a
/// millisecond, not half a second.
const OPTIONS: ConnectOptions =
    ConnectOptions { ack_timeout: 5, min_rnr_timer: 1, ..ConnectOptions::DEFAULT };

impl Host {
    /// Calls the host that [accepts](Self::accept) `topic` and connects `prepared` to it. Waits forever for an answer;
    /// wrap it in [`Self::timeout`].
    ///
    /// # Errors
    /// The endpoint is unavailable, or the connection was refused.
    pub async fn dial(
        &self,
        topic: &str,
        prepared: PreparedQueuePair<Handle>,
    ) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        let key = format!("{topic}/call");
        let number = self.try_lookup(&key).map_or(1, |last| split(&last).0 + 1);
        self.publish(&key, &join(number, &prepared.endpoint(0)?));
        let answer = self.lookup(&format!("{topic}/answer/{number}")).await;
        Ok(prepared.connect(&RemoteEndpoint::from_bytes(&answer)?, OPTIONS)?)
    }

    /// Waits for the next call to `topic` after number `last` (0 at first) and connects the queue pair from `prepare`
    /// to it. Receives that `prepare` posts are in place before the caller sends.
    ///
    /// # Errors
    /// The endpoint is unavailable, or the connection was refused.
    pub async fn accept(
        &self,
        topic: &str,
        last: &mut u64,
        prepare: impl FnOnce() -> Result<PreparedQueuePair<Handle>, Box<dyn Error>>,
    ) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        let call = self.lookup_where(&format!("{topic}/call"), |call| split(call).0 > *last).await;
        let (number, endpoint) = split(&call);
        *last = number;
        let prepared = prepare()?;
        let own = prepared.endpoint(0)?;
        let queue_pair = prepared.connect(&RemoteEndpoint::from_bytes(endpoint)?, OPTIONS)?;
        self.publish(&format!("{topic}/answer/{number}"), &own.to_bytes());
        Ok(queue_pair)
    }
}

fn join(number: u64, endpoint: &RemoteEndpoint) -> Vec<u8> {
    [&number.to_be_bytes()[..], &endpoint.to_bytes()].concat()
}

/// Splits a call into its number and endpoint. A call that is too short has number 0.
fn split(call: &[u8]) -> (u64, &[u8]) {
    match call.split_first_chunk::<NUMBER>() {
        Some((number, endpoint)) => (u64::from_be_bytes(*number), endpoint),
        None => (0, &[]),
    }
}
