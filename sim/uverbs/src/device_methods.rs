//! Methods on the device: contexts, ports, GIDs, the asynchronous event file.

use crate::Errno;
use crate::attributes::DeviceAttributes;
use crate::boot::{self, query_port_context};
use crate::call::Call;
use crate::commands::{Command, CommandQueue};
use crate::device::Device;
use crate::event_record::EventFileKind;
use crate::port_state::PortState;
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::command::hca::{AccessRegisterIn, AccessRegisterOut};
use bareverbs_prm::command::port::{PtysRegister, QueryVportStateIn, QueryVportStateOut};
use bareverbs_prm::command::uctx::{CreateUctxIn, CreateUctxOut, DestroyUctxIn, DestroyUctxOut};
use bareverbs_prm::ids::Gid;
use bareverbs_prm::numbering::{CommandOpcode, PathMtu, RegisterId};
use zerocopy::{FromZeros, IntoBytes};

/// The only port.
const PORT: u64 = 1;
/// `IB_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// `IB_LINK_LAYER_INFINIBAND`.
const INFINIBAND: u8 = 1;
/// `proto_mask` of PTYS: Ethernet, InfiniBand.
const ETHERNET_PROTOCOLS: u8 = 4;
const INFINIBAND_PROTOCOLS: u8 = 1;
/// `max_vl_num`: VL 0 only.
const ONE_VIRTUAL_LANE: u8 = 1;
/// `op_mod` of ACCESS_REG: read.
const READ: u16 = 1;
/// Interface of every GID: the loopback, because TCP between virtual hosts stays on the machine.
const LOOPBACK_INTERFACE: u32 = 1;
/// Headers of a RoCEv2 packet between Ethernet header and payload, as Linux counts them: IPv6, UDP, BTH, the
/// longest extension, ICRC.
const ROCE_HEADERS: u16 = 40 + 8 + 12 + 28 + 4;

/// GET_CONTEXT: negotiates features with the provider and reports limits.
pub(crate) fn get_context<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    if call.file.has_context {
        return Err(Errno::Invalid);
    }
    let requested: AllocUcontextReq = request.structure(call.process, UVERBS_ATTR_UHW_IN)?;
    check_context(&requested)?;
    let uid = if requested.flags & MLX5_IB_ALLOC_UCTX_DEVX == 0 { 0 } else { create_user_context(call)? };
    call.file.uid = uid;
    call.file.cqe_version = requested.max_cqe_version.min(call.device.attributes.general.cqe_version());
    let names = ContextNames {
        vectors: UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS,
        support: UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
        provider: UVERBS_ATTR_UHW_OUT,
    };
    if let Err(error) = tell_context(call, request, &names) {
        // Another attempt makes another context.
        destroy_user_context(call.device, call.process, core::mem::take(&mut call.file.uid));
        return Err(error);
    }
    call.file.has_context = true;
    Ok(())
}

/// Creates the user context of a file with DEVX.
fn create_user_context<P: Process>(call: &mut Call<'_, P>) -> Result<u16, Errno> {
    // The kernel's answer for a device without user contexts.
    if call.device.attributes.general.log_max_uctx() == 0 {
        return Err(Errno::Invalid);
    }
    let command = Command::new(CommandOpcode::CreateUctx, 0, &CreateUctxIn::new());
    Ok(call.device.commands.run::<_, CreateUctxOut>(call.process, &command)?.uid())
}

/// Destroys the user context of a file whose objects are gone. A failure cannot be reported to anyone any more.
pub(crate) fn destroy_user_context<P: Process>(device: &mut Device, process: &mut P, uid: u16) {
    if uid != 0 {
        let mut input = DestroyUctxIn::new();
        input.set_uid(uid);
        let command = Command::new(CommandOpcode::DestroyUctx, 0, &input);
        let _ = device.commands.run::<_, DestroyUctxOut>(process, &command);
    }
}

/// QUERY_CONTEXT: the same for a process that received the file (`ibv_import_device`).
pub(crate) fn query_context<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let names = ContextNames {
        vectors: UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS,
        support: UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT,
        provider: MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
    };
    tell_context(call, request, &names)
}

/// The attribute IDs of a method that describes a context.
struct ContextNames {
    vectors: u16,
    support: u16,
    provider: u16,
}

fn tell_context<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
    names: &ContextNames,
) -> Result<(), Errno> {
    let vectors = call.device.completion_vectors();
    let room = request.length(names.provider).unwrap_or(0);
    let response = call.device.attributes.user_context(call.file.cqe_version, room);
    request.output(call.process, names.vectors, vectors.as_bytes())?;
    let support = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
    request.output(call.process, names.support, support.as_bytes())?;
    request.output(call.process, names.provider, response.as_bytes())
}

/// Contexts with a fixed number of doorbell pages, which libraries before 2019 requested, are not supported.
fn check_context(requested: &AllocUcontextReq) -> Result<(), Errno> {
    let reserved = u32::from(requested.reserved0)
        | u32::from(requested.reserved1)
        | requested.reserved2
        | requested.comp_mask;
    if requested.flags & !MLX5_IB_ALLOC_UCTX_DEVX != 0 || reserved != 0 {
        return Err(Errno::Invalid);
    }
    if requested.lib_caps & MLX5_LIB_CAP_DYN_UAR == 0 { Err(Errno::NotSupported) } else { Ok(()) }
}

/// QUERY_PORT.
pub(crate) fn query_port<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    check_port(request.constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM))?;
    let response = QueryPortRespEx { legacy_resp: port(call)?, ..QueryPortRespEx::new_zeroed() };
    request.output(call.process, UVERBS_ATTR_QUERY_PORT_RESP, response.as_bytes())
}

/// `MLX5_IB_METHOD_QUERY_PORT`: the port's place in an embedded switch. Without one, mlx5_ib only confirms that the
/// port exists.
pub(crate) fn query_vport<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    check_port(request.constant(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM))?;
    request.output(call.process, MLX5_IB_ATTR_QUERY_PORT, Mlx5QueryPort::new_zeroed().as_bytes())
}

fn check_port(port: u64) -> Result<(), Errno> {
    if port == PORT { Ok(()) } else { Err(Errno::Invalid) }
}

/// The port, in `mlx5_ib`'s form for RoCE.
fn port<P: Process>(call: &mut Call<'_, P>) -> Result<QueryPortResp, Errno> {
    let query = Command::new(CommandOpcode::QueryVportState, 0, &QueryVportStateIn::new());
    if call.device.attributes.infiniband.is_some() {
        return infiniband_port(call);
    }
    let commands = &mut call.device.commands;
    let state: QueryVportStateOut = commands.run(call.process, &query)?;
    let mtu = query_port_context(commands, call.process)?.mtu();
    let (width, speed) = width_and_speed(read_speed(commands, call.process)?);
    let shown = if state.state() == 0 { PortState::NO_CARRIER } else { PortState::ACTIVE };
    let attributes = &call.device.attributes;
    Ok(QueryPortResp {
        port_cap_flags: IB_UVERBS_PCF_CM_SUP | IB_UVERBS_PCF_IP_BASED_GIDS,
        max_msg_sz: 1 << attributes.general.log_max_msg(),
        gid_tbl_len: attributes.gid_table_length(),
        pkey_tbl_len: 1,
        state: shown.logical,
        max_mtu: PathMtu::Mtu4096.raw(),
        active_mtu: path_mtu(mtu).raw(),
        active_width: width,
        active_speed: speed,
        phys_state: shown.physical,
        link_layer: ETHERNET,
        flags: IB_UVERBS_QPF_GRH_REQUIRED,
        ..QueryPortResp::new_zeroed()
    })
}

/// The port, in `mlx5_ib`'s form for InfiniBand (`mlx5_query_hca_port`).
fn infiniband_port<P: Process>(call: &mut Call<'_, P>) -> Result<QueryPortResp, Errno> {
    let commands = &mut call.device.commands;
    let told = boot::infiniband_port(commands, call.process)?;
    let register = read_ptys(commands, call.process, INFINIBAND_PROTOCOLS)?;
    let attributes = &call.device.attributes;
    let [wrong_pkeys, wrong_qkeys] = told.violations;
    Ok(QueryPortResp {
        port_cap_flags: told.capabilities & !IB_UVERBS_PCF_IP_BASED_GIDS,
        max_msg_sz: 1 << attributes.general.log_max_msg(),
        bad_pkey_cntr: wrong_pkeys.into(),
        qkey_viol_cntr: wrong_qkeys.into(),
        gid_tbl_len: attributes.gid_table_length(),
        pkey_tbl_len: attributes.pkey_table_length(),
        lid: told.lid,
        sm_lid: told.sm_lid,
        state: told.state,
        max_mtu: PathMtu::Mtu4096.raw(),
        active_mtu: PathMtu::Mtu4096.raw(),
        lmc: told.lmc,
        max_vl_num: ONE_VIRTUAL_LANE,
        sm_sl: told.sm_sl,
        subnet_timeout: told.subnet_timeout,
        active_width: width(register.ib_link_width_oper()),
        active_speed: register.ib_proto_oper() as u8,
        phys_state: told.physical_state,
        link_layer: INFINIBAND,
        ..QueryPortResp::new_zeroed()
    })
}

/// `enum ib_port_width` for the bits of PTYS (`translate_active_width`).
const fn width(lanes: u16) -> u8 {
    match lanes {
        1 => 1,
        2 => 16,
        8 => 4,
        16 => 8,
        _ => 2,
    }
}

/// The Ethernet protocol in use, as a bit of PTYS.
fn read_speed<P: Process>(commands: &mut CommandQueue, process: &mut P) -> Result<u32, Errno> {
    Ok(read_ptys(commands, process, ETHERNET_PROTOCOLS)?.eth_proto_oper())
}

/// Reads the register PTYS for the protocols of a link layer.
fn read_ptys<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    protocols: u8,
) -> Result<PtysRegister, Errno> {
    let mut register = PtysRegister::new();
    register.set_local_port(1).set_proto_mask(protocols);
    let mut input = AccessRegisterIn::new();
    input.set_register_id(RegisterId::Ptys);
    let read = Command::new(CommandOpcode::AccessReg, READ, &input).list(register.as_bytes());
    let (_, response) = commands
        .run_with_list::<_, AccessRegisterOut>(process, &read.answer_list(size_of::<PtysRegister>()))?;
    Ok(read_extended(&response))
}

/// Lanes and speed per lane, in InfiniBand's numbers.
const fn width_and_speed(protocol: u32) -> (u8, u8) {
    const ONE_LANE: u8 = 1;
    const FOUR_LANES: u8 = 2;
    const TWO_LANES: u8 = 16;
    const QDR: u8 = 4;
    const EDR: u8 = 32;
    match protocol {
        0x1000 => (ONE_LANE, QDR),
        0x0800_0000 => (ONE_LANE, EDR),
        0x40 => (FOUR_LANES, QDR),
        0x4000_0000 => (TWO_LANES, EDR),
        _ => (FOUR_LANES, EDR),
    }
}

/// The largest path MTU whose packets an Ethernet payload can hold.
pub(crate) const fn path_mtu(ethernet: u16) -> PathMtu {
    match ethernet.saturating_sub(ROCE_HEADERS) {
        4096.. => PathMtu::Mtu4096,
        2048.. => PathMtu::Mtu2048,
        1024.. => PathMtu::Mtu1024,
        512.. => PathMtu::Mtu512,
        _ => PathMtu::Mtu256,
    }
}

/// QUERY_GID_TABLE: all entries that are not empty, spaced by the caller's entry size.
pub(crate) fn query_gid_table<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let step = request.constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE);
    let step = usize::try_from(step).ok().filter(|&step| step >= size_of::<GidEntry>());
    let step = step.filter(|&step| step <= usize::from(u16::MAX)).ok_or(Errno::Invalid)?;
    if request.constant(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS) != 0 {
        return Err(Errno::Invalid);
    }
    let room = request.length(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES).unwrap_or(0) / step;
    let entries: Vec<GidEntry> = (0..)
        .zip(&call.device.attributes.gids)
        .map(|(index, gid)| gid_entry(&call.device.attributes, index, gid))
        .collect();
    if entries.len() > room {
        return Err(Errno::Invalid);
    }
    let count = entries.len() as u64;
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend_from_slice(entry.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(step), 0);
    }
    request.output(call.process, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, &bytes)?;
    request.output(call.process, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count.as_bytes())
}

/// QUERY_GID_ENTRY.
pub(crate) fn query_gid_entry<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    check_port(request.constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT))?;
    let index = request.constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX);
    let attributes = &call.device.attributes;
    if request.constant(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS) != 0
        || index >= attributes.gid_table_length().into()
    {
        return Err(Errno::Invalid);
    }
    let gid = usize::try_from(index).ok().and_then(|index| attributes.gids.get(index));
    let entry = gid_entry(attributes, index as u32, gid.ok_or(Errno::NoData)?);
    request.output(call.process, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry.as_bytes())
}

/// An entry. InfiniBand ports have no interface.
fn gid_entry(attributes: &DeviceAttributes, gid_index: u32, gid: &Gid) -> GidEntry {
    let (gid_type, netdev_ifindex) = match attributes.infiniband {
        Some(_) => (IB_UVERBS_GID_TYPE_IB, 0),
        None => (IB_UVERBS_GID_TYPE_ROCE_V2, LOOPBACK_INTERFACE),
    };
    GidEntry { gid: gid.0, gid_index, port_num: PORT as u32, gid_type, netdev_ifindex }
}

/// ASYNC_EVENT_ALLOC.
pub(crate) fn alloc_async_event<P: Process>(
    call: &mut Call<'_, P>,
    request: &mut Request<'_>,
) -> Result<(), Errno> {
    let number = call.device.events.open(call.process, call.file_id, EventFileKind::Asynchronous)?;
    request.put_new(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, i64::from(number) as u64);
    Ok(())
}
