//! What is known of a device: named values in sections, so that text, JSON and comparison show the same.

use super::fact::{Fact, Section};
use super::flags;
use super::limits::limits;
use super::pages::Pages;
use crate::place::{DeviceTask, KernelView};
use bareverbs_core::capabilities::Capabilities;
use bareverbs_core::command::CommandError;
use bareverbs_core::congestion_control::CongestionControl;
use bareverbs_core::error_correction::{ErrorCorrection, ErrorCorrectionError, FecModes};
use bareverbs_core::flow_control::FlowControl;
use bareverbs_core::hal::Hal;
use bareverbs_core::port::{PortAttributes, PortManagement, PortState};
use bareverbs_core::port_link::{LinkSpeed, PortLink};
use bareverbs_core::{Device, identity::DeviceIdentity};
use bareverbs_prm::numbering::{PathMtu, PortType};
use bareverbs_prm::pci::PciIdentity;
use serde_json::Value;

/// Asks a device for everything.
pub(super) struct Gather {
    /// What the kernel says, if it owns the device.
    pub(super) kernel: Option<KernelView>,
}

impl DeviceTask for Gather {
    type Output = Vec<Section>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Vec<Section>, CommandError> {
        gather(device, self.kernel.as_ref())
    }
}

fn gather<H: Hal>(device: &Device<H>, kernel: Option<&KernelView>) -> Result<Vec<Section>, CommandError> {
    let pages = Pages::query(device, kernel.map(|view| view.general))?;
    let capabilities = device.capabilities();
    let mut sections = vec![
        Section { name: "device", facts: identity(device, &device.identity()?, kernel.is_some()) },
        Section { name: "port", facts: port(device, kernel)? },
        Section { name: "limits", facts: limits(&pages, capabilities) },
        Section { name: "used by the driver", facts: used(capabilities) },
    ];
    sections.extend(pages.sections());
    Ok(sections)
}

/// Why a device of the kernel does not tell what stands in its initialization segment.
const SEGMENT: &str = "the kernel owns the initialization segment";

fn identity<H: Hal>(device: &Device<H>, identity: &DeviceIdentity, of_kernel: bool) -> Vec<Fact> {
    let DeviceIdentity { guids, board, .. } = identity;
    let pci = device.hal().pci_identity();
    let of_pci = |number: fn(PciIdentity) -> u16| pci.map_or(Value::Null, |pci| number(pci).into());
    vec![
        Fact::new("fw_ver", identity.firmware.to_string()),
        match of_kernel {
            true => Fact::unknown("cmd_interface_rev", SEGMENT),
            false => Fact::new("cmd_interface_rev", identity.command_interface),
        },
        Fact::new("vendor_id", format!("{:#06x}", identity.vendor)),
        Fact::new("vendor_part_id", of_pci(|pci| pci.device)),
        Fact::new("hw_ver", of_pci(|pci| pci.revision.into()))
            .shown(pci.map_or("-".to_owned(), |pci| format!("{:#x}", pci.revision))),
        Fact::new("board_id", board.text().map_or(Value::Null, Into::into)),
        Fact::new("node_guid", guid(guids.node)).own(),
        Fact::new("sys_image_guid", guid(guids.system_image)).own(),
        Fact::new("phys_port_cnt", device.capabilities().ports),
        match of_kernel {
            true => Fact::unknown(
                "health",
                format!("{SEGMENT}, and watches the health in it; `devlink health` shows its reports"),
            ),
            false => Fact::new("health", device.health().to_string()),
        },
    ]
}

/// As `ibv_devinfo` writes it: four groups of four digits.
fn guid(guid: u64) -> String {
    let groups = [48, 32, 16, 0].map(|shift| format!("{:04x}", guid >> shift & 0xffff));
    groups.join(":")
}

/// The port and its link. The kernel passes no register on, and answers itself.
fn port_and_link<H: Hal>(
    device: &Device<H>,
    kernel: Option<&KernelView>,
) -> Result<(PortAttributes, PortLink), CommandError> {
    let port = device.port()?;
    Ok(match kernel {
        None => (port, device.port_link()?),
        Some(view) => view.describe(port),
    })
}

/// Why a value of a register is not known, and what else shows it.
fn kept(name: &str, register: &str, instead: &str) -> Fact {
    Fact::unknown(name, kept_reason(register, instead))
}

fn kept_reason(register: &str, instead: &str) -> String {
    format!("this value is in register {register}, which the kernel does not pass on; {instead}")
}

fn port<H: Hal>(device: &Device<H>, kernel: Option<&KernelView>) -> Result<Vec<Fact>, CommandError> {
    let (port, link) = port_and_link(device, kernel)?;
    let ethernet = port.link_layer == PortType::Ethernet;
    let mut facts = vec![
        Fact::new("state", state_number(port.state)).shown(state(port.state)),
        Fact::new("phys_state", link.physical.to_string()),
        Fact::new("link_layer", if ethernet { "Ethernet" } else { "InfiniBand" }),
    ];
    facts.extend(speeds(&link, kernel));
    facts.extend(sizes(&port, kernel));
    facts.push(Fact::new("port_guid", guid(device.identity()?.guids.port)).own());
    facts.push(if ethernet {
        Fact::new("mac", port.mac.to_string()).own()
    } else {
        let gid = kernel.map_or_else(|| device.infiniband_gid(0), |view| Ok(view.gid))?;
        Fact::new("gid", gid.to_string()).own()
    });
    facts.push(Fact::new("sm_lid", port.subnet_manager_lid).own());
    facts.push(Fact::new("port_lid", port.lid).own());
    facts.push(Fact::new("port_lmc", port.lmc));
    let lanes = match (ethernet, kernel) {
        (true, _) => None,
        (false, Some(view)) => view.virtual_lanes,
        (false, None) => Some(device.virtual_lanes()?),
    };
    facts.push(Fact::new("max_vl_num", lanes));
    let management = device.port_management()?;
    facts.extend(flags::port(&management, port.link_layer, device.capabilities().roce));
    facts.extend(managed(&management));
    facts.extend(match (kernel, device.error_correction()) {
        (Some(_), Err(ErrorCorrectionError::Command(_))) => {
            no_error_correction(&kept_reason("PPLM", "`ethtool --show-fec` shows the mode"))
        }
        (_, Ok(correction)) => error_correction(&correction),
        (None, Err(ErrorCorrectionError::Command(error))) => return Err(error),
        (_, Err(reason)) => no_error_correction(&reason.to_string()),
    });
    facts.extend(match (ethernet, kernel) {
        (false, _) => Vec::new(),
        (true, None) => pauses(&device.flow_control()?).into(),
        (true, Some(_)) => Vec::from(
            UNKNOWN_PAUSES
                .map(|name| kept(name, "PFCC", "`ethtool --show-pause` and `dcb pfc show` show it")),
        ),
    });
    if ethernet && device.capabilities().congestion_query {
        facts.extend(marks(&device.congestion_control()?));
    }
    Ok(facts)
}

/// What the subnet manager set, and what its agents count.
fn managed(management: &PortManagement) -> [Fact; 5] {
    [
        Fact::new("sm_sl", management.subnet_manager_service_level).own(),
        Fact::new("subnet_timeout", management.subnet_timeout).own(),
        Fact::new("init_type_reply", management.init_type_reply).own(),
        Fact::new("bad_pkey_cntr", management.partition_key_violations).own(),
        Fact::new("qkey_viol_cntr", management.queue_key_violations).own(),
    ]
}

/// What corrects errors on the cable (register PPLM), with `mlxlink`'s names.
fn error_correction(correction: &ErrorCorrection) -> [Fact; 4] {
    let modes = |name: &str, modes: FecModes, none: &str| {
        let names: Vec<String> = modes.iter().map(|mode| mode.to_string()).collect();
        let text = if names.is_empty() { none.to_owned() } else { names.join(", ") };
        Fact::new(name, names).shown(text)
    };
    let (active, reason) = match correction.active {
        Some(mode) => (mode.to_string().into(), Value::Null),
        None => (Value::Null, "there is no link".into()),
    };
    [
        Fact::new("fec", active),
        Fact::new("fec_reason", reason),
        modes("fec_supported", correction.supported, "none"),
        modes("fec_requested", correction.requested, "automatic"),
    ]
}

fn no_error_correction(reason: &str) -> [Fact; 4] {
    [
        Fact::new("fec", Value::Null),
        Fact::new("fec_reason", reason),
        Fact::new("fec_supported", Value::Null),
        Fact::new("fec_requested", Value::Null),
    ]
}

/// The facts of [`pauses`].
const UNKNOWN_PAUSES: [&str; 4] = ["pause_sent", "pause_obeyed", "pfc_sent", "pfc_obeyed"];

/// What holds senders back (register PFCC).
fn pauses(control: &FlowControl) -> [Fact; 4] {
    [
        Fact::new("pause_sent", control.pause_sent),
        Fact::new("pause_obeyed", control.pause_received),
        priorities("pfc_sent", control.priorities_sent),
        priorities("pfc_obeyed", control.priorities_received),
    ]
}

/// Whom marks of a switch slow down (QUERY_CONG_STATUS), under the names that Linux has in sysfs.
fn marks(control: &CongestionControl) -> [Fact; 2] {
    [priorities("ecn_roce_rp", control.reacts), priorities("ecn_roce_np", control.notifies)]
}

/// The priorities of a mask.
fn priorities(name: &str, mask: u8) -> Fact {
    let of_mask: Vec<u8> = (0..8).filter(|priority| mask >> priority & 1 == 1).collect();
    let text = match mask {
        0 => "off".to_owned(),
        u8::MAX => "every priority".to_owned(),
        _ => format!("priorities {}", of_mask.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")),
    };
    Fact::new(name, of_mask).shown(text)
}

fn speeds(link: &PortLink, kernel: Option<&KernelView>) -> [Fact; 4] {
    let megabits = |speed: Option<LinkSpeed>| speed.map_or(Value::Null, |speed| speed.megabits.into());
    let words =
        |speed: Option<LinkSpeed>, none: &str| speed.map_or(none.to_owned(), |speed| speed.to_string());
    let lane = |speed: LinkSpeed| speed.megabits / u32::from(speed.lanes);
    [
        Fact::new("rate_mbps", megabits(link.speed)).shown(words(link.speed, "no link")),
        Fact::new("active_width", link.speed.map_or(Value::Null, |speed| speed.lanes.into()))
            .shown(link.speed.map_or("-".to_owned(), |speed| format!("{}X", speed.lanes))),
        Fact::new("active_speed_mbps", link.speed.map_or(Value::Null, |speed| lane(speed).into()))
            .shown(link.speed.map_or("-".to_owned(), |speed| format!("{} Mbit/s a lane", lane(speed)))),
        match kernel {
            Some(_) => kept("fastest_mbps", "PTYS", "`ethtool` shows it"),
            None => Fact::new("fastest_mbps", megabits(link.fastest)).shown(words(link.fastest, "unknown")),
        },
    ]
}

fn sizes(port: &PortAttributes, kernel: Option<&KernelView>) -> [Fact; 4] {
    let path = |name: &str, mtu: PathMtu| {
        // The number n stands for 128 × 2^n bytes.
        let bytes = 128_u32 << mtu.raw();
        Fact::new(name, bytes).shown(format!("{bytes} ({})", mtu.raw()))
    };
    [
        path("max_mtu", kernel.map_or_else(|| port.max_path_mtu(), |view| view.max_mtu)),
        path("active_mtu", port.active_mtu),
        Fact::new("port_mtu", port.operational_mtu).shown(format!("{} bytes", port.operational_mtu)),
        match kernel {
            Some(_) => kept("port_max_mtu", "PMTU", "`ip -details link` shows that of the interface"),
            None => Fact::new("port_max_mtu", port.max_mtu).shown(format!("{} bytes", port.max_mtu)),
        },
    ]
}

/// Numbers of `enum ibv_port_state`.
fn state_number(state: PortState) -> Value {
    match state {
        PortState::Down => 1.into(),
        PortState::Initialize => 2.into(),
        PortState::Armed => 3.into(),
        PortState::Active => 4.into(),
        PortState::Follow | PortState::Unknown(_) => Value::Null,
    }
}

fn state(state: PortState) -> String {
    match state {
        PortState::Down => "PORT_DOWN (1)".to_owned(),
        PortState::Initialize => "PORT_INIT (2): waiting for the subnet manager".to_owned(),
        PortState::Armed => "PORT_ARMED (3)".to_owned(),
        PortState::Active => "PORT_ACTIVE (4)".to_owned(),
        PortState::Follow | PortState::Unknown(_) => state.to_string(),
    }
}

/// What this driver makes of the device.
fn used(capabilities: &Capabilities) -> Vec<Fact> {
    let (first, last) = capabilities.roce_source_ports;
    vec![
        Fact::new("roce_v1", capabilities.roce_v1),
        Fact::new("roce_v2", capabilities.roce_v2),
        Fact::new("roce_addresses", capabilities.roce_addresses),
        Fact::new("roce_source_ports", format!("{first}-{last}")),
        Fact::new("atomics", capabilities.atomics),
        Fact::new("masked_atomics", capabilities.masked_atomics),
        Fact::new("memory_windows", capabilities.memory_windows),
        Fact::new("max_key_list", capabilities.max_key_list),
        Fact::new("relaxed_ordering", capabilities.relaxed_ordering),
        Fact::new("xrc", capabilities.xrc),
        Fact::new("congestion_query", capabilities.congestion_query),
        Fact::new("blue_flame", capabilities.blue_flame),
        Fact::new("completion_compression", capabilities.completion_compression),
        Fact::new("completion_moderation", capabilities.completion_moderation),
        Fact::new("completion_queue_resize", capabilities.completion_queue_resize),
        Fact::new("counter_sets", capabilities.counter_sets),
    ]
}
