//! How two hosts connect queue pairs before there is a connection: by the board, with a number for each call, so that neither takes an old
//! answer for a new one.

use crate::host::{Handle, Host};
use bareverbs_core::{ConnectOptions, RemoteEndpoint};
use bareverbs_futures::{PreparedQueuePair, QueuePair};
use std::error::Error;

/// Bytes of the number of a call.
const NUMBER: usize = 8;

/// Connections in a cluster of microseconds: a peer that does not answer is given up after a millisecond instead of half a second.
const OPTIONS: ConnectOptions =
    ConnectOptions { ack_timeout: 5, min_rnr_timer: 1, ..ConnectOptions::DEFAULT };

impl Host {
    /// Calls whoever [accepts](Self::accept) `topic`, and connects `prepared` to it. Waits for an answer for ever: put it into
    /// [`Self::timeout`].
    ///
    /// # Errors
    /// The endpoint could not be had, or the connection was refused.
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

    /// Waits for the next call to `topic` after number `last`, which is 0 at first, and connects what `prepare` makes to it. Receives that
    /// `prepare` posts are there before the caller sends.
    ///
    /// # Errors
    /// The endpoint could not be had, or the connection was refused.
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

/// Number and endpoint of a call. What is shorter is none.
fn split(call: &[u8]) -> (u64, &[u8]) {
    match call.split_first_chunk::<NUMBER>() {
        Some((number, endpoint)) => (u64::from_be_bytes(*number), endpoint),
        None => (0, &[]),
    }
}
