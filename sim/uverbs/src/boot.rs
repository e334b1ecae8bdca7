//! Boots the device like `mlx5_core` and `mlx5_ib`: pages, INIT_HCA, capabilities, RoCE and its addresses.

use crate::attributes::{DeviceAttributes, InfiniBandPort};
use crate::commands::{Command, CommandFailure, CommandQueue};
use crate::kernel_memory::PAGE;
use crate::process::Process;
use crate::subnet::SubnetLink;
use crate::uapi::read_extended;
use alloc::vec::Vec;
use bareverbs_prm::command::caps::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn, SetHcaCapOut};
use bareverbs_prm::command::hca::{
    EnableHcaIn, EnableHcaOut, InitHcaIn, InitHcaOut, QueryAdapterIn, QueryAdapterOut, SetIssiIn, SetIssiOut,
};
use bareverbs_prm::command::ib_port::{QueryHcaVportContextIn, QueryHcaVportContextOut};
use bareverbs_prm::command::pages::{ManagePagesIn, ManagePagesOut, QueryPagesIn, QueryPagesOut};
use bareverbs_prm::command::port::{
    ModifyNicVportContextIn, ModifyNicVportContextOut, QueryNicVportContextIn, QueryNicVportContextOut,
    SetRoceAddressIn, SetRoceAddressOut,
};
use bareverbs_prm::context::NicVportContext;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CapabilityType, CommandOpcode, RoceL3Type, RoceVersion};
use bareverbs_sim::nic::LinkLayer;
use zerocopy::IntoBytes;

/// Interface revision of our command layouts.
const ISSI: u16 = 1;
/// `op_mod` of QUERY_PAGES: pages for the boot, and for INIT_HCA.
const BOOT_PAGES: u16 = 1;
const INIT_PAGES: u16 = 2;
/// `op_mod` of MANAGE_PAGES: give pages.
const GIVE: u16 = 1;
/// Offset of a capability page in command and response.
const PAGE_AT: usize = 16;
const CAPABILITY_PAGE: usize = 256;

/// Boots a device and returns its attributes.
pub(crate) fn bring_up<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    gids: &[Gid],
    subnet: Option<&mut SubnetLink>,
) -> Result<DeviceAttributes, CommandFailure> {
    let enable = Command::new(CommandOpcode::EnableHca, 0, &EnableHcaIn::new());
    commands.run::<_, EnableHcaOut>(process, &enable)?;
    let mut issi = SetIssiIn::new();
    issi.set_current_issi(ISSI);
    commands.run::<_, SetIssiOut>(process, &Command::new(CommandOpcode::SetIssi, 0, &issi))?;
    give_pages(commands, process, BOOT_PAGES)?;
    use_host_order_atomics(commands, process)?;
    give_pages(commands, process, INIT_PAGES)?;
    let init = Command::new(CommandOpcode::InitHca, 0, &InitHcaIn::new());
    commands.run::<_, InitHcaOut>(process, &init)?;
    commands.nic.set_link_up(true);
    if let Some(subnet) = subnet {
        subnet.bring_up(commands, process);
        return ask(commands, process, gids);
    }
    let attributes = ask(commands, process, gids)?;
    enable_roce(commands, process)?;
    for (index, gid) in gids.iter().enumerate() {
        set_address(commands, process, index as u16, *gid)?;
    }
    Ok(attributes)
}

fn give_pages<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    stage: u16,
) -> Result<(), CommandFailure> {
    let query = Command::new(CommandOpcode::QueryPages, stage, &QueryPagesIn::new());
    let requested: QueryPagesOut = commands.run(process, &query)?;
    let count = requested.num_pages();
    let first = commands.kernel.allocate(count as usize);
    let pages: Vec<u8> = (0..u64::from(count)).flat_map(|page| (first + page * PAGE).to_be_bytes()).collect();
    let mut give = ManagePagesIn::new();
    give.set_input_num_entries(count);
    let give = Command::new(CommandOpcode::ManagePages, GIVE, &give).list(&pages);
    commands.run::<_, ManagePagesOut>(process, &give).map(drop)
}

fn use_host_order_atomics<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
) -> Result<(), CommandFailure> {
    let mut atomic: bareverbs_prm::command::caps::AtomicCapabilities =
        read_extended(&capability_page(commands, process, CapabilityType::Atomic)?);
    if !atomic.supported_atomic_req_8b_endianness_mode_1() {
        return Ok(());
    }
    atomic.set_atomic_req_8b_endianness_mode(1);
    let mut input = SetHcaCapIn::new();
    input.as_mut_bytes()[PAGE_AT..PAGE_AT + CAPABILITY_PAGE].copy_from_slice(atomic.as_bytes());
    let op_mod = u16::from(CapabilityType::Atomic.raw()) << 1;
    commands
        .run::<_, SetHcaCapOut>(process, &Command::new(CommandOpcode::SetHcaCap, op_mod, &input))
        .map(drop)
}

/// The capability page with the values in force.
fn capability_page<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    kind: CapabilityType,
) -> Result<[u8; CAPABILITY_PAGE], CommandFailure> {
    let op_mod = u16::from(kind.raw()) << 1 | 1;
    let query = Command::new(CommandOpcode::QueryHcaCap, op_mod, &QueryHcaCapIn::new());
    let response: QueryHcaCapOut = commands.run(process, &query)?;
    Ok(read_extended(&response.as_bytes()[PAGE_AT..]))
}

fn ask<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    gids: &[Gid],
) -> Result<DeviceAttributes, CommandFailure> {
    let adapter = Command::new(CommandOpcode::QueryAdapter, 0, &QueryAdapterIn::new());
    let adapter: QueryAdapterOut = commands.run(process, &adapter)?;
    let context = query_port_context(commands, process)?;
    let config = *commands.nic.config();
    let is_infiniband = config.link_layer == LinkLayer::InfiniBand;
    let infiniband = if is_infiniband { Some(infiniband_port(commands, process)?) } else { None };
    // InfiniBand ports have no RoCE addresses.
    let roce = if is_infiniband {
        [0; CAPABILITY_PAGE]
    } else {
        capability_page(commands, process, CapabilityType::Roce)?
    };
    Ok(DeviceAttributes {
        firmware_revision: config.firmware_revision,
        device_id: config.device_id,
        vendor_id: adapter.query_adapter_struct_ieee_vendor_id(),
        board_id: adapter.query_adapter_struct_vsd_contd_psid(),
        node_guid: context.node_guid(),
        system_image_guid: context.system_image_guid(),
        gids: gids.to_vec(),
        general: read_extended(&capability_page(commands, process, CapabilityType::General)?),
        atomic: read_extended(&capability_page(commands, process, CapabilityType::Atomic)?),
        roce: read_extended(&roce),
        infiniband,
    })
}

/// Queries what the SM has assigned to an InfiniBand port.
pub(crate) fn infiniband_port<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
) -> Result<InfiniBandPort, CommandFailure> {
    let mut input = QueryHcaVportContextIn::new();
    input.set_port_num(1);
    let query = Command::new(CommandOpcode::QueryHcaVportContext, 0, &input);
    let response: QueryHcaVportContextOut = commands.run(process, &query)?;
    let context = response.hca_vport_context();
    Ok(InfiniBandPort {
        lid: context.lid(),
        lmc: context.lmc(),
        sm_lid: context.sm_lid(),
        sm_sl: context.sm_sl(),
        state: context.vport_state(),
        physical_state: context.port_physical_state(),
        capabilities: context.cap_mask1(),
        subnet_timeout: context.subnet_timeout(),
        violations: [context.pkey_violation_counter(), context.qkey_violation_counter()],
    })
}

/// The context of the port's function.
pub(crate) fn query_port_context<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
) -> Result<NicVportContext, CommandFailure> {
    let query = Command::new(CommandOpcode::QueryNicVportContext, 0, &QueryNicVportContextIn::new());
    let response: QueryNicVportContextOut = commands.run(process, &query)?;
    Ok(*response.nic_vport_context())
}

fn enable_roce<P: Process>(commands: &mut CommandQueue, process: &mut P) -> Result<(), CommandFailure> {
    let mut input = ModifyNicVportContextIn::new();
    input.set_field_select_roce_en(true).nic_vport_context_mut().set_roce_en(true);
    let modify = Command::new(CommandOpcode::ModifyNicVportContext, 0, &input);
    commands.run::<_, ModifyNicVportContextOut>(process, &modify).map(drop)
}

fn set_address<P: Process>(
    commands: &mut CommandQueue,
    process: &mut P,
    index: u16,
    gid: Gid,
) -> Result<(), CommandFailure> {
    let MacAddress([a, b, rest @ ..]) = commands.nic.config().mac;
    let kind = if gid.to_ipv4().is_some() { RoceL3Type::Ipv4 } else { RoceL3Type::Ipv6 };
    let mut input = SetRoceAddressIn::new();
    let address = input.set_roce_address_index(index).roce_address_mut();
    address.set_source_l3_address(gid.0).set_roce_version(RoceVersion::Version2).set_roce_l3_type(kind);
    address.set_source_mac_47_32(u16::from_be_bytes([a, b])).set_source_mac_31_0(u32::from_be_bytes(rest));
    let set = Command::new(CommandOpcode::SetRoceAddress, 0, &input);
    commands.run::<_, SetRoceAddressOut>(process, &set).map(drop)
}
