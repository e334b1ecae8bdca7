//! What the world needs of a device: five inputs, three outputs and the next deadline.

use crate::nic::HostMemory;
use bareverbs_prm::time::Time;

/// Why a frame is sent; decides how long the device takes before its first bit leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransmitClass {
    /// A request: its work request was fetched after a doorbell.
    Request,
    /// An acknowledgement: nothing has to be fetched.
    Response,
    /// A READ response: its payload is fetched from host memory.
    ReadResponse,
}

/// What a device tells of a frame that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Why it is sent.
    pub class: TransmitClass,
    /// Sending queue pair.
    pub qpn: u32,
    /// Invariant CRC of the frame.
    pub icrc: u32,
}

/// A device behind a PCIe slot and a port. It is pure: it is told the time, asked for frames, and has no delay.
pub trait Device {
    /// The host reads a 32-bit register.
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32;
    /// The host writes 4, 8 or 64 bytes, in the order of the bus.
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]);
    /// A frame arrives.
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]);
    /// The deadline that [`Self::poll_timeout`] gave has come.
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M);
    /// Writes the next frame to `frame`.
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut Vec<u8>,
    ) -> Option<Transmit>;
    /// Whether [`Self::poll_transmit`] may have a frame.
    fn has_transmit(&self) -> bool;
    /// The next interrupt vector to raise.
    fn poll_interrupt(&mut self) -> Option<u16>;
    /// When to call [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Time>;
    /// The cable was plugged in or pulled out.
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool);
    /// Bytes of BAR0.
    fn bar_length(&self) -> u64;
}
