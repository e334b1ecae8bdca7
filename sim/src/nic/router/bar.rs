//! BAR0: the initialization segment and the UAR pages (PRM, initialization segment and UAR page; Linux
//! `include/linux/mlx5/device.h`).

use crate::nic::firmware_state::SystemState;
use crate::nic::observer::DeviceEvent;
use crate::nic::registers::FIRST_UAR;
use crate::nic::{HostMemory, Nic, firmware};
use bareverbs_prm::doorbell::{CqArm, UAR_PAGE_SIZE, init_segment, send_doorbell_qpn, uar};
use bareverbs_prm::ids::{Eqn, UarIndex};
use bareverbs_prm::time::Time;

/// Revision of the command interface, which all drivers require.
const CMDIF_REV: u32 = 5;
/// log2 of the number of command queue entries and of their stride.
const QUEUE_GEOMETRY: u32 = 5 << 4 | 6;
/// The address bits in the low half of the command queue address register.
const QUEUE_ADDRESS: u32 = 0xffff_f000;
/// `nic_interface`: full driver, disabled, software reset.
const INTERFACE_SHIFT: u32 = 8;
const INTERFACE_DISABLED: u8 = 1;
const INTERFACE_RESET: u8 = 7;
/// The health counter counts milliseconds in a 24-bit register.
const HEALTH_TICK_NANOS: u64 = 1_000_000;
/// Bytes between the two halves of a BlueFlame register, where send doorbells may be rung.
const DOORBELL_STEP: usize = 0x100;
const ALL_ONES: u32 = u32::MAX;

impl Nic {
    /// Reads the 32-bit register at `offset` for the host; the big-endian register's value as a number. Outside BAR0
    /// all bits are one, as for any unanswered read.
    pub fn handle_mmio_read(&mut self, now: Time, offset: u64) -> u32 {
        if offset & 3 != 0 || offset.saturating_add(4) > self.bar_size() {
            return ALL_ONES;
        }
        let ready = self.is_ready(now);
        match usize::try_from(offset) {
            Ok(offset) if offset < init_segment::SIZE => self.read_init_segment(now, ready, offset),
            _ => 0,
        }
    }

    /// Whether firmware has finished its initialization.
    fn is_ready(&self, now: Time) -> bool {
        now >= self.registers.ready_at
    }

    fn read_init_segment(&self, now: Time, ready: bool, offset: usize) -> u32 {
        const HEALTH_END: usize = init_segment::HEALTH_BUFFER + 64;
        let [major, minor, subminor] = self.config.firmware_revision.map(u32::from);
        let ticks = now.as_nanos();
        match offset {
            init_segment::FW_REV => minor << 16 | major,
            init_segment::CMDIF_REV => CMDIF_REV << 16 | subminor,
            init_segment::CMDQ_ADDRESS_HIGH => self.registers.queue_high,
            init_segment::CMDQ_ADDRESS_LOW => {
                self.registers.queue_low
                    | u32::from(self.registers.interface) << INTERFACE_SHIFT
                    | QUEUE_GEOMETRY
            }
            init_segment::INITIALIZING => u32::from(!ready) << 31 | 0b11 << 24,
            init_segment::HEALTH_BUFFER..HEALTH_END => {
                let word = (offset - init_segment::HEALTH_BUFFER) / 4;
                self.firmware.health.dwords().get(word).map_or(0, |word| word.get())
            }
            init_segment::INTERNAL_TIMER_HIGH => (ticks >> 32) as u32,
            init_segment::INTERNAL_TIMER_LOW => ticks as u32,
            init_segment::HEALTH_COUNTER => (ticks / HEALTH_TICK_NANOS) as u32 & 0xff_ffff,
            _ => 0,
        }
    }

    /// Writes 4, 8 or 64 bytes for the host, in bus byte order. All effects have occurred when this returns, except for
    /// what waits for the wire.
    pub fn handle_mmio_write<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        let ready = self.is_ready(now);
        let aligned = offset & 3 == 0 && matches!(bytes.len(), 4 | 8 | 64);
        if !ready || !aligned || offset.saturating_add(bytes.len() as u64) > self.bar_size() {
            self.shared.counters.writes_ignored += 1;
        } else if offset < u64::from(FIRST_UAR) * UAR_PAGE_SIZE as u64 {
            self.write_init_segment(now, memory, offset, bytes);
        } else {
            self.write_uar(now, memory, offset, bytes);
        }
        self.settle(now, memory);
    }

    fn write_init_segment<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            let value = big_endian(word);
            match usize::try_from(offset).map_or(usize::MAX, |offset| offset + i * 4) {
                init_segment::CMDQ_ADDRESS_HIGH => self.registers.queue_high = value,
                init_segment::CMDQ_ADDRESS_LOW => self.write_queue_low(value),
                init_segment::COMMAND_DOORBELL => firmware::ring(self, now, memory, value),
                _ => self.shared.counters.writes_ignored += 1,
            }
        }
    }

    /// A write that requests another interface state does not set the address.
    fn write_queue_low(&mut self, value: u32) {
        let interface = (value >> INTERFACE_SHIFT) as u8 & 7;
        // The waiting commands belong to the previous queue.
        self.firmware.forget_commands();
        if interface == 0 {
            self.registers.interface = 0;
            self.registers.queue_low = value & QUEUE_ADDRESS;
            let address = u64::from(self.registers.queue_high) << 32 | u64::from(self.registers.queue_low);
            self.firmware.queue = Some(address).filter(|&address| address != 0);
            return;
        }
        if interface == INTERFACE_RESET {
            self.forget_objects();
            self.firmware.state = SystemState::Disabled;
        }
        self.firmware.queue = None;
        self.registers.interface = INTERFACE_DISABLED;
    }

    fn write_uar<M: HostMemory>(&mut self, now: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        let page = (offset / UAR_PAGE_SIZE as u64) as u32;
        let within = offset as usize % UAR_PAGE_SIZE;
        if self.uars.get(page).is_none() {
            self.shared.counters.writes_ignored += 1;
            return;
        }
        let page = UarIndex::from_low_bits(page);
        match (within, bytes.len()) {
            (uar::EQ_ARM, 4) => self.ring_event_queue(page, big_endian(bytes), true),
            (uar::EQ_CONSUME, 4) => self.ring_event_queue(page, big_endian(bytes), false),
            (_, 4) => self.write_half(now, memory, page, offset, big_endian(bytes)),
            _ => {
                let (head, _) = bytes.split_at(8);
                let raw = u64::from(big_endian(head)) << 32 | u64::from(big_endian(&head[4..]));
                self.ring(now, memory, page, within, raw);
            }
        }
    }

    /// A 64-bit doorbell as two writes, as 32-bit hosts issue it: the second one rings.
    fn write_half<M: HostMemory>(
        &mut self,
        now: Time,
        memory: &mut M,
        page: UarIndex,
        offset: u64,
        value: u32,
    ) {
        if offset & 7 == 0 {
            self.registers.latch = Some((offset, value));
            return;
        }
        match self.registers.latch.take() {
            Some((first, high)) if first + 4 == offset => {
                let raw = u64::from(high) << 32 | u64::from(value);
                self.ring(now, memory, page, first as usize % UAR_PAGE_SIZE, raw);
            }
            _ => self.shared.counters.writes_ignored += 1,
        }
    }

    /// A 64-bit doorbell of a completion queue or send queue. Only the first 8 bytes of a BlueFlame burst
    /// count, since the WQE is also in the ring; bursts that continue a longer WQE go to offsets without a
    /// doorbell.
    fn ring<M: HostMemory>(&mut self, now: Time, memory: &mut M, page: UarIndex, within: usize, raw: u64) {
        if within == uar::CQ_ARM {
            self.ring_completion_queue(now, memory, page, raw);
        } else if within >= uar::SEND && within.is_multiple_of(DOORBELL_STEP) {
            self.ring_send_queue(now, memory, page, send_doorbell_qpn(raw));
        } else {
            self.shared.counters.writes_ignored += 1;
        }
    }

    fn ring_event_queue(&mut self, page: UarIndex, raw: u32, arm: bool) {
        let known = self.shared.events.doorbell(Eqn::from_low_bits(raw >> 24), page, raw & 0xff_ffff, arm);
        self.shared.counters.doorbells_ignored += u64::from(!known);
    }

    fn ring_completion_queue<M: HostMemory>(&mut self, now: Time, memory: &mut M, page: UarIndex, raw: u64) {
        let arm = CqArm::from_raw(raw);
        if self.config.strict && arm.to_raw() != raw {
            self.shared.counters.strict_violations += 1;
            return;
        }
        let known = self.shared.completions.arm(memory, &mut self.shared.events, page, arm);
        if known {
            let (cqn, consumer) = (arm.cqn, arm.consumer_index);
            self.tell_observer(now, || DeviceEvent::CompletionArmed { cqn, consumer });
        }
        self.shared.counters.doorbells_ignored += u64::from(!known);
    }
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_be_bytes(*word))
}
