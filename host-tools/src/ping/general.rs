//! Probes over the queue pair of general services, as `ibping` sends and answers them: from LID to LID on InfiniBand. Nobody meets
//! anybody over TCP, so that either end may be an unmodified `ibping`.

use super::datagram::{DATAGRAM, PingDatagram};
use super::outcome::PingOutcome;
use super::prober::{DEPTH, Probe, Prober, Rhythm};
use crate::Failure;
use crate::seat::{Seat, SeatedTask};
use anyhow::{Context as _, Result, anyhow, bail};
use bareverbs_core::address_handle::{
    Destination, GENERAL_SERVICES_Q_KEY, GENERAL_SERVICES_QPN, ROUTE_HEADER,
};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{AddressVector, QueuePair, QueuePairBuilder, Ud};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_core::{AddressHandle, Device};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::time::Duration;
use std::collections::VecDeque;

/// Bytes between two receives, and between two sends.
const STRIDE: usize = 512;
/// LIDs of one port (IBTA v1.4 §4.1.3): above are groups.
const UNICAST: std::ops::RangeInclusive<u16> = 1..=0xbfff;
/// Transactions of this program have this in their high half, so that answers to others are told apart. The kernel's agents count from 1.
const TRANSACTIONS: u64 = 0x6276_7073 << 32;
/// Completions that are taken at once.
const BATCH: usize = 16;

/// A datagram that has come, with the completion that tells from where.
struct Arrived {
    completion: WorkCompletion,
    header: [u8; ROUTE_HEADER],
    datagram: PingDatagram,
}

/// The queue pair. Fields are in the order in which they must go.
struct GeneralServices<'d, H: Hal> {
    queue_pair: QueuePair<&'d Device<H>, Ud>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    device: &'d Device<H>,
    /// Sends that were posted, and those that are done.
    posted: u64,
    done: u64,
}

impl<'d, H: Hal> GeneralServices<'d, H> {
    fn open(device: &'d Device<H>) -> Result<Self> {
        let port = device.port()?;
        if port.link_layer == PortType::Ethernet {
            bail!("the port is Ethernet: ibping is for InfiniBand. Take -c UD or -c RC at both ends");
        }
        if port.state.is_down() || port.lid == 0 {
            bail!(
                "the port is {} and has LID {}; `bareverbs doctor` says what keeps it from being managed",
                port.state,
                port.lid
            );
        }
        let domain = ProtectionDomain::allocate(device)?;
        let memory = MemoryRegion::allocate(&domain, 2 * DEPTH as usize * STRIDE, AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(DEPTH).create()?;
        let receives = CompletionQueue::builder(device).entries(DEPTH).create()?;
        let builder =
            QueuePairBuilder::new(&domain, &sends, &receives).send_queue(DEPTH).receive_queue(DEPTH);
        let prepared = builder.service::<Ud>().general_services().build();
        let queue_pair = prepared.context("the queue pair of general services")?.ready_to_send()?;
        let mut services = Self { queue_pair, sends, receives, memory, domain, device, posted: 0, done: 0 };
        for slot in 0..u64::from(DEPTH) {
            services.post_receive(slot)?;
        }
        Ok(services)
    }

    fn post_receive(&mut self, slot: u64) -> Result<()> {
        let slices = [self.memory.slice(slot as usize * STRIDE, ROUTE_HEADER + DATAGRAM)?];
        self.queue_pair.post_receive(&ReceiveRequest::new(slot, &slices))?;
        Ok(())
    }

    /// Takes the completions of sends; whether another may be posted.
    fn may_send(&mut self) -> Result<bool> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.sends.poll(&mut batch)?;
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a management datagram was not sent: {}", completion.status);
            }
            self.done += 1;
        }
        Ok(self.posted - self.done < DEPTH.into())
    }

    fn send(&mut self, datagram: &PingDatagram, destination: &Destination) -> Result<()> {
        let slot = DEPTH as usize + (self.posted % u64::from(DEPTH)) as usize;
        self.memory.copy_in(slot * STRIDE, &datagram.encode())?;
        let slices = [self.memory.slice(slot * STRIDE, DATAGRAM)?];
        self.queue_pair.post_send_to(&WorkRequest::send(self.posted, &slices), destination)?;
        self.posted += 1;
        Ok(())
    }

    /// Datagrams of the class that have come. Others are for services that are not here.
    fn take(&mut self) -> Result<Vec<Arrived>> {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let count = self.receives.poll(&mut batch)?;
        let mut arrived = Vec::with_capacity(count);
        for completion in &batch[..count] {
            if !completion.is_success() {
                bail!("a receive of management datagrams failed: {}", completion.status);
            }
            let at = completion.wr_id as usize * STRIDE;
            let (mut header, mut bytes) = ([0; ROUTE_HEADER], [0; DATAGRAM]);
            self.memory.copy_out(at, &mut header)?;
            self.memory.copy_out(at + ROUTE_HEADER, &mut bytes)?;
            self.post_receive(completion.wr_id)?;
            if completion.byte_count as usize == ROUTE_HEADER + DATAGRAM
                && let Some(datagram) = PingDatagram::parse(&bytes)
            {
                arrived.push(Arrived { completion: *completion, header, datagram });
            }
        }
        Ok(arrived)
    }
}

/// The way to a LID and back.
struct ToLid<'a, 'd, H: Hal> {
    services: &'a mut GeneralServices<'d, H>,
    destination: Destination,
    may_send: bool,
    /// What the machine that answered calls itself.
    name: Option<String>,
}

impl<H: Hal> Probe for ToLid<'_, '_, H> {
    fn may_send(&self) -> bool {
        self.may_send
    }

    fn send(&mut self, number: u64) -> Result<()> {
        let request = PingDatagram::Request { transaction: TRANSACTIONS | number };
        self.services.send(&request, &self.destination)
    }

    fn take(&mut self) -> Result<Vec<u64>> {
        self.may_send = self.services.may_send()?;
        let mut numbers = Vec::new();
        for arrived in self.services.take()? {
            let PingDatagram::Answer { transaction, status, name } = arrived.datagram else { continue };
            if status != 0 {
                bail!(
                    "the peer answers with status {status:#06x} of a management datagram (IBTA v1.4 §13.4.7)"
                );
            }
            self.name = Some(name);
            // Answers to requests of others go by.
            if transaction >> 32 == TRANSACTIONS >> 32 {
                numbers.push(transaction & 0xffff_ffff);
            }
        }
        Ok(numbers)
    }
}

/// Reads a LID, decimal or with 0x.
pub(super) fn parse_lid(text: &str) -> Result<u16, Failure> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.ok().filter(|lid| UNICAST.contains(lid)).ok_or_else(|| {
        Failure::Input(anyhow!(
            "{text:?} is no LID of a port: over MAD the peer is a LID, 1 to {}, as `bareverbs devinfo` or ibstat of the peer shows it",
            UNICAST.end()
        ))
    })
}

/// Asks a LID.
pub(super) struct LidAsker {
    pub(super) lid: u16,
    pub(super) rhythm: Rhythm,
    pub(super) quiet: bool,
}

impl SeatedTask for LidAsker {
    type Output = PingOutcome;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<PingOutcome, Failure> {
        let mut services = GeneralServices::open(device).map_err(Failure::Input)?;
        let vector = AddressVector {
            gid_index: 0,
            gid: Gid::default(),
            mac: MacAddress::default(),
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0,
            lid: self.lid,
        };
        let handle = AddressHandle::new(&device, &vector).map_err(|error| Failure::Input(error.into()))?;
        let destination = handle.destination(GENERAL_SERVICES_QPN, GENERAL_SERVICES_Q_KEY);
        let mut way = ToLid { services: &mut services, destination, may_send: true, name: None };
        let address = format!("LID {}", self.lid);
        let prober = Prober {
            hal: device.hal(),
            rhythm: self.rhythm,
            rest: seat.rest,
            peer: &address,
            quiet: self.quiet,
        };
        let probed = prober.probe(&mut way)?;
        let name = way.name.filter(|name| !name.is_empty());
        let address = name.map_or(address.clone(), |name| format!("{name}, {address}"));
        Ok(PingOutcome { probed, address })
    }
}

/// Answers `ibping` until nobody has asked for a while; gives the number of answers.
pub(super) struct LidAnswerer {
    pub(super) timeout: Duration,
}

impl SeatedTask for LidAnswerer {
    type Output = u64;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<u64, Failure> {
        let mut services = GeneralServices::open(device).map_err(Failure::Input)?;
        eprintln!("answering ibping at LID {}", device.port().map_err(anyhow::Error::from)?.lid);
        let (hal, name) = (device.hal(), own_name());
        let (mut waiting, mut answered, mut last) = (VecDeque::new(), 0, hal.now());
        while hal.now().since(last) < self.timeout {
            // Requests that cannot be answered yet stay in the receive queue, which is their limit.
            if waiting.len() < DEPTH as usize {
                waiting.extend(services.take()?);
            }
            while services.may_send()? {
                let Some(Arrived { completion, header, datagram }) = waiting.pop_front() else { break };
                let PingDatagram::Request { transaction } = datagram else { continue };
                let way =
                    AddressHandle::to_sender(&services.device, &completion, &header, MacAddress::default());
                let way = way.map_err(anyhow::Error::from)?;
                let destination = way.destination(completion.origin.qpn(), GENERAL_SERVICES_Q_KEY);
                let answer = PingDatagram::Answer { transaction, status: 0, name: name.clone() };
                services.send(&answer, &destination)?;
                (answered, last) = (answered + 1, hal.now());
            }
            hal.relax(hal.now() + seat.rest);
        }
        match answered {
            0 => Err(Failure::Input(anyhow!("nobody asked for {} (--peer-timeout)", self.timeout))),
            _ => Ok(answered),
        }
    }
}

/// What this machine calls itself.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
