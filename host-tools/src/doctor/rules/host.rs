//! The machine: binding, IOMMU, memory, slot, containers.

use super::finding::{Found, Outcome, Severity, bad, warning};
use crate::doctor::facts::{Facts, KernelPort, SlotFacts, ip_of, is_link_local};
use bareverbs_hal::pci::{Check, State};

const NO_FUNCTION: &str = "the device is not a PCI function of this machine";

/// The result of one check of `bareverbs vfio check`.
fn preflight(facts: &Facts, check: Check) -> Outcome {
    let Some(checks) = &facts.preflight else { return Outcome::NotAsked(NO_FUNCTION) };
    let Some(finding) = checks.iter().find(|finding| finding.check == check) else {
        return Outcome::NotAsked("it was not looked at");
    };
    let severity = match finding.state {
        State::Good => return Outcome::Silent,
        State::Warning => Severity::Warning,
        State::Bad => Severity::Bad,
    };
    let fix = finding.repair.clone().unwrap_or_default();
    Outcome::Fires(Found { severity, evidence: finding.seen.clone(), fix })
}

pub(super) fn device_id(facts: &Facts) -> Outcome {
    preflight(facts, Check::DeviceId)
}

pub(super) fn driver(facts: &Facts) -> Outcome {
    preflight(facts, Check::Driver)
}

pub(super) fn iommu(facts: &Facts) -> Outcome {
    preflight(facts, Check::Iommu)
}

pub(super) fn iommu_group(facts: &Facts) -> Outcome {
    preflight(facts, Check::Group)
}

pub(super) fn permission(facts: &Facts) -> Outcome {
    preflight(facts, Check::Permission)
}

pub(super) fn memlock(facts: &Facts) -> Outcome {
    preflight(facts, Check::LockedMemory)
}

pub(super) fn hugepages(facts: &Facts) -> Outcome {
    preflight(facts, Check::HugePages)
}

pub(super) fn pcie_link(facts: &Facts) -> Outcome {
    let Some(slot) = &facts.slot else { return Outcome::NotAsked("sysfs does not report the slot's speed") };
    let SlotFacts { speed, fastest, width, widest } = slot;
    let slow = speed != fastest || width < widest;
    Outcome::of(slow.then(|| {
        warning(
            format!("the slot runs at {speed} with {width} lanes; the card has {fastest} with {widest}"),
            "move the card to a slot of that speed and width, or reseat it; check the bifurcation setting of the machine",
        )
    }))
}

/// Ports of the kernel's RoCE devices.
fn roce(facts: &Facts) -> Option<impl Iterator<Item = &KernelPort>> {
    let mut ports = facts.kernel.iter().filter(|port| port.ethernet).peekable();
    ports.peek()?;
    Some(ports)
}

const NO_KERNEL_DEVICE: &str = "the kernel has no RoCE device here";

pub(super) fn container_without_netdev(facts: &Facts) -> Outcome {
    let Some(mut ports) = roce(facts) else { return Outcome::NotAsked(NO_KERNEL_DEVICE) };
    Outcome::of(ports.find(|port| port.present.is_empty()).map(|port| {
        let KernelPort { device, port: number, gids, interfaces, .. } = port;
        let evidence = if gids.is_empty() {
            format!("{device} is here and the GID table of its port {number} is empty")
        } else {
            format!(
                "{device} is here with {} GIDs of {}, and this network namespace has no such interface",
                gids.len(),
                if interfaces.is_empty() { "no interface".to_owned() } else { interfaces.join(", ") }
            )
        };
        bad(evidence, format!("give the container the network interface of {device} too: the SR-IOV CNI with rdma isolation, or host networking"))
    }))
}

pub(super) fn container_of_another_address(facts: &Facts) -> Outcome {
    let Some(mut ports) = roce(facts) else { return Outcome::NotAsked(NO_KERNEL_DEVICE) };
    let foreign = |port: &&KernelPort| {
        let routable = || port.gids.iter().filter(|gid| !is_link_local(**gid));
        !port.present.is_empty()
            && routable().next().is_some()
            && !routable().any(|gid| facts.own_addresses.contains(&ip_of(*gid)))
    };
    Outcome::of(ports.find(foreign).map(|port| {
        let list = |addresses: Vec<String>| addresses.join(", ");
        let gids = list(port.gids.iter().map(|gid| ip_of(*gid).to_string()).collect());
        let own = list(facts.own_addresses.iter().map(ToString::to_string).collect());
        bad(
            format!("the GIDs of {} are {gids}; the addresses of this network namespace are {own}", port.device),
            format!(
                "attach the interface of {} itself to the container and put the address on it; macvlan and ipvlan interfaces have no GIDs of their own",
                port.device
            ),
        )
    }))
}
