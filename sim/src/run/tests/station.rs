//! A host that sends a test's frames and records what it receives, through a NIC with the NIC's management agents.

use crate::nic::{HostMemory, LinkLayer, Nic, NicConfig, SubnetMembership};
use crate::run::device::{Device, Transmit, TransmitClass};
use crate::wire::FrameBuffer;
use crate::wire::infiniband::{MANAGEMENT_LANE, virtual_lane};
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::time::Time;
use std::collections::VecDeque;

pub struct Station {
    nic: Nic,
    outgoing: VecDeque<(FrameBuffer, u32)>,
    /// Received subnet management packets, then all others.
    pub managed: Vec<Vec<u8>>,
    pub received: Vec<Vec<u8>>,
}

impl Station {
    pub fn new(number: u8) -> Self {
        let mac = MacAddress([2, 0, 0, 0, 0, number]);
        let config = NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) };
        Self { nic: Nic::new(config), outgoing: VecDeque::new(), managed: Vec::new(), received: Vec::new() }
    }

    /// Sends a frame whose last word before the VCRC is the ICRC.
    pub fn send(&mut self, frame: FrameBuffer, icrc: u32) {
        self.outgoing.push_back((frame, icrc));
    }
}

impl Device for Station {
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        self.nic.handle_mmio_read(now, offset)
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        self.nic.handle_mmio_write(now, memory, offset, bytes);
    }
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        let is_managed = virtual_lane(frame) == Some(MANAGEMENT_LANE);
        if is_managed { &mut self.managed } else { &mut self.received }.push(frame.to_vec());
        self.nic.handle_frame(now, memory, frame);
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        self.nic.handle_timeout(now, memory);
    }
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        if let Some((own, icrc)) = self.outgoing.pop_front() {
            frame.replace(&own);
            return Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc });
        }
        self.nic.poll_transmit(now, memory, frame)
    }
    fn has_transmit(&self) -> bool {
        !self.outgoing.is_empty() || self.nic.has_transmit()
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        self.nic.poll_interrupt()
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.nic.poll_timeout()
    }
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool) {
        Device::set_link_up(&mut self.nic, now, memory, up);
    }
    fn begin_without_cable(&mut self) {
        self.nic.begin_without_cable();
    }
    fn link_layer(&self) -> LinkLayer {
        self.nic.config().link_layer
    }
    fn bar_length(&self) -> u64 {
        Device::bar_length(&self.nic)
    }
}
