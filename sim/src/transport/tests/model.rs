//! The test model: memory behind one key, a receive queue, and packet templates.

use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::ids::{MacAddress, Qpn, Srqn};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use core::net::Ipv4Addr;
use std::collections::VecDeque;

pub const RKEY: u32 = 0x55;
pub const BASE: u64 = 0x1000;
pub const MTU: u32 = 256;

pub fn parameters() -> ConnectionParameters {
    ConnectionParameters {
        path_mtu: MTU,
        send_psn: Psn::new(100),
        receive_psn: Psn::new(100),
        ack_timeout: 4,
        ack_timeout_factor: 1,
        retry_count: 3,
        rnr_retry: 2,
        min_rnr_timer: 1,
        max_outstanding_reads: 2,
        max_remembered_reads: 2,
    }
}

pub fn fetch_add(address: u64, add: u64) -> Operation {
    Operation::Atomic { address, rkey: RKEY, operation: AtomicOperation::FetchAdd { add } }
}

pub fn compare_swap(address: u64, compare: u64, swap: u64) -> Operation {
    Operation::Atomic { address, rkey: RKEY, operation: AtomicOperation::CompareSwap { compare, swap } }
}

pub fn at(micros: u64) -> Time {
    Time::ZERO + Duration::from_micros(micros)
}

pub fn route() -> Route {
    Route {
        source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
        vlan: None,
        network: Network::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) },
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        udp_source_port: 0xc000,
    }
}

/// A packet as it arrives.
pub fn packet(header: PacketHeader, payload: &[u8]) -> Packet<'_> {
    let PacketHeader { opcode, psn, solicited, ack_request, service_header, extension } = header;
    let bth = Bth {
        service: ServiceClass::ReliableConnection,
        opcode,
        solicited,
        migration: true,
        pad_count: 0,
        partition_key: DEFAULT_PARTITION_KEY,
        fecn: false,
        becn: false,
        destination: Qpn::from_low_bits(1),
        ack_request,
        psn,
    };
    Packet { route: route(), bth, service_header, extension, payload, icrc: 0 }
}

pub fn header(opcode: BthOpcode, psn: u32, extension: Extension) -> PacketHeader {
    let service_header = ServiceHeader::None;
    PacketHeader {
        opcode,
        psn: Psn::new(psn),
        solicited: false,
        ack_request: true,
        service_header,
        extension,
    }
}

pub fn acknowledge(psn: u32, syndrome: Syndrome) -> PacketHeader {
    header(BthOpcode::Acknowledge, psn, Extension::Aeth(Aeth { syndrome, msn: 0 }))
}

pub fn nak(psn: u32, code: NakCode) -> PacketHeader {
    acknowledge(psn, Syndrome::Nak(code))
}

pub fn reth(offset: u64, length: u32) -> Extension {
    Extension::Reth(Reth { address: BASE + offset, rkey: RKEY, length })
}

pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
}

/// A checked range of the model's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub offset: usize,
    pub length: usize,
}

/// The device around a responder.
#[derive(Debug, Default)]
pub struct Host {
    pub memory: Vec<u8>,
    pub receives: VecDeque<ReceiveBuffer>,
    pub received: Vec<Vec<u8>>,
    pub completions: Vec<(u64, ReceiveCompletion)>,
    pub rpc: Vec<(u64, u32, bool, u32, u32, Vec<u8>)>,
    pub invalidated: Vec<u32>,
    pub errors: Vec<ResponderError>,
    pub accepts_rpc: bool,
    pub forbidden: Option<RemoteAccess>,
    pub scatter_fails: bool,
    pub queue_fails: bool,
    pub shared_receives: bool,
    pub key_revoked: bool,
    /// The only shared receive queue that a peer may name.
    pub known_queue: Option<Srqn>,
    pub memory_fails: bool,
    pub checks: usize,
}

impl Host {
    pub fn new(size: usize) -> Self {
        Self { memory: vec![0; size], accepts_rpc: true, ..Self::default() }
    }
    pub fn post(&mut self, capacity: u64) {
        let token = self.received.len() as u64;
        self.receives.push_back(ReceiveBuffer { token, capacity });
        self.received.push(vec![0; capacity as usize]);
    }
    pub fn read(&self, payload: &ResponsePayload<Range>) -> Vec<u8> {
        let start = payload.range.offset + payload.offset as usize;
        assert!(payload.offset as usize + payload.length as usize <= payload.range.length);
        self.memory[start..start + payload.length as usize].to_vec()
    }
}

impl ResponderHost for Host {
    type Range = Range;

    fn receive_from(&mut self, queue: Srqn) -> Result<(), UnknownQueue> {
        if self.known_queue == Some(queue) { Ok(()) } else { Err(UnknownQueue) }
    }
    fn take_receive(&mut self) -> Result<Option<ReceiveBuffer>, LocalFault> {
        if self.queue_fails { Err(LocalFault) } else { Ok(self.receives.pop_front()) }
    }
    fn shares_receives(&self) -> bool {
        self.shared_receives
    }
    fn scatter(&mut self, buffer: ReceiveBuffer, offset: u64, payload: &[u8]) -> Result<(), LocalFault> {
        if self.scatter_fails {
            return Err(LocalFault);
        }
        let start = offset as usize;
        self.received[buffer.token as usize][start..start + payload.len()].copy_from_slice(payload);
        Ok(())
    }
    fn complete_receive(&mut self, buffer: ReceiveBuffer, completion: ReceiveCompletion) {
        self.completions.push((buffer.token, completion));
    }
    fn check_remote(
        &mut self,
        _access: RemoteAccess,
        rkey: u32,
        address: u64,
        length: u32,
    ) -> Result<Range, RemoteFault> {
        self.checks += 1;
        let offset = address.checked_sub(BASE).ok_or(RemoteFault)?;
        let end = offset.checked_add(u64::from(length)).ok_or(RemoteFault)?;
        let good = rkey == RKEY && !self.key_revoked && end <= self.memory.len() as u64;
        if good { Ok(Range { offset: offset as usize, length: length as usize }) } else { Err(RemoteFault) }
    }
    fn write_remote(&mut self, range: &Range, offset: u64, payload: &[u8]) -> Result<(), RemoteFault> {
        assert!(offset as usize + payload.len() <= range.length, "outside the checked range");
        if self.memory_fails {
            return Err(RemoteFault);
        }
        let start = range.offset + offset as usize;
        self.memory[start..start + payload.len()].copy_from_slice(payload);
        Ok(())
    }
    fn atomic(&mut self, range: &Range, operation: AtomicOperation) -> Result<u64, RemoteFault> {
        if self.memory_fails {
            return Err(RemoteFault);
        }
        let cell: &mut [u8] = &mut self.memory[range.offset..range.offset + 8];
        let old = u64::from_be_bytes(cell.try_into().unwrap());
        let new = match operation {
            AtomicOperation::CompareSwap { compare, swap } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
            AtomicOperation::FetchAdd { add } => old.wrapping_add(add),
            // The tests of `arithmetic` check the masked operations against a separate model.
            masked => masked.apply(old),
        };
        cell.copy_from_slice(&new.to_be_bytes());
        Ok(old)
    }
    fn invalidate(&mut self, rkey: u32) -> Result<(), RemoteFault> {
        if self.key_revoked {
            return Err(RemoteFault);
        }
        self.invalidated.push(rkey);
        Ok(())
    }
    fn permits(&self, access: RemoteAccess) -> bool {
        self.forbidden != Some(access)
    }

    fn accepts_rpc(&self) -> bool {
        self.accepts_rpc
    }
    fn rpc(&mut self, p: RpcPacket<'_>) {
        self.rpc.push((p.rpc_opcode, p.region, p.parameters, p.total, p.offset, p.payload.to_vec()));
    }
    fn connection_error(&mut self, error: ResponderError) {
        self.errors.push(error);
    }
}
