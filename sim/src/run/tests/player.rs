//! A device that sends what is written to its registers and records what it receives.

use crate::nic::{DmaFault, HostMemory, LinkLayer};
use crate::run::device::{Device, Transmit, TransmitClass};
use crate::wire::FrameBuffer;
use bareverbs_prm::ids::{MacAddress, Qpn};
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

/// Memory as plain bytes.
#[derive(Debug, Default)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    fn range(&self, iova: u64, length: usize, write: bool) -> Result<core::ops::Range<usize>, DmaFault> {
        let end = (iova as usize).saturating_add(length);
        if end <= self.0.len() { Ok(iova as usize..end) } else { Err(DmaFault { iova, length, write }) }
    }
}

impl HostMemory for Bytes {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        let range = self.range(iova, buffer.len(), false)?;
        buffer.copy_from_slice(&self.0[range]);
        Ok(())
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let range = self.range(iova, bytes.len(), true)?;
        self.0[range].copy_from_slice(bytes);
        Ok(())
    }
}

/// A player's response to a frame.
#[derive(Debug, Clone, Copy)]
pub struct ScriptedResponse {
    pub class: TransmitClass,
    pub length: usize,
    /// Time before the response.
    pub after: Duration,
}

/// A write to register `n` sends a frame of `n` bytes to the MAC address in its first six bytes.
#[derive(Debug, Default)]
pub struct Player {
    pub mac: u8,
    pub response: Option<ScriptedResponse>,
    pub received: Vec<(Time, Vec<u8>)>,
    pub timeouts: Vec<Time>,
    pub link_up: bool,
    outgoing: VecDeque<(TransmitClass, Vec<u8>)>,
    timers: VecDeque<(Time, ScriptedResponse, u8)>,
    /// A timer that the device fails to clear.
    pub stuck_timer: Option<Time>,
    tells_address: bool,
    infiniband: bool,
    interrupts: u16,
    sent: u32,
}

impl Player {
    /// Queues a frame.
    pub fn queue_frame(&mut self, frame: Vec<u8>) {
        self.outgoing.push_back((TransmitClass::Request, frame));
    }

    pub fn new(mac: u8) -> Self {
        Self { mac, ..Self::default() }
    }

    /// The same player, with or without announcing its address to switches.
    pub fn telling_address(self, tells_address: bool) -> Self {
        Self { tells_address, ..self }
    }

    /// The same player on an InfiniBand link: its frames are multicast packets.
    pub fn of_infiniband(self) -> Self {
        Self { infiniband: true, ..self }
    }

    fn queue(&mut self, class: TransmitClass, to: u8, length: usize) {
        let mut frame = vec![0; length.max(16)];
        match self.infiniband {
            true => frame[1..4].copy_from_slice(&[2, 0xc0, to]),
            false => (frame[5], frame[11]) = (to, self.mac),
        }
        frame[12..16].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        self.outgoing.push_back((class, frame));
    }
}

impl Device for Player {
    fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        (now.as_nanos() + offset) as u32
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, _: Time, _: &mut M, offset: u64, bytes: &[u8]) {
        self.queue(TransmitClass::Request, bytes[bytes.len() - 1], offset as usize);
    }
    fn handle_frame<M: HostMemory>(&mut self, now: Time, memory: &mut M, frame: &[u8]) {
        self.received.push((now, frame.to_vec()));
        self.interrupts += u16::from(memory.write(0, &frame[12..16]).is_ok());
        if let Some(response) = self.response {
            self.timers.push_back((now + response.after, response, frame[11]));
            self.handle_timeout(now, memory);
        }
    }
    fn handle_timeout<M: HostMemory>(&mut self, now: Time, _: &mut M) {
        if self.stuck_timer.is_some_and(|due| due <= now) {
            self.timeouts.push(now);
        }
        while let Some((due, ScriptedResponse { class, length, .. }, to)) = self.timers.front().copied() {
            if due > now {
                return;
            }
            self.timers.pop_front();
            self.queue(class, to, length);
        }
    }
    fn poll_transmit<M: HostMemory>(
        &mut self,
        _: Time,
        _: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        let (class, bytes) = self.outgoing.pop_front()?;
        let icrc = crc32fast::hash(&bytes);
        frame.replace(&bytes);
        Some(Transmit { class, qpn: Qpn::from_low_bits(0), icrc })
    }
    fn has_transmit(&self) -> bool {
        !self.outgoing.is_empty()
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        self.interrupts = self.interrupts.checked_sub(1)?;
        Some(3)
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.timers.front().map(|timer| timer.0).into_iter().chain(self.stuck_timer).min()
    }
    fn set_link_up<M: HostMemory>(&mut self, _: Time, _: &mut M, up: bool) {
        self.link_up = up;
    }
    fn mac(&self) -> Option<MacAddress> {
        self.tells_address.then_some(MacAddress([0, 0, 0, 0, 0, self.mac]))
    }
    fn link_layer(&self) -> LinkLayer {
        if self.infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet }
    }
    fn bar_length(&self) -> u64 {
        4096
    }
}
