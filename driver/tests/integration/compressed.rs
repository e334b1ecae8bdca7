//! Runs of compressed completions: every mini entry is one that the test wrote.

use crate::support::objects::{Rig, Shape};
use bareverbs_core::completion_queue::PollError;
use bareverbs_core::{
    ReceiveRequest, RemoteSlice, WorkCompletion, WorkCompletionOpcode as Opcode, WorkRequest,
};
use bareverbs_prm::cqe::{CompletionEntry, MiniEntry};
use bareverbs_prm::ids::{Cqn, Mkey};
use bareverbs_prm::numbering::CqeOpcode;

const REMOTE: RemoteSlice = RemoteSlice::from_raw(0x1122_3344_5566_7788, 1 << 20, Mkey::new(0xaabb_ccdd));

/// The device writes a run of completions that begins with `title`.
fn complete_run(rig: &Rig, queue: Cqn, title: CompletionEntry, minis: &[MiniEntry]) {
    rig.hal.firmware().complete_run(&rig.hal.world.memory, queue.value(), title, minis);
}

fn mini(counter: u16, byte_count: u32) -> MiniEntry {
    let mut mini = MiniEntry::new();
    mini.set_wqe_counter(counter).set_byte_count(byte_count);
    mini
}

/// With room for the whole run it is retired from its mini entries, with less it is written out first. Many passes over a ring of 16
/// places: what either way leaves behind is nobody's completion later.
#[test]
fn runs_of_compressed_sends_complete_what_they_name() {
    let mut rig = Rig::new(Shape { sends: 32, ..Shape::default() });
    let mut found = [WorkCompletion::EMPTY; 12];
    let mut next = 0;
    for round in 0..60 {
        let ids: Vec<u64> = (0..2 + round % 11).map(|index| next + index).collect();
        next += ids.len() as u64;
        for &id in &ids {
            rig.pair.post_send(&WorkRequest::write_inline(id, b"8 bytes!", REMOTE)).unwrap();
        }
        let minis: Vec<MiniEntry> = ids.iter().map(|&id| mini(id as u16, id as u32)).collect();
        complete_run(&rig, rig.send.number(), rig.entry(CqeOpcode::Requester, ids[0] as u16), &minis);
        let room = if round % 3 == 0 { 3 } else { 12 };
        let mut polled = Vec::new();
        while polled.len() < ids.len() {
            let count = rig.send.poll(&mut found[..room]).unwrap();
            assert!(count > 0, "round {round}: {} of {}", polled.len(), ids.len());
            polled.extend_from_slice(&found[..count]);
        }
        for (completion, &id) in polled.iter().zip(&ids) {
            assert_eq!((completion.wr_id, completion.byte_count), (id, id as u32));
            assert_eq!((completion.opcode, completion.is_success()), (Opcode::RdmaWrite, true));
        }
        assert_eq!(rig.send.poll(&mut found), Ok(0), "round {round}");
        assert_eq!(rig.pair.sends_outstanding(), 0);
    }
}

#[test]
fn runs_of_compressed_receives_complete_in_order() {
    let mut rig = Rig::new(Shape::default());
    let slice = [rig.region.slice(0, 64).unwrap()];
    let mut found = [WorkCompletion::EMPTY; 8];
    let mut next = 0;
    for round in 0..60 {
        let ids: Vec<u64> = (0..2 + round % 7).map(|index| next + index).collect();
        next += ids.len() as u64;
        ids.iter().for_each(|&id| rig.pair.post_receive(&ReceiveRequest::new(id, &slice)).unwrap());
        let minis: Vec<MiniEntry> = ids.iter().map(|&id| mini(0, id as u32 + 1)).collect();
        let mut title = rig.entry(CqeOpcode::ResponderSendImmediate, ids[0] as u16);
        title.set_immediate(0x99);
        complete_run(&rig, rig.receive.number(), title, &minis);
        assert_eq!(rig.receive.poll(&mut found), Ok(ids.len()), "round {round}");
        for (completion, &id) in found.iter().zip(&ids) {
            assert_eq!((completion.wr_id, completion.byte_count), (id, id as u32 + 1));
            assert_eq!((completion.opcode, completion.immediate), (Opcode::Receive, Some(0x99)));
        }
        assert_eq!(rig.pair.receives_outstanding(), 0);
    }
}

/// A mini entry that names a request that is not outstanding is reported by itself; those before and behind it complete.
#[test]
fn a_compressed_run_that_lies_is_reported() {
    let mut rig = Rig::new(Shape::default());
    let mut found = [WorkCompletion::EMPTY; 8];
    for id in 0..6 {
        rig.pair.post_send(&WorkRequest::write_inline(id, b"8 bytes!", REMOTE)).unwrap();
    }
    rig.complete_send(rig.entry(CqeOpcode::Requester, 0));
    assert_eq!(rig.send.poll(&mut found), Ok(1));
    let minis = [1, 2, 70, 4, 5].map(|counter| mini(counter, 0));
    complete_run(&rig, rig.send.number(), rig.entry(CqeOpcode::Requester, 1), &minis);
    assert_eq!(rig.send.poll(&mut found), Ok(2));
    assert_eq!(found[..2].iter().map(|completion| completion.wr_id).collect::<Vec<_>>(), [1, 2]);
    let lie = PollError::NotOutstanding { qpn: rig.pair.qpn(), counter: 70 };
    assert_eq!(rig.send.poll(&mut found), Err(lie));
    assert_eq!(rig.send.poll(&mut found), Ok(2));
    assert_eq!(found[..2].iter().map(|completion| completion.wr_id).collect::<Vec<_>>(), [4, 5]);
    assert_eq!((rig.send.poll(&mut found), rig.pair.sends_outstanding()), (Ok(0), 0));
}
