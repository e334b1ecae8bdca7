
# Runs OpenSM at the guest's ports. Each instance has a name, and a directory with its log and its process ID.
lone=mlx5_2 other=mlx5_3

port_guid() { printf '%#x\n' 0x$(cut -d : -f 5- /sys/class/infiniband/$1/ports/1/gids/0 | tr -d :); }

# Queries the master often, to keep the rows short.
opensm_config() {
    printf '%s\n' 'force_log_flush TRUE' 'log_flags 0x03' 'sminfo_polling_timeout 1000' 'polling_retry_number 2'
    test -z "$1" || echo "partition_config_file $1"
}

# Starts an instance at the port of a device, with a priority and optionally a partition file. Keeps its
# previous log separately.
opensm_start() {
    at=/tmp/opensm.$1 && mkdir -p $at && cat $at/log >>/tmp/opensm.past 2>/dev/null
    rm -f $at/log && opensm_config $4 >$at/conf || return 1
    OSM_TMP_DIR=$at OSM_CACHE_DIR=$at opensm -F $at/conf -g $(port_guid $2) -p $3 -f $at/log >$at/output 2>&1 &
    echo $! >$at/process
}
opensm_has() { within "grep -qs '$2' /tmp/opensm.$1/log" || { cat /tmp/opensm.$1/log; return 1; }; }
opensm_masters() { opensm_start "$@" && opensm_has $1 'SUBNET UP'; }
# An instance has ended when it no longer runs, even if nobody has collected its status.
#
# From then on until the built-in manager has taken over, nobody administers the subnet. If IPoIB meanwhile
# sends a Set to the dead instance's port, the kernel there refuses it, because it has no agent for the class
# any more (`generate_unmatched_resp`, status 0x000c), and IPoIB warns that a join failed with -22. Marks in the
# kernel's log delimit that time.
opensm_end() {
    process=$(cat /tmp/opensm.$1/process)
    if [ $1 = near ]; then touch /tmp/unadministered && echo '<4>judge: nobody administers' >/dev/kmsg; fi
    kill -s $2 $process && within "! grep -q '^State:.[^ZX]' /proc/$process/status 2>/dev/null"
}

# Checks that the master that a port queries has this GUID and answers.
master_is() { within "sminfo -C $1 -t 200 2>&1 | grep 'sm guid $2,.*SMINFO_MASTER'" && administered; }
# The other port may learn a moment later who the new master is.
administered() {
    test -e /tmp/unadministered || return 0
    sleep 1 && rm /tmp/unadministered && echo '<4>judge: administered again' >/dev/kmsg
}
built_in_masters() { master_is $near $built_in; }

# Prints the errors in all logs of OpenSM, each with the next line, and checks that there were logs. Four errors
# are expected. Nobody answers OpenSM's own trap 144 (class 1, method 5, attribute 2: errors 5410 and 3113),
# with which it announces itself to the master as a standby, because mlx5_ib keeps every TrapRepress for the
# device. Packets between limited members of partition 2 are refused, which ports report with trap 257 and
# switches with trap 259; OpenSM logs these, and trap 144 of another OpenSM, in the same way. The kernel of a
# port whose OpenSM was killed answers SMInfo queries itself: the method is not supported there (status 0xC).
# And an instance that was told to end logs what it receives meanwhile.
opensm_errors() {
    grep -h -q 'SUBNET UP' /tmp/opensm.*/log || { echo "no log says that a subnet came up"; return 1; }
    bad=$(cat /tmp/opensm.past /tmp/opensm.*/log | grep -A 1 -E ' 0x01 -> |ERR ' |
        grep -vE '^--$|ERR 3113: .*\(IB_TIMEOUT\): SubnTrap\(Notice\)|num:144 \(|num:25[79] \(Bad P_Key|Bad P_Key:0x2 on|since we are exiting' |
        sed -e '/ERR 5410: .*(IB_TIMEOUT)/{N;/Class 0x1, Method 0x5, Attr 0x2,/d}' -e '/ERR 3111: .*status = 0xC/{N;/SMInfo/d}')
    ! echo "$bad" | grep -qE ' 0x01 -> |ERR ' && echo "no error in $(cat /tmp/opensm.past /tmp/opensm.*/log | wc -l) lines" || { echo "$bad"; false; }
}

# Runs RDMA WRITEs between two ports for $3 seconds while commands change the master. The transfer must not end
# before them, neither end may see an error, and no port may be reported down.
written_while() {
    from=$1 to=$2 seconds=$3; shift 3
    for device in $from $to; do stdbuf -oL ibv_asyncwatch -d $device >/tmp/events.$device 2>&1 & echo $!; done >/tmp/watchers
    ib_write_bw -d $to -D $seconds -F >/tmp/written.server 2>&1 & server=$!
    within "ss -Hltn | grep -q :18515" || return 1
    ib_write_bw -d $from -D $seconds -F 127.0.0.1 >/tmp/written 2>&1 & client=$!
    sleep 1; "$@"; status=$?
    kill -0 $client 2>/dev/null || { echo "the transfer ended too early"; status=1; }
    wait $client || { echo "the requester failed"; status=1; }
    wait $server || { echo "the responder failed"; status=1; }
    kill $(cat /tmp/watchers)
    grep -h event_type /tmp/events.$from /tmp/events.$to | sort | uniq -c
    bad=$(grep -h event_type /tmp/events.$from /tmp/events.$to | grep -vE 'EVENT_(LID_CHANGE|CLIENT_REREGISTER|PKEY_CHANGE|SM_CHANGE)')
    test -z "$bad" || { echo "events: $bad"; status=1; }
    tail -n 2 /tmp/written | grep 65536 || status=1
    test $status = 0 && echo "no verbs error" || { cat /tmp/written /tmp/written.server; false; }
}
killed_and_back() {
    opensm_end near KILL && built_in_masters && opensm_masters near $near 15 && master_is $near $(port_guid $near)
}
killed_for_the_other() { opensm_end lone KILL && master_is $other $(port_guid $other); }

# One transfer of perftest with the P_Key at an index of both ports' tables.
written_by_key() {
    timeout 20 ib_write_bw -d $2 -n 50 -F --pkey_index=$3 >/tmp/key.server 2>&1 & server=$!
    within "ss -Hltn | grep -q :18515" || return 1
    timeout 20 ib_write_bw -d $1 -n 50 -F --pkey_index=$3 127.0.0.1 >/tmp/key 2>&1; status=$?
    kill $server 2>/dev/null; wait $server 2>/dev/null
    cat /tmp/key
    return $status
}
key_at() { for index in $(seq 0 8); do grep -q $2 /sys/class/infiniband/$1/ports/1/pkeys/$index && echo $index && return; done; false; }
refused_by_key() { ! written_by_key "$@" && grep -iE 'transport retry|Completion with error|Failed status' /tmp/key && echo "refused"; }

# Both ports are full members of partition 1, and limited members of partition 2.
partitions() {
    echo "Default=0x7fff, ipoib : ALL=full ;"
    echo "Both=0x0001 : $(port_guid $near)=full, $(port_guid $far)=full ;"
    echo "Limited=0x0002 : $(port_guid $near)=limited, $(port_guid $far)=limited ;"
}
