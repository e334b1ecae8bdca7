//! A message and its echo over tokio, between two devices that other processes serve.
//!
//! `cargo run -p bareverbs --features futures,vfio-user --example tokio_echo -- SOCKET SOCKET`, with `bareverbs serve` at each socket.

use bareverbs::futures::{BufferPool, Dispatcher, DispatcherConfig, InterruptSource, PreparedQueuePair};
use bareverbs::prelude::*;
use bareverbs::vfio_user::{VfioUserConfig, VfioUserHal};
use std::error::Error;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::time::{self, Interval};

type Handle = Arc<Device<VfioUserHal>>;

/// An interrupt vector registered with tokio's reactor.
struct Vector {
    device: Handle,
    fired: AsyncFd<OwnedFd>,
    /// A lost device raises no interrupt, so this timer polls it.
    tick: Interval,
}

// ANCHOR: interrupts
impl InterruptSource for Vector {
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tick.poll_tick(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.fired.poll_read_ready(cx))?.clear_ready();
        self.device.hal().drain_vector(0);
        Poll::Ready(Ok(()))
    }
}
// ANCHOR_END: interrupts

/// One end: a buffer pool, and a queue pair with one posted receive.
struct End {
    pool: BufferPool<Handle>,
    prepared: PreparedQueuePair<Handle>,
}

fn end(socket: &Path, number: u8) -> Result<End, Box<dyn Error>> {
    let hal = VfioUserHal::connect(socket, VfioUserConfig::default())?;
    let device: Handle = Arc::new(Device::open(hal, DeviceConfig::default())?);
    let mac = device.port()?.mac;
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, number]), mac))?;
    let domain = ProtectionDomain::allocate(device.clone())?;
    let pool = BufferPool::allocate(&domain, 8, 4096)?;
    let vector = device.hal().vector_fd(0).ok_or("the device has no interrupt vector")?;
    #[allow(
        deprecated,
        reason = "what is asked of the descriptor, an OwnedFd keeps: open, and the same, until it is dropped"
    )]
    let fired = AsyncFd::new(vector.try_clone_to_owned()?)?;
    let tick = time::interval(time::Duration::from_secs(1));
    let dispatcher = Dispatcher::new(device.clone(), DispatcherConfig::default())?;
    tokio::spawn(dispatcher.clone().run(Vector { device, fired, tick }));
    let mut prepared = dispatcher.prepare(&domain, |builder| builder)?;
    prepared.post_receive(pool.try_take().ok_or("no buffer")?)?;
    Ok(End { pool, prepared })
}

/// Sends `text` from one device to the other and returns the echo.
pub async fn echo(sockets: &[PathBuf; 2], text: &str) -> Result<String, Box<dyn Error>> {
    let (client, server) = (end(&sockets[0], 1)?, end(&sockets[1], 2)?);
    // Real programs exchange endpoints over TCP or a file.
    let (to_client, to_server) = (client.prepared.endpoint(0)?, server.prepared.endpoint(0)?);
    // ANCHOR: echo
    let answering = server.prepared.connect(&to_client, ConnectOptions::default())?;
    tokio::spawn(async move {
        let message = answering.receive().await?;
        answering.send(message.buffer).await
    });
    let asking = client.prepared.connect(&to_server, ConnectOptions::default())?;
    let mut buffer = client.pool.take().await;
    buffer.fill_from(text.as_bytes())?;
    asking.send(buffer).await?;
    let answer = time::timeout(time::Duration::from_secs(10), asking.receive()).await??;
    // ANCHOR_END: echo
    Ok(String::from_utf8(answer.buffer.to_vec())?)
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "the test that includes this file calls `echo`")]
async fn main() -> Result<(), Box<dyn Error>> {
    let sockets: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let sockets = sockets.try_into().map_err(|_| "usage: tokio_echo SOCKET SOCKET")?;
    println!("the other end answers: {}", echo(&sockets, "hello over vfio-user").await?);
    Ok(())
}
