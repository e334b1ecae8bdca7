//! What the world needs of a device: five inputs, three outputs and the next deadline.

use crate::nic::{HostMemory, LinkLayer, Nic};
use crate::wire::FrameBuffer;
use bareverbs_prm::doorbell::UAR_PAGE_SIZE;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Time;

pub use crate::nic::{Transmit, TransmitClass};

/// A device behind a PCIe slot and a port. It is pure: it is told the time, asked for frames, and has no delay.
pub trait Device {
    /// The host reads a 32-bit register.
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32;
    /// The host writes 4, 8 or 64 bytes, in the order of the bus.
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]);
    /// A frame arrives.
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]);
    /// A frame arrives whose packet may be known, so that it need not be parsed.
    fn handle_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        self.handle_frame(now, memory, frame);
    }
    /// The deadline that [`Self::poll_timeout`] gave has come.
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M);
    /// Writes the next frame to `frame`.
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit>;
    /// Whether [`Self::poll_transmit`] may have a frame.
    fn has_transmit(&self) -> bool;
    /// Whether the latest [`Self::poll_transmit`] gave nothing only so that others have their turn.
    fn has_yielded(&self) -> bool {
        false
    }
    /// The next interrupt vector to raise.
    fn poll_interrupt(&mut self) -> Option<u16>;
    /// When to call [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Time>;
    /// The cable was plugged in or pulled out.
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool);
    /// Bytes of BAR0.
    fn bar_length(&self) -> u64;
    /// The MAC address of an Ethernet port, if the switches of its world are to know it before the first frame.
    fn mac(&self) -> Option<MacAddress> {
        None
    }
    /// Interrupt vectors that the device has.
    fn vectors(&self) -> u16 {
        1
    }
    /// Link layer of the port. A cable between two different ones carries nothing.
    fn link_layer(&self) -> LinkLayer {
        LinkLayer::Ethernet
    }
}

impl Device for Nic {
    #[inline]
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        Self::handle_mmio_read(self, now, offset)
    }
    #[inline]
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        Self::handle_mmio_write(self, now, memory, offset, bytes);
    }
    #[inline]
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        Self::handle_frame(self, now, memory, frame);
    }
    #[inline]
    fn handle_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        Self::handle_buffer(self, now, memory, frame);
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M) {
        Self::handle_timeout(self, now, memory);
    }
    #[inline]
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        Self::poll_transmit(self, now, memory, frame)
    }
    #[inline]
    fn has_transmit(&self) -> bool {
        Self::has_transmit(self)
    }
    #[inline]
    fn has_yielded(&self) -> bool {
        Self::has_yielded(self)
    }
    #[inline]
    fn poll_interrupt(&mut self) -> Option<u16> {
        Self::poll_interrupt(self)
    }
    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        Self::poll_timeout(self)
    }
    /// The device tells software with its next input, so it gets one.
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool) {
        Self::set_link_up(self, up);
        Self::handle_timeout(self, now, memory);
    }
    fn mac(&self) -> Option<MacAddress> {
        (self.config().link_layer == LinkLayer::Ethernet).then_some(self.config().mac)
    }
    fn link_layer(&self) -> LinkLayer {
        self.config().link_layer
    }
    fn vectors(&self) -> u16 {
        self.config().vectors
    }
    fn bar_length(&self) -> u64 {
        u64::from(self.config().bar_pages) * UAR_PAGE_SIZE as u64
    }
}
