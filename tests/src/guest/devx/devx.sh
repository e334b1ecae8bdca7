# Two devices that the guest's mlx5_ib owns, and our command beside it: shell functions for the judge's cases.
# `bareverbs` and `uverbs_loopback` lie in $programs.
install_programs() {
    mkdir -p /tmp/bin && for p in bareverbs uverbs_loopback; do cp $programs/$p /tmp/bin && chmod +x /tmp/bin/$p || return 1; done
}
export PATH=/tmp/bin:$PATH

# Their names, in the order of their functions.
first=$(ls /sys/class/infiniband | sed -n 1p) second=$(ls /sys/class/infiniband | sed -n 2p)
netdev_of() { ls /sys/class/infiniband/$1/device/net | head -n 1; }

# Brings both links up, and waits until the kernel has made RoCE addresses of them.
ready() {
    for d in $first $second; do ip link set $(netdev_of $d) up || return 1; done
    for i in $(seq 150); do
        n=0
        for d in $first $second; do grep -q fe80 /sys/class/infiniband/$d/ports/1/gids/1 && n=$((n + 1)); done
        [ $n = 2 ] && echo "2 ports with addresses" && return 0
        sleep 0.2
    done
    return 1
}

# A service with fifty rows at the first device.
serve() {
    mkdir -p /tmp/service && cd /tmp/service && umask 077 || return 1
    printf '%064d' 7 >owner.key
    cat >dpu.toml <<CONFIG
listen = "127.0.0.1:7471"
device = "uverbs:$first"
[table]
demo_rows = 50
[[tenant]]
name = "owner"
key_file = "owner.key"
read = true
deploy = true
CONFIG
    bareverbs dpu serve --config dpu.toml >log 2>&1 & echo $! >pid
    logged log 'serving tenants at'
}

# Waits until a service or its companion has logged something.
logged() {
    for i in $(seq 100); do grep -q "$2" $1 && return 0; sleep 0.1; done
    cat $1
    return 1
}

# A service on the Arm cores of the card, which the second device is of. Its table is what the host shares.
serve_on_arm() {
    mkdir -p /tmp/arm && cd /tmp/arm && umask 077 || return 1
    printf '%064d' 7 >owner.key
    printf '%064d' 8 >host.key
    cat >dpu.toml <<CONFIG
listen = "127.0.0.1:7472"
device = "uverbs:$second"
[limits]
time_us = 10_000_000
[table]
shared_by = "host"
[[tenant]]
name = "host"
key_file = "host.key"
[[tenant]]
name = "owner"
key_file = "owner.key"
CONFIG
    bareverbs dpu serve --config dpu.toml >log 2>&1 & echo $! >pid
    logged log 'serving tenants at'
}

# The companion at the host's device, the first one, shares rows of its memory.
share() {
    cd /tmp/arm && : >host.log && printf "$1" >rows.csv || return 1
    bareverbs dpu host --device uverbs:$first --server 127.0.0.1:7472 --tenant host --key-file host.key --data rows.csv >host.log 2>&1 &
    echo $! >host.pid
    logged host.log 'the table is shared'
}

# A tenant at the host's device looks a key up in what the host shares.
look_up_shared() {
    cd /tmp/arm && bareverbs dpu get "$@" --way kernel --device uverbs:$first --server 127.0.0.1:7472 --tenant owner --key-file owner.key
}

# A tenant at the second device looks a key up, by kernel and by READ.
look_up() {
    cd /tmp/service && bareverbs dpu get "$@" --device uverbs:$second --server 127.0.0.1:7471 --tenant owner --key-file owner.key
}

# Both ends of our performance test, the server at the first device. The client runs where `at` says.
at= to=127.0.0.1
measure() {
    bareverbs perf "$@" --device uverbs:$first -p 7480 >/tmp/server 2>&1 & server=$!
    for i in $(seq 100); do grep -q 'waiting for the client' /tmp/server && break; sleep 0.1; done
    $at bareverbs perf "$@" --device uverbs:$second -p 7480 $to && wait $server
    status=$?
    cat /tmp/server
    return $status
}

# Gives both interfaces an address of IPv4, the second one in a network namespace of its own. In one namespace nobody would answer ARP: Linux
# drops requests from an address of its own.
near_address=10.9.0.1 far_address=10.9.0.2
separate() {
    far=$(netdev_of $second)
    ip netns add far && ip link set $far netns far && ip netns exec far ip addr add $far_address/24 dev $far &&
        ip netns exec far ip link set $far up && ip addr add $near_address/24 dev $(netdev_of $first) || return 1
    for i in $(seq 150); do
        [ -n "$(gid_index $first $near_address)" ] && [ -n "$(gid_index $second $far_address)" ] && return 0
        sleep 0.2
    done
    return 1
}

# Index of the RoCEv2 entry with an address of IPv4.
gid_index() {
    port=/sys/class/infiniband/$1/ports/1
    wanted=$(printf 'ffff:%02x%02x:%02x%02x' $(echo $2 | tr . ' '))
    for i in $(seq 0 15); do
        grep -q "$wanted" $port/gids/$i && grep -q 'RoCE v2' $port/gid_attrs/types/$i 2>/dev/null && echo $i && return 0
    done
}

# Whether a process has ended. Nobody may have asked for its status: its parent, a shell, is gone.
has_ended() {
    state=$(sed 's/.*) //; s/ .*//' /proc/$1/stat 2>/dev/null)
    [ -z "$state" ] || [ "$state" = Z ]
}

# Ends a service, or with another file a companion, with a signal, and waits until it is gone.
end_service() {
    pid=$(cat ${2:-/tmp/service/pid})
    kill -$1 $pid && for i in $(seq 100); do has_ended $pid && return 0; sleep 0.1; done
    cat $(dirname ${2:-/tmp/service/pid})/log
    return 1
}
