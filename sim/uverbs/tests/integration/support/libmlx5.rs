//! As much of libibverbs and libmlx5 as the tests need: writes requests, puts WQEs into memory,
//! and takes completions out.

use super::{BASE, Program, attribute, open, request};
use bareverbs_prm::cqe::{CQE_SIZE, CompletionEntry, ErrorEntry};
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::numbering::{CqeOpcode, WqeOpcode};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_prm::wqe::{ControlSegment, DataSegment, INVALID_LKEY, RemoteAddressSegment, completion_mode};
use bareverbs_sim::wire::FrameBuffer;
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Errno, FileId, Uverbs, VirtualHost};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Address of requests and responses.
const REQUEST: u64 = BASE + 0x1000;
const RESPONSE: u64 = BASE + 0x2000;
const PROVIDER: u64 = BASE + 0x3000;
const PROVIDER_RESPONSE: u64 = BASE + 0x4000;
/// Address of queues and data.
const HEAP: u64 = BASE + 0x8000;
/// Access rights that the tests use.
pub const LOCAL_WRITE: u32 = 1;
pub const REMOTE: u32 = 1 | 2 | 4 | 8;
/// Opcodes of WQEs.
pub const SEND: u8 = 0x0a;
pub const WRITE: u8 = 0x08;
pub const READ: u8 = 0x10;
/// Entries of every queue.
pub const ENTRIES: u32 = 16;
const STRIDE: u32 = 64;

/// A program with an open device.
pub struct Peer {
    pub program: Program,
    pub uverbs: Uverbs,
    pub file: FileId,
    pub now: Time,
    pub pd: u32,
    page: u32,
    heap: u64,
    host: VirtualHost,
}

/// A completion queue.
#[derive(Clone, Copy)]
pub struct Cq {
    pub handle: u64,
    pub number: u32,
    pub buffer: u64,
    pub record: u64,
    pub consumer: u32,
    pub entries: u32,
}

/// A queue pair and its producer index.
#[derive(Clone, Copy)]
pub struct Qp {
    pub handle: u32,
    pub number: u32,
    buffer: u64,
    record: u64,
    sent: u16,
    received: u16,
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub opcode: u8,
    pub user_index: u32,
    pub bytes: u32,
    pub counter: u16,
    pub syndrome: u8,
}

/// What a queue pair is created from.
#[derive(Clone, Copy, Default)]
pub struct QpInitAttributes {
    pub kind: u64,
    pub send: u64,
    pub receive: u64,
    pub shared: Option<u64>,
    pub xrc_domain: Option<u64>,
    pub user_handle: u64,
    pub user_index: u32,
}

impl Peer {
    pub fn new(name: &str) -> Self {
        Self::on(VirtualHost::new(name).unwrap(), 0)
    }

    /// A program that is the process with this number on a host.
    pub fn on(host: VirtualHost, number: u8) -> Self {
        let mut program = Program::default();
        let config = host.nic_config(number);
        let mut uverbs = Uverbs::boot(config, &host.port_addresses(), &mut program).unwrap();
        let file = open(&mut uverbs, &mut program);
        let mut peer = Self { program, uverbs, file, now: Time::ZERO, pd: 0, page: 0, heap: HEAP, host };
        peer.call(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, &[attribute(0, 0, 0)]).unwrap();
        peer.pd = peer.alloc_pd();
        let uar = [
            attribute(0x1000, 0, 0),
            attribute(0x1001, 8, 0),
            attribute(0x1002, 8, RESPONSE),
            attribute(0x1003, 4, RESPONSE + 8),
            attribute(0x1004, 4, RESPONSE + 12),
        ];
        peer.call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, &uar).unwrap();
        peer.page = peer.read(RESPONSE + 12);
        peer
    }

    pub fn gid(&self) -> [u8; 16] {
        self.host.gids()[0].0
    }

    pub fn call(
        &mut self,
        object: u16,
        method: u16,
        attributes: &[IoctlAttribute],
    ) -> Result<Vec<IoctlAttribute>, Errno> {
        let mut bytes = request(object, method, attributes);
        self.uverbs.ioctl(&mut self.program, self.file, &mut bytes)?;
        let attributes = <[IoctlAttribute]>::ref_from_bytes(&bytes[size_of::<IoctlHeader>()..]);
        Ok(attributes.unwrap().to_vec())
    }

    /// A write command, with `O` as its response and `U` as the provider's.
    pub fn command<I: IntoBytes + zerocopy::Immutable, O: FromBytes, U: FromBytes>(
        &mut self,
        number: u32,
        input: &I,
        provider: &[u8],
    ) -> Result<(O, U), Errno> {
        self.program.put(REQUEST, input.as_bytes());
        self.program.put(PROVIDER, provider);
        let mut attributes = vec![attribute(UVERBS_ATTR_WRITE_CMD, 4, number.into())];
        attributes.push(self.input(UVERBS_ATTR_CORE_IN, REQUEST, size_of::<I>()));
        if size_of::<O>() > 0 {
            attributes.push(attribute(UVERBS_ATTR_CORE_OUT, size_of::<O>(), RESPONSE));
        }
        if !provider.is_empty() {
            attributes.push(self.input(UVERBS_ATTR_UHW_IN, PROVIDER, provider.len()));
        }
        if size_of::<U>() > 0 {
            attributes.push(attribute(UVERBS_ATTR_UHW_OUT, size_of::<U>(), PROVIDER_RESPONSE));
        }
        self.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, &attributes)?;
        Ok((self.read(RESPONSE), self.read(PROVIDER_RESPONSE)))
    }

    fn input(&self, id: u16, address: u64, length: usize) -> IoctlAttribute {
        let inline = if length <= 8 { self.read(address) } else { address };
        attribute(id, length, inline)
    }

    pub fn read<T: FromBytes>(&self, address: u64) -> T {
        let at = (address - BASE) as usize;
        T::read_from_bytes(&self.program.bytes[at..at + size_of::<T>()]).unwrap()
    }

    pub fn bytes(&self, address: u64, length: usize) -> &[u8] {
        let at = (address - BASE) as usize;
        &self.program.bytes[at..at + length]
    }

    /// Memory of the program, aligned to a page.
    pub fn allocate(&mut self, length: u64) -> u64 {
        let address = self.heap;
        self.heap += length.next_multiple_of(4096);
        address
    }

    pub fn alloc_pd(&mut self) -> u32 {
        self.command::<_, u32, u32>(IB_USER_VERBS_CMD_ALLOC_PD, &QueryDevice { response: 0 }, &[]).unwrap().0
    }

    pub fn reg_mr(&mut self, start: u64, length: u64, access_flags: u32) -> Result<RegMrResp, Errno> {
        let requested = RegMr { response: 0, start, length, hca_va: start, pd_handle: self.pd, access_flags };
        self.command::<_, RegMrResp, ()>(IB_USER_VERBS_CMD_REG_MR, &requested, &[])
            .map(|(response, ())| response)
    }

    pub fn create_channel(&mut self) -> u64 {
        let requested = QueryDevice { response: 0 };
        let number = IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL;
        self.command::<_, u32, ()>(number, &requested, &[]).unwrap().0.into()
    }

    /// Marks the entries of a completion queue as not written.
    pub fn clear_cq(&mut self, buffer: u64, entries: u32) {
        let mut entry = CompletionEntry::new();
        entry.set_opcode(CqeOpcode::Invalid);
        for number in 0..u64::from(entries) {
            self.program.put(buffer + number * CQE_SIZE as u64, entry.as_bytes());
        }
    }

    pub fn create_cq(&mut self, user_handle: u64, channel: Option<u64>) -> Cq {
        let (buffer, record) = (self.allocate(u64::from(2 * ENTRIES) * 64), self.allocate(64));
        self.clear_cq(buffer, 2 * ENTRIES);
        let requested = Mlx5CreateCq {
            buf_addr: buffer,
            db_addr: record,
            cqe_size: 64,
            flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
            uar_page_index: self.page as u16,
            ..Mlx5CreateCq::new_zeroed()
        };
        self.program.put(PROVIDER, requested.as_bytes());
        let mut attributes = vec![
            attribute(UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0),
            attribute(UVERBS_ATTR_CREATE_CQ_CQE, 4, u64::from(2 * ENTRIES - 1)),
            attribute(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, 8, user_handle),
            attribute(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 4, 0),
            attribute(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4, RESPONSE),
            attribute(UVERBS_ATTR_UHW_IN, 32, PROVIDER),
            attribute(UVERBS_ATTR_UHW_OUT, 8, PROVIDER_RESPONSE),
        ];
        attributes.extend(channel.map(|fd| attribute(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, 0, fd)));
        let response = self.call(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, &attributes).unwrap();
        assert_eq!(self.read::<u32>(RESPONSE), 2 * ENTRIES - 1);
        let number = self.read(PROVIDER_RESPONSE);
        Cq { handle: response[0].data, number, buffer, record, consumer: 0, entries: 2 * ENTRIES }
    }

    pub fn destroy(&mut self, object: u16, method: u16, handle: u64, room: usize) -> Result<[u32; 2], Errno> {
        let mut attributes = vec![attribute(0, 0, handle)];
        if room > 0 {
            attributes.push(attribute(1, room, RESPONSE));
        }
        self.call(object, method, &attributes)?;
        Ok(self.read(RESPONSE))
    }

    pub fn create_qp(&mut self, requested: QpInitAttributes) -> Result<Qp, Errno> {
        let (buffer, record) = (self.allocate(u64::from(2 * ENTRIES * STRIDE)), self.allocate(64));
        let receives = if requested.shared.is_some() || requested.receive == u64::MAX { 0 } else { ENTRIES };
        let provider = Mlx5CreateQp {
            buf_addr: buffer,
            db_addr: record,
            sq_wqe_count: ENTRIES,
            rq_wqe_count: receives,
            rq_wqe_shift: STRIDE.trailing_zeros(),
            flags: MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX,
            uidx: requested.user_index,
            bfreg_index: self.page,
            ..Mlx5CreateQp::new_zeroed()
        };
        let capacity = QpCap {
            max_send_wr: ENTRIES,
            max_recv_wr: receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        self.program.put(PROVIDER, provider.as_bytes());
        self.program.put(REQUEST, capacity.as_bytes());
        let mut attributes = vec![
            attribute(UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0),
            attribute(UVERBS_ATTR_CREATE_QP_USER_HANDLE, 8, requested.user_handle),
            attribute(UVERBS_ATTR_CREATE_QP_CAP, 20, REQUEST),
            attribute(UVERBS_ATTR_CREATE_QP_TYPE, 8, requested.kind),
            attribute(UVERBS_ATTR_CREATE_QP_RESP_CAP, 20, RESPONSE + 0x100),
            attribute(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4, RESPONSE),
            attribute(UVERBS_ATTR_UHW_IN, 56, PROVIDER),
            attribute(UVERBS_ATTR_UHW_OUT, 40, PROVIDER_RESPONSE),
        ];
        let target = requested.kind == IB_UVERBS_QPT_XRC_TGT;
        if !target {
            attributes.push(attribute(UVERBS_ATTR_CREATE_QP_PD_HANDLE, 0, self.pd.into()));
            attributes.push(attribute(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, 0, requested.send));
        }
        if requested.receive != u64::MAX && !target {
            attributes.push(attribute(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, 0, requested.receive));
        }
        let optional = [
            (UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, requested.shared),
            (UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, requested.xrc_domain),
        ];
        attributes.extend(optional.iter().filter_map(|&(id, value)| Some(attribute(id, 0, value?))));
        let response = self.call(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, &attributes)?;
        let number = self.read(RESPONSE);
        Ok(Qp { handle: response[0].data as u32, number, buffer, record, sent: 0, received: 0 })
    }

    pub fn modify(&mut self, requested: &ModifyQp) -> Result<(), Errno> {
        self.command::<_, (), ()>(IB_USER_VERBS_CMD_MODIFY_QP, requested, &[]).map(drop)
    }

    pub fn query_qp(&mut self, qp: &Qp) -> QueryQpResp {
        let requested = QueryQp { response: 0, qp_handle: qp.handle, attr_mask: u32::MAX };
        self.command::<_, QueryQpResp, ()>(IB_USER_VERBS_CMD_QUERY_QP, &requested, &[]).unwrap().0
    }

    /// Any state to RESET. The device polls the record once before the program has zeroed it.
    pub fn reset(&mut self, qp: &mut Qp) {
        self.modify(&ModifyQp { qp_handle: qp.handle, attr_mask: 1, ..ModifyQp::new_zeroed() }).unwrap();
        self.turn();
        (qp.sent, qp.received) = (0, 0);
        self.program.put(qp.record, &[0; 8]);
    }

    /// RESET to INIT, RTR and RTS, as `ibv_rc_pingpong` does it.
    pub fn connect(&mut self, qp: &Qp, kind: u64, gid: [u8; 16], dest_qp_num: u32) -> Result<(), Errno> {
        let dest = QpDest { dgid: gid, hop_limit: 64, is_global: 1, port_num: 1, ..QpDest::new_zeroed() };
        self.connect_by(qp, kind, dest, dest_qp_num)
    }

    /// The same with any address.
    pub fn connect_by(&mut self, qp: &Qp, kind: u64, dest: QpDest, dest_qp_num: u32) -> Result<(), Errno> {
        let base = ModifyQp { qp_handle: qp.handle, ..ModifyQp::new_zeroed() };
        let (datagram, acknowledged) = (kind == IB_UVERBS_QPT_UD, kind != IB_UVERBS_QPT_UC);
        let init = ModifyQp {
            attr_mask: if datagram { 0x71 } else { 0x39 },
            qp_state: 1,
            port_num: 1,
            qp_access_flags: REMOTE,
            qkey: 0x1111_1111,
            ..base
        };
        self.modify(&init)?;
        // perftest gives both ends of XRC what a reliable connection needs.
        let ready = ModifyQp {
            attr_mask: match (datagram, acknowledged) {
                (true, _) => 1,
                (_, true) => 0x12_9181,
                _ => 0x10_1181,
            },
            qp_state: 2,
            dest,
            path_mtu: 3,
            dest_qp_num,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            ..base
        };
        self.modify(&ready)?;
        let sends = ModifyQp {
            attr_mask: if datagram || !acknowledged { 0x1_0001 } else { 0x1_2e01 },
            qp_state: 3,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..base
        };
        self.modify(&sends)
    }

    /// Posts one receive into a piece of memory.
    pub fn post_receive(&mut self, qp: &mut Qp, key: u32, address: u64, length: u32) {
        let slot = u64::from(u32::from(qp.received) % ENTRIES);
        let at = qp.buffer + slot * u64::from(STRIDE);
        self.put_segments(at, key, address, length);
        qp.received = qp.received.wrapping_add(1);
        self.program.put(qp.record, &u32::from(qp.received).to_be_bytes());
    }

    /// Writes a data segment, and one that ends the list.
    pub fn put_segments(&mut self, at: u64, key: u32, address: u64, length: u32) {
        self.program.put(at, &data_segment(key, address, length));
        self.program.put(at + 16, &data_segment(INVALID_LKEY.value(), 0, 0));
    }

    /// Posts one signalled send request with these segments after the control segment.
    pub fn post_send(&mut self, qp: &mut Qp, receives: u32, opcode: u8, segments: &[u8]) {
        let slot = u64::from(u32::from(qp.sent) % ENTRIES);
        let at = qp.buffer + u64::from(receives * STRIDE) + slot * 64;
        let count = 1 + segments.len() as u32 / 16;
        let mut control = ControlSegment::new();
        control.set_wqe_index(qp.sent).set_opcode(WqeOpcode::from_raw(opcode)).set_ds(count as u8);
        control.set_qpn(Qpn::from_low_bits(qp.number));
        control.set_completion_mode(completion_mode::ALWAYS).set_solicited(true);
        let wqe = [control.as_bytes(), segments].concat();
        let blocks = wqe.len().div_ceil(64) as u16;
        self.program.put(at, &wqe);
        qp.sent = qp.sent.wrapping_add(blocks);
        self.program.put(qp.record + 4, &u32::from(qp.sent).to_be_bytes());
    }

    /// Takes the next completion.
    pub fn poll(&mut self, cq: &mut Cq) -> Option<Completion> {
        let at = cq.buffer + u64::from(cq.consumer % cq.entries) * CQE_SIZE as u64;
        let entry: CompletionEntry = self.read(at);
        let owner = !(cq.consumer / cq.entries).is_multiple_of(2);
        if entry.opcode() == CqeOpcode::Invalid || entry.owner() != owner {
            return None;
        }
        cq.consumer += 1;
        self.program.put(cq.record, &cq.consumer.to_be_bytes());
        let error: ErrorEntry = zerocopy::transmute!(entry);
        let is_error = matches!(entry.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
        Some(Completion {
            opcode: entry.opcode().raw(),
            user_index: entry.user_index(),
            bytes: entry.byte_count(),
            counter: entry.wqe_counter(),
            syndrome: if is_error { error.syndrome().raw() } else { 0 },
        })
    }

    /// Arms a completion queue by writing libmlx5's word to the record.
    pub fn arm(&mut self, cq: &Cq, sequence: u32) {
        self.program.put(cq.record + 4, &(sequence << 28 | cq.consumer).to_be_bytes());
    }

    /// Runs the device for one turn; returns the frames that it sends.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        self.now += Duration::from_micros(1);
        let Self { program, uverbs, now, .. } = self;
        uverbs.sweep(*now, program);
        uverbs.advance(*now, program);
        let mut frame = FrameBuffer::new();
        let mut frames = Vec::new();
        loop {
            match uverbs.poll_frame(*now, program, &mut frame) {
                Some(_) => frames.push(frame.to_vec()),
                None if uverbs.has_yielded() => {}
                None => break,
            }
        }
        program.take_events(uverbs);
        frames
    }
}

pub fn data_segment(key: u32, address: u64, length: u32) -> [u8; 16] {
    let mut segment = DataSegment::new();
    segment.set_byte_count(length).set_lkey(Mkey::new(key)).set_address(address);
    zerocopy::transmute!(segment)
}

/// A remote address, then local data.
pub fn remote(address: u64, key: u32, data: [u8; 16]) -> Vec<u8> {
    let mut segment = RemoteAddressSegment::new();
    segment.set_address(address).set_rkey(Mkey::new(key));
    [segment.as_bytes(), &data].concat()
}

/// Lets two devices work until they are idle.
pub fn settle(a: &mut Peer, b: &mut Peer) {
    let mut quiet = 0;
    while quiet < 4 {
        let (from_a, from_b) = (a.turn(), b.turn());
        quiet = if from_a.is_empty() && from_b.is_empty() { quiet + 1 } else { 0 };
        from_a.iter().for_each(|frame| b.uverbs.handle_frame(b.now, &mut b.program, frame));
        from_b.iter().for_each(|frame| a.uverbs.handle_frame(a.now, &mut a.program, frame));
    }
    a.turn();
    b.turn();
}
