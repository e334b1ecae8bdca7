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
    for i in $(seq 100); do grep -q 'serving tenants at' log && return 0; sleep 0.1; done
    cat log
    return 1
}

# A tenant at the second device looks a key up, by kernel and by READ.
look_up() {
    cd /tmp/service && bareverbs dpu get "$@" --device uverbs:$second --server 127.0.0.1:7471 --tenant owner --key-file owner.key
}

# Both ends of our performance test, the server at the first device.
measure() {
    bareverbs perf "$@" --device uverbs:$first -p 7480 >/tmp/server 2>&1 & server=$!
    for i in $(seq 100); do grep -q 'waiting for the client' /tmp/server && break; sleep 0.1; done
    bareverbs perf "$@" --device uverbs:$second -p 7480 127.0.0.1 && wait $server
    status=$?
    cat /tmp/server
    return $status
}

# Whether a process has ended. Nobody may have asked for its status: its parent, a shell, is gone.
has_ended() {
    state=$(sed 's/.*) //; s/ .*//' /proc/$1/stat 2>/dev/null)
    [ -z "$state" ] || [ "$state" = Z ]
}

# Ends the service with a signal, and waits until it is gone.
end_service() {
    pid=$(cat /tmp/service/pid)
    kill -$1 $pid && for i in $(seq 100); do has_ended $pid && return 0; sleep 0.1; done
    cat /tmp/service/log
    return 1
}
