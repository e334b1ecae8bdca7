//! The rules, in the order in which to fix problems. A rule is a pure function of the facts. If another rule already
//! reports the cause, a rule stays silent, so that one fault gives one finding.

mod counters;
mod finding;
mod gid;
mod host;
mod port;

use super::facts::Facts;

pub(super) use finding::Outcome;
pub use finding::Severity;
pub(super) use gid::suits;

/// A rule with its outcome.
pub(super) type Judged = (&'static Rule, Outcome);

/// A rule, with the texts for `bareverbs explain`.
pub struct Rule {
    /// Stable name.
    pub id: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What to look at.
    pub compare: &'static str,
    /// What to do.
    pub attempt: &'static str,
    judge: fn(&Facts) -> Outcome,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Judges facts by every rule.
pub(super) fn judge(facts: &Facts) -> Vec<Judged> {
    RULES.iter().map(|rule| (rule, (rule.judge)(facts))).collect()
}

macro_rules! rules {
    ($($id:literal, $judge:expr; $means:literal, $compare:literal, $attempt:literal;)*) => {
        /// Every rule, in order.
        pub const RULES: &[Rule] = &[
            $(Rule { id: $id, means: $means, compare: $compare, attempt: $attempt, judge: $judge },)*
        ];
    };
}

rules! {
    "host.device-id", host::device_id;
        "the PCI function is not one that this driver runs on", "vendor and device id against `bareverbs vfio list`", "choose another device";
    "host.driver", host::driver;
        "a driver of the kernel has the function, or none; user space needs vfio-pci", "/sys/bus/pci/devices/BDF/driver",
        "sudo modprobe vfio-pci; sudo bareverbs vfio bind BDF";
    "host.iommu", host::iommu;
        "there is no IOMMU, or the function is in none of its groups; without an IOMMU, VFIO does not give a device to a program",
        "/sys/kernel/iommu_groups; VT-d or AMD-Vi in the setup of the machine; the kernel's command line",
        "switch the IOMMU on: intel_iommu=on, or without amd_iommu=off";
    "host.iommu-group", host::iommu_group;
        "kernel drivers are bound to other functions of the IOMMU group, so VFIO cannot give the group to a program",
        "/sys/kernel/iommu_groups/N/devices", "bind the others to vfio-pci too, or use another slot";
    "host.permission", host::permission;
        "this process may not open the files of VFIO", "owner and mode of /dev/vfio", "chown the file, or run as root";
    "host.memlock", host::memlock;
        "a device reaches only locked memory, and this process may not lock enough of it (containers often have a limit of 8 MiB)",
        "ulimit -l against the memory that the program registers",
        "ulimit -l unlimited; LimitMEMLOCK=infinity for systemd; --ulimit memlock=-1 for docker";
    "host.hugepages", host::hugepages;
        "there are not enough huge pages, so the device needs more translations", "/sys/kernel/mm/hugepages", "reserve huge pages";
    "host.pcie-link", host::pcie_link;
        "the slot runs slower or narrower than the card and the slot support", "current_link_speed and current_link_width in sysfs against max_",
        "another slot, or reseat the card; check the bifurcation setting of the machine";
    "container.no-netdev", host::container_without_netdev;
        "the RDMA device is in this container, but the network interface of its GIDs is not: its GID table is empty or useless here",
        "/sys/class/infiniband/DEVICE/ports/1/gid_attrs/ndevs against /sys/class/net",
        "give the container the interface too (SR-IOV CNI, or host networking)";
    "container.foreign-address", host::container_of_another_address;
        "no GID of the device is an address of this network namespace: the addresses belong to another \
         interface than the container's (macvlan, ipvlan, multus)",
        "GIDs against `ip address`", "attach the interface of the RDMA device itself, and put the address on it";
    "device.unreachable", port::unreachable;
        "the function is bound correctly, but VFIO refuses to open it", "dmesg | grep -i vfio", "bareverbs vfio check BDF";
    "firmware.not-ready", port::firmware_not_ready;
        "firmware did not say that it was ready", "initializing bit of the initialization segment; health buffer",
        "wait and try again; reset the slot; power the machine off and on; burn the firmware again";
    "device.open", port::open_failed;
        "a step of bringing the device up failed", "the step and the status of the command", "bareverbs explain STATUS";
    "firmware.health", port::health;
        "firmware reports that something is broken", "syndrome of the health buffer", "reset the device; update the firmware";
    "port.link-type", port::link_type;
        "one end of the cable speaks InfiniBand and the other Ethernet: both poll for ever and are PORT_DOWN",
        "link layers of both ends; LINK_TYPE_P1 in mstconfig query",
        "mstconfig -d BDF set LINK_TYPE_P1=2 for Ethernet or =1 for InfiniBand, then mstfwreset -d BDF reset";
    "port.disabled", port::disabled;
        "software has switched the port off", "admin_status of register PAOS", "ip link set IF up; or let the driver bring it up";
    "port.polling", port::polling;
        "nothing answers at the other end of the cable: no cable is plugged in, it is broken, or the other end has another link layer",
        "cable and module; link layers, speeds and error correction of both ends; LINK_TYPE_P1",
        "plug the cable in; compare link layers: mstconfig -d BDF query LINK_TYPE_P1";
    "port.no-sm", port::no_subnet_manager;
        "the InfiniBand link is up, but no subnet manager has given the port a LID and made it active", "state INIT or ARMED, sm_lid 0",
        "start a subnet manager on the fabric: opensm, or the one of a managed switch";
    "port.slow", port::slow;
        "the link came up slower than the port is capable of", "speed in force against the fastest of both ends", "the right cable; auto-negotiation at both ends";
    "pkey.ends", port::partition;
        "the ports have no partition in common of which at least one of them is a full member (IBTA v1.4 §10.9.3)",
        "P_Key tables of both ends, bit 15 of each key", "let the subnet manager put both into one partition: partitions.conf of opensm";
    "gid.empty", gid::empty;
        "the port has no GID at all", "the RoCE address table", "give the interface an address: ip address add";
    "gid.link-local", gid::link_local;
        "only one of the two ends has addresses beyond its link", "GIDs of both ends", "give both an IP address in one network";
    "gid.family", gid::family;
        "one end has IPv4 addresses and the other IPv6: no packet of RoCEv2 carries both (A17.4.3)", "GIDs of both ends",
        "give both an address of the same family";
    "gid.version", gid::version;
        "the ends speak different versions of RoCE, which cannot talk to each other (A17.8)", "types of the GIDs at both ends: bareverbs gids, show_gids",
        "use GID indices of the same version at both ends; RoCEv2 if in doubt";
    "gid.vlan", gid::vlan;
        "the addresses of both ends belong to different VLANs", "VLANs of the GIDs at both ends, and of the ports of the switch",
        "use GIDs of one VLAN: each VLAN has its own entries";
    "gid.no-route", gid::no_route;
        "the peer is in none of the networks of the port", "lengths of the networks; ip route get PEER", "--routed if a router forwards; otherwise an address in the peer's network";
    "mtu.ends", port::mtu_of_both_ends;
        "the ports have different MTUs: packets that fit one end are dropped at the other, and small messages work while large ones time out",
        "port_mtu of both ends and of the switch between them", "the same MTU everywhere: ip link set IF mtu 9000";
    "mtu.small", port::small_mtu;
        "packets carry less than they could", "active_mtu against 4096", "an MTU of 4200 bytes or more at both ends and at the switch gives packets of 4096";
    "flow.pause-off", port::pause_off;
        "nothing tells senders to wait: a full buffer drops frames, and RoCE then resends everything from the first lost packet on",
        "register PFCC (mlnx_qos, dcb pfc show), the switch, and ROCE_CC_PRIO_MASK_P1 for ECN",
        "switch priority flow control on for the priority of RoCE at both ends and at the switch, or ECN";
    "flow.ecn-off", port::marks_off;
        "senders are not slowed down by marks of a switch (ECN, DCQCN): loss, or a pause, is the first sign of congestion",
        "QUERY_CONG_STATUS (/sys/class/net/IF/ecn/roce_rp/enable and roce_np/enable), ROCE_CC_PRIO_MASK_P1, the thresholds of the switch",
        "switch ECN on for the priority of RoCE at both ends and at the switches, or use priority flow control alone";
    "counters.retransmission", counters::retransmission;
        "so many packets were sent again that it costs throughput", "out_of_sequence, packet_seq_err, local_ack_timeout_err of both ends",
        "find where packets are dropped: counters of the switch, rx_prioN_discards, cable";
    "counters.loss-unmarked", counters::unmarked_loss;
        "packets are lost, and neither a congestion mark nor a pause frame ever came: PFC and ECN are off somewhere on the way",
        "np_ecn_marked_roce_packets, rp_cnp_handled, rx_prioN_pause", "switch ECN marking or PFC on at the switch, for the priority that RoCE has";
    "counters.not-ready", counters::not_ready;
        "receivers often have nothing posted, and senders wait and repeat", "out_of_buffer, rnr_nak_retry_err", "post more receives, or poll faster";
    "counters.fault", counters::fault;
        "requests, receives or keys were wrong", "the counters that the evidence names", "bareverbs explain the status of the first completion that failed";
    "counters.link", counters::link;
        "the cable or its ends corrupt bits, or the link went down", "the counters that the evidence names, at both ends", "clean or replace the cable";
    "counters.discard", counters::discard;
        "buffers were full and frames were dropped", "rx_prioN_discards, port_xmit_discards", "flow control for the priority of RoCE";
    "counters.paused", counters::paused;
        "a sender was told to wait", "pause counters of both ends", "find the slow receiver";
    "counters.congestion", counters::congestion;
        "queues of the fabric grow", "np_ecn_marked_roce_packets, rp_cnp_handled", "spread the load";
}
