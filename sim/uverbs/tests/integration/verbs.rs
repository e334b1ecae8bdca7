//! Whole conversations in libmlx5's terms: memory, queues and work requests go in, completions and events
//! come out.

use crate::support;

use bareverbs_uverbs::Errno;
use bareverbs_uverbs::uapi::*;
use support::libmlx5::*;

const LENGTH: u32 = 5000;
const REQUESTER_DONE: u8 = 0;
const RESPONDER_SEND: u8 = 2;
const REQUESTER_ERROR: u8 = 0xd;
const REMOTE_ACCESS: u8 = 0x13;
const FLUSHED: u8 = 5;

/// A peer with a completion queue, a queue pair and a region.
struct End {
    peer: Peer,
    cq: Cq,
    qp: Qp,
    data: u64,
    region: RegMrResp,
}

impl End {
    fn new(name: &'static str, kind: u64) -> Self {
        let mut peer = Peer::new(name);
        let cq = peer.create_cq(0xc0, None);
        let user_index = 7;
        let requested = QpInitAttributes {
            kind,
            send: cq.handle,
            receive: cq.handle,
            user_handle: 0x9b,
            user_index,
            ..QpInitAttributes::default()
        };
        let qp = peer.create_qp(requested).unwrap();
        let data = peer.allocate(2 * u64::from(LENGTH));
        let region = peer.reg_mr(data, 2 * u64::from(LENGTH), REMOTE).unwrap();
        Self { peer, cq, qp, data, region }
    }

    fn fill(&mut self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 % 251) as u8).collect();
        self.peer.program.put(self.data, &bytes);
        bytes
    }
}

fn pair(kind: u64) -> (End, End) {
    let (mut a, mut b) = (End::new("a", kind), End::new("b", kind));
    let (gid_a, gid_b) = (a.peer.gid(), b.peer.gid());
    a.peer.connect(&a.qp, kind, gid_b, b.qp.number).unwrap();
    b.peer.connect(&b.qp, kind, gid_a, a.qp.number).unwrap();
    (a, b)
}

#[test]
fn data_go_from_one_program_to_another() {
    for kind in [IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC] {
        let (mut a, mut b) = pair(kind);
        let bytes = a.fill();
        let local = data_segment(a.region.lkey, a.data, LENGTH);
        a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &remote(b.data, b.region.rkey, local));
        let target = b.data + u64::from(LENGTH);
        b.peer.post_receive(&mut b.qp, b.region.lkey, target, LENGTH);
        a.peer.post_send(&mut a.qp, ENTRIES, SEND, &local);
        settle(&mut a.peer, &mut b.peer);
        for counter in 0..2 {
            let done = a.peer.poll(&mut a.cq).unwrap();
            assert_eq!((done.opcode, done.counter, done.user_index), (REQUESTER_DONE, counter, 7));
        }
        let received = b.peer.poll(&mut b.cq).unwrap();
        assert_eq!((received.opcode, received.bytes, received.user_index), (RESPONDER_SEND, LENGTH, 7));
        assert_eq!((a.peer.poll(&mut a.cq), b.peer.poll(&mut b.cq)), (None, None));
        assert_eq!(b.peer.bytes(b.data, LENGTH as usize), bytes, "written");
        assert_eq!(b.peer.bytes(target, LENGTH as usize), bytes, "sent");
    }
}

#[test]
fn a_program_talks_to_itself_without_a_frame() {
    let mut end = End::new("a", IB_UVERBS_QPT_RC);
    let requested = QpInitAttributes {
        kind: IB_UVERBS_QPT_RC,
        send: end.cq.handle,
        receive: end.cq.handle,
        ..QpInitAttributes::default()
    };
    let other = end.peer.create_qp(requested).unwrap();
    let gid = end.peer.gid();
    end.peer.connect(&end.qp, IB_UVERBS_QPT_RC, gid, other.number).unwrap();
    end.peer.connect(&other, IB_UVERBS_QPT_RC, gid, end.qp.number).unwrap();
    let bytes = end.fill();
    let target = end.data + u64::from(LENGTH);
    let local = data_segment(end.region.lkey, target, LENGTH);
    end.peer.post_send(&mut end.qp, ENTRIES, READ, &remote(end.data, end.region.rkey, local));
    for _ in 0..20 {
        assert!(end.peer.turn().is_empty());
    }
    assert_eq!(end.peer.poll(&mut end.cq).map(|done| done.opcode), Some(REQUESTER_DONE));
    assert_eq!(end.peer.bytes(target, LENGTH as usize), bytes);
}

#[test]
fn only_registered_memory_can_be_accessed() {
    let (mut a, mut b) = pair(IB_UVERBS_QPT_RC);
    let local = data_segment(a.region.lkey, a.data, 16);
    let outside = b.data + 2 * u64::from(LENGTH) - 8;
    a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &remote(outside, b.region.rkey, local));
    a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &remote(b.data, b.region.rkey, local));
    settle(&mut a.peer, &mut b.peer);
    let [first, second] = [(); 2].map(|()| a.peer.poll(&mut a.cq).unwrap());
    assert_eq!((first.opcode, first.syndrome), (REQUESTER_ERROR, REMOTE_ACCESS));
    assert_eq!((second.opcode, second.syndrome), (REQUESTER_ERROR, FLUSHED));
    assert_eq!((a.peer.query_qp(&a.qp).qp_state, b.peer.query_qp(&b.qp).qp_state), (6, 6));
    let event = b.peer.program.event_files[0].records.pop_front().unwrap();
    assert_eq!((event.element(), event.bytes()[8]), (0x9b, 3), "the responder gets an access-error event");
}

#[test]
fn regions_are_checked_before_they_are_made() {
    let mut peer = Peer::new("a");
    let data = peer.allocate(4096);
    let cases = [
        (data, 0, 1, Errno::Invalid),
        (0x10, 4096, 1, Errno::Fault),
        (data, 4096, 2, Errno::Invalid),
        (data, 4096, 0x41, Errno::NotSupported),
        (data, 4096, 0x8000_0001, Errno::Invalid),
    ];
    for (start, length, access, error) in cases {
        assert_eq!(peer.reg_mr(start, length, access).err(), Some(error), "{start:#x} {length} {access:#x}");
    }
    let region = peer.reg_mr(data + 0x123, 99, 1 | 0x10_0000).unwrap();
    let domain = peer.pd.into();
    let busy = peer.destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, domain, 0);
    assert_eq!(busy.err(), Some(Errno::Busy), "a region uses it");
    let requested = ReregMr {
        response: 0,
        mr_handle: region.mr_handle,
        flags: 4,
        start: 0,
        length: 0,
        hca_va: 0,
        pd_handle: 0,
        access_flags: 7,
    };
    let (again, ()) =
        peer.command::<_, ReregMrResp, ()>(IB_USER_VERBS_CMD_REREG_MR, &requested, &[]).unwrap();
    assert_eq!(again.lkey, region.lkey, "a change of access rights keeps the key");
    let moved = ReregMr { flags: 1 | 4, start: data, length: 64, hca_va: data, ..requested };
    let (again, ()) = peer.command::<_, ReregMrResp, ()>(IB_USER_VERBS_CMD_REREG_MR, &moved, &[]).unwrap();
    assert_ne!(again.lkey, region.lkey, "a change of memory changes the key");
    peer.destroy(UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, region.mr_handle.into(), 0).unwrap();
    peer.destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, domain, 0).unwrap();
}

/// Rights change while the queue pair's own packets wait, and no packet is lost.
#[test]
fn a_region_loses_a_right_and_keeps_its_key() {
    let (mut a, mut b) = pair(IB_UVERBS_QPT_RC);
    let local = data_segment(a.region.lkey, a.data, 16);
    let write = remote(b.data, b.region.rkey, local);
    b.peer.post_send(
        &mut b.qp,
        ENTRIES,
        WRITE,
        &remote(a.data, a.region.rkey, data_segment(b.region.lkey, b.data, 16)),
    );
    let requested = ReregMr {
        mr_handle: b.region.mr_handle,
        flags: 4,
        access_flags: 1,
        ..zerocopy::FromZeros::new_zeroed()
    };
    let (again, ()) =
        b.peer.command::<_, ReregMrResp, ()>(IB_USER_VERBS_CMD_REREG_MR, &requested, &[]).unwrap();
    assert_eq!((again.lkey, again.rkey), (b.region.lkey, b.region.rkey));
    settle(&mut a.peer, &mut b.peer);
    assert_eq!(b.peer.poll(&mut b.cq).map(|done| done.opcode), Some(REQUESTER_DONE), "its own WRITE");
    a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &write);
    settle(&mut a.peer, &mut b.peer);
    let done = a.peer.poll(&mut a.cq).unwrap();
    assert_eq!((done.opcode, done.syndrome), (REQUESTER_ERROR, REMOTE_ACCESS));
}

/// libmlx5 zeroes the record after the command has returned. The device polls the record before that, too.
#[test]
fn a_reset_invalidates_the_doorbell_record() {
    let (mut a, mut b) = pair(IB_UVERBS_QPT_RC);
    let write = remote(b.data, b.region.rkey, data_segment(a.region.lkey, a.data, 16));
    for _ in 0..=ENTRIES {
        a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &write);
        settle(&mut a.peer, &mut b.peer);
        assert_eq!(a.peer.poll(&mut a.cq).map(|done| done.opcode), Some(REQUESTER_DONE));
    }
    let (gid_a, gid_b, number_a, number_b) = (a.peer.gid(), b.peer.gid(), a.qp.number, b.qp.number);
    for (end, gid, number) in [(&mut a, gid_b, number_b), (&mut b, gid_a, number_a)] {
        end.peer.reset(&mut end.qp);
        end.peer.connect(&end.qp, IB_UVERBS_QPT_RC, gid, number).unwrap();
    }
    a.peer.post_send(&mut a.qp, ENTRIES, WRITE, &write);
    settle(&mut a.peer, &mut b.peer);
    assert_eq!(a.peer.poll(&mut a.cq).map(|done| done.opcode), Some(REQUESTER_DONE));
}

#[test]
fn a_channel_tells_once_of_each_arming_and_counts_what_was_read() {
    let (mut a, mut b) = pair(IB_UVERBS_QPT_RC);
    let channel = b.peer.create_channel();
    let mut cq = b.peer.create_cq(0xfeed, Some(channel));
    let kind = IB_UVERBS_QPT_RC;
    let requested =
        QpInitAttributes { kind, send: cq.handle, receive: cq.handle, ..QpInitAttributes::default() };
    let mut qp = b.peer.create_qp(requested).unwrap();
    let (gid_a, gid_b) = (a.peer.gid(), b.peer.gid());
    let requested =
        QpInitAttributes { kind, send: a.cq.handle, receive: a.cq.handle, ..QpInitAttributes::default() };
    let mut sender = a.peer.create_qp(requested).unwrap();
    a.peer.connect(&sender, kind, gid_b, qp.number).unwrap();
    b.peer.connect(&qp, kind, gid_a, sender.number).unwrap();
    let local = data_segment(a.region.lkey, a.data, 8);
    // The first arming of libmlx5 writes zeros, which is also the initial value.
    for (round, armed) in [true, false, true, true].into_iter().enumerate() {
        if armed {
            b.peer.arm(&cq, round as u32 & 3);
        }
        b.peer.post_receive(&mut qp, b.region.lkey, b.data, 8);
        a.peer.post_send(&mut sender, ENTRIES, SEND, &local);
        settle(&mut a.peer, &mut b.peer);
        assert!(b.peer.poll(&mut cq).is_some(), "round {round}");
        let records = &mut b.peer.program.event_files[1].records;
        assert_eq!(records.len(), usize::from(armed), "round {round}");
        if round < 3 && armed {
            assert_eq!(records.pop_front().unwrap().element(), 0xfeed);
        }
    }
    let busy = b.peer.destroy(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq.handle, 8);
    assert_eq!(busy.err(), Some(Errno::Busy));
    b.peer.destroy(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, qp.handle.into(), 4).unwrap();
    let read = b.peer.destroy(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq.handle, 8).unwrap();
    assert_eq!(read, [2, 0], "two of three events were read");
    assert!(b.peer.program.event_files[1].records.is_empty());
}

#[test]
fn an_arming_before_the_last_completion_was_taken_waits_for_the_next_one() {
    let mut end = End::new("a", IB_UVERBS_QPT_RC);
    let channel = end.peer.create_channel();
    let mut cq = end.peer.create_cq(0xfeed, Some(channel));
    let kind = IB_UVERBS_QPT_RC;
    let requested =
        QpInitAttributes { kind, send: cq.handle, receive: cq.handle, ..QpInitAttributes::default() };
    let (mut qp, gid) = (end.peer.create_qp(requested).unwrap(), end.peer.gid());
    end.peer.connect(&qp, kind, gid, end.qp.number).unwrap();
    end.peer.connect(&end.qp.clone(), kind, gid, qp.number).unwrap();
    let local = data_segment(end.region.lkey, end.data, 8);
    let write = remote(end.data + 64, end.region.rkey, local);
    end.peer.arm(&cq, 0);
    for round in 1..4 {
        end.peer.post_send(&mut qp, ENTRIES, WRITE, &write);
        (0..10).for_each(|_| drop(end.peer.turn()));
        let told = end.peer.program.event_files[1].records.drain(..).count();
        assert_eq!(told, 1, "round {round}");
        // As perftest does it: takes the event, arms again, and only then takes the completion.
        end.peer.arm(&cq, round);
        (0..10).for_each(|_| drop(end.peer.turn()));
        assert!(end.peer.program.event_files[1].records.is_empty(), "round {round}");
        assert!(end.peer.poll(&mut cq).is_some());
    }
}

#[test]
fn query_qp_returns_the_attributes_that_were_set() {
    let (mut a, b) = pair(IB_UVERBS_QPT_RC);
    let shown = a.peer.query_qp(&a.qp);
    assert_eq!((shown.qp_state, shown.path_mtu, shown.dest_qp_num), (3, 3, b.qp.number));
    assert_eq!((shown.timeout, shown.retry_cnt, shown.rnr_retry, shown.min_rnr_timer), (14, 7, 7, 12));
    assert_eq!((shown.dest.dgid, shown.dest.hop_limit, shown.dest.is_global), (b.peer.gid(), 64, 1));
    assert_eq!(shown.qp_access_flags, 2 | 4 | 8);
    assert_eq!((shown.max_send_wr, shown.max_recv_wr), (ENTRIES, ENTRIES));
}

#[test]
fn transitions_that_do_not_exist_are_refused() {
    let mut a = End::new("a", IB_UVERBS_QPT_RC);
    let handle = a.qp.handle;
    let base = ModifyQp { qp_handle: handle, ..zerocopy::FromZeros::new_zeroed() };
    let init = ModifyQp { attr_mask: 0x39, qp_state: 1, port_num: 1, ..base };
    let cases = [
        (ModifyQp { attr_mask: 1, qp_state: 3, ..base }, Errno::Invalid),
        (ModifyQp { attr_mask: 1, qp_state: 7, ..base }, Errno::Invalid),
        (ModifyQp { attr_mask: 0x19, ..init }, Errno::Invalid),
        (ModifyQp { port_num: 2, ..init }, Errno::Invalid),
        (ModifyQp { pkey_index: 1, ..init }, Errno::Invalid),
        (ModifyQp { qp_handle: 77, ..init }, Errno::NoEntry),
        (ModifyQp { qp_handle: a.peer.pd, ..init }, Errno::Invalid),
    ];
    for (requested, error) in cases {
        assert_eq!(a.peer.modify(&requested), Err(error), "{requested:?}");
    }
    assert_eq!(a.peer.modify(&ModifyQp { attr_mask: 1, ..base }), Ok(()), "from RESET to RESET");
    assert_eq!(
        a.peer.connect(&a.qp.clone(), IB_UVERBS_QPT_RC, [7; 16], 5),
        Err(Errno::TimedOut),
        "nobody answers"
    );
}

#[test]
fn closing_a_file_destroys_objects_of_every_kind() {
    let mut peer = Peer::new("a");
    let file = peer.uverbs.open();
    let before = peer.uverbs.nic().live_objects();
    peer.uverbs.close(&mut peer.program, file);
    let (mut a, _b) = pair(IB_UVERBS_QPT_RC);
    let channel = a.peer.create_channel();
    a.peer.create_cq(1, Some(channel));
    // A region that moved to a newer domain is still destroyed before that domain.
    let pd_handle = a.peer.alloc_pd();
    let mr_handle = a.region.mr_handle;
    let moved = ReregMr { mr_handle, flags: 2, pd_handle, ..zerocopy::FromZeros::new_zeroed() };
    a.peer.command::<_, ReregMrResp, ()>(IB_USER_VERBS_CMD_REREG_MR, &moved, &[]).unwrap();
    a.peer.uverbs.close(&mut a.peer.program, a.peer.file);
    let [domains, keys, completions, pairs, events, pages] = a.peer.uverbs.nic().live_objects();
    assert_eq!(
        [domains, keys, completions, pairs],
        [before[0] - 1, before[1], before[2], before[3]],
        "the general services' objects stay"
    );
    assert_eq!((events, pages + 1), (before[4], before[5]), "the kernel's own objects stay");
    assert!(a.peer.program.event_files.iter().all(|file| file.hung_up));
    a.peer.turn();
}
