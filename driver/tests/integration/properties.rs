//! Arbitrary bytes from the device: completion entries, event entries, command answers. Nothing may panic, hang, read
//! outside its memory, or lose what is true.

use crate::support::objects::{Rig, Shape, peer, rights};
use crate::support::{FakeHal, Misbehaviour};
use bareverbs_core::{
    CompletionQueue, CompletionQueueConfig, Device, DeviceConfig, MemoryRegion, ProtectionDomain,
};
use bareverbs_core::{ConnectOptions, GidEntry, QueuePairBuilder, WorkCompletion, WorkRequest};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::eqe::EventEntry;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_prm::time::Duration;
use proptest::prelude::*;
use std::collections::BTreeSet;
use zerocopy::FromBytes;

/// An entry of arbitrary bytes; half of them name the queue pair of the rig, so that deeper checks are reached.
fn entry() -> impl Strategy<Value = ([u8; 64], bool)> {
    (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<bool>()).prop_map(|(a, b, ours)| {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&a);
        bytes[32..].copy_from_slice(&b);
        (bytes, ours)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn completion_entries(entries in prop::collection::vec(entry(), 1..40)) {
        let mut rig = Rig::new(Shape { entries: 64, ..Shape::default() });
        let ids: BTreeSet<u64> = (0..8).collect();
        ids.iter().for_each(|&id| rig.pair.post_send(&WorkRequest::nop(id)).unwrap());
        for &(bytes, ours) in &entries {
            let mut entry = CompletionEntry::read_from_bytes(&bytes).unwrap();
            if ours {
                let real = rig.entry(entry.opcode(), entry.wqe_counter() % 16);
                entry.set_user_index(real.user_index()).set_qpn(real.qpn()).set_wqe_counter(real.wqe_counter());
            }
            if entry.opcode() == CqeOpcode::Invalid {
                entry.set_opcode(CqeOpcode::Requester);
            }
            rig.complete_send(entry);
        }
        let mut found = [WorkCompletion::EMPTY; 5];
        let mut seen = BTreeSet::new();
        let mut refused = 0;
        // Every call consumes at least one entry, or there is none left.
        for _ in 0..=entries.len() {
            match rig.send.poll(&mut found) {
                Ok(count) => found[..count].iter().for_each(|c| {
                    assert!(ids.contains(&c.wr_id), "an identifier that was never posted");
                    assert!(seen.insert(c.wr_id), "an identifier twice");
                }),
                Err(_) => refused += 1,
            }
        }
        let accounted = seen.len() as u64 + refused + rig.send.discarded();
        prop_assert_eq!(accounted, entries.len() as u64);
        prop_assert_eq!(rig.hal.world.memory.faults.get(), 0);
    }

    #[test]
    fn event_entries(entries in prop::collection::vec(entry(), 1..40)) {
        let rig = Rig::new(Shape::default());
        for (bytes, _) in entries {
            let event = EventEntry::read_from_bytes(&bytes).unwrap();
            rig.hal.firmware().event(&rig.hal.world.memory, event);
            rig.device.poll_event().unwrap();
        }
        rig.device.ping().unwrap();
    }

    #[test]
    fn page_requests_of_any_size(count in any::<i32>()) {
        let rig = Rig::new(Shape::default());
        // Memory runs out at some point, as it does.
        rig.hal.world.memory.allowance.set(Some(4));
        rig.hal.firmware().misbehave(bareverbs_prm::numbering::CommandOpcode::Nop, Misbehaviour::WantPages(count));
        rig.device.ping().unwrap();
        prop_assert_eq!(rig.device.pages_held() as usize, rig.hal.firmware().pages.len());
    }

    #[test]
    fn answers_to_commands(at in 0usize..45, bytes in prop::collection::vec(any::<u8>(), 1..64)) {
        let hal = FakeHal::new();
        hal.firmware().at_command = Some((at, Misbehaviour::Garbage(bytes)));
        use_a_device(&hal);
        prop_assert_eq!(hal.world.memory.faults.get(), 0);
    }

    #[test]
    fn statuses_of_commands(at in 0usize..45, status in any::<u8>(), syndrome in any::<u32>(), delivery in 0u8..0x80) {
        for how in [Misbehaviour::Status(status, syndrome), Misbehaviour::Delivery(delivery)] {
            let hal = FakeHal::new();
            hal.firmware().at_command = Some((at, how));
            use_a_device(&hal);
            prop_assert_eq!(hal.world.memory.faults.get(), 0);
        }
    }
}

/// Opens a device, makes one object of each kind, takes all down again. Any step may fail.
fn use_a_device(hal: &FakeHal) {
    let config = DeviceConfig { command_timeout: Duration::from_millis(1), ..DeviceConfig::default() };
    let Ok(device) = Device::open(hal.clone(), config) else { return };
    let device = &device;
    device.port().ok();
    device.set_gid(0, GidEntry::roce_v2(peer().gid, peer().mac)).ok();
    let Ok(domain) = ProtectionDomain::allocate(device) else { return };
    let region = MemoryRegion::allocate(&domain, 8192, rights());
    let Ok(mut queue) = CompletionQueue::create(device, CompletionQueueConfig::default()) else { return };
    let Ok(pair) = QueuePairBuilder::new(&domain, &queue, &queue).build() else { return };
    let Ok(mut pair) = pair.connect(&peer(), ConnectOptions::default()) else { return };
    pair.post_send(&WorkRequest::nop(1)).ok();
    queue.poll_one().ok();
    drop((region, pair));
}
