//! IP over InfiniBand and RDMA CM between the guest's ports, whose IPoIB interfaces each have a network
//! namespace.

use super::built::{BuiltPort, BuiltSubnet};
use super::row::DiagnosticRow;
use bareverbs_sim::net::MANAGER_LID;

/// The shell functions that the cases are made of, and a program that opens sockets at both ports.
pub(super) const FILES: &[(&str, &str)] =
    &[("ipoib.sh", include_str!("ipoib.sh")), ("ipoib.py", include_str!("ipoib.py"))];

/// All cases, in order.
pub(super) fn all(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let mut rows = vec![DiagnosticRow { is_needed: true, ..interfaces(built) }];
    rows.extend(pings(built));
    rows.extend(transfers());
    rows.extend(changes(built));
    rows.push(reports());
    rows.extend(connections());
    rows
}

/// A case made of the functions of `ipoib.sh`.
pub(super) fn row<const COUNT: usize>(
    name: &'static str,
    command: &str,
    wanted: [String; COUNT],
) -> DiagnosticRow {
    DiagnosticRow::new(name, format!(". $(dirname $functions)/ipoib.sh\n{command}"), wanted)
}

fn said<const COUNT: usize>(name: &'static str, command: &str, wanted: [&str; COUNT]) -> DiagnosticRow {
    row(name, command, wanted.map(str::to_owned))
}

/// The GID in the hardware address of a port's interface, as `ip` shows it.
fn hardware_gid(port: &BuiltPort) -> String {
    let bytes = (0xfe80_u128 << 112 | u128::from(port.guid)).to_be_bytes();
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn interfaces(built: &BuiltSubnet) -> DiagnosticRow {
    row(
        "IPoIB interfaces of both ports",
        "ipoib_up",
        [
            "<BROADCAST,MULTICAST,UP,LOWER_UP> mtu 2044".to_owned(),
            format!(
                "{} brd 00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
                hardware_gid(&built.near)
            ),
            hardware_gid(&built.far),
            "inet 10.44.0.1/24".to_owned(),
            "inet6 fd44::2/64".to_owned(),
        ],
    )
}

/// Pings, with the neighbour found by ARP or by neighbour discovery.
fn pings(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let all = "20 packets transmitted, 20 received, 0% packet loss".to_owned();
    let ping = |name, options: &str| {
        row(name, &format!("ping_far {options} -c 20 -i 0.05"), [all.clone(), hardware_gid(&built.far)])
    };
    vec![
        ping("IPoIB ping", "$far_ip"),
        ping("IPoIB ping of the largest packet", "$far_ip -M do -s 2016"),
        ping("IPoIB ping of ten fragments", "$far_ip -s 20000"),
        ping("IPoIB ping of IPv6", "$far_ip6"),
        ping("IPoIB ping of IPv6's largest packet", "$far_ip6 -M do -s 1996"),
        ping("IPoIB ping of ten IPv6 fragments", "$far_ip6 -s 19000"),
    ]
}

/// Transfers whose bytes both ends compare.
fn transfers() -> Vec<DiagnosticRow> {
    let same = "more than 14 MiB are the same";
    vec![
        said("IPoIB TCP", "transfer tcp $near_ip $far_ip 16", ["TCP: 16 MiB each way are the same"]),
        said(
            "IPoIB TCP over IPv6",
            "transfer tcp $near_ip6 $far_ip6 16",
            ["TCP: 16 MiB each way are the same"],
        ),
        said("IPoIB UDP", "transfer udp $near_ip $far_ip 300", ["UDP: 300 datagrams each way are the same"]),
        said(
            "IPoIB UDP over IPv6",
            "transfer udp $near_ip6 $far_ip6 300",
            ["UDP: 300 datagrams each way are the same"],
        ),
        said(
            "IPoIB multicast",
            "transfer multicast $near_ip $group 200",
            ["multicast: 200 datagrams are the same"],
        ),
        said(
            "IPoIB multicast over IPv6",
            "transfer multicast $near_ip6 $group6 200",
            ["multicast: 200 datagrams are the same"],
        ),
        said("IPoIB iperf3", "carry_file $far_ip", [same]),
        said("IPoIB iperf3 back", "carry_file $far_ip -R", [same]),
        said("IPoIB iperf3 over IPv6", "carry_file $far_ip6", [same]),
        said("IPoIB iperf3 of datagrams", "datagrams $far_ip", ["(0%) receiver"]),
        said("IPoIB iperf3 of datagrams back", "datagrams $far_ip -R", ["(0%) receiver"]),
        said(
            "IPoIB offloads that the device does not have",
            "at near ethtool -k near0",
            [
                "tx-checksum-ip-generic: off [fixed]",
                "tx-tcp-segmentation: off [fixed]",
                "rx-checksumming: off [fixed]",
            ],
        ),
    ]
}

/// Other modes, and changes of ports and interfaces while bytes move.
fn changes(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let same = "TCP: 64 MiB each way are the same";
    vec![
        said(
            "IPoIB connected mode",
            "connected",
            [
                "10 packets transmitted, 10 received, 0% packet loss",
                "TCP: 16 MiB each way are the same",
                "/sys/class/net/near0/mode:datagram",
                "/sys/class/net/near0/mtu:2044",
            ],
        ),
        row(
            "IPoIB TCP while the port is trained anew",
            &format!("over retrain {}", built.far.lid),
            [same.to_owned()],
        ),
        said("IPoIB TCP while the interface goes down", "over blink", [same]),
        row(
            "IPoIB neighbours afterwards",
            "ping_far $far_ip -c 20 -i 0.05 && ping_far $far_ip6 -c 20 -i 0.05",
            ["20 packets transmitted, 20 received, 0% packet loss".to_owned(), hardware_gid(&built.far)],
        ),
    ]
}

/// Reports of groups that are deleted and created again while an IPoIB interface goes down and up.
fn reports() -> DiagnosticRow {
    let command = format!(
        "administration reports $near {MANAGER_LID} 66,67 \"functions=$functions; . $functions; . $shared/ipoib.sh; blink\""
    );
    row(
        "groups that end and are made anew are reported",
        &command,
        ["every event was reported, and none without a subscription".to_owned()],
    )
}

/// Programs of librdmacm, and perftest with RDMA CM.
fn connections() -> Vec<DiagnosticRow> {
    let good = "both ends succeed";
    vec![
        said(
            "IPoIB addresses: rping",
            "rdma_pair \"rping -s -V -a $far_ip -C 20\" rping -c -V -a $far_ip -I $near_ip -C 20",
            [good],
        ),
        said(
            "IPoIB addresses: rping by IPv6",
            "rdma_pair \"rping -s -V -a $far_ip6 -C 20\" rping -c -V -a $far_ip6 -I $near_ip6 -C 20",
            [good],
        ),
        said(
            "IPoIB addresses: ucmatose",
            "rdma_pair \"ucmatose -b $far_ip -c 4\" ucmatose -s $far_ip -b $near_ip -c 4",
            [good, "data transfers complete"],
        ),
        said(
            "IPoIB addresses: udaddy",
            "rdma_pair \"udaddy -b $far_ip -c 4\" udaddy -s $far_ip -b $near_ip -c 4",
            [good, "data transfers complete"],
        ),
        said(
            "IPoIB addresses: mckey",
            "rdma_pair \"mckey -m $group -b $far_ip\" sh -c \"sleep 3; mckey -m $group -b $near_ip -s\"",
            [good, "data transfers complete"],
        ),
        said(
            "IPoIB addresses: ib_write_bw -R",
            "rdma_pair \"ib_write_bw -R -d $far -n 200\" ib_write_bw -R -d $near -n 200 $far_ip",
            [good, "rdma_cm QPs : ON", "65536 200"],
        ),
        said(
            "IPoIB addresses: ib_read_lat -R",
            "rdma_pair \"ib_read_lat -R -d $far -n 200\" ib_read_lat -R -d $near -n 200 $far_ip",
            [good, "rdma_cm QPs : ON"],
        ),
        said(
            "IPoIB addresses: ib_send_lat -R of datagrams",
            "rdma_pair \"ib_send_lat -R -c UD -d $far -n 200\" ib_send_lat -R -c UD -d $near -n 200 $far_ip",
            [good, "rdma_cm QPs : ON"],
        ),
    ]
}
