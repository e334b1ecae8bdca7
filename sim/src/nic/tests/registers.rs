//! BAR0 and resets.

use super::host::Host;
use super::verbs::Node;
use crate::nic::{Nic, NicConfig};
use bareverbs_prm::command::hca::{EnableHcaIn, EnableHcaOut};
use bareverbs_prm::doorbell::{init_segment, send_doorbell, uar};
use bareverbs_prm::numbering::CommandOpcode;
use bareverbs_prm::time::{Duration, Time};

#[test]
fn the_initialization_segment_is_what_drivers_expect() {
    let mut nic = Nic::new(NicConfig::default());
    let now = Time::from_picos(5);
    assert_eq!(nic.handle_mmio_read(now, 0x1fc) >> 31, 1, "firmware is initializing");
    assert_eq!(nic.handle_mmio_read(now, 0x04) >> 16, 5, "cmdif_rev");
    assert_eq!(nic.handle_mmio_read(now, 0x14) & 0xff, 0x56, "32 slots of 64 bytes");
    let later = now + NicConfig::default().firmware_ready_after;
    assert_eq!(nic.handle_mmio_read(later, 0x1fc) >> 31, 0);
    assert_eq!(nic.handle_mmio_read(later, 0x1fc) >> 23 & 1, 0, "no embedded CPU");
    let health = nic.handle_mmio_read(later, init_segment::HEALTH_COUNTER as u64);
    let ticked = nic.handle_mmio_read(later + Duration::from_secs(1), init_segment::HEALTH_COUNTER as u64);
    assert!(ticked > health && ticked >> 24 == 0);
    assert_eq!(nic.handle_mmio_read(later, 0x23c) >> 16 & 0xff, 0, "no health syndrome");
    for offset in (0..init_segment::SIZE as u64).step_by(4) {
        assert_ne!(nic.handle_mmio_read(later, offset), u32::MAX, "{offset:#x} reads all ones");
    }
    assert_eq!(nic.handle_mmio_read(later, nic.bar_size()), u32::MAX);
    assert_eq!(nic.handle_mmio_read(later, 2), u32::MAX);
}

#[test]
fn a_function_level_reset_forgets_everything() {
    let mut node = Node::new(1, NicConfig::default());
    assert_ne!(node.host.nic.live_objects(), [0; 6]);
    let control = node.host.nic.handle_config_read(0x68, 2);
    node.host.nic.handle_config_write(node.host.now, 0x68, 2, control | 0x8000);
    assert_eq!(node.host.nic.live_objects(), [0; 6]);
    assert_eq!(node.host.nic.held_pages(), 0);
    assert_eq!(node.host.read(0x10), 0, "the command queue address is forgotten");
    assert_eq!(node.host.read(0x1fc) >> 31, 1, "firmware initializes again");
    let before = node.host.memory.bytes.clone();
    node.host.now += Duration::from_secs(1);
    node.host.write(init_segment::COMMAND_DOORBELL, u32::MAX);
    assert_eq!(node.host.memory.bytes, before, "nothing is written any more");
}

/// rdma-core's VFIO driver writes the command queue address before it reads anything.
#[test]
fn firmware_initialises_without_register_reads() {
    let config = NicConfig::default();
    let mut host = Host::booted(config);
    host.now += Duration::from_secs(1);
    for wait in [Duration::ZERO, config.firmware_ready_after] {
        host.nic.reset(host.now);
        host.now += wait;
        host.write(init_segment::CMDQ_ADDRESS_LOW, 0x0020_0000);
        let heard = host.read(0x14) & !0xfff == 0x0020_0000;
        assert_eq!(heard, wait == config.firmware_ready_after, "after {wait:?}");
    }
}

#[test]
fn a_software_reset_disables_the_interface() {
    let mut host = Host::booted(NicConfig::default());
    let low = host.read(0x14);
    host.write(0x14, low | 7 << 8);
    assert_eq!(host.read(0x14) >> 8 & 7, 1);
    assert_eq!(host.nic.live_objects(), [0; 6]);
    let queue = host.queue;
    host.write(0x10, (queue >> 32) as u32);
    host.write(0x14, queue as u32);
    host.run::<_, EnableHcaOut>(CommandOpcode::EnableHca, 0, EnableHcaIn::new()).unwrap();
}

#[test]
fn writes_that_no_register_takes_are_counted() {
    let mut node = Node::new(1, NicConfig::default());
    let page = u64::from(node.uar.value()) * 4096;
    let foreign = page + 4096;
    let writes: [(u64, &[u8]); 7] = [
        (foreign + uar::SEND as u64, &[0; 8]),
        (page + 0x30, &[0; 8]),
        (page + uar::SEND as u64 + 0x40, &[0; 64]),
        (0x300, &[0; 4]),
        (page + 2, &[0; 4]),
        (u64::MAX - 3, &[0; 4]),
        (page + uar::SEND as u64 + 4, &[0; 4]),
    ];
    for (i, (offset, bytes)) in writes.into_iter().enumerate() {
        node.host.write_bytes(offset, bytes);
        assert_eq!(node.host.nic.counters().writes_ignored, i as u64 + 1, "{offset:#x}");
    }
}

#[test]
fn doorbells_work_from_their_own_uar_only() {
    let mut node = Node::new(1, NicConfig::default());
    let (other, _): (bareverbs_prm::command::uar::AllocUarOut, _) =
        node.host.run(CommandOpcode::AllocUar, 0, bareverbs_prm::command::uar::AllocUarIn::new()).unwrap();
    let ignored = node.host.nic.counters().doorbells_ignored;
    let raw = send_doorbell(node.qp.qpn);
    let at = u64::from(other.uar().value()) * 4096;
    node.host.write_bytes(at + uar::SEND as u64, &raw.to_be_bytes());
    node.host.write_bytes(at + uar::CQ_ARM as u64, &u64::from(node.cq.cqn.value()).to_be_bytes());
    node.host.write_bytes(at + uar::EQ_ARM as u64, &(node.eq.eqn.value() << 24).to_be_bytes());
    assert_eq!(node.host.nic.counters().doorbells_ignored, ignored + 3);
}
