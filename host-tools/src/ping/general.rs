//! Probes over the general services queue pair, compatible with `ibping`: from LID to LID on InfiniBand. The
//! ends do not meet over TCP, so either may be an unmodified `ibping`.

use super::datagram::PingDatagram;
use super::outcome::PingOutcome;
use super::prober::{Probe, ProbeSchedule, Prober};
use crate::Failure;
use crate::general_services::{Arrived, DEPTH, GeneralServices};
use crate::perf::interrupt;
use crate::seat::{Seat, SeatedTask};
use anyhow::{Context as _, Result, anyhow, bail};
use bareverbs_core::address_handle::{Destination, GENERAL_SERVICES_Q_KEY, GENERAL_SERVICES_QPN};
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::AddressVector;
use bareverbs_core::{AddressHandle, Device};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::time::Duration;
use std::collections::VecDeque;

/// LIDs of a single port (IBTA v1.4 §4.1.3); higher ones are groups.
const UNICAST: std::ops::RangeInclusive<u16> = 1..=0xbfff;
/// The high half of this program's transaction IDs, which distinguishes answers to it from others. The
/// kernel's agents count from 1.
const TRANSACTIONS: u64 = 0x6276_7073 << 32;

/// Opens the general services queue pair of an InfiniBand port that is up.
fn open<H: Hal>(device: &Device<H>) -> Result<GeneralServices<'_, H>> {
    let port = device.port()?;
    if port.link_layer == PortType::Ethernet {
        bail!("the port is Ethernet, but ibping needs InfiniBand: use -c UD or -c RC at both ends");
    }
    if port.state.is_down() || port.lid == 0 {
        bail!(
            "the port is {} and has LID {}; `bareverbs doctor` says what keeps it from being managed",
            port.state,
            port.lid
        );
    }
    GeneralServices::open(device)
}

/// Datagrams of the class that have arrived. Others are for services that do not exist here.
fn take<H: Hal>(services: &mut GeneralServices<'_, H>) -> Result<Vec<(PingDatagram, Arrived)>> {
    let arrived = services.take()?.into_iter();
    Ok(arrived.filter_map(|arrived| Some((PingDatagram::parse(&arrived.datagram)?, arrived))).collect())
}

/// The path to a LID and back.
struct ToLid<'a, 'd, H: Hal> {
    services: &'a mut GeneralServices<'d, H>,
    destination: Destination,
    may_send: bool,
    /// The name of the machine that answered.
    name: Option<String>,
}

impl<H: Hal> Probe for ToLid<'_, '_, H> {
    fn may_send(&self) -> bool {
        self.may_send
    }

    fn send(&mut self, number: u64) -> Result<()> {
        let request = PingDatagram::Request { transaction: TRANSACTIONS | number };
        self.services.send(&request.encode(), &self.destination)
    }

    fn take(&mut self) -> Result<Vec<u64>> {
        self.may_send = self.services.may_send()?;
        let mut numbers = Vec::new();
        for (datagram, _) in take(self.services)? {
            let PingDatagram::Reply { transaction, status, name } = datagram else { continue };
            if status != 0 {
                bail!(
                    "the peer answers with status {status:#06x} of a management datagram (IBTA v1.4 §13.4.7)"
                );
            }
            self.name = Some(name);
            // Answers to other programs' requests are ignored.
            if transaction >> 32 == TRANSACTIONS >> 32 {
                numbers.push(transaction & 0xffff_ffff);
            }
        }
        Ok(numbers)
    }
}

/// The LID of a peer: decimal or with 0x, or that of a host of the network.
fn lid_of(seat: &Seat, peer: &str) -> Result<u16> {
    let parsed = match peer.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => peer.parse(),
    };
    if let Some(lid) = parsed.ok().filter(|lid| UNICAST.contains(lid)) {
        return Ok(lid);
    }
    let named = seat.infiniband_host().map(|_| seat.subnet_port_of(peer)).transpose();
    let named =
        named.with_context(|| format!("{peer:?} is not the LID of a port (1 to {})", UNICAST.end()))?;
    let lid = named.map(|(port, _)| port.lid);
    lid.with_context(|| {
        format!(
            "{peer:?} is not the LID of a port: over MAD the peer is a LID, 1 to {}, as `bareverbs devinfo` or ibstat of the peer shows it",
            UNICAST.end()
        )
    })
}

/// Probes a LID.
pub(super) struct LidPinger<'a> {
    pub(super) peer: &'a str,
    pub(super) schedule: ProbeSchedule,
    pub(super) quiet: bool,
}

impl SeatedTask for LidPinger<'_> {
    type Output = PingOutcome;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<PingOutcome, Failure> {
        let lid = lid_of(seat, self.peer).map_err(Failure::Input)?;
        let mut services = open(device).map_err(Failure::Input)?;
        let vector = AddressVector {
            gid_index: 0,
            gid: Gid::default(),
            mac: MacAddress::default(),
            hop_limit: 0,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: 0,
            lid,
        };
        let handle = AddressHandle::new(&device, &vector).map_err(|error| Failure::Input(error.into()))?;
        let destination = handle.destination(GENERAL_SERVICES_QPN, GENERAL_SERVICES_Q_KEY);
        let mut way = ToLid { services: &mut services, destination, may_send: true, name: None };
        let address = format!("LID {lid}");
        let prober = Prober {
            hal: device.hal(),
            schedule: self.schedule,
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

/// Answers `ibping` until nobody has sent a request for a while, or a signal ends it; returns the number of answers.
pub(super) struct LidResponder {
    pub(super) timeout: Duration,
}

impl SeatedTask for LidResponder {
    type Output = u64;

    fn run<H: Hal>(self, device: &Device<H>, seat: &Seat) -> Result<u64, Failure> {
        let mut services = open(device).map_err(Failure::Input)?;
        eprintln!("answering ibping at LID {}", device.port().map_err(anyhow::Error::from)?.lid);
        let (hal, name) = (device.hal(), own_name());
        let (mut waiting, mut answered, mut last) = (VecDeque::new(), 0, hal.now());
        while hal.now().since(last) < self.timeout && !interrupt::is_wanted() {
            // Requests that cannot be answered yet stay in the receive queue, which limits them.
            if waiting.len() < DEPTH as usize {
                waiting.extend(take(&mut services)?);
            }
            while services.may_send()? {
                let Some((datagram, Arrived { completion, header, .. })) = waiting.pop_front() else { break };
                let PingDatagram::Request { transaction } = datagram else { continue };
                let way =
                    AddressHandle::to_sender(&services.device, &completion, &header, MacAddress::default());
                let way = way.map_err(anyhow::Error::from)?;
                let destination = way.destination(completion.origin.qpn(), GENERAL_SERVICES_Q_KEY);
                let reply = PingDatagram::Reply { transaction, status: 0, name: name.clone() };
                services.send(&reply.encode(), &destination)?;
                (answered, last) = (answered + 1, hal.now());
            }
            hal.relax(hal.now() + seat.rest);
        }
        match answered {
            0 if !interrupt::is_wanted() => {
                Err(Failure::Input(anyhow!("no request arrived within {} (--peer-timeout)", self.timeout)))
            }
            _ => Ok(answered),
        }
    }
}

/// The name of this machine.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
