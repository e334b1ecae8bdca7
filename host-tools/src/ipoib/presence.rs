//! The host at work: a port of a device is found by its addresses of IP, and finds others.
//!
//! It has no queue pair of general services of its own: who opens it for RDMA CM has one, and hands over what comes of the administrator.

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

/// Datagrams of the interface: questions for addresses, and answers.
const DEPTHS: InterfaceDepths = InterfaceDepths { receives: 64, sends: 16 };

/// See the module.
pub(crate) struct IpoibPresence<'d, H: Hal> {
    interface: IpoibInterface<'d, H>,
    host: IpoibHost,
    /// What could not be done yet.
    stuck: Option<InterfaceOutput>,
    port: Option<PortIdentity>,
    look_due: Time,
}

impl<'d, H: Hal> IpoibPresence<'d, H> {
    /// Makes the interface at the port of a device. Transactions with the administrator begin behind `first`.
    pub(crate) fn open(device: &'d Device<H>, addresses: Vec<IpAddr>, first: u64) -> Result<Self> {
        let interface = IpoibInterface::open(device, DEPTHS)?;
        let host = IpoibHost::new(interface.qpn(), addresses, first);
        Ok(Self { interface, host, stuck: None, port: None, look_due: Time::ZERO })
    }

    /// What the port is; `None` while it is not active.
    pub(crate) const fn port(&self) -> Option<PortIdentity> {
        self.port
    }

    /// Whether the group of broadcasts is joined: nobody is found before.
    pub(crate) fn is_joined(&self) -> bool {
        self.host.is_joined()
    }

    /// Does what can be done without waiting.
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

    /// A datagram of general services that may be the administrator's.
    pub(crate) fn handle_answer(&mut self, now: Time, datagram: &[u8; DATAGRAM]) {
        self.host.handle_answer(now, datagram);
    }

    /// Where an address is; `None` if that is not known yet. It is asked for with the next steps.
    pub(crate) fn way(&mut self, now: Time, ip: IpAddr) -> Option<IpoibWay> {
        self.host.way(now, ip)
    }

    /// Leaves all groups, as far as the administrator answers within a while.
    pub(crate) fn leave(&mut self, services: &mut GeneralServices<'d, H>) -> Result<()> {
        let hal = services.device.hal();
        let deadline = hal.now() + LEAVE_WITHIN;
        self.host.leave(hal.now());
        loop {
            self.act(services)?;
            let now = hal.now();
            for arrived in services.take()? {
                self.host.handle_answer(now, &arrived.datagram);
            }
            if self.host.has_left() || now > deadline {
                return Ok(());
            }
            hal.relax(now + LEAVE_REST);
        }
    }
}
