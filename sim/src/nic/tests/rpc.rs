//! The extension point for StRoM's op-codes, tested with an engine that echoes.

use super::pair::Pair;
use super::verbs::{Node, inline, remote};
use crate::nic::queue_pair::MOST_REPLIES;
use crate::nic::{HostMemory, NicConfig, RpcEngine, RpcReply, wqe};
use crate::transport::RpcPacket;
use bareverbs_prm::cqe::ErrorEntry;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::WqeOpcode;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_prm::wqe::strom_opmod;

/// Returns the bytes of every message after a microsecond, to the address in its first 12 bytes.
#[derive(Default)]
struct Echo {
    bytes: Vec<u8>,
    due: Option<Time>,
    replies: Vec<RpcReply>,
    qpn: Qpn,
}

impl RpcEngine for Echo {
    fn handle_rpc(&mut self, now: Time, _: &mut dyn HostMemory, qpn: Qpn, packet: RpcPacket<'_>) {
        assert_eq!((packet.rpc_opcode, packet.region), (0x77, 0x55));
        assert_eq!(self.bytes.len(), packet.offset as usize);
        self.bytes.extend_from_slice(packet.payload);
        if self.bytes.len() == packet.total as usize {
            self.due = Some(now + Duration::from_micros(1));
            self.qpn = qpn;
        }
    }
    fn handle_timeout(&mut self, now: Time, _: &mut dyn HostMemory) {
        assert!(self.due.take().is_some_and(|due| due <= now));
        let bytes = core::mem::take(&mut self.bytes);
        let address = u64::from_be_bytes(bytes[..8].try_into().unwrap());
        let rkey = u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        self.replies.push(RpcReply { qpn: self.qpn, address, rkey, bytes });
    }
    fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
    fn poll_reply(&mut self) -> Option<RpcReply> {
        self.replies.pop()
    }
}

fn call(pair: &mut Pair, opmod: u8, length: usize) -> Vec<u8> {
    let mut bytes = pair.a.mr.va.to_be_bytes().to_vec();
    bytes.extend_from_slice(&pair.a.mr.key.value().to_be_bytes());
    bytes.resize(length, 0xee);
    pair.a.host.memory.put(pair.a.mr.iova + 0x8000, &bytes);
    let place = remote(0x77, Mkey::new(0x55));
    let segments = [place, super::verbs::data(pair.a.mr.sge(0x8000, length as u32))].concat();
    pair.a.write_wqe(
        WqeOpcode::RdmaWrite,
        |c| {
            c.set_opmod(opmod);
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
    bytes
}

#[test]
fn a_reply_is_an_ordinary_write_without_completions() {
    let mut pair = Pair::with(NicConfig { strom: true, ..NicConfig::default() }, |_| {});
    pair.b.host.nic.set_extension(Box::new(Echo::default()));
    for (opmod, length) in [(strom_opmod::RPC_PARAMS, 40), (strom_opmod::RPC_WRITE, 5000)] {
        let bytes = call(&mut pair, opmod, length);
        pair.a.expect();
        assert_ne!(pair.a.host.memory.slice(pair.a.mr.iova, length), bytes, "the engine takes its time");
        pair.pass_time(Duration::from_micros(1), 2);
        assert_eq!(pair.a.host.memory.slice(pair.a.mr.iova, length), bytes);
    }
    pair.a.expect_none();
    pair.b.expect_none();
}

#[test]
fn without_an_engine_the_op_codes_are_invalid() {
    let mut pair = Pair::with(NicConfig { strom: true, ..NicConfig::default() }, |_| {});
    call(&mut pair, strom_opmod::RPC_PARAMS, 40);
    let entry: ErrorEntry = zerocopy::transmute!(pair.a.expect());
    assert_eq!(entry.vendor_syndrome(), wqe::REMOTE_INVALID.vendor);
}

/// The device itself disables the extension: an attached engine changes nothing. A peer that sends StRoM's
/// op-codes gets the NAK for an invalid request.
#[test]
fn a_device_without_the_extension_takes_no_rpc_packets() {
    for opmod in [strom_opmod::RPC_PARAMS, strom_opmod::RPC_WRITE] {
        let mut pair = Pair::new();
        pair.b.host.nic.set_extension(Box::new(Echo::default()));
        let mut caller = Node::new(1, NicConfig { strom: true, ..NicConfig::default() });
        caller.connect((pair.b.qp.qpn, pair.b.gid, pair.b.mac), |_| {});
        pair.a = caller;
        call(&mut pair, opmod, 40);
        let entry: ErrorEntry = zerocopy::transmute!(pair.a.expect());
        assert_eq!(entry.vendor_syndrome(), wqe::REMOTE_INVALID.vendor);
        pair.pass_time(Duration::from_micros(1), 2);
        assert_eq!(pair.b.state(), bareverbs_prm::numbering::QpState::Error);
        pair.b.expect_none();
    }
}

#[test]
fn a_reply_to_nowhere_breaks_the_connection() {
    let mut pair = Pair::with(NicConfig { strom: true, ..NicConfig::default() }, |_| {});
    pair.b.host.nic.set_extension(Box::new(Echo::default()));
    let segments = [remote(0x77, Mkey::new(0x55)), inline(&[0; 12])].concat();
    pair.a.write_wqe(
        WqeOpcode::RdmaWrite,
        |c| {
            c.set_opmod(strom_opmod::RPC_PARAMS);
        },
        &segments,
    );
    pair.a.ring();
    pair.run();
    pair.pass_time(Duration::from_micros(1), 2);
    pair.a.expect();
    pair.b.expect_none();
    assert_eq!(pair.b.state(), bareverbs_prm::numbering::QpState::Error);
    assert_eq!(pair.a.state(), bareverbs_prm::numbering::QpState::Error);
}

/// Answers each message with many bytes, one a reply, to the address in its first 12 bytes.
struct Chatter(Vec<RpcReply>);

impl RpcEngine for Chatter {
    fn handle_rpc(&mut self, _: Time, _: &mut dyn HostMemory, qpn: Qpn, packet: RpcPacket<'_>) {
        let address = u64::from_be_bytes(packet.payload[..8].try_into().unwrap());
        let rkey = u32::from_be_bytes(packet.payload[8..12].try_into().unwrap());
        self.0 = vec![RpcReply { qpn, address, rkey, bytes: vec![1] }; MOST_REPLIES + 10];
    }
    fn handle_timeout(&mut self, _: Time, _: &mut dyn HostMemory) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_reply(&mut self) -> Option<RpcReply> {
        self.0.pop()
    }
}

#[test]
fn replies_beyond_the_limit_are_dropped_and_counted_and_the_connection_lives() {
    let mut pair = Pair::with(NicConfig { strom: true, ..NicConfig::default() }, |_| {});
    pair.b.host.nic.set_extension(Box::new(Chatter(Vec::new())));
    for calls in 1..=2 {
        let before = pair.frames;
        call(&mut pair, strom_opmod::RPC_PARAMS, 12);
        pair.a.expect();
        assert_eq!(pair.b.host.nic.counters().rpc_replies_dropped, calls * 10);
        assert!(pair.frames - before > MOST_REPLIES as u64, "the others were sent");
    }
    assert_eq!(pair.b.state(), bareverbs_prm::numbering::QpState::Rts);
}
