//! The host at work: makes a port of a device reachable by its IP addresses, and resolves others.
//!
//! It has no general services queue pair of its own: RDMA CM, for which it is opened, has one, and passes on
//! the administration's answers.

use super::bridge::{LEAVE_REST, LEAVE_WITHIN, LOOK_AT_PORT};
use super::host::{IpoibHost, IpoibWay};
use super::interface::{InterfaceDepths, IpoibInterface, identity};
use super::port::{InterfaceOutput, PortIdentity};
use crate::general_services::{DATAGRAM, GeneralServices};
use anyhow::Result;
use bareverbs_core::Device;
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::Time;
use std::net::IpAddr;

/// Queue depths of the interface, for address resolution only.
const DEPTHS: InterfaceDepths = InterfaceDepths { receives: 64, sends: 16 };

/// The host with its device; see the module's comment.
pub(crate) struct IpoibPresence<'d, H: Hal> {
    interface: IpoibInterface<'d, H>,
    host: IpoibHost,
    /// An output that had no room yet.
    stuck: Option<InterfaceOutput>,
    port: Option<PortIdentity>,
    look_due: Time,
}

impl<'d, H: Hal> IpoibPresence<'d, H> {
    /// Creates the interface at the port of a device. Transaction IDs start after `first`.
    pub(crate) fn open(device: &'d Device<H>, addresses: Vec<IpAddr>, first: u64) -> Result<Self> {
        let interface = IpoibInterface::open(device, DEPTHS)?;
        let host = IpoibHost::new(interface.qpn(), addresses, first);
        Ok(Self { interface, host, stuck: None, port: None, look_due: Time::ZERO })
    }

    /// The identity of the port; `None` while it is not active.
    pub(crate) const fn port(&self) -> Option<PortIdentity> {
        self.port
    }

    /// Whether the broadcast group is joined; before that nothing can be resolved.
    pub(crate) fn is_joined(&self) -> bool {
        self.host.is_joined()
    }

    /// Does everything that needs no waiting.
    pub(crate) fn step(&mut self, services: &mut GeneralServices<'d, H>) -> Result<()> {
        let now = services.device.hal().now();
        if now >= self.look_due {
            self.look_due = now + LOOK_AT_PORT;
            self.port = identity(services.device)?;
            self.host.handle_port(now, self.port);
        }
        for (arrival, datagram) in self.interface.take()? {
            self.host.handle_datagram(now, arrival, &datagram);
        }
        self.host.handle_timeout(now);
        self.act(services)
    }

    fn act(&mut self, services: &mut GeneralServices<'d, H>) -> Result<()> {
        while let Some(output) = self.stuck.take().or_else(|| self.host.poll()) {
            if !self.interface.perform(services, self.port, &output)? {
                self.stuck = Some(output);
                break;
            }
        }
        Ok(())
    }

    /// Handles a general services datagram that may be from the administration.
    pub(crate) fn handle_response(&mut self, now: Time, datagram: &[u8; DATAGRAM]) {
        self.host.handle_response(now, datagram);
    }

    /// The path to an address; `None` if it is not known yet. The next steps resolve it.
    pub(crate) fn way(&mut self, now: Time, ip: IpAddr) -> Option<IpoibWay> {
        self.host.way(now, ip)
    }

    /// Leaves all groups, and waits a while for the administration to confirm.
    pub(crate) fn leave(&mut self, services: &mut GeneralServices<'d, H>) -> Result<()> {
        let hal = services.device.hal();
        let deadline = hal.now() + LEAVE_WITHIN;
        self.host.leave(hal.now());
        loop {
            self.act(services)?;
            let now = hal.now();
            for arrived in services.take()? {
                self.host.handle_response(now, &arrived.datagram);
            }
            if self.host.has_left() || now > deadline {
                return Ok(());
            }
            hal.relax(now + LEAVE_REST);
        }
    }
}
