//! Stations: what most tasks start with, namely a device, message buffers, and queue pairs that exchange messages.

use crate::host::{Handle, Host, TaskResult};
use bareverbs_core::ProtectionDomain;
use bareverbs_futures::{BufferPool, Dispatcher, PreparedQueuePair, QueuePair};
use bareverbs_prm::time::Duration;
use core::fmt;
use std::error::Error;

/// Receives that a queue pair of a station keeps posted.
const RECEIVES: usize = 4;

/// Pause between a broken connection and the next call.
const REST: Duration = Duration::from_micros(20);

/// A connection to another host.
pub type Peer = QueuePair<Handle>;

/// The device of a host's port 0, with protection domain, dispatcher and buffers. It ends with its tasks.
///
/// ```
/// use bareverbs_cluster::{SimCluster, Station};
/// use bareverbs_prm::time::Duration;
///
/// const TIMEOUT: Duration = Duration::from_millis(1);
///
/// let cluster = SimCluster::new(1, 2);
/// cluster.boot(0, |host| async move {
///     let station = Station::open(&host, 16, 64)?;
///     let peer = station.dial("echo", TIMEOUT).await?;
///     station.tell(&peer, b"hello").await?;
///     assert_eq!(station.hear(&peer, TIMEOUT).await?, b"hello");
///     Ok(())
/// });
/// cluster.boot(1, |host| async move {
///     let (station, mut calls) = (Station::open(&host, 16, 64)?, 0);
///     let peer = station.accept("echo", &mut calls).await?;
///     let message = station.hear(&peer, TIMEOUT).await?;
///     station.tell(&peer, &message).await
/// });
/// cluster.run(Duration::from_secs(1)).unwrap();
/// ```
pub struct Station {
    /// The host.
    pub host: Host,
    /// The device of port 0.
    pub device: Handle,
    /// Protection domain of the buffers and queue pairs.
    pub domain: ProtectionDomain<Handle>,
    /// Dispatcher of all completions.
    pub dispatcher: Dispatcher<Handle>,
    /// Buffers for messages and for the task's own use.
    pub pool: BufferPool<Handle>,
}

impl Station {
    /// Opens the device of port 0 and allocates `buffers` buffers of `bytes` bytes.
    ///
    /// # Errors
    /// The device did not open, or one of the resources could not be created.
    pub fn open(host: &Host, buffers: u32, bytes: usize) -> Result<Self, Box<dyn Error>> {
        let device = host.open(0)?;
        let domain = ProtectionDomain::allocate(device.clone())?;
        let pool = BufferPool::allocate(&domain, buffers, bytes)?;
        let dispatcher = host.dispatcher(&device)?;
        Ok(Self { host: host.clone(), device, domain, dispatcher, pool })
    }

    /// Creates a queue pair and posts receives for the first messages.
    ///
    /// # Errors
    /// The queue pair could not be created, or no buffer is left.
    pub fn prepare(&self) -> Result<PreparedQueuePair<Handle>, Box<dyn Error>> {
        let mut prepared = self.dispatcher.prepare(&self.domain, |builder| builder)?;
        for _ in 0..RECEIVES {
            prepared
                .post_receive(self.pool.try_take().ok_or("a station has no buffer left for a receive")?)?;
        }
        Ok(prepared)
    }

    /// Calls the host that [accepts](Self::accept) `topic`.
    ///
    /// # Errors
    /// Nobody answers within `timeout`, or connecting failed.
    pub async fn dial(&self, topic: &str, timeout: Duration) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        let dialled = self.host.dial(topic, self.prepare()?);
        self.host.timeout(timeout, dialled).await.ok_or_else(|| format!("nobody answers on {topic}"))?
    }

    /// Waits for the next call to `topic` after number `last` (0 at first).
    ///
    /// # Errors
    /// Connecting failed.
    pub async fn accept(&self, topic: &str, last: &mut u64) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        self.host.accept(topic, last, || self.prepare()).await
    }

    /// Accepts one call to `topic` after another, and repeats `round` with each peer until a round fails: then the peer
    /// is gone and may call again. Returns only on an error. [`Failure::rounds`](crate::Failure::rounds) has the error
    /// of the last round.
    ///
    /// # Errors
    /// Connecting failed.
    pub async fn serve(&self, topic: &str, round: impl AsyncFn(&Peer) -> TaskResult) -> TaskResult {
        let mut calls = 0;
        loop {
            let peer = self.accept(topic, &mut calls).await?;
            self.run_rounds(topic, &peer, &round).await;
        }
    }

    /// Repeats `round` until it fails.
    async fn run_rounds(&self, topic: &str, peer: &Peer, round: &impl AsyncFn(&Peer) -> TaskResult) {
        loop {
            if let Err(error) = round(peer).await {
                return self.host.note_round(topic, &*error);
            }
        }
    }

    /// Calls `topic` and repeats `round` until it fails or nobody answers for `timeout`, then calls again after 20 µs.
    /// Never returns, so spawn it. [`Failure::rounds`](crate::Failure::rounds) has the error of the last round.
    ///
    /// # Errors
    /// None.
    pub async fn keep(
        &self,
        topic: &str,
        timeout: Duration,
        round: impl AsyncFn(&Peer) -> TaskResult,
    ) -> TaskResult {
        loop {
            if let Ok(peer) = self.dial(topic, timeout).await {
                self.run_rounds(topic, &peer, &round).await;
            }
            self.host.sleep(REST).await;
        }
    }

    /// Sends `message` to the peer.
    ///
    /// # Errors
    /// The message is longer than a buffer, or the send failed.
    pub async fn tell(&self, peer: &QueuePair<Handle>, message: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut buffer = self.pool.take().await;
        buffer.fill_from(message)?;
        peer.send(buffer).await?;
        Ok(())
    }

    /// Sends a number to the peer, big-endian.
    ///
    /// # Errors
    /// Buffers are shorter than 8 bytes, or the send failed.
    pub async fn tell_number(&self, peer: &Peer, number: u64) -> TaskResult {
        self.tell(peer, &number.to_be_bytes()).await
    }

    /// Receives a number from the peer.
    ///
    /// # Errors
    /// Like [`Self::hear`], or the message is not 8 bytes long.
    pub async fn hear_number(&self, peer: &Peer, timeout: Duration) -> Result<u64, Box<dyn Error>> {
        let message = self.hear(peer, timeout).await?;
        let bytes = message.as_slice().try_into();
        Ok(u64::from_be_bytes(
            bytes.map_err(|_| format!("a number has 8 bytes, but the message has {}", message.len()))?,
        ))
    }

    /// Receives the next message of the peer and posts its receive again.
    ///
    /// # Errors
    /// Nothing arrives within `timeout`, or the connection is broken.
    pub async fn hear(&self, peer: &QueuePair<Handle>, timeout: Duration) -> Result<Vec<u8>, Box<dyn Error>> {
        let message = self.host.timeout(timeout, peer.receive()).await;
        let buffer = message.ok_or_else(|| format!("the peer sent nothing for {timeout}"))??.buffer;
        let bytes = buffer.to_vec();
        peer.post_receive(buffer)?;
        Ok(bytes)
    }
}

impl fmt::Debug for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("host", &self.host).finish_non_exhaustive()
    }
}
