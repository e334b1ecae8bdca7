//! RoCE version 1 between drivers: every operation, the frames on the wire, and ends of different versions.
//!
//! Soft-RoCE implements version 2 only, so the judges here are tshark and the independent ICRC.

use bareverbs_core::gid::GidEntry;
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::queue_pair::{
    AddressError, ConnectError, ConnectOptions, Mismatch, QueuePairBuilder, RemoteEndpoint, Suspect, Uc,
};
use bareverbs_core::work_completion::WorkCompletionStatus;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::numbering::{CqeSyndrome, PathMtu, QpState, RoceVersion};
use bareverbs_tests::judges::{self, Version};
use bareverbs_tests::node::{NodeOptions, gid, mac};
use bareverbs_tests::pair::{Pair, PairOptions, Side};

const VERSION_1: NodeOptions = NodeOptions { ipv6: false, version_1: true, unforgiving: true };
/// Bytes of a message of three packets.
const LONG: usize = 2500;

fn options(ipv6: bool) -> PairOptions {
    PairOptions { node: NodeOptions { ipv6, ..VERSION_1 }, ..PairOptions::default() }
}

fn bytes(salt: usize) -> Vec<u8> {
    (0..LONG).map(|at| (at.wrapping_mul(29) ^ (at >> 7) ^ salt) as u8).collect()
}

/// SEND, WRITE, READ and both atomics, bytes compared.
fn converse(pair: &mut Pair) {
    let sent = bytes(1);
    pair.a.memory.copy_in(0, &sent).unwrap();
    let into = [pair.b.memory.slice(8192, LONG).unwrap()];
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(7, &into)).unwrap();
    let (from, back) = ([pair.a.memory.slice(0, LONG).unwrap()], [pair.a.memory.slice(16384, LONG).unwrap()]);
    let old = [pair.a.memory.slice(30_000, 8).unwrap()];
    let (target, word) = (pair.b.memory.remote(0), pair.b.memory.remote(64));
    let mut batch = pair.a.queue_pair.send_batch();
    batch.post(&WorkRequest::send(1, &from).immediate(0xfeed)).unwrap();
    batch.post(&WorkRequest::write(2, &from, target)).unwrap();
    batch.post(&WorkRequest::read(3, &back, target)).unwrap();
    batch.post(&WorkRequest::fetch_add(4, &old, word, 3)).unwrap();
    batch.ring();
    let received = pair.received();
    assert_eq!((received.wr_id, received.byte_count, received.immediate), (7, LONG as u32, Some(0xfeed)));
    for id in 1..=4 {
        let completion = pair.sent();
        assert!(completion.is_success() && completion.wr_id == id, "{completion:?}");
    }
    for (memory, at) in [(&pair.b.memory, 8192), (&pair.a.memory, 16384)] {
        let mut found = vec![0; LONG];
        memory.copy_out(at, &mut found).unwrap();
        assert!(found == sent, "bytes at {at}");
    }
    let before = pair.a.memory.load_u64(30_000).unwrap();
    assert_eq!(before, u64::from_le_bytes(sent[64..72].try_into().unwrap()));
    // The other side got no completion for these.
    pair.b.node.device.hal().barrier(Barrier::FromDevice);
    assert_eq!(pair.b.memory.load_u64(64).unwrap(), before.wrapping_add(3));
}

/// Requirement: RoCE A16: a connection of version 1 carries every operation; both outside judges accept its frames.
#[test]
fn the_judges_take_a_whole_conversation_of_version_1() {
    for ipv6 in [false, true] {
        let path = judges::capture_path(env!("CARGO_TARGET_TMPDIR"), &format!("version-1-{ipv6}"));
        let mut pair = Pair::new(&options(ipv6));
        let file = std::fs::File::create(&path).unwrap();
        pair.world.with(|world| world.start_capture(Box::new(std::io::BufWriter::new(file))));
        converse(&mut pair);
        let frames = pair.world.with(|world| world.finish_capture()).unwrap() as usize;
        assert!(frames > 12, "{frames} frames");
        judges::tshark_accepts(Version::One, &path, frames);
        judges::python_agrees_on_every_icrc(Version::One, &path, frames);
    }
}

#[test]
fn an_unreliable_connection_works_too() {
    let mut pair = Pair::<Uc>::of_service(&options(true));
    let data = bytes(2);
    pair.a.memory.copy_in(0, &data).unwrap();
    let (from, target) = ([pair.a.memory.slice(0, LONG).unwrap()], pair.b.memory.remote(4096));
    pair.b.queue_pair.post_receive(&ReceiveRequest::new(5, &[])).unwrap();
    pair.a.queue_pair.post_send(&WorkRequest::write(1, &from, target).immediate(9)).unwrap();
    let received = pair.received();
    assert_eq!((received.wr_id, received.immediate), (5, Some(9)));
    let mut found = vec![0; LONG];
    pair.b.memory.copy_out(4096, &mut found).unwrap();
    assert!(found == data && pair.sent().is_success());
}

/// A global route header carries GIDs, not IP addresses, so the GIDs of the ends may be of different
/// families.
#[test]
fn version_1_has_no_families() {
    let pair = Pair::new(&options(false));
    let (qpn, psn) = (pair.b.queue_pair.qpn(), bareverbs_prm::psn::Psn::new(0));
    for (node, own_version) in [(1, RoceVersion::Version1), (2, RoceVersion::Version2)] {
        let entry = GidEntry { version: own_version, ..GidEntry::roce_v1(gid(1, false), mac(1)) };
        pair.a.node.device.set_gid(node, entry).unwrap();
        let remote =
            RemoteEndpoint { qpn, psn, gid: gid(2, true), mac: mac(2), version: Some(own_version), lid: 0 };
        let prepared =
            QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.receives).build().unwrap();
        let options = ConnectOptions { gid_index: node as u8, ..ConnectOptions::default() };
        let result = prepared.connect(&remote, options).map(|_| ());
        match own_version {
            RoceVersion::Version1 => assert_eq!(result, Ok(())),
            _ => assert!(
                matches!(result, Err(ConnectError::Address(AddressError::Family { .. }))),
                "{result:?}"
            ),
        }
    }
}

/// An end says which version it uses. The other end refuses to connect, naming the values of both ends,
/// before it sends a command.
#[test]
fn ends_of_different_versions_are_not_connected() {
    let pair = Pair::new(&PairOptions::default());
    let (own, remote) = (gid(1, false), gid(2, false));
    pair.a.node.device.set_gid(1, GidEntry::roce_v1(own, mac(1))).unwrap();
    let prepared =
        || QueuePairBuilder::new(&pair.a.node.domain, &pair.a.sends, &pair.a.receives).build().unwrap();
    let of_b = QueuePairBuilder::new(&pair.b.node.domain, &pair.b.sends, &pair.b.receives).build().unwrap();
    let options = ConnectOptions { gid_index: 1, ..ConnectOptions::default() };
    let error = prepared().connect(&of_b.endpoint(0).unwrap(), options).map(|_| ()).unwrap_err();
    let expected = AddressError::Version {
        gid_index: 1,
        own,
        own_version: RoceVersion::Version1,
        remote,
        remote_version: RoceVersion::Version2,
    };
    assert_eq!(error, ConnectError::Address(expected));
    let text = error.to_string();
    for part in [
        "ffff:0a00:0001 (entry 1) is RoCE version 1",
        "ffff:0a00:0002 is RoCE version 2",
        "one version at both ends",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Requirement: RoCEv2 A17.8: an address of one version does not hear packets of the other
///
/// Ends that do not tell: neither hears the other, and a look at the queue pair of version 1 names the reason.
#[test]
fn ends_of_different_versions_do_not_hear_each_other() {
    let pair = Pair::new(&PairOptions::default());
    pair.a.node.device.set_gid(1, GidEntry::roce_v1(gid(1, false), mac(1))).unwrap();
    let connect = ConnectOptions {
        path_mtu: PathMtu::Mtu1024,
        retry_count: 1,
        ack_timeout: 8,
        ..ConnectOptions::default()
    };
    let build =
        |side: &Side| QueuePairBuilder::new(&side.node.domain, &side.sends, &side.receives).build().unwrap();
    let (a, b) = (build(&pair.a), build(&pair.b));
    let untold = |mut endpoint: RemoteEndpoint| {
        endpoint.version = None;
        endpoint
    };
    let (of_a, of_b) = (untold(a.endpoint(1).unwrap()), untold(b.endpoint(0).unwrap()));
    let mut a = a.connect(&of_b, ConnectOptions { gid_index: 1, ..connect }).unwrap();
    let mut b = b.connect(&of_a, connect).unwrap();
    let mut pair = pair;
    a.post_send(&WorkRequest::write(1, &[], pair.b.memory.remote(0))).unwrap();
    let failed = pair.sent();
    assert_eq!(failed.status, WorkCompletionStatus::Failed(CqeSyndrome::TransportRetryExceeded));
    let node = pair.b.node.id;
    let counters = pair.world.with(|world| world.device(node).counters());
    assert_eq!((counters.frames_received, counters.frames_unknown_gid), (0, 2), "the request and its retry");
    let diagnosis = a.diagnose().unwrap();
    let own = gid(1, false);
    let suspects: Vec<Suspect> = diagnosis.suspects().collect();
    assert_eq!(suspects, [Suspect::State(QpState::Error), Suspect::Version1 { gid_index: 1, own }]);
    assert!(diagnosis.to_string().contains("ffff:0a00:0001 and speak RoCE version 1"), "{diagnosis}");
    let (here, there) = (RoceVersion::Version1, RoceVersion::Version2);
    let at_b = b.diagnose().unwrap();
    assert_eq!(diagnosis.mismatches(&at_b).collect::<Vec<_>>(), [Mismatch::Version { here, there }]);
    assert!(at_b.to_string().contains("ffff:0a00:0002 and speak RoCE version 2"));
}
