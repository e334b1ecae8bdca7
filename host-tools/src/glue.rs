//! Connects kernels to the simulator: inside the NIC model, RPC Params call kernels or open streams, and RPC WRITEs
//! feed the streams.

mod runtime;
mod streams;

pub use runtime::{NIC_CONNECTIONS, NIC_SLOTS, NicRuntime};

use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{KernelSet, Opcode};
use bareverbs_offload::runtime::{
    Admission, ConnectError, ConnectionId, Counters, DmaAction, DmaFault, DmaRequest, ReaderProgress, Reply,
    ResponseWindow,
};
use bareverbs_offload::streams::open_stream::OpenStream;
use bareverbs_offload::wire::{RegionHandle, WITHDRAW};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{HostMemory, RpcEngine, RpcReply};
use bareverbs_sim::transport::RpcPacket;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use streams::{NoStream, StreamCaller, StreamResponse, Streams};

struct Inner<S: KernelSet> {
    runtime: NicRuntime<S>,
    /// Queue pairs whose peers may call kernels.
    callers: BTreeMap<Qpn, ConnectionId>,
    staging: Vec<Vec<u8>>,
    replies: VecDeque<RpcReply>,
    strangers: u64,
    lost_replies: u64,
    streams: Streams,
}

/// Kernels inside a NIC model. Clones refer to the same kernels: one goes into the device, one stays with its owner.
pub struct NicKernels<S: KernelSet>(Rc<RefCell<Inner<S>>>);

impl<S: KernelSet> Clone for NicKernels<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: KernelSet> NicKernels<S> {
    /// Kernels that nobody may call yet.
    pub fn new(runtime: NicRuntime<S>) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            runtime,
            callers: BTreeMap::new(),
            staging: vec![Vec::new(); NIC_SLOTS],
            replies: VecDeque::new(),
            strangers: 0,
            lost_replies: 0,
            streams: Streams::default(),
        })))
    }

    /// Lets the peer of queue pair `qpn` call kernels on the memory in `grant`; answers are written to `window`.
    pub fn admit(
        &self,
        qpn: Qpn,
        window: ResponseWindow,
        grant: Grant,
    ) -> Result<RegionHandle, ConnectError> {
        let inner = &mut *self.0.borrow_mut();
        let connection = inner.runtime.connect(window, NIC_SLOTS as u16)?;
        inner.callers.insert(qpn, connection);
        inner.runtime.grant(connection, grant)
    }

    /// Progress of the invocations.
    pub fn progress(&self) -> ReaderProgress {
        self.0.borrow().runtime.progress()
    }

    /// Counters of the runtime.
    pub fn counters(&self) -> Counters {
        self.0.borrow().runtime.counters()
    }

    /// Packets from queue pairs that were not admitted, or for streams that were not open.
    pub fn strangers(&self) -> u64 {
        self.0.borrow().strangers
    }

    /// Replies to calls of a queue pair that has been admitted anew since then.
    pub fn lost_replies(&self) -> u64 {
        self.0.borrow().lost_replies
    }
}

impl<S: KernelSet> Inner<S> {
    fn take(&mut self, now: Time, qpn: Qpn, packet: &RpcPacket<'_>, memory: &mut dyn HostMemory) {
        let Some(&connection) = self.callers.get(&qpn) else {
            self.strangers += 1;
            return;
        };
        let caller = StreamCaller { now, qpn, connection };
        let opcode = Opcode(packet.rpc_opcode);
        let response = match packet.parameters {
            false => {
                self.streams.fill(&mut self.runtime, caller, packet, memory).unwrap_or_else(|NoStream| {
                    self.strangers += 1;
                    None
                })
            }
            true if OpenStream::is_opened_by(opcode) => self.streams.open(&mut self.runtime, caller, packet),
            true => {
                self.call(now, caller, packet);
                None
            }
        };
        if let Some(StreamResponse { reply, bytes }) = response {
            let bytes = [&bytes[..], &reply.trailer.encode()].concat();
            self.replies.push_back(RpcReply { qpn, address: reply.address, rkey: reply.rkey, bytes });
        }
    }

    fn call(&mut self, now: Time, caller: StreamCaller, packet: &RpcPacket<'_>) {
        let StreamCaller { qpn, connection, .. } = caller;
        let opcode = Opcode(packet.rpc_opcode);
        if opcode == WITHDRAW {
            self.streams.withdraw(qpn, packet);
        }
        let admission = self.runtime.handle_strom(now, connection, opcode, packet.region, packet.payload);
        if let Admission::Refused(reply) = admission {
            self.push(&reply);
        }
    }

    fn run(&mut self, now: Time, memory: &mut dyn HostMemory) {
        while let Some(dma) = self.runtime.poll_dma(now) {
            let written = self.runtime.to_be_written(&dma).unwrap_or_default();
            let staging = &mut self.staging[dma.tag.buffer()];
            let done = carry_out(&dma, memory, staging, written);
            self.runtime.handle_dma_done(now, dma.tag, done);
        }
        while let Some(reply) = self.runtime.poll_reply(now) {
            self.push(&reply);
            if let Some(ticket) = reply.ticket {
                self.runtime.reply_done(ticket);
            }
        }
    }

    fn push(&mut self, reply: &Reply) {
        let caller = self.callers.iter().find(|(_, connection)| **connection == reply.connection);
        let Some((&qpn, _)) = caller else {
            self.lost_replies += 1;
            return;
        };
        let fetched = reply.body.and_then(|body| {
            let begin = body.offset as usize;
            self.staging.get(body.buffer)?.get(begin..begin + body.length as usize)
        });
        let body = self.runtime.computed(reply).or(fetched);
        let bytes = [body.unwrap_or_default(), &reply.trailer.encode()].concat();
        self.replies.push_back(RpcReply { qpn, address: reply.address, rkey: reply.rkey, bytes });
    }
}

/// Reads or writes the host's memory. The NIC does one thing after the other, so a compare-and-swap is
/// atomic.
fn carry_out<'s>(
    dma: &DmaRequest,
    memory: &mut dyn HostMemory,
    staging: &'s mut Vec<u8>,
    written: &[u8],
) -> Result<&'s [u8], DmaFault> {
    let (begin, end) = (dma.offset as usize, (dma.offset + dma.length) as usize);
    staging.resize(staging.len().max(end), 0);
    let part = &mut staging[begin..end];
    let done = match dma.action {
        DmaAction::Read => memory.read(dma.address, part),
        DmaAction::Write { .. } => {
            memory.write(dma.address, written).map_err(|_| DmaFault::Memory)?;
            return Ok(&[]);
        }
        DmaAction::CompareAndSwap { expected, desired } => {
            let read = memory.read(dma.address, part);
            let equal = read.is_ok() && *part == expected.to_be_bytes();
            if equal { memory.write(dma.address, &desired.to_be_bytes()) } else { read }
        }
    };
    done.map_err(|_| DmaFault::Memory)?;
    Ok(part)
}

impl<S: KernelSet> RpcEngine for NicKernels<S> {
    fn handle_rpc(&mut self, now: Time, memory: &mut dyn HostMemory, qpn: Qpn, packet: RpcPacket<'_>) {
        let inner = &mut *self.0.borrow_mut();
        inner.take(now, qpn, &packet, memory);
        inner.run(now, memory);
    }

    fn handle_timeout(&mut self, now: Time, memory: &mut dyn HostMemory) {
        self.0.borrow_mut().run(now, memory);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.0.borrow().runtime.poll_timeout()
    }

    fn poll_reply(&mut self) -> Option<RpcReply> {
        self.0.borrow_mut().replies.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_offload::budget::Limits;
    use bareverbs_offload::cost::KernelCost;
    use bareverbs_offload::kernel::Kernel;
    use bareverbs_offload::kernels::kv_lookup::KvLookup;
    use bareverbs_offload::kernels::publish::{Publish, PublishParameters};
    use bareverbs_offload::status::Status;
    use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
    use bareverbs_offload::wire::{ReplyTo, Request, TRAILER_SIZE, Trailer};
    use bareverbs_prm::time::Duration;
    use bareverbs_sim::nic;

    const BASE: u64 = 0x100_0000;
    const WINDOW: ResponseWindow = ResponseWindow { address: 0x5000, length: 4096, rkey: 3 };
    const CALLER: Qpn = Qpn::from_low_bits(0x41);

    struct Memory(Vec<u8>);

    impl HostMemory for Memory {
        fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), nic::DmaFault> {
            let fault = nic::DmaFault { iova, length: buffer.len(), write: false };
            let at = usize::try_from(iova.checked_sub(BASE).ok_or(fault)?).map_err(|_| fault)?;
            buffer.copy_from_slice(self.0.get(at..at + buffer.len()).ok_or(fault)?);
            Ok(())
        }
        fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), nic::DmaFault> {
            let fault = nic::DmaFault { iova, length: bytes.len(), write: true };
            let at = usize::try_from(iova.checked_sub(BASE).ok_or(fault)?).map_err(|_| fault)?;
            self.0.get_mut(at..at + bytes.len()).ok_or(fault)?.copy_from_slice(bytes);
            Ok(())
        }
    }

    fn table() -> (Memory, TableDescriptor) {
        let mut memory = vec![0; 4096];
        let config =
            TableConfig { buckets: 4, overflow_lines: 1, seed: [0; 16], policy: TablePolicy::default() };
        let mut writer = TableWriter::create(memory.as_mut_slice(), &config).expect("fits");
        writer.insert(Time::ZERO, b"key", b"value").expect("room");
        let table = *writer.descriptor();
        (Memory(memory), table)
    }

    fn kernels(region: u64) -> (NicKernels<KvLookup>, RegionHandle) {
        kernels_on(Grant::new(BASE, region).expect("no wrap"))
    }

    fn kernels_on<S: KernelSet>(grant: Grant) -> (NicKernels<S>, RegionHandle) {
        let cost = KernelCost {
            dispatch: Duration::from_nanos(7),
            per_dma: Duration::from_nanos(20),
            ..KernelCost::FREE
        };
        let kernels = NicKernels::new(NicRuntime::new(Limits::default(), cost));
        let region = kernels.admit(CALLER, WINDOW, grant).expect("room");
        (kernels, region)
    }

    fn call(table: &TableDescriptor, key: &[u8]) -> Vec<u8> {
        let mut parameters = [0; 128];
        block(table.lookup(key).encode(&mut parameters).expect("fits"))
    }

    fn block(parameters: &[u8]) -> Vec<u8> {
        let mut block = [0; 256];
        let request = Request {
            opcode: KvLookup::OPCODE,
            request_id: 77,
            reply: ReplyTo { address: 0x5000, rkey: 3, max_response: 64, slot: 0 },
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: RegionHandle(0),
            parameters,
            payload: &[],
        };
        request.encode_strom(&mut block).expect("fits").to_vec()
    }

    fn packet(region: RegionHandle, payload: &[u8]) -> RpcPacket<'_> {
        RpcPacket {
            rpc_opcode: KvLookup::OPCODE.0,
            region: region.0,
            parameters: true,
            total: payload.len() as u32,
            offset: 0,
            payload,
        }
    }

    fn trailer(reply: &RpcReply) -> Trailer {
        let bytes = reply.bytes.last_chunk::<TRAILER_SIZE>().expect("a trailer");
        Trailer::parse(bytes).expect("our format")
    }

    /// Calls a kernel, waits in virtual time, and returns the reply and how long it took.
    fn run<S: KernelSet>(
        kernels: &mut NicKernels<S>,
        memory: &mut Memory,
        packet: RpcPacket<'_>,
    ) -> Option<(RpcReply, Time)> {
        let mut now = Time::ZERO;
        kernels.handle_rpc(now, memory, CALLER, packet);
        while let Some(next) = kernels.poll_timeout() {
            now = next;
            kernels.handle_timeout(now, memory);
        }
        kernels.poll_reply().map(|reply| (reply, now))
    }

    #[test]
    fn a_call_is_answered_over_the_queue_pair_it_came_by_and_in_its_time() {
        let (mut memory, table) = table();
        let (mut kernels, region) = kernels(4096);
        let block = call(&table, b"key");
        let (reply, now) = run(&mut kernels, &mut memory, packet(region, &block)).expect("answered");
        assert_eq!((reply.qpn, reply.address, reply.rkey), (CALLER, 0x5000 + 64 - 5, 3));
        assert_eq!(&reply.bytes[..5], b"value");
        assert_eq!(trailer(&reply).request_id, 77);
        assert_eq!(now, Time::ZERO + Duration::from_nanos(7 + 2 * 20));
    }

    #[test]
    fn a_kernel_in_the_nic_compares_and_swaps_where_it_may_write() {
        let mut memory = Memory(vec![0; 128]);
        let parameters =
            PublishParameters { value: 64.into(), word: 0.into(), expected: 0.into(), desired: 64.into() };
        let mut buffer = [0; 128];
        let block = block(parameters.encode(b"value", &mut buffer).expect("fits"));
        let grant = Grant::new(BASE, 128).expect("no wrap");
        for (grant, status, found) in [
            (grant, Status::ReadOnly, None),
            (grant.writable(), Status::Ok, Some(0_u64)),
            (grant.writable(), Status::Ok, Some(64)),
        ] {
            let (mut kernels, region) = kernels_on::<Publish>(grant);
            let packet = RpcPacket { rpc_opcode: Publish::OPCODE.0, ..packet(region, &block) };
            let (reply, _) = run(&mut kernels, &mut memory, packet).expect("answered");
            assert_eq!(trailer(&reply).status, status);
            let response = found.map_or(vec![], |found| found.to_be_bytes().to_vec());
            assert_eq!(reply.bytes[..reply.bytes.len() - TRAILER_SIZE], response);
        }
        assert_eq!((&memory.0[..8], &memory.0[64..69]), (&64_u64.to_be_bytes()[..], &b"value"[..]));
    }

    #[test]
    fn memory_that_does_not_answer_and_grants_that_end_are_typed() {
        let (mut memory, table) = table();
        let block = call(&table, b"key");
        let (mut small, region) = kernels(32);
        let (reply, _) = run(&mut small, &mut memory, packet(region, &block)).expect("answered");
        assert_eq!(trailer(&reply).status, Status::OutOfBounds);
        let (mut large, region) = kernels(1 << 20);
        memory.0.truncate(64);
        let (reply, _) = run(&mut large, &mut memory, packet(region, &block)).expect("answered");
        assert_eq!(trailer(&reply).status, Status::DmaFault);
        let unknown = RpcPacket { rpc_opcode: 1, ..packet(region, &block) };
        let (reply, _) = run(&mut large, &mut memory, unknown).expect("answered");
        assert_eq!(trailer(&reply).status, Status::NoKernel);
    }

    #[test]
    fn a_reply_to_a_caller_that_was_admitted_anew_is_counted() {
        let (mut memory, table) = table();
        let (mut kernels, region) = kernels(4096);
        let block = call(&table, b"key");
        kernels.handle_rpc(Time::ZERO, &mut memory, CALLER, packet(region, &block));
        kernels.admit(CALLER, WINDOW, Grant::new(BASE, 4096).expect("no wrap")).expect("room");
        while let Some(next) = kernels.poll_timeout() {
            kernels.handle_timeout(next, &mut memory);
        }
        assert_eq!((kernels.poll_reply(), kernels.lost_replies()), (None, 1));
    }

    #[test]
    fn strangers_and_streams_are_counted_and_get_nothing() {
        let (mut memory, table) = table();
        let (mut kernels, region) = kernels(4096);
        let block = call(&table, b"key");
        kernels.handle_rpc(Time::ZERO, &mut memory, Qpn::from_low_bits(9), packet(region, &block));
        let stream = RpcPacket { parameters: false, ..packet(region, &block) };
        assert_eq!(run(&mut kernels, &mut memory, stream), None);
        assert_eq!(kernels.strangers(), 2);
    }
}
