//! DEVX: commands of the PRM that a program sends itself, in a user context of the device.

use super::support::{BASE, Program, attribute, device, request};
use bareverbs_prm::command::caps::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use bareverbs_prm::command::cq::{CreateCqIn, CreateCqOut, QueryCqIn, QueryCqOut};
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::pd::{AllocPdIn, AllocPdOut, DeallocPdIn};
use bareverbs_prm::ids::{Cqn, Pdn, UarIndex};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus};
use bareverbs_sim::nic::NicConfig;
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Errno, FileId, Uverbs, VirtualHost};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// Where the tests put what they pass to the kernel, and the memory of queues.
const INPUT: u64 = BASE + 0x1000;
const OUTPUT: u64 = BASE + 0x4000;
const SMALL: u64 = BASE + 0x6000;
const QUEUES: u64 = BASE + 0x1_0000;
/// Bytes of the registered memory.
const QUEUES_LENGTH: u64 = 0x8000;

/// A program with a file of a device that has user contexts.
struct Client {
    program: Program,
    uverbs: Uverbs,
    file: FileId,
}

fn device_with_contexts(program: &mut Program) -> Uverbs {
    let host = VirtualHost::new("a").unwrap();
    let config = NicConfig { user_contexts: true, ..host.nic_config(0) };
    Uverbs::boot(config, &host.port_addresses(), program).unwrap()
}

fn get_context(uverbs: &mut Uverbs, program: &mut Program, file: FileId, flags: u32) -> Result<(), Errno> {
    let requested = AllocUcontextReq {
        flags,
        max_cqe_version: 1,
        lib_caps: MLX5_LIB_CAP_DYN_UAR,
        ..AllocUcontextReq::new_zeroed()
    };
    program.put(INPUT, requested.as_bytes());
    let attributes = [attribute(UVERBS_ATTR_UHW_IN, 32, INPUT), attribute(UVERBS_ATTR_UHW_OUT, 72, OUTPUT)];
    let mut bytes = request(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, &attributes);
    uverbs.ioctl(program, file, &mut bytes)
}

impl Client {
    fn new() -> Self {
        let mut program = Program::default();
        let mut uverbs = device_with_contexts(&mut program);
        let file = uverbs.open();
        get_context(&mut uverbs, &mut program, file, MLX5_IB_ALLOC_UCTX_DEVX).unwrap();
        Self { program, uverbs, file }
    }

    /// Calls a method and returns the first attribute's data, which is the handle of a new object.
    fn call(&mut self, object: u16, method: u16, attributes: &[IoctlAttribute]) -> Result<u32, Errno> {
        let mut bytes = request(object, method, attributes);
        self.uverbs.ioctl(&mut self.program, self.file, &mut bytes)?;
        let (first, _) = IoctlAttribute::read_from_prefix(&bytes[size_of::<IoctlHeader>()..]).unwrap();
        Ok(first.data as u32)
    }

    fn answer<O: FromBytes>(&self) -> O {
        let at = (OUTPUT - BASE) as usize;
        O::read_from_bytes(&self.program.bytes[at..at + size_of::<O>()]).unwrap()
    }

    fn put<I: IntoBytes + Immutable>(&mut self, input: &I) -> usize {
        self.program.put(INPUT, input.as_bytes());
        size_of::<I>()
    }

    fn other<I: IntoBytes + Immutable>(&mut self, input: &I, room: usize) -> Result<(), Errno> {
        let length = self.put(input);
        let attributes = [
            attribute(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, length, INPUT),
            attribute(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, room, OUTPUT),
        ];
        self.call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, &attributes).map(drop)
    }

    fn create<I: IntoBytes + Immutable>(&mut self, input: &I) -> Result<u32, Errno> {
        let length = self.put(input);
        let attributes = [
            attribute(MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE, 0, 0),
            attribute(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN, length, INPUT),
            attribute(MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT, 16, OUTPUT),
        ];
        self.call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, &attributes)
    }

    fn query<I: IntoBytes + Immutable>(&mut self, handle: u32, input: &I, room: usize) -> Result<(), Errno> {
        let length = self.put(input);
        let attributes = [
            attribute(MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE, 0, handle.into()),
            attribute(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN, length, INPUT),
            attribute(MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT, room, OUTPUT),
        ];
        self.call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, &attributes).map(drop)
    }

    fn destroy(&mut self, handle: u32) -> Result<(), Errno> {
        let attributes = [attribute(MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE, 0, handle.into())];
        self.call(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, &attributes).map(drop)
    }

    /// Registers the memory of the queues: its handle and the number of the object.
    fn register(&mut self, start: u64, length: u64) -> Result<(u32, u32), Errno> {
        let attributes = [
            attribute(MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE, 0, 0),
            attribute(MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR, 8, start),
            attribute(MLX5_IB_ATTR_DEVX_UMEM_REG_LEN, 8, length),
            attribute(MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS, 4, IB_UVERBS_ACCESS_LOCAL_WRITE.into()),
            attribute(MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID, 4, SMALL),
        ];
        let handle = self.call(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, &attributes)?;
        Ok((handle, self.small()))
    }

    fn deregister(&mut self, handle: u32) -> Result<(), Errno> {
        let attributes = [attribute(MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE, 0, handle.into())];
        self.call(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, &attributes).map(drop)
    }

    fn small(&self) -> u32 {
        let at = (SMALL - BASE) as usize;
        u32::from_ne_bytes(self.program.bytes[at..at + 4].try_into().unwrap())
    }

    fn event_queue(&mut self) -> u32 {
        let attributes = [
            attribute(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, 4, 0),
            attribute(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 4, SMALL),
        ];
        self.call(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, &attributes).unwrap();
        self.small()
    }

    fn doorbells(&mut self) -> UarIndex {
        let attributes = [
            attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0, 0),
            attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 8, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC),
            attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8, SMALL + 8),
            attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4, SMALL + 16),
            attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4, SMALL),
        ];
        self.call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, &attributes).unwrap();
        UarIndex::from_low_bits(self.small())
    }

    /// A completion queue of 64 entries at the start of user memory, its record behind it.
    fn completion_queue(&mut self, memory: u32) -> Result<u32, Errno> {
        let (events, page) = (self.event_queue(), self.doorbells());
        let mut input = CreateCqIn::new();
        input.set_opcode(CommandOpcode::CreateCq).set_cq_umem_id(memory).set_cq_umem_offset(0);
        let context = input.cq_context_mut();
        context.set_log_cq_size(6).set_uar_page(page).set_c_eqn_or_apu_element(events);
        context.set_dbr_umem_id(memory).set_dbr_addr(0x4000);
        self.create(&input)
    }
}

fn capabilities() -> QueryHcaCapIn {
    let mut input = QueryHcaCapIn::new();
    input.set_opcode(CommandOpcode::QueryHcaCap).set_op_mod(1);
    input
}

#[test]
fn only_a_device_with_user_contexts_has_devx() {
    let mut program = Program::default();
    let mut uverbs = device(&mut program);
    let file = uverbs.open();
    let refused = get_context(&mut uverbs, &mut program, file, MLX5_IB_ALLOC_UCTX_DEVX);
    assert_eq!(refused, Err(Errno::Invalid));
    get_context(&mut uverbs, &mut program, file, 0).unwrap();
    let mut client = Client { program, uverbs, file };
    assert_eq!(client.other(&capabilities(), 4112), Err(Errno::ProtocolNotSupported), "as before");
}

#[test]
fn only_a_file_that_asked_for_devx_has_it() {
    let mut program = Program::default();
    let mut uverbs = device_with_contexts(&mut program);
    let file = uverbs.open();
    get_context(&mut uverbs, &mut program, file, 0).unwrap();
    let mut client = Client { program, uverbs, file };
    assert_eq!(client.other(&capabilities(), 4112), Err(Errno::Invalid));
    assert_eq!(client.register(QUEUES, QUEUES_LENGTH), Err(Errno::Invalid));
}

#[test]
fn devx_passes_queries_and_refuses_configuration() {
    let mut client = Client::new();
    client.other(&capabilities(), size_of::<QueryHcaCapOut>()).unwrap();
    assert_eq!(client.answer::<QueryHcaCapOut>().status(), CommandStatus::Ok);
    let mut set = SetHcaCapIn::new();
    set.set_opcode(CommandOpcode::SetHcaCap);
    assert_eq!(client.other(&set, 16), Err(Errno::Invalid));
    let mut domain = AllocPdIn::new();
    domain.set_opcode(CommandOpcode::AllocPd);
    assert_eq!(client.other(&domain, 16), Err(Errno::Invalid), "an object needs a handle");
    assert_eq!(client.create(&capabilities()), Err(Errno::Invalid), "a query creates nothing");
}

#[test]
fn a_refusal_of_firmware_reaches_the_program() {
    let mut client = Client::new();
    let mut wrong = capabilities();
    wrong.set_op_mod(0x7f << 1);
    assert_eq!(client.other(&wrong, size_of::<QueryHcaCapOut>()), Err(Errno::RemoteIo));
    let header: CommandHeaderOut = client.answer();
    assert!(header.status() != CommandStatus::Ok && header.syndrome() != 0);
}

#[test]
fn a_completion_queue_lives_in_registered_memory() {
    let mut client = Client::new();
    let (memory, id) = client.register(QUEUES, QUEUES_LENGTH).unwrap();
    let queue = client.completion_queue(id).unwrap();
    let cqn = client.answer::<CreateCqOut>().cqn();
    let mut query = QueryCqIn::new();
    query.set_opcode(CommandOpcode::QueryCq).set_cqn(cqn);
    client.query(queue, &query, size_of::<QueryCqOut>()).unwrap();
    assert_eq!(client.answer::<QueryCqOut>().cq_context().log_cq_size(), 6);
    query.set_cqn(Cqn::from_low_bits(cqn.value() + 1));
    assert_eq!(client.query(queue, &query, size_of::<QueryCqOut>()), Err(Errno::Invalid), "not its number");
    assert_eq!(client.deregister(memory), Err(Errno::Invalid), "firmware: the queue is still in it");
    client.destroy(queue).unwrap();
    assert_eq!(client.destroy(queue), Err(Errno::NoEntry));
    client.deregister(memory).unwrap();
    assert_eq!(client.completion_queue(id), Err(Errno::RemoteIo), "the memory is gone");
}

#[test]
fn memory_that_the_program_does_not_have_is_not_registered() {
    let mut client = Client::new();
    let end = BASE + client.program.bytes.len() as u64;
    assert_eq!(client.register(end - 0x1000, 0x2000), Err(Errno::Fault));
    assert_eq!(client.register(QUEUES, 0), Err(Errno::Invalid));
    assert_eq!(client.register(u64::MAX - 10, 100), Err(Errno::Invalid));
}

#[test]
fn a_file_that_is_closed_leaves_nothing() {
    let mut client = Client::new();
    let (_, id) = client.register(QUEUES, QUEUES_LENGTH).unwrap();
    client.completion_queue(id).unwrap();
    let mut domain = AllocPdIn::new();
    domain.set_opcode(CommandOpcode::AllocPd);
    client.create(&domain).unwrap();
    let pd: Pdn = client.answer::<AllocPdOut>().pd();
    client.uverbs.close(&mut client.program, client.file);
    // Another file cannot name what the first one had.
    client.file = client.uverbs.open();
    get_context(&mut client.uverbs, &mut client.program, client.file, MLX5_IB_ALLOC_UCTX_DEVX).unwrap();
    let mut gone = DeallocPdIn::new();
    gone.set_opcode(CommandOpcode::DeallocPd).set_pd(pd);
    assert_eq!(client.other(&gone, 16), Err(Errno::Invalid));
    assert_eq!(client.completion_queue(id), Err(Errno::RemoteIo));
    client.register(QUEUES, QUEUES_LENGTH).unwrap();
}
