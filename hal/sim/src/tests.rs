//! The HAL with a minimal device.

use super::memory::tests::store;
use super::{MemoryConfig, SimHal, SimWorld};
use bareverbs_core::hal::{Barrier, DmaMemory, Hal, HalError, Mmio};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::LinkConfig;
use bareverbs_sim::nic::HostMemory;
use bareverbs_sim::run::device::{Transmit, TransmitClass};
use bareverbs_sim::run::{Device, Latency, StallReason};
use bareverbs_sim::wire::FrameBuffer;

/// Treats an 8-byte write as the address of 8 bytes, which it copies to the address behind them; records every write.
#[derive(Debug, Default)]
struct Copier {
    writes: Vec<(u64, Vec<u8>)>,
    frames: u32,
    received: u32,
}

impl Device for Copier {
    fn handle_mmio_read(&mut self, _: Time, offset: u64) -> u32 {
        if offset == 0 { self.received } else { 0x0102_0304 }
    }
    fn handle_mmio_write<M: HostMemory>(&mut self, _: Time, memory: &mut M, offset: u64, bytes: &[u8]) {
        self.writes.push((offset, bytes.to_vec()));
        if let Ok(address) = bytes.try_into().map(u64::from_be_bytes) {
            let mut copy = [0; 8];
            if memory.read(address, &mut copy).and_then(|()| memory.write(address + 8, &copy)).is_ok() {
                self.frames += 1;
            }
        }
    }
    fn handle_frame<M: HostMemory>(&mut self, _: Time, _: &mut M, _: &[u8]) {
        self.received += 1;
    }
    fn handle_timeout<M: HostMemory>(&mut self, _: Time, _: &mut M) {}
    fn poll_transmit<M: HostMemory>(
        &mut self,
        _: Time,
        _: &mut M,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        self.frames = self.frames.checked_sub(1)?;
        frame.replace(&[0; 100]);
        Some(Transmit { class: TransmitClass::Request, qpn: Qpn::from_low_bits(0), icrc: 0 })
    }
    fn has_transmit(&self) -> bool {
        self.frames > 0
    }
    fn poll_interrupt(&mut self) -> Option<u16> {
        None
    }
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn set_link_up<M: HostMemory>(&mut self, _: Time, _: &mut M, _: bool) {}
    fn bar_length(&self) -> u64 {
        8192
    }
}

fn pair(memory: MemoryConfig) -> (SimWorld<Copier>, [SimHal<Copier>; 2]) {
    let world = SimWorld::new(9);
    let nodes =
        ["host", "dpu"].map(|name| world.add_node(name, Copier::default(), Latency::default(), memory));
    world.connect(nodes[0], nodes[1], LinkConfig::gigabits(100)).unwrap();
    (world.clone(), nodes.map(|node| world.hal(node)))
}

#[test]
fn registers_are_big_endian_on_the_bus_and_blocks_are_bytes() {
    let (world, [hal, _]) = pair(MemoryConfig::default());
    let mmio = hal.mmio();
    assert_eq!((mmio.len(), mmio.read32(4)), (8192, 0x0102_0304));
    mmio.write32(0x10, 0x0102_0304);
    mmio.write64(0x20, 0x0102_0304_0506_0708);
    mmio.write_block64(0x800, &core::array::from_fn(|word| u64::from_ne_bytes([word as u8; 8])));
    let writes = world.with(|world| world.device(hal.node()).writes.clone());
    assert_eq!(writes[0], (0x10, vec![1, 2, 3, 4]));
    assert_eq!(writes[1], (0x20, vec![1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(writes[2], (0x800, (0..64).map(|index| index / 8).collect()));
}

#[test]
fn relax_runs_what_is_due_and_never_past_the_deadline() {
    let (_, [hal, peer]) = pair(MemoryConfig::default());
    let dma = hal.allocate_dma(16, 8).unwrap();
    hal.mmio().write64(0, dma.iova());
    hal.relax(Time::from_picos(100));
    assert_eq!((hal.now(), peer.mmio().read32(0)), (Time::from_picos(100), 0));
    hal.relax(Time::MAX);
    assert_eq!((hal.now(), peer.mmio().read32(0)), (Time::from_picos(124 * 80 + 10_000), 1));
    let deadline = hal.now() + Duration::from_millis(5);
    hal.relax(deadline);
    assert_eq!(hal.now(), deadline, "an idle world jumps to the deadline, so that time-outs happen");
}

#[test]
fn waiting_in_an_idle_world_reports_a_stall() {
    let (world, _) = pair(MemoryConfig::default());
    let stalled = world.run_while(|| true, Time::MAX).unwrap_err();
    assert_eq!(stalled.reason, StallReason::Idle);
    assert!(stalled.to_string().contains("node dpu"));
}

#[test]
fn a_missing_barrier_shows_in_unforgiving_memory_only() {
    const TRIES: u64 = 64;
    let stale_and_leaked = |config, barrier| {
        let (_, [hal, _]) = pair(config);
        let is_stale = |_: &u64| {
            let dma = hal.allocate_dma(16, 8).unwrap();
            store(&dma, 0, &[7; 8]);
            if barrier {
                hal.barrier(Barrier::ToDevice);
            }
            hal.mmio().write64(0, dma.iova());
            let mut copy = [0; 8];
            hal.memory().clone().read(dma.iova() + 8, &mut copy).unwrap();
            copy != [7; 8]
        };
        let stale = (0..TRIES).filter(is_stale).count() as u64;
        (stale, hal.memory().counters().leaked_words)
    };
    assert_eq!(stale_and_leaked(MemoryConfig::default(), false), (0, 0));
    assert_eq!(stale_and_leaked(MemoryConfig::unforgiving(), true), (0, 0));
    let (stale, leaked) = stale_and_leaked(MemoryConfig::unforgiving(), false);
    assert_eq!(stale + leaked, TRIES);
    assert!(stale > TRIES / 2 && leaked > 0, "{stale} stale, {leaked} leaked early");
}

#[test]
fn the_hal_refuses_more_memory_than_the_arena_has() {
    let (_, [hal, _]) = pair(MemoryConfig { capacity: 4096, ..MemoryConfig::default() });
    assert!(matches!(hal.allocate_dma(4097, 8), Err(HalError::OutOfDmaMemory { .. })));
}
