//! The device and its port.

use super::finding::{Outcome, bad, note, warning};
use crate::doctor::facts::{EndFacts, Facts, LinkLayer, Opening, Physical, PortFacts, State};

const NOT_OPEN: &str = "the device was not opened";
const NO_PEER: &str = "--peer FILE names what `bareverbs doctor --json` printed at the other end";
/// Payload of the largest packet.
const LARGEST_PACKET: u32 = 4096;

pub(super) fn unreachable(facts: &Facts) -> Outcome {
    match &facts.opening {
        Opening::NotTried => Outcome::NotAsked(NOT_OPEN),
        // A check of the machine already says why.
        Opening::Unreachable(_) if host_is_in_the_way(facts) => Outcome::Silent,
        Opening::Unreachable(error) => Outcome::Fires(bad(error, "sudo dmesg | grep -i vfio")),
        _ => Outcome::Silent,
    }
}

fn host_is_in_the_way(facts: &Facts) -> bool {
    use bareverbs_hal::pci::State as Check;
    facts.preflight.iter().flatten().any(|finding| finding.state == Check::Bad)
}

pub(super) fn firmware_not_ready(facts: &Facts) -> Outcome {
    match &facts.opening {
        Opening::NotTried | Opening::Unreachable(_) => Outcome::NotAsked(NOT_OPEN),
        Opening::NotReady(error) => Outcome::Fires(bad(
            error,
            "wait and try again; then reset the slot (echo 1 | sudo tee /sys/bus/pci/devices/BDF/reset), power the machine off and on, \
             or burn the firmware again",
        )),
        _ => Outcome::Silent,
    }
}

pub(super) fn open_failed(facts: &Facts) -> Outcome {
    match &facts.opening {
        Opening::NotTried | Opening::Unreachable(_) => Outcome::NotAsked(NOT_OPEN),
        Opening::Failed(error) => Outcome::Fires(bad(
            error,
            "look the status up with bareverbs explain; reset the device and try again",
        )),
        _ => Outcome::Silent,
    }
}

pub(super) fn health(facts: &Facts) -> Outcome {
    match &facts.opening {
        Opening::Open(device) if facts.of_kernel && device.fault.is_none() => {
            Outcome::NotAsked("the kernel watches the health of its device (`devlink health`)")
        }
        Opening::Open(device) => Outcome::of(device.fault.as_ref().map(|fault| {
            bad(
                fault,
                "reset the device (echo 1 | sudo tee /sys/bus/pci/devices/BDF/reset); update the firmware",
            )
        })),
        _ => Outcome::NotAsked(NOT_OPEN),
    }
}

fn port(facts: &Facts) -> Option<&PortFacts> {
    facts.port()?.port.as_ref()
}

fn peer_port(facts: &Facts) -> Option<&PortFacts> {
    facts.peer.as_ref()?.port.as_ref()
}

/// Whether the ends are known to have different link layers.
fn different_layers(facts: &Facts) -> bool {
    let layers = [port(facts), peer_port(facts)].map(|port| port.map(|port| port.link_layer));
    matches!(layers, [Some(own), Some(peer)] if own != peer)
}

/// The value of LINK_TYPE_P1 for a link layer.
const fn link_type_name(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::InfiniBand => "IB(1)",
        LinkLayer::Ethernet => "ETH(2)",
    }
}

/// The name of the card for mstconfig. A simulated or remote device has none on this machine.
fn card(facts: &Facts) -> &str {
    facts.selector.as_deref().filter(|_| facts.preflight.is_some()).unwrap_or("BDF")
}

fn link_type_cure(facts: &Facts, wanted: LinkLayer) -> String {
    let number = match wanted {
        LinkLayer::InfiniBand => 1,
        LinkLayer::Ethernet => 2,
    };
    let device = card(facts);
    format!(
        "mstconfig -d {device} set LINK_TYPE_P1={number}, then mstfwreset -d {device} reset (or power the machine off and on)"
    )
}

pub(super) fn link_type(facts: &Facts) -> Outcome {
    let Some(own) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let Some(peer) = peer_port(facts) else { return Outcome::NotAsked(NO_PEER) };
    Outcome::of(different_layers(facts).then(|| {
        bad(
            format!(
                "this port is {} (LINK_TYPE_P1={}) and the peer's is {}: neither understands the other, and both are PORT_DOWN and poll",
                own.link_layer,
                link_type_name(own.link_layer),
                peer.link_layer
            ),
            format!("{}; or the other way round at the peer", link_type_cure(facts, peer.link_layer)),
        )
    }))
}

pub(super) fn disabled(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let off = port.state == State::Down && port.physical == Physical::Disabled;
    Outcome::of(off.then(|| {
        bad(
            "the port is PORT_DOWN and Disabled: software has switched it off",
            "switch it on: ip link set IF up while the kernel has the device, or KEEP_ETH_LINK_UP_P1=True in mstconfig",
        )
    }))
}

pub(super) fn polling(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let down = port.state == State::Down && port.physical != Physical::Disabled;
    if !down || different_layers(facts) {
        return Outcome::Silent;
    }
    let other = match port.link_layer {
        LinkLayer::InfiniBand => LinkLayer::Ethernet,
        LinkLayer::Ethernet => LinkLayer::InfiniBand,
    };
    let doing =
        if port.physical == Physical::Training { "never stops negotiating the speed" } else { "polls" };
    Outcome::Fires(bad(
        format!(
            "the {} port is PORT_DOWN and {doing}: nothing that speaks {} is at the other end",
            port.link_layer, port.link_layer
        ),
        format!(
            "plug the cable in and bring the other end up; if the other end is {other}: {}",
            link_type_cure(facts, other)
        ),
    ))
}

pub(super) fn no_subnet_manager(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    if port.link_layer == LinkLayer::Ethernet {
        return Outcome::NotAsked("Ethernet has no subnet manager");
    }
    let waiting = match port.state {
        State::Initialize => Some("PORT_INIT"),
        State::Armed => Some("PORT_ARMED"),
        _ => None,
    };
    Outcome::of(waiting.map(|state| {
        bad(
            format!("the link is up and the port is {state}, LID {:#06x}, subnet manager at LID {:#06x}", port.lid, port.sm_lid),
            "start a subnet manager on the fabric: systemctl start opensm on one host, or that of a managed switch",
        )
    }))
}

pub(super) fn slow(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let (Some(rate), Some(fastest)) = (port.rate_mbps, port.fastest_mbps) else {
        return Outcome::NotAsked("the port has no link, or does not report both speeds");
    };
    Outcome::of((rate < fastest).then(|| {
        warning(
            format!("the link runs at {rate} Mbit/s and the port is capable of {fastest} Mbit/s"),
            "use a cable and a switch port of that speed, and auto-negotiation at both ends",
        )
    }))
}

/// Whether packets with one key are accepted with the other: the same partition, and not both limited members
/// (IBTA v1.4 §10.9.3).
fn in_one_partition(own: u16, peer: u16) -> bool {
    const FULL: u16 = 0x8000;
    own & !FULL == peer & !FULL && (own | peer) & FULL != 0
}

pub(super) fn partition(facts: &Facts) -> Outcome {
    let (Some(own), Some(peer)) = (facts.port(), &facts.peer) else {
        return Outcome::NotAsked(if facts.peer.is_none() { NO_PEER } else { NOT_OPEN });
    };
    if [own, peer].iter().any(|end: &&EndFacts| end.partition_keys.is_empty()) {
        return Outcome::NotAsked("no P_Key table is known of one of the ends");
    }
    let common = own
        .partition_keys
        .iter()
        .any(|key| peer.partition_keys.iter().any(|other| in_one_partition(*key, *other)));
    let keys = |end: &EndFacts| {
        end.partition_keys.iter().map(|key| format!("{key:#06x}")).collect::<Vec<_>>().join(", ")
    };
    Outcome::of((!common).then(|| {
        bad(
            format!("the P_Keys of this port are {}, those of the peer {}: no partition has both, one of them as a full member", keys(own), keys(peer)),
            "put both ports into one partition at the subnet manager (partitions.conf of opensm: Default=0x7fff, ipoib: ALL=full;)",
        )
    }))
}

pub(super) fn mtu_of_both_ends(facts: &Facts) -> Outcome {
    let Some(own) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let Some(peer) = peer_port(facts) else { return Outcome::NotAsked(NO_PEER) };
    if different_layers(facts) {
        return Outcome::NotAsked("the ends have different link layers");
    }
    let smaller = own.port_mtu.min(peer.port_mtu);
    Outcome::of((own.port_mtu != peer.port_mtu).then(|| {
        warning(
            format!(
                "the MTU is {} bytes here (packets of {}) and {} bytes at the peer (packets of {})",
                own.port_mtu, own.active_mtu, peer.port_mtu, peer.active_mtu
            ),
            format!(
                "set the same MTU at both ends and at the switch, or a path MTU of {} at both ends of each connection (an MTU of {smaller} carries it)",
                own.active_mtu.min(peer.active_mtu)
            ),
        )
    }))
}

pub(super) fn small_mtu(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let Some(largest) = port.port_max_mtu else {
        return Outcome::NotAsked(
            "the kernel does not report the largest MTU of its port (`ip -details link` does)",
        );
    };
    let small = port.active_mtu < LARGEST_PACKET && largest > port.port_mtu;
    Outcome::of(small.then(|| {
        note(
            format!(
                "packets carry {} bytes: the MTU is {} bytes and could be {largest}",
                port.active_mtu, port.port_mtu
            ),
            "ip link set IF mtu 9000 at both ends, and the same at the switch: packets of 4096 bytes",
        )
    }))
}

pub(super) fn marks_off(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    let device = card(facts);
    match port.congestion_control {
        None => Outcome::NotAsked("InfiniBand has marks of its own, or the device does not report this"),
        Some(true) => Outcome::Silent,
        Some(false) => Outcome::Fires(note(
            "congestion control by marks (ECN) is off for every priority (QUERY_CONG_STATUS): a switch may \
             not mark packets of this port, or marked packets cause no notification",
            format!(
                "echo 1 | sudo tee /sys/class/net/IF/ecn/roce_rp/enable/3 /sys/class/net/IF/ecn/roce_np/enable/3 while the kernel has the \
                 device, or mstconfig -d {device} set ROCE_CC_PRIO_MASK_P1=255 and a reset; and marks at the switch"
            ),
        )),
    }
}

pub(super) fn pause_off(facts: &Facts) -> Outcome {
    let Some(port) = port(facts) else { return Outcome::NotAsked(NOT_OPEN) };
    match port.flow_control {
        None => Outcome::NotAsked(
            "InfiniBand has credits, or the kernel keeps register PFCC to itself (`ethtool --show-pause`, `dcb pfc show`)",
        ),
        Some(true) => Outcome::Silent,
        Some(false) => Outcome::Fires(note(
            "neither pause frames nor priority flow control are on at this port (register PFCC)",
            "mlnx_qos -i IF --pfc 0,0,0,1,0,0,0,0 (or dcb pfc set dev IF prio-pfc 3:on) at both ends and the same at the switch; or ECN there",
        )),
    }
}
