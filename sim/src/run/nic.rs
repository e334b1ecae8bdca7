//! The NIC model as a device of a world.

use super::device::{Device, Transmit, TransmitClass};
use crate::nic::{self, HostMemory, Nic};
use bareverbs_prm::time::Time;

impl Device for Nic {
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        Self::handle_mmio_read(self, now, offset)
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        Self::handle_mmio_write(self, now, memory, offset, bytes);
    }
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        Self::handle_frame(self, now, memory, frame);
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        Self::handle_timeout(self, now, memory);
    }
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let sent = Self::poll_transmit(self, now, memory, frame)?;
        let class = match sent.class {
            nic::TransmitClass::Request => TransmitClass::Request,
            nic::TransmitClass::Response => TransmitClass::Response,
            nic::TransmitClass::ReadResponse => TransmitClass::ReadResponse,
        };
        Some(Transmit { class, qpn: sent.qpn.value(), icrc: sent.icrc })
    }
    fn has_transmit(&self) -> bool {
        Self::has_transmit(self)
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        Self::poll_interrupt(self)
    }
    fn poll_timeout(&self) -> Option<Time> {
        Self::poll_timeout(self)
    }
    fn set_link_up<M: HostMemory>(&mut self, _now: Time, _memory: &mut M, up: bool) {
        Self::set_link_up(self, up);
    }
    fn bar_length(&self) -> u64 {
        self.bar_size()
    }
}
