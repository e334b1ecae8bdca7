# IP over InfiniBand and RDMA CM between the guest's two ports: shell functions for the judge's cases.
# `subnet.sh` is sourced before.
#
# Each interface is in its own network namespace, because a kernel does not send to itself over a wire. All
# namespaces see the RDMA devices.
near_ip=10.44.0.1 far_ip=10.44.0.2 near_ip6=fd44::1 far_ip6=fd44::2 group=239.44.0.9 group6=ff15::44:9
shared=$(dirname $functions)

at() { namespace=$1; shift; ip netns exec $namespace "$@"; }
carrier() { at $1 ip link show ${1}0 | grep -q LOWER_UP; }
settled() { test -z "$(at $1 ip -6 addr show dev ${1}0 tentative)"; }

# Creates interface near0 in the namespace near, and far0 in far, with addresses of both families.
ipoib_up() {
    join_groups && modprobe rdma_ucm || return 1
    for end in near far; do
        [ $end = near ] && device=$near || device=$far
        interface=$(ls /sys/class/infiniband/$device/device/net | head -n 1)
        ip netns add $end && ip link set $interface down && ip link set $interface name ${end}0 netns $end || return 1
        at $end ip link set lo up && interface_up $end || return 1
        at $end ip addr show ${end}0
    done
}
interface_up() {
    [ $1 = near ] && address=$near_ip address6=$near_ip6 || address=$far_ip address6=$far_ip6
    at $1 ip link set ${1}0 up && within "carrier $1" && at $1 ip addr replace $address/24 dev ${1}0 &&
        at $1 ip addr replace $address6/64 dev ${1}0 && within "settled $1"
}

# Forgets the neighbour, pings the far interface, and shows the neighbour.
ping_far() {
    address=$1; shift
    at near ip neigh flush dev near0
    at near ping -W 5 "$@" $address || return 1
    at near ip neigh show $address
}

# Sends bytes both ways and compares them; see ipoib.py.
transfer() { timeout 90 python3 $shared/ipoib.py "$@"; }

# iperf3 transfers a file to the far interface, or with -R from there, and both files are compared. In the first
# direction iperf3 ends when everything is sent, and the server does not read data that is still in flight, up
# to a MiB; that much may be missing at the end.
carry_file() {
    head -c 16M /dev/urandom >/tmp/sent; rm -f /tmp/received
    [ "$2" = -R ] && served=/tmp/sent taken=/tmp/received || served=/tmp/received taken=/tmp/sent
    at far timeout 60 iperf3 -s -1 -F $served >/tmp/server 2>&1 & pid=$!
    within "at far ss -ltn | grep -q :5201" && at near timeout 60 iperf3 -t 6 -c $1 $2 -F $taken && wait $pid || return 1
    length=$(stat -c %s /tmp/received)
    [ $length -ge $((14 << 20)) ] && cmp -n $length /tmp/sent /tmp/received && echo "more than 14 MiB are the same"
}
# iperf3's datagrams, at a rate that the guest's processors can handle.
datagrams() {
    at far timeout 60 iperf3 -s -1 >/tmp/server 2>&1 & pid=$!
    within "at far ss -ltn | grep -q :5201" && at near timeout 60 iperf3 -u -b 4M -n 1M -c $1 $2 && wait $pid
}

# Connected mode, and back: a queue pair for each neighbour, packets of up to 64 KiB.
connected() {
    for end in near far; do at $end sh -c "echo connected >/sys/class/net/${end}0/mode && ip link set ${end}0 mtu 65520" || return 1; done
    at near ping -W 5 -c 10 -i 0.1 -M do -s 60000 $far_ip && at near ping -W 5 -c 10 -i 0.1 -M do -s 60000 $far_ip6 &&
        transfer tcp $near_ip $far_ip 16 && transfer tcp $near_ip6 $far_ip6 16; status=$?
    for end in near far; do at $end sh -c "echo datagram >/sys/class/net/${end}0/mode; grep . /sys/class/net/${end}0/mode /sys/class/net/${end}0/mtu"; done
    return $status
}

# Moves bytes while the command runs three times.
over() {
    transfer tcp $near_ip $far_ip 64 >/tmp/transfer 2>&1 & pid=$!
    sleep 0.7
    "$@" && kill -0 $pid && "$@" && "$@" || return 1
    wait $pid; status=$?
    cat /tmp/transfer
    return $status
}
# Takes the port with a LID down. The manager brings it up again, and IPoIB joins its groups anew.
retrain() {
    ibportstate -C $near $1 1 down | grep -q 'LinkState:\.*Initialize' && within "ibportstate -C $near $1 1 query | grep -q 'LinkState:\.*Active'" && within "carrier far"
}
blink() { at far ip link set far0 down && sleep 0.3 && interface_up far; }

# A pair of RDMA CM programs: `$1` at the far interface, the rest at the near one. Both must succeed.
rdma_pair() {
    server=$1; shift
    at far timeout 60 $server >/tmp/server 2>&1 & pid=$!
    within "rdma resource show cm_id | grep -qE 'LISTEN|comm mckey'" && at near timeout 60 "$@" >/tmp/client 2>&1; client=$?
    wait $pid; server=$?
    cat /tmp/client
    [ $client = 0 ] && [ $server = 0 ] || { echo "client $client, server $server: $(cat /tmp/server)"; return 1; }
    echo "both ends succeed"
}
