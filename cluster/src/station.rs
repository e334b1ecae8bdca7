//! What most tasks begin with: a device with memory for messages, and queue pairs that exchange them.

use crate::host::{Handle, Host, TaskResult};
use bareverbs_core::ProtectionDomain;
use bareverbs_futures::{BufferPool, Dispatcher, PreparedQueuePair, QueuePair};
use bareverbs_prm::time::Duration;
use core::fmt;
use std::error::Error;

/// Receives that a queue pair of a station has posted.
const RECEIVES: usize = 4;

/// Between a connection that broke and the next call.
const REST: Duration = Duration::from_micros(20);

/// A connection to another host.
pub type Peer = QueuePair<Handle>;

/// The device of port 0 of a host, with a domain, a dispatcher and buffers. It ends with its tasks.
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
    /// Its device.
    pub device: Handle,
    /// The domain of everything here.
    pub domain: ProtectionDomain<Handle>,
    /// Where everything here completes.
    pub dispatcher: Dispatcher<Handle>,
    /// Buffers for messages, and for whatever else.
    pub pool: BufferPool<Handle>,
}

impl Station {
    /// Opens the device of port 0, with `buffers` of `bytes` each.
    ///
    /// # Errors
    /// One of the parts could not be made.
    pub fn open(host: &Host, buffers: u32, bytes: usize) -> Result<Self, Box<dyn Error>> {
        let device = host.open(0)?;
        let domain = ProtectionDomain::allocate(device.clone())?;
        let pool = BufferPool::allocate(&domain, buffers, bytes)?;
        let dispatcher = host.dispatcher(&device)?;
        Ok(Self { host: host.clone(), device, domain, dispatcher, pool })
    }

    /// A queue pair with receives for the first messages.
    ///
    /// # Errors
    /// It could not be made, or there are no buffers left.
    pub fn prepare(&self) -> Result<PreparedQueuePair<Handle>, Box<dyn Error>> {
        let mut prepared = self.dispatcher.prepare(&self.domain, |builder| builder)?;
        for _ in 0..RECEIVES {
            prepared
                .post_receive(self.pool.try_take().ok_or("a station has no buffer left for a receive")?)?;
        }
        Ok(prepared)
    }

    /// Calls whoever [accepts](Self::accept) `topic`.
    ///
    /// # Errors
    /// Nobody answers for `timeout`, or the connection could not be made.
    pub async fn dial(&self, topic: &str, timeout: Duration) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        let dialled = self.host.dial(topic, self.prepare()?);
        self.host.timeout(timeout, dialled).await.ok_or_else(|| format!("nobody answers on {topic}"))?
    }

    /// Waits for the next call to `topic` after number `last`, which is 0 at first.
    ///
    /// # Errors
    /// The connection could not be made.
    pub async fn accept(&self, topic: &str, last: &mut u64) -> Result<QueuePair<Handle>, Box<dyn Error>> {
        self.host.accept(topic, last, || self.prepare()).await
    }

    /// Accepts call after call to `topic`, and runs `round` again and again with each peer until it breaks: then the peer is gone, and may
    /// call anew. Ends only with an error. How the last round ended is in [`Failure::rounds`](crate::Failure::rounds).
    ///
    /// # Errors
    /// A connection could not be made.
    pub async fn serve(&self, topic: &str, round: impl AsyncFn(&Peer) -> TaskResult) -> TaskResult {
        let mut calls = 0;
        loop {
            let peer = self.accept(topic, &mut calls).await?;
            self.run_rounds(topic, &peer, &round).await;
        }
    }

    /// Runs `round` until it ends with an error.
    async fn run_rounds(&self, topic: &str, peer: &Peer, round: &impl AsyncFn(&Peer) -> TaskResult) {
        loop {
            if let Err(error) = round(peer).await {
                return self.host.note_round(topic, &*error);
            }
        }
    }

    /// Calls `topic`, and runs `round` again and again until it breaks; then calls anew after 20 µs. So it does if nobody answers for `timeout`.
    /// Never ends: spawn it. How the last round ended is in [`Failure::rounds`](crate::Failure::rounds).
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
    /// The message is longer than a buffer, or the peer did not take it.
    pub async fn tell(&self, peer: &QueuePair<Handle>, message: &[u8]) -> Result<(), Box<dyn Error>> {
        let mut buffer = self.pool.take().await;
        buffer.fill_from(message)?;
        peer.send(buffer).await?;
        Ok(())
    }

    /// Sends a number to the peer, in the order of the network.
    ///
    /// # Errors
    /// Buffers are shorter than 8 bytes, or the peer did not take it.
    pub async fn tell_number(&self, peer: &Peer, number: u64) -> TaskResult {
        self.tell(peer, &number.to_be_bytes()).await
    }

    /// The next message of the peer, which is a number.
    ///
    /// # Errors
    /// As [`Self::hear`], or the message is not 8 bytes long.
    pub async fn hear_number(&self, peer: &Peer, timeout: Duration) -> Result<u64, Box<dyn Error>> {
        let message = self.hear(peer, timeout).await?;
        let bytes = message.as_slice().try_into();
        Ok(u64::from_be_bytes(
            bytes.map_err(|_| format!("a number has 8 bytes, the message {}", message.len()))?,
        ))
    }

    /// The next message of the peer; its receive is posted again.
    ///
    /// # Errors
    /// Nothing comes for `timeout`, or the connection is broken.
    pub async fn hear(&self, peer: &QueuePair<Handle>, timeout: Duration) -> Result<Vec<u8>, Box<dyn Error>> {
        let message = self.host.timeout(timeout, peer.receive()).await;
        let buffer = message.ok_or_else(|| format!("the peer says nothing for {timeout}"))??.buffer;
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
