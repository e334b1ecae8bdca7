//! The methods that libibverbs and libmlx5 call, one by one, and their responses.

use crate::support;

use bareverbs_prm::time::Time;
use bareverbs_sim::nic::NicConfig;
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{Errno, FileId, Mapping, Uverbs, VirtualHost};
use support::{BASE, FIRST_EVENT_FILE, Program, attribute, device, get_context, open, request};
use zerocopy::{FromBytes, IntoBytes};

/// Address of responses.
const RESPONSE: u64 = BASE + 0x1000;

/// A device with an open file that has a context.
struct Opened {
    program: Program,
    uverbs: Uverbs,
    file: FileId,
}

impl Opened {
    fn new() -> Self {
        let mut program = Program::default();
        let mut uverbs = device(&mut program);
        let file = open(&mut uverbs, &mut program);
        Self { program, uverbs, file }
    }

    fn call(
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

    fn answer<T: FromBytes>(&self) -> T {
        let at = (RESPONSE - BASE) as usize;
        T::read_from_bytes(&self.program.bytes[at..at + size_of::<T>()]).unwrap()
    }

    fn write_command(&mut self, number: u32, request: &[u8], room: usize) -> Result<(), Errno> {
        self.program.put(BASE, request);
        let attributes = [
            attribute(UVERBS_ATTR_WRITE_CMD, 4, number.into()),
            attribute(UVERBS_ATTR_CORE_IN, request.len(), inline(request, BASE)),
            attribute(UVERBS_ATTR_CORE_OUT, room, RESPONSE),
        ];
        self.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, &attributes).map(drop)
    }
}

/// Inputs of at most 8 bytes are in the attribute itself.
fn inline(bytes: &[u8], address: u64) -> u64 {
    if bytes.len() > 8 {
        return address;
    }
    let mut data = 0_u64;
    data.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    data
}

fn config() -> NicConfig {
    VirtualHost::new("a").unwrap().nic_config(0)
}

#[test]
fn a_context_needs_dynamic_doorbell_pages_and_exists_once() {
    let mut program = Program::default();
    let mut uverbs = device(&mut program);
    let file = uverbs.open();
    let mut early =
        request(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, &[attribute(0, 0, 0)]);
    assert_eq!(uverbs.ioctl(&mut program, file, &mut early), Err(Errno::Invalid), "no context yet");
    assert_eq!(get_context(&mut uverbs, &mut program, file, 0), Err(Errno::NotSupported));
    assert_eq!(get_context(&mut uverbs, &mut program, file, MLX5_LIB_CAP_DYN_UAR), Ok(()));
    assert_eq!(get_context(&mut uverbs, &mut program, file, MLX5_LIB_CAP_DYN_UAR), Err(Errno::Invalid));
    let response = AllocUcontextResp::read_from_bytes(&program.bytes[0x100..0x148]).unwrap();
    let limits = config().limits;
    assert_eq!(response.qp_tab_size, 1 << limits.log_max_qp);
    assert_eq!(response.max_sq_desc_sz, limits.max_send_wqe);
    assert_eq!((response.cqe_version, response.tot_bfregs, response.num_ports), (1, 0, 1));
}

#[test]
fn the_device_is_the_one_that_was_configured() {
    let mut opened = Opened::new();
    opened.write_command(IB_USER_VERBS_CMD_QUERY_DEVICE | 1 << 31, &[0; 8], 304).unwrap();
    let response: ExQueryDeviceResp = opened.answer();
    let (base, config) = (response.base, config());
    let [major, minor, subminor] = config.firmware_revision.map(u64::from);
    assert_eq!(base.fw_ver, major << 32 | minor << 16 | subminor);
    assert_eq!(base.vendor_part_id, u32::from(config.device_id));
    assert_eq!(base.max_qp, 1 << config.limits.log_max_qp);
    assert_eq!(base.max_qp_wr, 1 << config.limits.log_max_qp_size);
    assert_eq!(base.max_cqe, (1 << config.limits.log_max_cq_size) - 1);
    assert_eq!(base.max_mr, 1 << config.limits.log_max_mkey);
    assert_eq!((base.max_sge, base.max_sge_rd), (30, 30));
    assert_eq!(base.atomic_cap, 1, "IB_ATOMIC_HCA: atomic with respect to this device");
    assert_eq!((response.response_length, response.hca_core_clock), (304, 1_000_000));
    assert_eq!(base.max_mw, 1 << config.limits.log_max_mkey);
    assert_eq!(base.max_raw_ethy_qp, 0, "raw packet queue pairs are not supported");
}

#[test]
fn a_response_is_as_long_as_the_callers_buffer() {
    let mut opened = Opened::new();
    let number = IB_USER_VERBS_CMD_QUERY_DEVICE | 1 << 31;
    assert_eq!(opened.write_command(number, &[0; 8], 183), Err(Errno::NoSpace));
    opened.program.put(RESPONSE, &[0xee; 304]);
    opened.write_command(number, &[0; 8], 184).unwrap();
    let response: ExQueryDeviceResp = opened.answer();
    assert_eq!((response.response_length, response.hca_core_clock), (184, 0xeeee_eeee_eeee_eeee));
}

#[test]
fn the_port_is_active_and_as_fast_as_configured() {
    let mut opened = Opened::new();
    let attributes = [attribute(0, 1, 1), attribute(1, 48, RESPONSE)];
    opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, &attributes).unwrap();
    let port = opened.answer::<QueryPortRespEx>().legacy_resp;
    assert_eq!((port.state, port.phys_state, port.link_layer), (4, 5, 2));
    assert_eq!(
        (port.active_width, port.active_speed, port.active_mtu),
        (2, 32, 5),
        "100 Gbit/s, jumbo frames"
    );
    assert_eq!(port.gid_tbl_len, u32::from(config().limits.roce_addresses));
    assert_eq!(port.max_msg_sz, 1 << config().limits.log_max_message);
    for other in [0, 2] {
        let attributes = [attribute(0, 1, other), attribute(1, 48, RESPONSE)];
        let response = opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, &attributes);
        assert_eq!(response.err(), Some(Errno::Invalid), "port {other}");
    }
}

#[test]
fn gids_are_those_of_the_host() {
    let mut opened = Opened::new();
    let gids = VirtualHost::new("a").unwrap().gids();
    let entry =
        |index| [attribute(0, 4, 1), attribute(1, 4, index), attribute(2, 4, 0), attribute(3, 32, RESPONSE)];
    for (index, gid) in gids.iter().enumerate() {
        opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, &entry(index as u64)).unwrap();
        let response: GidEntry = opened.answer();
        assert_eq!((response.gid, response.gid_type), (gid.0, IB_UVERBS_GID_TYPE_ROCE_V2));
    }
    for (index, error) in [(2, Errno::NoData), (127, Errno::NoData), (128, Errno::Invalid)] {
        let response = opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, &entry(index));
        assert_eq!(response.err(), Some(error), "index {index}");
    }
    let table = |room| {
        [attribute(0, 8, 32), attribute(1, 4, 0), attribute(2, room, RESPONSE + 8), attribute(3, 8, RESPONSE)]
    };
    opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, &table(4096)).unwrap();
    assert_eq!(opened.answer::<u64>(), gids.len() as u64);
    let response = opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, &table(32));
    assert_eq!(response.err(), Some(Errno::Invalid), "no room for both");
}

#[test]
fn a_doorbell_page_can_be_mapped_until_it_is_destroyed() {
    let mut opened = Opened::new();
    let allocate = [
        attribute(0x1000, 0, 0),
        attribute(0x1001, 8, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC),
        attribute(0x1002, 8, RESPONSE),
        attribute(0x1003, 4, RESPONSE + 8),
        attribute(0x1004, 4, RESPONSE + 12),
    ];
    let handle = opened.call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, &allocate).unwrap()[0].data;
    let offset: u64 = opened.answer();
    let Ok(Mapping::Doorbells(page)) = opened.uverbs.map(&mut opened.program, opened.file, offset, 4096)
    else {
        panic!()
    };
    let number = u32::read_from_bytes(&opened.program.bytes[0x100c..0x1010]).unwrap();
    assert_eq!(page.value(), number);
    assert_eq!(opened.uverbs.map(&mut opened.program, opened.file, offset, 8192), Err(Errno::Invalid));
    assert_eq!(opened.uverbs.map(&mut opened.program, opened.file, offset + 4096, 4096), Err(Errno::Invalid));
    let stranger = opened.uverbs.open();
    assert_eq!(
        opened.uverbs.map(&mut opened.program, stranger, offset, 4096),
        Err(Errno::Invalid),
        "another file's page"
    );
    let destroy = [attribute(0x1000, 0, handle)];
    opened.call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, &destroy).unwrap();
    assert_eq!(opened.uverbs.map(&mut opened.program, opened.file, offset, 4096), Err(Errno::Invalid));
    let again = opened.call(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, &destroy);
    assert_eq!(again.err(), Some(Errno::NoEntry));
}

#[test]
fn the_clock_says_what_time_stamps_mean() {
    let mut opened = Opened::new();
    let mapped = opened.uverbs.map(&mut opened.program, opened.file, 7 << 20, 4096);
    let Ok(Mapping::Clock(bytes)) = mapped else { panic!("{mapped:?}") };
    let info = Mlx5ClockInfo::read_from_bytes(&bytes).unwrap();
    let Mlx5ClockInfo { nsec, cycles, mult, shift, mask, .. } = info;
    assert_eq!((nsec, cycles, mult, shift, mask), (support::WALL_CLOCK, 0, 1, 0, u64::MAX));
    let none = opened.uverbs.map(&mut opened.program, opened.file, 7 << 20 | 1 << 12, 4096);
    assert_eq!(none, Err(Errno::Invalid), "an unknown version");
}

#[test]
fn closing_a_file_destroys_its_remaining_objects() {
    let mut opened = Opened::new();
    let before = opened.uverbs.nic().live_objects();
    opened.write_command(IB_USER_VERBS_CMD_ALLOC_PD, &[0; 8], 4).unwrap();
    opened.write_command(IB_USER_VERBS_CMD_ALLOC_PD, &[0; 8], 4).unwrap();
    let handle: u32 = opened.answer();
    assert_ne!(opened.uverbs.nic().live_objects(), before);
    let destroy = [attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 0, handle.into())];
    opened.call(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, &destroy).unwrap();
    opened.uverbs.close(&mut opened.program, opened.file);
    assert_eq!(opened.uverbs.nic().live_objects(), before);
}

#[test]
fn a_response_that_cannot_be_written_leaves_no_object() {
    let mut opened = Opened::new();
    let before = opened.uverbs.nic().live_objects();
    let attributes = [
        attribute(UVERBS_ATTR_WRITE_CMD, 4, IB_USER_VERBS_CMD_ALLOC_PD.into()),
        attribute(UVERBS_ATTR_CORE_IN, 8, 0),
        attribute(UVERBS_ATTR_CORE_OUT, 4, 0xdead_0000),
    ];
    let response = opened.call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, &attributes);
    assert_eq!((response.err(), opened.uverbs.nic().live_objects()), (Some(Errno::Fault), before));
}

#[test]
fn asynchronous_events_come_through_a_file_of_their_own() {
    let mut opened = Opened::new();
    let allocate = [attribute(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0, 0)];
    let response =
        opened.call(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, &allocate).unwrap();
    assert_eq!(response[0].data, FIRST_EVENT_FILE as u64);
    assert_ne!(response[0].flags & UVERBS_ATTR_F_VALID_OUTPUT, 0);
    for (up, event_type) in [(false, 10_u32), (true, 9)] {
        opened.uverbs.set_link_up(Time::ZERO, &mut opened.program, up);
        opened.program.take_events(&mut opened.uverbs);
        let record = opened.program.event_files[0].records.pop_front().unwrap();
        assert_eq!(record.element(), 1, "the port");
        assert_eq!(record.bytes()[8..12], event_type.to_ne_bytes());
        assert!(opened.program.event_files[0].records.is_empty());
    }
    opened.uverbs.close(&mut opened.program, opened.file);
    assert!(opened.program.event_files[0].hung_up);
    opened.uverbs.set_link_up(Time::ZERO, &mut opened.program, false);
    assert_eq!(opened.uverbs.poll_event(), None, "the file is closed: no event to deliver");
}
