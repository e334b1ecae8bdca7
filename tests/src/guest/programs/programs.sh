# Programs of other projects between two ports of one guest: shell functions for the judge's cases. `ports.sh`
# is sourced before.
rdma_far=$(rdmadev $(functions | sed -n 2p))
near_address6=fd0a::1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=/tmp HOME=/tmp
export UCX_LOG_LEVEL=warn UCX_IB_GID_INDEX=auto

# Whether somebody listens at a TCP port.
listens() { within "ss -ltn | grep -q ':$1 '"; }

# mpirun with every second rank at the far port. (Debian's OpenMPI 5.0.7 crashes if a command has several
# parts.)
on_ports() {
    count=$1; shift
    mpirun --map-by :OVERSUBSCRIBE -np $count "$@"
}
rank='test $((OMPI_COMM_WORLD_RANK % 2)) = 0 && port=$1 || port=$2; shift 2; UCX_NET_DEVICES=$port:1 exec "$@"'

# A transport of UCX, and the datagrams that reliable transports use for setup.
transports() { case $1 in rc_*) echo $1,ud_${1#rc_}:aux ;; *) echo $1 ;; esac; }

# UCX's benchmark between both ports; the ranks coordinate over OpenMPI's own TCP.
ucx_between() {
    export UCX_TLS=$(transports $1) OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp; shift
    on_ports 2 sh -c "$rank" rank $rdma_near $rdma_far ucx_perftest "$@"
}

# Four ranks of OpenMPI over UCX. Ranks on the same port use the same transport: no shared memory.
mpi_between() {
    export UCX_TLS=$(transports $1),self OMPI_MCA_pml=ucx OMPI_MCA_osc=ucx
    on_ports 4 sh -c "$rank" rank $rdma_near $rdma_far python3 $2
}

# libfabric's ping-pong through RDMA CM; `-c` compares what arrives.
fabric_between() {
    fi_pingpong -p "$1" -e $2 -c -I 20 -S all >/tmp/server 2>&1 & server=$!
    listens 47592 && fi_pingpong -p "$1" -e $2 -c -I 20 -S all $far_address; client=$?
    [ $client = 0 ] || kill $server
    wait $server; status=$?
    [ $status = 0 ] || cat /tmp/server
    return $((client + status))
}

# All verbs tests of qperf, with RDMA CM.
qperf_between() {
    qperf >/dev/null 2>&1 & server=$!
    listens 19765 && qperf -cm 1 -t 1 $far_address "$@" >/tmp/results; status=$?
    kill $server
    cat /tmp/results
    [ $status = 0 ] && echo "$(grep -cE '(bw|latency|msg_rate) *= ' /tmp/results) results"
}

# The route to a host of `bareverbs run` at the switch, through the near port: $1 is its IPv4 address, $2 its
# IPv6 address.
meet_host() {
    modprobe rdma_ucm && ip route replace $1 dev $near src $near_address && ip addr replace $near_address6/64 dev $near nodad &&
        ip -6 route get $2 | grep -q "dev $near" && within "grep -q ^fd0a: /sys/class/infiniband/$rdma_near/ports/1/gids/*"
}
# Whether somebody listens at an RDMA CM port.
listens_by_cm() { within "rdma resource show cm_id | grep LISTEN | grep -q ':$1 '"; }

# Polls testpmd's packet counts until one of its ports has a burst, and two seconds more; half a minute at most.
until_packets() {
    for _ in $(seq 30); do
        sleep 1
        printf 'show port stats all\n'
        sleep 0.2
        grep -qE 'RX-packets: ([3-9][0-9]|[0-9]{3,})' /tmp/testpmd && break
    done
    sleep 2
}

# The kernel keeps its network devices beside testpmd, and its own packets would circulate with testpmd's.
keep_quiet() {
    for f in $(functions); do
        echo 1 >/proc/sys/net/ipv6/conf/$(netdev $f)/disable_ipv6
        ip link set $(netdev $f) arp off
    done
}

# testpmd drives both ports from one core: `commands` are for its prompt, the rest are command line options.
# Packets that it sends first circulate between both ports until it stops.
testpmd() {
    commands=$1; shift
    keep_quiet
    echo 256 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
    mkdir -p /tmp/huge && { mountpoint -q /tmp/huge || mount -t hugetlbfs hugetlbfs /tmp/huge; } || return 1
    set -- -l 0-1 $(functions | head -n 2 | sed 's/.*/-a &,dv_flow_en=0/') -- -i --total-num-mbufs=16384 --rxd=256 "$@"
    { sleep 2; printf "$commands\nstart tx_first\n"; until_packets; printf 'stop\nquit\n'; } |
        dpdk-testpmd --huge-dir /tmp/huge "$@" >/tmp/testpmd 2>&1; status=$?
    if [ $status != 0 ] || grep -iE 'error|bad arguments|fail' /tmp/testpmd | grep -qvE '[RT]X-errors: 0\b'; then
        echo "testpmd ended with $status; what it said:"
        tail -n 60 /tmp/testpmd
        return 1
    fi
}
# Packets that a port has received, and those of one of its queues.
rx() { sed -n "/Forward statistics for port $1 /,/TX-packets/s/.*RX-packets: \([0-9]*\).*/\1/p" /tmp/testpmd | head -n 1; }
queue_rx() {
    count=$(sed -n "/RX Port= $1.Queue= $2 /,/TX-packets/s/.*RX-packets: \([0-9]*\).*/\1/p" /tmp/testpmd | head -n 1)
    echo ${count:-0}
}
# Succeeds if a shell condition holds; otherwise prints testpmd's output.
counts() { eval "[ $1 ]" && echo "counted: $(rx 0) and $(rx 1) packets received" || { tail -n 60 /tmp/testpmd; return 1; }; }

# Snabb's driver owns both ports from the start.
snabb_selftest() {
    echo 256 >/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
    set -- $1 $(functions)
    cp $1 /tmp/snabb && chmod +x /tmp/snabb || return 1
    SNABB_PCI_CONNECTX_0=$2 SNABB_PCI_CONNECTX_1=$3 /tmp/snabb snsh -t apps.mellanox.connectx
}
