//! The interface between world and device: inputs, outputs, the next deadline, and for a function of a card its
//! messages to the others.

use crate::nic::{
    CardNotice, DeviceRecord, DmaEnd, DmaRefused, DmaRequest, FrameOrigin, HostMemory, LinkHistory,
    LinkLayer, Nic,
};
use crate::wire::FrameBuffer;
use bareverbs_prm::doorbell::UAR_PAGE_SIZE;
use bareverbs_prm::ids::{MacAddress, VhcaId};
use bareverbs_prm::pci::PciIdentity;
use bareverbs_prm::time::Time;

pub use crate::nic::{Transmit, TransmitClass};

/// A device in a PCIe slot with one port. It is pure: it gets the time, is asked for frames, and models no delay.
pub trait Device {
    /// The host reads a 32-bit register.
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32;
    /// The host writes 4, 8 or 64 bytes, in bus byte order.
    fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]);
    /// A frame arrives.
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]);
    /// A frame arrives, possibly with its packet, so that it need not be parsed.
    fn handle_buffer<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &FrameBuffer) {
        self.handle_frame(now, memory, frame);
    }
    /// The deadline from [`Self::poll_timeout`] has come.
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, memory: &mut M);
    /// Writes the next outgoing frame to `frame`.
    fn poll_transmit<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit>;
    /// Whether [`Self::poll_transmit`] may have a frame.
    fn has_transmit(&self) -> bool;
    /// Whether the last [`Self::poll_transmit`] returned nothing only to let others take their turn.
    fn has_yielded(&self) -> bool {
        false
    }
    /// Work done so far, in units of the time it takes. Never decreases. A real-time runner limits a turn by it.
    fn work_done(&self) -> u64 {
        0
    }
    /// The next interrupt vector to raise.
    fn poll_interrupt(&mut self) -> Option<u16>;
    /// When to call [`Self::handle_timeout`].
    fn poll_timeout(&self) -> Option<Time>;
    /// The cable was plugged in or pulled.
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool);
    /// The link of the port, for whoever has the other end of the cable.
    fn link(&self) -> LinkHistory {
        LinkHistory { is_up: true, drops: 0, trainings: 0 }
    }
    /// The device starts without a cable. [`Self::set_link_up`] reports one later.
    fn begin_without_cable(&mut self) {}
    /// Length of BAR0 in bytes.
    fn bar_length(&self) -> u64;
    /// MAC address of an Ethernet port, if switches should know it before the first frame.
    fn mac(&self) -> Option<MacAddress> {
        None
    }
    /// Identity of the PCI function; `None` if the device is not one.
    fn pci_identity(&self) -> Option<PciIdentity> {
        None
    }
    /// Number of interrupt vectors.
    fn vectors(&self) -> u16 {
        1
    }
    /// VHCA ID, if the device is one of several functions of a card.
    fn vhca_id(&self) -> Option<VhcaId> {
        None
    }
    /// Whether [`Self::poll_card_notice`] or [`Self::poll_dma`] has output.
    fn has_card_output(&self) -> bool {
        false
    }
    /// The next message for the other functions of the card.
    fn poll_card_notice(&mut self) -> Option<CardNotice> {
        None
    }
    /// A message from another function of the card.
    fn handle_card_notice(&mut self, _notice: &CardNotice) {}
    /// The next copy to request from the card's DMA engine.
    fn poll_dma(&mut self) -> Option<DmaRequest> {
        None
    }
    /// Reads the source of a copy, if it is in this function's memory.
    fn read_dma<M: HostMemory>(&mut self, _: &mut M, _: &DmaEnd, _: &mut [u8]) -> Result<(), DmaRefused> {
        Err(DmaRefused::Key)
    }
    /// Writes the destination of a copy, if it is in this function's memory.
    fn write_dma<M: HostMemory>(&mut self, _: &mut M, _: &DmaEnd, _: &[u8]) -> Result<(), DmaRefused> {
        Err(DmaRefused::Key)
    }
    /// A requested copy has ended.
    fn handle_dma_end<M: HostMemory>(
        &mut self,
        _now: Time,
        _memory: &mut M,
        _request: &DmaRequest,
        _result: Result<(), DmaRefused>,
    ) {
    }
    /// Starts or stops recording: device records, and the origin of every frame.
    fn observe(&mut self, _on: bool) {}
    /// The oldest record not yet fetched.
    fn poll_record(&mut self) -> Option<DeviceRecord> {
        None
    }
    /// Number of records lost since the last call, because too many were waiting.
    fn take_lost_records(&mut self) -> u64 {
        0
    }
    /// Origin of the frame from the last [`Self::poll_transmit`].
    fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        None
    }
    /// Link layer of the port. A cable between different link layers carries nothing.
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
    #[inline(always)]
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
    fn work_done(&self) -> u64 {
        Self::work_done(self)
    }
    #[inline]
    fn poll_interrupt(&mut self) -> Option<u16> {
        Self::poll_interrupt(self)
    }
    #[inline(always)]
    fn poll_timeout(&self) -> Option<Time> {
        Self::poll_timeout(self)
    }
    /// The device only reports the change with its next input, so give it one.
    fn set_link_up<M: HostMemory>(&mut self, now: Time, memory: &mut M, up: bool) {
        Self::set_link_up(self, up);
        Self::handle_timeout(self, now, memory);
    }
    fn link(&self) -> LinkHistory {
        Self::link(self)
    }
    fn begin_without_cable(&mut self) {
        Self::begin_without_cable(self);
    }
    fn mac(&self) -> Option<MacAddress> {
        (self.config().link_layer == LinkLayer::Ethernet).then_some(self.config().mac)
    }
    fn vhca_id(&self) -> Option<VhcaId> {
        Self::vhca_id(self)
    }
    #[inline]
    fn has_card_output(&self) -> bool {
        Self::has_card_output(self)
    }
    fn poll_card_notice(&mut self) -> Option<CardNotice> {
        Self::poll_card_notice(self)
    }
    fn handle_card_notice(&mut self, notice: &CardNotice) {
        Self::handle_card_notice(self, notice);
    }
    fn poll_dma(&mut self) -> Option<DmaRequest> {
        Self::poll_dma(self)
    }
    fn read_dma<M: HostMemory>(
        &mut self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &mut [u8],
    ) -> Result<(), DmaRefused> {
        Self::read_dma(self, memory, end, bytes)
    }
    fn write_dma<M: HostMemory>(
        &mut self,
        memory: &mut M,
        end: &DmaEnd,
        bytes: &[u8],
    ) -> Result<(), DmaRefused> {
        Self::write_dma(self, memory, end, bytes)
    }
    fn handle_dma_end<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        request: &DmaRequest,
        result: Result<(), DmaRefused>,
    ) {
        Self::handle_dma_end(self, now, memory, request, result);
    }
    fn observe(&mut self, on: bool) {
        Self::observe(self, on);
    }
    fn poll_record(&mut self) -> Option<DeviceRecord> {
        Self::poll_record(self)
    }
    fn take_lost_records(&mut self) -> u64 {
        Self::take_lost_records(self)
    }
    fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        Self::take_frame_origin(self)
    }
    fn link_layer(&self) -> LinkLayer {
        self.config().link_layer
    }
    fn pci_identity(&self) -> Option<PciIdentity> {
        let mut bytes = [0; PciIdentity::BYTES];
        for (at, byte) in (0..).zip(&mut bytes) {
            *byte = self.handle_config_read(at, 1) as u8;
        }
        Some(PciIdentity::from_configuration(&bytes))
    }
    fn vectors(&self) -> u16 {
        self.config().vectors
    }
    fn bar_length(&self) -> u64 {
        u64::from(self.config().bar_pages) * UAR_PAGE_SIZE as u64
    }
}
