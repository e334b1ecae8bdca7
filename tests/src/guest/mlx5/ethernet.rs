//! The cases for the drivers of Ethernet ports: network devices, IP, RoCE. A wire joins two ports. A third
//! port is at a switch with a network card of the guest, a process on our driver and a second guest.
//!
//! RoCE programs run on both devices in one network namespace, because the RDMA core looks addresses up
//! there. IP runs between two namespaces, because a kernel does not use a wire to send to itself.

use super::cases::{self, Mlx5Case};
use bareverbs_prm::ids::MacAddress;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Chooses the hash function of a network device (ETHTOOL_SRSSH), 1 for Toeplitz and 2 for XOR, and keeps its
/// table and key. Linux before 6.8 refuses the request of the ethtool program, which fills a byte that was
/// reserved then.
const HASH: &str = "import ctypes, fcntl, socket, struct, sys
rxfh = ctypes.create_string_buffer(struct.pack('=IIIIB7x', 0x47, 0, 0xffffffff, 0, int(sys.argv[2])))
request = struct.pack('16sP', sys.argv[1].encode(), ctypes.addressof(rxfh)).ljust(40, b'\\0')
fcntl.ioctl(socket.socket(), 0x8946, request)";

/// IPv4 addresses of the third port, of the second guest's port, and of its network card.
pub(super) const FIRST: [u8; 4] = [10, 8, 0, 1];
pub(super) const SECOND: [u8; 4] = [10, 8, 0, 2];
pub(super) const SECOND_CARD: [u8; 4] = [10, 8, 0, 3];
/// Address of the network card at the third port's switch.
pub(super) const SOFT_ROCE_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 5, 1]);
/// Both ends of a stream of bytes.
const SERVER: &str = "import socket
s = socket.create_server((\"\", 18515))
c = s.accept()[0]
open(\"/tmp/received\", \"wb\").write(b\"\".join(iter(lambda: c.recv(65536), b\"\")))";
const CLIENT: &str = "import socket
socket.create_connection((\"10.9.0.2\", 18515)).sendall(open(\"/tmp/bytes\", \"rb\").read())";
/// Shell functions for all cases. Linux neither answers at a link-local address nor resolves from it until
/// duplicate address detection is over, so `settled` waits for a second or two after the device is up.
const TOOLS: &str = "functions() {
        for d in /sys/bus/pci/devices/*; do [ \"$(cat $d/vendor)\" = 0x15b3 ] && basename $d; done
    }
    netdev() { ls /sys/bus/pci/devices/$1/net 2>/dev/null | head -n 1; }
    roce_v2() { grep -l 'RoCE v2' /sys/class/infiniband/$1/ports/1/gid_attrs/types/* 2>/dev/null |
        sed 's|.*/||' | sort -n | head -n 1; }
    rdmadev() { ls /sys/bus/pci/devices/$1/infiniband 2>/dev/null | head -n 1; }
    within() { for i in $(seq 150); do eval \"$1\" && return 0; sleep 0.2; done; echo \"not within 30 s: $1\"; return 1; }
    active() { for f in $(functions); do
        cat /sys/class/infiniband/$(rdmadev $f)/ports/1/state 2>/dev/null; done | grep -c ACTIVE; }
    bring_up() {
        for f in $(functions); do within \"test -n \\\"\\$(netdev $f)\\\"\" && ip link set $(netdev $f) up || return 1; done
        within \"test \\$(active) = $(functions | wc -l)\"
    }
    settled() { for d in $*; do ip -6 addr show dev $d scope link -tentative | grep -q fe80 || return 1; done; }
    set -- $(functions); near=$(netdev $1) far=$(netdev $2) rdma_near=$(rdmadev $1) rdma_far=$(rdmadev $2)
    rdma_apart=$(rdmadev $3)";
/// Waits until somebody listens at TCP port 18515, in the network namespace of the command `$1`.
const LISTENING: &str = "listening() {
        for i in $(seq 200); do $1 grep -q ':4853 .*:0000 0A ' /proc/net/tcp /proc/net/tcp6 && return 0; sleep 0.2; done
        echo 'the server does not listen'; return 1
    }";

/// All cases, in order.
pub fn all(long: bool) -> Vec<Mlx5Case> {
    let mut cases = vec![probe(), cases::clean("after the probe"), device_info(), addresses()];
    cases.extend(roce(long));
    cases.extend(soft_roce());
    cases.extend(network(long));
    cases.push(cases::clean("after traffic"));
    cases.push(rebind(if long { 20 } else { 2 }));
    cases.push(reload());
    cases.push(reset());
    cases.push(pair("ibv_rc_pingpong -g $gid -n 20 -c", "iters in"));
    cases.push(cases::clean("in the end"));
    cases
}

fn case(name: impl Into<String>, wanted: &'static str, command: &str) -> Mlx5Case {
    Mlx5Case::new(name, wanted, format!("{TOOLS}\n{LISTENING}\n{command}"))
}

fn probe() -> Mlx5Case {
    let command = "modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && bring_up || exit 1
        ip -br link; dmesg | grep 'firmware version'";
    Mlx5Case { set_up: true, ..case("mlx5_core, mlx5e and mlx5_ib probe", "firmware version", command) }
}

fn device_info() -> Mlx5Case {
    case("ibv_devinfo -v", "PORT_ACTIVE", "ibv_devinfo -v")
}

/// Every port has the GID that follows from its MAC address, once for each version of RoCE. Version 1 comes first.
fn addresses() -> Mlx5Case {
    let command = "for d in $rdma_near $rdma_far; do
            for i in 0 1; do
                cat /sys/class/infiniband/$d/ports/1/gids/$i /sys/class/infiniband/$d/ports/1/gid_attrs/types/$i
            done
        done";
    case("RoCE addresses", "IB/RoCE v1", command)
}

/// Programs of rdma-core and perftest, one side on each device. Entry 0 of the GID table is of RoCE version
/// 1.
fn roce(long: bool) -> Vec<Mlx5Case> {
    let many = if long { 5000 } else { 300 };
    let mut cases = vec![
        pair(&format!("ibv_rc_pingpong -g $gid -n {many} -c"), "iters in"),
        pair("ibv_rc_pingpong -g $gid -s 262144 -n 10 -c", "iters in"),
        pair("ibv_rc_pingpong -g $gid -n 50 -e -c", "iters in"),
        pair("ibv_srq_pingpong -g $gid -n 100 -c", "iters in"),
        pair("ibv_ud_pingpong -g $gid -s 1000 -n 100 -c", "iters in"),
        pair("ibv_rc_pingpong -g 0 -s 65536 -n 100 -c", "iters in"),
        pair("ibv_ud_pingpong -g 0 -s 1000 -n 100 -c", "iters in"),
    ];
    for program in ["ib_send_bw -s 4096", "ib_write_bw -s 65536", "ib_read_lat -s 4096", "ib_atomic_lat"] {
        cases.push(pair(&format!("{program} -x $gid -F -n 50 -p 18515"), " 50   "));
    }
    cases
}

fn pair(program: &str, wanted: &'static str) -> Mlx5Case {
    let both = both_sides(program, "$rdma_near", "$rdma_far");
    case(program, wanted, &format!("within 'settled $near $far' || exit 1\n{both}"))
}

/// A program on both devices; `$gid` is the index of each device's entry of RoCE version 2.
fn both_sides(program: &str, server: &str, client: &str) -> String {
    format!(
        "gid=$(roce_v2 {server})
         {program} -d {server} >/tmp/server 2>&1 & server=$!
         gid=$(roce_v2 {client})
         listening && {program} -d {client} 127.0.0.1; client=$?
         [ $client = 0 ] || kill $server
         wait $server; status=$?; cat /tmp/server; exit $((client + status))"
    )
}

/// The third device's switch also has a network card of the guest, on which Linux's Soft-RoCE runs.
fn soft_roce() -> Vec<Mlx5Case> {
    let begin = format!(
        "card=$(basename $(dirname $(grep -l {SOFT_ROCE_MAC} /sys/class/net/*/address)))
         ip link set $card up && modprobe rdma_rxe || exit 1
         [ -e /sys/class/infiniband/rxe0 ] || rdma link add rxe0 type rxe netdev $card || exit 1
         within 'grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state' || exit 1
         within \"settled $card $(netdev $3)\" || exit 1"
    );
    [
        ("ibv_rc_pingpong -g $gid -n 100 -c", "iters in"),
        ("ibv_rc_pingpong -g $gid -s 65536 -n 10 -c", "iters in"),
        ("ib_write_bw -x $gid -F -n 20 -s 16384 -p 18515", " 20   "),
        // perftest asks for as many concurrent READs as the peer offers. Soft-RoCE offers 128, a ConnectX-5
        // 16.
        ("ib_read_lat -x $gid -F -o 16 -n 20 -s 4096 -p 18515", " 20   "),
    ]
    .into_iter()
    .flat_map(|(program, wanted)| {
        [("rxe0", "$rdma_apart"), ("$rdma_apart", "rxe0")].map(|(server, client)| {
            let command = format!("{begin}\n{}", both_sides(program, server, client));
            let side = if client == "rxe0" { "client" } else { "server" };
            case(format!("{program}, Soft-RoCE is {side}"), wanted, &command)
        })
    })
    .collect()
}

/// Prints the names of the third device and of its network device, once that is up.
pub(super) fn apart() -> String {
    format!("{TOOLS}\n bring_up && echo $rdma_apart $(netdev $3)")
}

/// Gives a port the address that the second guest uses. Each device of a guest answers for its own address
/// only.
pub(super) fn meet(netdev: &str) -> String {
    let [a, b, c, d] = FIRST;
    format!("echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore; ip addr replace {a}.{b}.{c}.{d}/24 dev {netdev}")
}

/// Prepares for the suite, which takes the first RDMA device it finds: leaves only mlx5 devices and gives all
/// their ports IPv4 addresses.
pub(super) fn alone() -> String {
    format!(
        "{TOOLS}
         rdma link del rxe0 2>/dev/null
         ip -4 addr flush dev $(netdev $3)
         n=0; for f in $(functions); do
             ip addr replace 10.9.$n.1/24 dev $(netdev $f) && within \"settled $(netdev $f)\" || exit 1; n=$((n + 1))
         done"
    )
}

/// Second guest: loads its drivers, sets its addresses and starts Soft-RoCE on its card.
pub(super) fn second_guest(card: MacAddress) -> Mlx5Case {
    let [mlx5, rxe] = [SECOND, SECOND_CARD].map(Ipv4Addr::from);
    let command = format!(
        "echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
         modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && modprobe rdma_rxe && bring_up || exit 1
         card=$(basename $(dirname $(grep -l {card} /sys/class/net/*/address)))
         ip link set $card up && rdma link add rxe0 type rxe netdev $card || exit 1
         ip addr add {mlx5}/24 dev $near && ip addr add {rxe}/24 dev $card || exit 1
         within 'grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state' || exit 1
         dmesg | grep 'firmware version'"
    );
    case("second guest: probe", "firmware version", &command)
}

/// What ping prints when every packet came back.
const NONE_LOST: &str = " 0% packet loss";

/// IP between two network namespaces. Both network devices leave the first one only while a case runs.
fn network(long: bool) -> Vec<Mlx5Case> {
    let megabytes = if long { 200 } else { 4 };
    let stream = format!("stream {megabytes}");
    [
        ("ping", NONE_LOST, "ping -w 30 -c 5 -i 0.2 10.9.0.2"),
        (
            "ping, IPv6 and its multicast",
            NONE_LOST,
            "ping -w 30 -c 3 -i 0.2 fd09::2 && ping -w 30 -c 1 ff02::1%$near",
        ),
        ("ping with a VLAN tag", NONE_LOST, "tagged && ping -w 30 -c 3 -i 0.2 10.9.5.2"),
        ("ping, jumbo packets", NONE_LOST, "jumbo && ping -w 30 -c 3 -i 0.2 -s 8000 -M do 10.9.0.2"),
        ("TCP stream, bytes compared", "same bytes", &stream),
        ("TCP stream without offloads", "same bytes", "ethtool -K $near tso off tx off rx off && stream 2"),
        ("TCP by iperf3, both ways", "receiver", "tcp -n 2M && tcp -R -n 2M"),
        (
            "UDP by iperf3",
            "datagrams:",
            "tcp -u -b 20M -n 2M >/tmp/udp && cat /tmp/udp && most_came /tmp/udp",
        ),
        ("spreading by another hash", NONE_LOST, "hash_by xor && ping -w 30 -c 3 -i 0.2 10.9.0.2"),
        ("promiscuous and all groups", NONE_LOST, "open_all && ping -w 30 -c 3 -i 0.2 10.9.0.2"),
        ("statistics", "counted:", "ethtool $near && counts_pings"),
    ]
    .into_iter()
    .map(|(name, wanted, command)| between(name, wanted, command))
    .collect()
}

fn between(name: &str, wanted: &'static str, command: &str) -> Mlx5Case {
    let command = format!(
        "inside='ip netns exec far' SERVER='{SERVER}' CLIENT='{CLIENT}' HASH=\"{HASH}\"
         hash_by() {{
             case $(uname -r)-$1 in
                 6.1.*-toeplitz) python3 -c \"$HASH\" $near 1 ;;
                 6.1.*-xor) python3 -c \"$HASH\" $near 2 ;;
                 *) ethtool -X $near hfunc $1 ;;
             esac
         }}
         tagged() {{
             ip link add link $near name near.5 type vlan id 5 && ip addr add 10.9.5.1/24 dev near.5 &&
             ip link set near.5 up && $inside ip link add link $far name far.5 type vlan id 5 &&
             $inside ip addr add 10.9.5.2/24 dev far.5 && $inside ip link set far.5 up
         }}
         jumbo() {{ ip link set $near mtu 9000 && $inside ip link set $far mtu 9000 && sleep 1; }}
         open_all() {{ ethtool -K $near rxvlan off && ip link set $near promisc on && $inside ip link set $far allmulticast on; }}
         stream() {{
             head -c ${{1}}000000 /dev/urandom >/tmp/bytes
             $inside python3 -c \"$SERVER\" & server=$!
             listening \"$inside\" && python3 -c \"$CLIENT\" && wait $server
             cmp /tmp/bytes /tmp/received && echo same bytes
         }}
         tcp() {{
             $inside iperf3 -s -1 -p 18515 >/tmp/server 2>&1 & server=$!
             listening \"$inside\" && iperf3 -c 10.9.0.2 -p 18515 $* && wait $server
         }}
         most_came() {{
             sed -n 's,.* \\([0-9]*\\)/\\([0-9]*\\) (.*receiver *$,\\1 \\2,p' $1 | {{
                 read lost all && [ $all -ge 1000 ] && [ $((lost * 10)) -le $all ] && echo \"datagrams: $lost of $all lost\"
             }}
         }}
         counter() {{ ethtool -S $near | sed -n \"s/^ *$1: //p\"; }}
         counts_pings() {{
             rx=$(counter rx_packets) tx=$(counter tx_packets)
             ping -w 30 -c 3 -i 0.2 10.9.0.2 || return 1
             rx=$(($(counter rx_packets) - rx)) tx=$(($(counter tx_packets) - tx))
             [ $rx -ge 3 ] && [ $tx -ge 3 ] && echo \"counted: $rx packets in and $tx out for 3 pings\"
         }}
         back() {{
             ip link del near.5 2>/dev/null; ip link set $near mtu 1500 promisc off
             ethtool -K $near tso on tx on rx on rxvlan on; hash_by toeplitz
             ip netns del far; ip addr flush dev $near
             within \"ip link set $far mtu 1500 up 2>/dev/null\"
         }}
         ip netns add far && ip link set $far netns far && ip addr add 10.9.0.1/24 dev $near &&
         ip addr add fd09::1/64 dev $near nodad && $inside ip addr add 10.9.0.2/24 dev $far &&
         $inside ip addr add fd09::2/64 dev $far nodad && $inside ip link set lo up &&
         $inside ip link set $far up && within 'ping -c 1 -W 1 10.9.0.2 >/dev/null' && {{ {command}; }}
         status=$?; back >/dev/null 2>&1; exit $status"
    );
    case(name, wanted, &command)
}

fn rebind(times: u32) -> Mlx5Case {
    let command = format!(
        "driver=/sys/bus/pci/drivers/mlx5_core
         for n in $(seq {times}); do
             for f in $(functions); do echo $f >$driver/unbind && echo $f >$driver/bind || exit 1; done
             bring_up || {{ echo \"no active ports after rebind $n\"; exit 1; }}
         done; echo \"$n rebinds\""
    );
    let limit = Duration::from_secs(60 + 40 * u64::from(times));
    Mlx5Case { limit, ..case(format!("rebinds: {times}"), "rebinds", &command) }
}

fn reload() -> Mlx5Case {
    let command = "rdma link del rxe0 2>/dev/null
        modprobe -r mlx5_ib && modprobe -r mlx5_core && modprobe mlx5_core && modprobe mlx5_ib && bring_up || exit 1
        ibv_devinfo";
    case("driver reload", "PORT_ACTIVE", command)
}

/// Without a driver, the kernel resets the function by itself: function-level reset.
fn reset() -> Mlx5Case {
    let command = "driver=/sys/bus/pci/drivers/mlx5_core device=/sys/bus/pci/devices/$1
        echo $1 >$driver/unbind && echo flr >$device/reset_method && echo 1 >$device/reset &&
        echo $1 >$driver/bind && bring_up || exit 1
        ibv_devinfo";
    case("function-level reset", "PORT_ACTIVE", command)
}
