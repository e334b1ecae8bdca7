//! The program: opens the device, tells the peer about itself, looks every key up on each way, verifies every answer.

use crate::console::{Console, read_line};
use crate::exchange::{Answer, Offer, WayName, Window};
use crate::rows::{self, MAX_VALUE, ROWS};
use bareverbs_core::device::{Device, DeviceConfig, DeviceRef};
use bareverbs_core::hal::Hal;
use bareverbs_core::{
    AccessFlags, CompletionQueue, CompletionQueueConfig, ConnectOptions, GidEntry, MemoryRegion,
    ProtectionDomain, QueuePairBuilder,
};
use bareverbs_offload::budget::Limits;
use bareverbs_offload::client::slots::SlotLayout;
use bareverbs_offload::client::{ClientConfig, Ended, KvClient, LookupResult, Way};
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernels::kv_layout::{MAX_KEY, object_size};
use bareverbs_offload::status::Status;
use bareverbs_offload::verbs::{INLINE, VerbsEndpoint};
use bareverbs_offload::wire::RegionHandle;
use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::Duration;
use core::fmt;

/// Lookups under way at a time.
pub const WINDOW: usize = 4;
/// Sends of the queue pair.
const DEPTH: u32 = 16;
/// How long the peer may take to answer on the console.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a lookup may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Local ACK timeout of 0.27 s: an emulated machine pauses for longer than a real network takes.
const ACK_TIMEOUT: u8 = 16;
/// Our address, if the peer is on the same network.
pub const OUR_GID: Gid = Gid::from_ipv4([10, 0, 0, 1]);
/// Bytes of the longest object that a READ brings.
const OBJECT: usize = object_size(MAX_KEY, MAX_VALUE as usize) as usize;

/// Something could not be done; what, and why, was said on the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// Errors are said where they happen: there is nobody above who could do better, and no memory to carry them in.
trait ReportError<T> {
    fn or_report(self, console: &mut impl Console, doing: &str) -> Result<T, Failed>;
}

impl<T, E: fmt::Display> ReportError<T> for Result<T, E> {
    fn or_report(self, console: &mut impl Console, doing: &str) -> Result<T, Failed> {
        self.map_err(|error| {
            say(console, format_args!("bareverbs failed: {doing}: {error}"));
            Failed
        })
    }
}

// ANCHOR: run
/// Opens the device on `hal`, looks everything up, and closes it.
pub fn run<H: Hal>(hal: H, console: &mut impl Console) -> Result<(), Failed> {
    let config =
        DeviceConfig { queue_pairs: 4, ledger_words: 1024, mailbox_blocks: 32, ..DeviceConfig::default() };
    let device = Device::open(hal, config).or_report(console, "opening the device")?;
    let port = device.port().or_report(console, "asking for the port")?;
    say(console, format_args!("bareverbs up: port {:?} {}, MTU {}", port.state, port.mac, port.max_mtu));
    device.set_gid(0, GidEntry::roce_v2(OUR_GID, port.mac)).or_report(console, "setting our address")?;
    for way in WayName::ALL {
        let tally = ask(&device, console, way)?;
        say(console, format_args!("bareverbs verified {way}: {tally}"));
    }
    device.close().or_report(console, "closing the device").map(drop)
}
// ANCHOR_END: run

/// A console that does not take a line loses it; there is no other place to complain.
fn say(console: &mut impl Console, line: fmt::Arguments<'_>) {
    let _ = writeln!(console, "{line}");
}

/// What came of all lookups of a way.
#[derive(Debug, Default)]
struct Tally {
    found: u32,
    absent: u32,
    round_trips: u32,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.round_trips * 100 / self.found.max(1);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        write!(f, "{} values, {} absent, {whole}.{part:02} round trips each", self.found, self.absent)
    }
}

fn ask<D: DeviceRef>(device: D, console: &mut impl Console, way: WayName) -> Result<Tally, Failed> {
    let domain =
        ProtectionDomain::allocate(device.clone()).or_report(console, "allocating a protection domain")?;
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let length = ClientConfig::stride(MAX_VALUE) as usize * WINDOW;
    let slots =
        MemoryRegion::allocate(&domain, length, access).or_report(console, "allocating response slots")?;
    let entries = CompletionQueueConfig { entries: 4 * DEPTH };
    let completions =
        CompletionQueue::create(device.clone(), entries).or_report(console, "creating a completion queue")?;
    let prepared = QueuePairBuilder::new(&domain, &completions, &completions)
        .send_queue(DEPTH)
        .receive_queue(DEPTH)
        .max_inline(INLINE)
        .build()
        .or_report(console, "creating a queue pair")?;
    let endpoint = prepared.endpoint(0).or_report(console, "describing our queue pair")?;
    let window = Window { address: slots.address(), length: slots.len() as u64, rkey: slots.rkey().value() };
    let answer = introduce(device.device().hal(), console, &Offer { way, endpoint, slots: window })?;
    let options = ConnectOptions { ack_timeout: ACK_TIMEOUT, ..ConnectOptions::default() };
    let queue_pair = prepared.connect(&answer.endpoint, options).or_report(console, "connecting")?;
    let client = KvClient::<WINDOW>::new(configuration(console, way, &answer, &slots)?);
    let endpoint = VerbsEndpoint::new([queue_pair], completions, slots, DEPTH);
    LookupClient { client, endpoint, device }.all(console)
}

/// Sends the peer our offer and waits for its answer.
fn introduce(hal: &impl Hal, console: &mut impl Console, offer: &Offer) -> Result<Answer, Failed> {
    say(console, format_args!("{offer}"));
    let line = read_line(console, hal, PEER_TIMEOUT).or_report(console, "waiting for the peer's answer")?;
    Answer::parse(&line).or_report(console, "reading the peer's answer")
}

fn configuration<D: DeviceRef>(
    console: &mut impl Console,
    way: WayName,
    answer: &Answer,
    slots: &MemoryRegion<D>,
) -> Result<ClientConfig, Failed> {
    let memory = answer.memory;
    let way = match way {
        WayName::KernelDpu => Way::KernelDpu(RegionHandle(answer.region)),
        WayName::Read => {
            let region =
                Grant::new(memory.address, memory.length).or_report(console, "granting the table")?;
            Way::Read { rkey: memory.rkey, region }
        }
    };
    let layout = SlotLayout {
        address: slots.address(),
        rkey: slots.rkey().value(),
        stride: ClientConfig::stride(MAX_VALUE),
        max_response: MAX_VALUE,
    };
    let limits = Limits { time: TIMEOUT, ..Limits::default() };
    Ok(ClientConfig { way, table: answer.table, layout, credits: WINDOW as u32, timeout: TIMEOUT, limits })
}

/// Looks keys up, one after the other.
struct LookupClient<D: DeviceRef> {
    client: KvClient<WINDOW>,
    endpoint: VerbsEndpoint<D, 1>,
    device: D,
}

impl<D: DeviceRef> LookupClient<D> {
    fn all(&mut self, console: &mut impl Console) -> Result<Tally, Failed> {
        let (mut tally, mut buffer) = (Tally::default(), [0; OBJECT]);
        for row in 0..ROWS {
            let result = self.lookup(console, &rows::key(row), &mut buffer)?;
            verify(row, &result, &buffer).or_report(console, "verifying an answer")?;
            tally.found += 1;
            tally.round_trips += u32::from(result.round_trips);
        }
        for row in ROWS..ROWS + rows::ABSENT {
            let result = self.lookup(console, &rows::key(row), &mut buffer)?;
            if result.ended != Ended::Status(Status::NotFound) {
                let wrong: Result<(), _> = Err(Wrong { row, ended: result.ended });
                wrong.or_report(console, "asking for what is not there")?;
            }
            tally.absent += 1;
        }
        Ok(tally)
    }

    fn lookup(
        &mut self,
        console: &mut impl Console,
        key: &str,
        buffer: &mut [u8],
    ) -> Result<LookupResult, Failed> {
        let hal = self.device.device().hal();
        self.client
            .start(hal.now(), &mut self.endpoint, key.as_bytes())
            .or_report(console, "beginning a lookup")?;
        loop {
            let now = hal.now();
            // The client gives up by itself after its timeout.
            if let Some(result) = self.client.poll(now, &mut self.endpoint, buffer) {
                return Ok(result);
            }
            hal.relax(now + Duration::from_micros(20));
        }
    }
}

fn verify(row: u32, result: &LookupResult, buffer: &[u8]) -> Result<(), Wrong> {
    let value = buffer.get(..result.length as usize).unwrap_or_default();
    if result.ended == Ended::Found && value == rows::value(row).as_slice() {
        return Ok(());
    }
    Err(Wrong { row, ended: result.ended })
}

/// An answer that is not the right one.
#[derive(Debug)]
struct Wrong {
    row: u32,
    ended: Ended,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            Ended::Found => write!(f, "the value of row {} is not the one that was stored", self.row),
            Ended::Status(status) => write!(f, "row {}: {status}", self.row),
            Ended::TimedOut => write!(f, "row {}: no answer in time", self.row),
            Ended::Disconnected => write!(f, "row {}: the connection broke", self.row),
        }
    }
}
