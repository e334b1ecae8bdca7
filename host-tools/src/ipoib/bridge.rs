//! The gateway at work: a device at one side, frames at the other.

use super::gateway::{Gateway, GatewayCounters, GatewayOutput};
use super::interface::{InterfaceDepths, IpoibInterface, identity};
use super::port::{InterfaceOutput, PortIdentity};
use crate::general_services::GeneralServices;
use anyhow::{Result, bail};
use bareverbs_core::Device;
use bareverbs_core::hal::Hal;
use bareverbs_prm::numbering::PortType;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::real_time::FrameIo;

/// Time between two looks at the port: a manager may move it, and another may come.
pub(super) const LOOK_AT_PORT: Duration = Duration::from_millis(500);
/// How long the administrator has to let the interface go, and the rest between two looks.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(500);
pub(super) const LEAVE_REST: Duration = Duration::from_micros(200);
/// Datagrams of the interface.
const DEPTHS: InterfaceDepths = InterfaceDepths { receives: 256, sends: 128 };
/// Frames of the machine's side that are taken before datagrams are.
const BATCH: usize = 32;

/// See the module.
pub(super) struct Bridge<'d, H: Hal, F> {
    interface: IpoibInterface<'d, H>,
    services: GeneralServices<'d, H>,
    gateway: Gateway,
    frames: F,
    /// What could not be done yet.
    stuck: Option<GatewayOutput>,
    frame: Vec<u8>,
    look_due: Time,
    /// The largest packet of IP, once the group of broadcasts was joined.
    mtu: Option<usize>,
    /// Where the administrator is.
    manager: Option<PortIdentity>,
}

impl<'d, H: Hal, F: FrameIo> Bridge<'d, H, F> {
    /// Makes the interface at the port of a device. Transactions with the administrator begin behind `first`.
    pub(super) fn open(device: &'d Device<H>, frames: F, first: u64) -> Result<Self> {
        if device.capabilities().port_type == PortType::Ethernet {
            bail!(
                "the port is Ethernet: IPoIB is for InfiniBand, and a TAP interface is at an Ethernet port's wire by `bareverbs serve --wire tap:NAME`"
            );
        }
        let interface = IpoibInterface::open(device, DEPTHS)?;
        let services = GeneralServices::open(device)?;
        let gateway = Gateway::new(interface.qpn(), first);
        Ok(Self {
            interface,
            services,
            gateway,
            frames,
            stuck: None,
            frame: Vec::new(),
            look_due: Time::ZERO,
            mtu: None,
            manager: None,
        })
    }

    /// What was carried so far.
    pub(super) const fn counters(&self) -> GatewayCounters {
        self.gateway.counters()
    }

    /// The largest packet of IP; `None` until the group of broadcasts was joined.
    pub(super) const fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// The machine's side.
    pub(super) const fn frames(&self) -> &F {
        &self.frames
    }

    /// Does what can be done without waiting; whether there was anything.
    pub(super) fn step(&mut self) -> Result<bool> {
        let now = self.services.device.hal().now();
        if now >= self.look_due {
            self.look_due = now + LOOK_AT_PORT;
            self.manager = identity(self.services.device)?;
            self.gateway.handle_port(now, self.manager);
        }
        let mut is_busy = self.act()?;
        for arrived in self.services.take()? {
            self.gateway.handle_answer(now, &arrived.datagram);
            is_busy = true;
        }
        if now >= self.gateway.poll_timeout() {
            self.gateway.handle_timeout(now);
        }
        is_busy |= self.act()?;
        // What waits for room at one side keeps back what comes from the other.
        if self.stuck.is_none() {
            for (arrival, datagram) in self.interface.take()? {
                self.gateway.handle_datagram(now, arrival, &datagram);
                is_busy = true;
            }
        }
        is_busy |= self.act()?;
        for _ in 0..BATCH {
            if self.stuck.is_some() || !self.frames.receive(&mut self.frame)? {
                break;
            }
            self.gateway.handle_frame(now, &self.frame);
            is_busy = true;
            self.act()?;
        }
        Ok(is_busy)
    }

    /// Does what the gateway wants, until something has to wait.
    fn act(&mut self) -> Result<bool> {
        let mut is_busy = false;
        while let Some(output) = self.stuck.take().or_else(|| self.gateway.poll()) {
            if !self.perform(&output)? {
                self.stuck = Some(output);
                break;
            }
            is_busy = true;
        }
        Ok(is_busy)
    }

    /// False if there is no room for it now.
    fn perform(&mut self, output: &GatewayOutput) -> Result<bool> {
        match output {
            GatewayOutput::Frame(frame) => Ok(self.frames.send(frame)?),
            GatewayOutput::Interface(output) => {
                if let InterfaceOutput::Ready { mtu, .. } = output {
                    self.mtu = Some(*mtu);
                }
                self.interface.perform(&mut self.services, self.manager, output)
            }
        }
    }

    /// Leaves all groups; whether the administrator has let the interface go.
    pub(super) fn close(mut self) -> Result<bool> {
        let hal = self.services.device.hal();
        let deadline = hal.now() + LEAVE_WITHIN;
        self.gateway.leave(hal.now());
        loop {
            self.act()?;
            let now = hal.now();
            for arrived in self.services.take()? {
                self.gateway.handle_answer(now, &arrived.datagram);
            }
            if self.gateway.has_left() || now > deadline {
                return Ok(self.gateway.has_left());
            }
            hal.relax(now + LEAVE_REST);
        }
    }
}
