//! The gateway at work: connects a device to a source and sink of frames.

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

/// Interval for checking the port: its manager may change, or may change its LID.
pub(super) const LOOK_AT_PORT: Duration = Duration::from_millis(500);
/// How long the administration may take to confirm that the interface has left, and the sleep between two
/// checks.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_millis(500);
pub(super) const LEAVE_REST: Duration = Duration::from_micros(200);
/// Queue depths of the interface.
const DEPTHS: InterfaceDepths = InterfaceDepths { receives: 256, sends: 128 };
/// Frames from the machine that are taken before datagrams are.
const BATCH: usize = 32;

/// The gateway with its device; see the module's comment.
pub(super) struct Bridge<'d, H: Hal, F> {
    interface: IpoibInterface<'d, H>,
    services: GeneralServices<'d, H>,
    gateway: Gateway,
    frames: F,
    /// An output that had no room yet.
    stuck: Option<GatewayOutput>,
    frame: Vec<u8>,
    look_due: Time,
    /// MTU for IP packets, once the broadcast group was joined.
    mtu: Option<usize>,
    /// The port whose administration was used last.
    manager: Option<PortIdentity>,
}

impl<'d, H: Hal, F: FrameIo> Bridge<'d, H, F> {
    /// Creates the interface at the port of a device. Transaction IDs start after `first`.
    pub(super) fn open(device: &'d Device<H>, frames: F, first: u64) -> Result<Self> {
        if device.capabilities().port_type == PortType::Ethernet {
            bail!(
                "the port is Ethernet, but IPoIB needs InfiniBand; to connect a TAP interface to an Ethernet port, use `bareverbs serve --wire tap:NAME`"
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

    /// Counts of what was carried so far.
    pub(super) const fn counters(&self) -> GatewayCounters {
        self.gateway.counters()
    }

    /// MTU for IP packets; `None` until the broadcast group was joined.
    pub(super) const fn mtu(&self) -> Option<usize> {
        self.mtu
    }

    /// The machine's side.
    pub(super) const fn frames(&self) -> &F {
        &self.frames
    }

    /// Does everything that needs no waiting. Returns whether there was anything.
    pub(super) fn step(&mut self) -> Result<bool> {
        let now = self.services.device.hal().now();
        if now >= self.look_due {
            self.look_due = now + LOOK_AT_PORT;
            self.manager = identity(self.services.device)?;
            self.gateway.handle_port(now, self.manager);
        }
        let mut is_busy = self.act()?;
        for arrived in self.services.take()? {
            self.gateway.handle_response(now, &arrived.datagram);
            is_busy = true;
        }
        if now >= self.gateway.poll_timeout() {
            self.gateway.handle_timeout(now);
        }
        is_busy |= self.act()?;
        // An output that waits for room on one side holds back input from the other.
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

    /// Carries out the gateway's outputs until one has to wait.
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

    /// Carries out one output. Returns false if there is no room for it now.
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

    /// Leaves all groups. Returns whether the administration has confirmed that.
    pub(super) fn close(mut self) -> Result<bool> {
        let hal = self.services.device.hal();
        let deadline = hal.now() + LEAVE_WITHIN;
        self.gateway.leave(hal.now());
        loop {
            self.act()?;
            let now = hal.now();
            for arrived in self.services.take()? {
                self.gateway.handle_response(now, &arrived.datagram);
            }
            if self.gateway.has_left() || now > deadline {
                return Ok(self.gateway.has_left());
            }
            hal.relax(now + LEAVE_REST);
        }
    }
}
