//! Attacks of a hostile guest on the card that it was given. Each runs until its process is ended;
//! `tests/attacks.rs` measures from outside what a bystander notices. The first half uses the driver, so its
//! requests are well formed; the second half speaks vfio-user itself.

use crate::node::all_access;
use anyhow::{Context, Result};
use bareverbs_core::completion_queue::{CompletionQueue, CompletionQueueConfig};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::gid::GidEntry;
use bareverbs_core::indirect_region::IndirectRegion;
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, QueuePair, QueuePairBuilder};
use bareverbs_core::work_request::WorkRequest;
use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs_prm::ids::Gid;
use core::convert::Infallible;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;

type Card = Rc<Device<VfioUserHal>>;

/// Work requests that wait at the card at a time.
const DEPTH: u32 = 64;
/// What an attacker prints on its standard output once its attack is under way.
pub const UNDER_WAY: &str = "under way";

/// An attack that goes on until its process ends.
pub type Attack = fn(&Path) -> Result<Infallible>;

/// All attacks, by name.
pub const ATTACKS: [(&str, Attack); 8] = [
    ("writes-to-itself", writes_to_itself),
    ("many-pieces", many_pieces),
    ("keys", keys),
    ("writes-without-replies", writes_without_replies),
    ("replies-that-nobody-takes", replies_that_nobody_takes),
    ("claims-4-gib", claims_4_gib),
    ("half-a-message", half_a_message),
    ("garbage", garbage),
];

/// A queue pair that is connected to itself.
struct Attacker {
    queue_pair: QueuePair<Card>,
    sends: CompletionQueue<Card>,
    memory: MemoryRegion<Card>,
    domain: ProtectionDomain<Card>,
}

impl Attacker {
    fn open(socket: &Path) -> Result<Self> {
        let hal = VfioUserHal::connect(socket, VfioUserConfig::default())?;
        let card = Rc::new(Device::open(hal, DeviceConfig::default())?);
        card.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 66]), card.port()?.mac))?;
        let domain = ProtectionDomain::allocate(card.clone())?;
        let sends = CompletionQueue::create(card.clone(), CompletionQueueConfig { entries: 2 * DEPTH })?;
        let memory = MemoryRegion::allocate(&domain, 1 << 20, all_access())?;
        let prepared =
            QueuePairBuilder::new(&domain, &sends, &sends).send_queue(DEPTH).access(all_access()).build()?;
        let own = prepared.endpoint(0)?;
        let queue_pair = prepared.connect(&own, ConnectOptions::default())?;
        Ok(Self { queue_pair, sends, memory, domain })
    }

    /// A list that holds the same piece of memory `times` times.
    fn repeat(&self, piece: MemorySlice, times: usize) -> Result<IndirectRegion<Card>> {
        let limit = self.domain.device().capabilities().max_key_list as usize;
        Ok(IndirectRegion::create(&self.domain, &vec![piece; times.min(limit)], all_access())?)
    }

    /// Writes a whole region to itself, with as many requests queued as the send queue takes.
    fn write_for_ever(mut self, region: &IndirectRegion<Card>) -> Result<Infallible> {
        let length = u32::try_from(region.len())?;
        let from = [region.slice(0, length)?];
        say_under_way()?;
        let mut waiting = 0;
        loop {
            while waiting < DEPTH {
                self.queue_pair.post_send(&WorkRequest::write(0, &from, region.remote(0)))?;
                waiting += 1;
            }
            while let Some(completion) = self.sends.poll_one()? {
                anyhow::ensure!(completion.is_success(), "a write failed: {}", completion.status);
                waiting -= 1;
            }
        }
    }
}

/// 64 messages of 128 MiB wait at any time.
fn writes_to_itself(socket: &Path) -> Result<Infallible> {
    let attacker = Attacker::open(socket)?;
    let region = attacker.repeat(attacker.memory.slice(0, 1 << 20)?, 128)?;
    attacker.write_for_ever(&region)
}

/// Lists of lists: a message in pieces of 64 bytes, about as many as one access may have.
fn many_pieces(socket: &Path) -> Result<Infallible> {
    let attacker = Attacker::open(socket)?;
    let inner = attacker.repeat(attacker.memory.slice(0, 64)?, 500)?;
    let region = attacker.repeat(inner.slice(0, u32::try_from(inner.len())?)?, 500)?;
    attacker.write_for_ever(&region)
}

/// Creates keys with long lists until the card has no room, destroys them, and starts again.
fn keys(socket: &Path) -> Result<Infallible> {
    let attacker = Attacker::open(socket)?;
    let piece = attacker.memory.slice(0, 64)?;
    let mut kept = Vec::new();
    say_under_way()?;
    loop {
        match attacker.repeat(piece, 1000) {
            Ok(region) => kept.push(region),
            Err(_) => kept.clear(),
        }
    }
}

/// Commands of vfio-user.
const VERSION: u16 = 1;
const REGION_READ: u16 = 9;
const REGION_WRITE: u16 = 10;
/// Flag of a message that wants no reply.
const NO_REPLY: u32 = 1 << 4;
/// Longest message.
const MEBIBYTE: u32 = 1 << 20;

fn message(command: u16, size: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [1u16.to_ne_bytes(), command.to_ne_bytes()].concat();
    bytes.extend([size.to_ne_bytes(), flags.to_ne_bytes(), [0; 4]].concat());
    bytes.extend(body);
    bytes
}

/// The header of an access to BAR0, region 0.
fn access(offset: u64, count: u32) -> Vec<u8> {
    [&offset.to_ne_bytes()[..], &[0; 4], &count.to_ne_bytes()].concat()
}

/// Opens a conversation as the protocol requires.
fn converse(socket: &Path) -> Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(&message(VERSION, 23, 0, b"\0\0\x01\0{}\0"))?;
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let size = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]) as usize;
    stream.read_exact(&mut vec![0; size.checked_sub(16).context("a short reply")?])?;
    Ok(stream)
}

/// Writes to registers as fast as the socket takes them, a MiB a message.
fn writes_without_replies(socket: &Path) -> Result<Infallible> {
    let mut stream = converse(socket)?;
    let body = [access(0x10_0000, MEBIBYTE - 64), vec![0; MEBIBYTE as usize - 64]].concat();
    let write = message(REGION_WRITE, 16 + body.len() as u32, NO_REPLY, &body);
    stream.write_all(&write)?;
    say_under_way()?;
    loop {
        stream.write_all(&write)?;
    }
}

/// Asks for registers a MiB at a time and never reads the replies.
fn replies_that_nobody_takes(socket: &Path) -> Result<Infallible> {
    let read = message(REGION_READ, 32, 0, &access(0x10_0000, MEBIBYTE - 64));
    say_under_way()?;
    loop {
        let mut stream = converse(socket)?;
        // In the end the server drops this client, and the next one connects.
        while stream.write_all(&read).is_ok() {}
    }
}

/// Sends messages whose header claims more than the longest message.
fn claims_4_gib(socket: &Path) -> Result<Infallible> {
    let claim = message(REGION_WRITE, u32::MAX, 0, &access(0, u32::MAX - 32));
    say_under_way()?;
    loop {
        let mut stream = converse(socket)?;
        while stream.write_all(&claim).is_ok() {}
    }
}

/// Sends half a message and then nothing.
fn half_a_message(socket: &Path) -> Result<Infallible> {
    let mut stream = converse(socket)?;
    stream.write_all(&[1, 0, 9])?;
    say_under_way()?;
    loop {
        std::thread::park();
    }
}

/// Connects, sends garbage, and disconnects.
fn garbage(socket: &Path) -> Result<Infallible> {
    say_under_way()?;
    for salt in (0..=u8::MAX).cycle() {
        let mut stream = UnixStream::connect(socket)?;
        let words: Vec<u8> = (0..200).map(|at: u8| at.wrapping_mul(31) ^ salt).collect();
        let whole = message(u16::from(salt % 20), 216, 0, &words);
        // A server that hangs up first has understood enough.
        let _ = stream.write_all(&whole).and_then(|()| stream.write_all(&words));
    }
    unreachable!("a cycling iterator never ends")
}

fn say_under_way() -> Result<()> {
    println!("{UNDER_WAY}");
    std::io::stdout().flush().context("nobody listens")
}
