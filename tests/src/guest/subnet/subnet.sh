# Two InfiniBand ports of one guest, and its programs of infiniband-diags: shell functions for the judge's
# cases.
near=mlx5_0 far=mlx5_1

within() { for i in $(seq 150); do eval "$1" && return 0; sleep 0.2; done; echo "not within 30 s: $1"; return 1; }

bring_up() {
    modprobe -a mlx5_core mlx5_ib ib_uverbs ib_umad || return 1
    within "test \$(cat /sys/class/infiniband/*/ports/1/state 2>/dev/null | grep -c ACTIVE) = 2" || return 1
    printf near >/sys/class/infiniband/$near/node_desc && printf far >/sys/class/infiniband/$far/node_desc || return 1
    grep . /sys/class/infiniband/*/ports/1/state
}

# Prints a command's output, and how many of its lines contain a word.
counted() {
    word=$1; shift
    "$@" >/tmp/counted 2>&1; status=$?
    cat /tmp/counted
    echo "lines with $word: $(grep -c "$word" /tmp/counted)"
    return $status
}

# Runs a command while a server runs that is ready once `$1` succeeds. Then kills the server.
served_by() {
    server=$1 ready=$2; shift 2
    $server >/tmp/server 2>&1 & pid=$!
    within "$ready" && "$@"; status=$?
    kill $pid 2>/dev/null; wait $pid 2>/dev/null
    return $status
}

# The value of a counter in the output of perfquery.
value() { sed -n "s/^$1:\.*//p" /tmp/$2; }
# How much a counter rose between two outputs.
rise() { echo $(($(value $1 after) - $(value $1 before))); }

# Reads the counters of a port twice (its LID, and its number if it is not 1). The second reading includes the
# management datagrams of the first, each of 288 bytes without the variant CRC, and those of the manager's
# sweeps. All counters are in words of 4 bytes and in packets.
counters_rise() {
    perfquery -x $1 ${2:-1} >/tmp/before && perfquery -x $1 ${2:-1} >/tmp/after || return 1
    for way in Rcv Xmit; do
        packets=$(rise Port${way}Pkts) words=$(rise Port${way}Data)
        echo "$way: $packets packets, $words words"
        [ $packets -ge 2 ] && [ $packets -le 200 ] && [ $words = $((packets * 72)) ] || return 1
    done
    echo "as many words as packets have"
}

# Counters are read and cleared, and are then lower than before: the second reading counts itself and the
# manager's queries since.
counters_clear() {
    perfquery $1 -r $2 1 >/tmp/before && perfquery $1 $2 1 >/tmp/after || return 1
    before=$(value PortRcvPkts before) after=$(value PortRcvPkts after)
    echo "PortRcvPkts: $before, then $after"
    [ $after -ge 1 ] && [ $after -lt $before ] && [ $after -le 200 ] && echo "lower than before"
}

# IPoIB's interfaces join the groups of the subnet. Without -C, saquery queries any active port, even in a
# subnet that has lost its manager.
join_groups() {
    modprobe ib_ipoib || return 1
    for device in $near $far; do
        within "ls /sys/class/infiniband/$device/device/net/* >/dev/null 2>&1" || return 1
        ip link set $(ls /sys/class/infiniband/$device/device/net | head -n 1) up || return 1
    done
    within "test \$(saquery -C \$near --smkey 1 -m | grep -A 1 'Mlid\.*0xC000\$' | grep -c 'PortGid\.*fe80:') = 2"
}

# Runs a libibumad program that queries the SA.
administration() { timeout 110 python3 $(dirname $functions)/administration.py "$@"; }

# Runs a flow of osmtest at the near port. Prints its last lines if it fails.
osmtests() {
    flow=$1; shift
    OSM_TMP_DIR=/tmp timeout 110 osmtest -f $flow -g $(port_guid $near) -i /tmp/inventory -t 300 "$@" >/tmp/osmtest 2>&1 && grep TEST /tmp/osmtest && return
    tail -n 40 /tmp/osmtest; false
}
