# Two ports of one guest that talk to each other over the wire, and a third that loses frames: shell functions
# for the judges' cases.
#
# A kernel does not send to itself over a wire. Routing rules that precede the local table force it to: traffic
# from one port's address to another's leaves by that port's device. Incoming traffic still uses the local
# table, and the rules with `oif` answer the RDMA core, which asks for the device that leads to a peer. Each
# device answers ARP only for its own address.
near_address=10.9.0.1 far_address=10.9.0.2 lossy_address=10.9.0.3

functions() { for d in /sys/bus/pci/devices/*; do [ "$(cat $d/vendor)" = 0x15b3 ] && basename $d; done; }
netdev() { ls /sys/bus/pci/devices/$1/net 2>/dev/null | head -n 1; }
rdmadev() { ls /sys/bus/pci/devices/$1/infiniband 2>/dev/null | head -n 1; }
within() { for i in $(seq 300); do eval "$1" && return 0; sleep 0.2; done; echo "not within 60 s: $1"; return 1; }
name_ports() { set -- $(functions); near=$(netdev $1) far=$(netdev $2) lossy=$(netdev $3) rdma_near=$(rdmadev $1); }
active() { for f in $(functions); do cat /sys/class/infiniband/$(rdmadev $f)/ports/1/state 2>/dev/null; done | grep -c ACTIVE; }

# Routes from the near port to the peer with this device, address and table, and back.
way() {
    ip addr replace $2/32 dev $1
    ip route replace $2 dev $near src $near_address table $3
    ip route replace $near_address dev $1 src $2 table 1$3
    ip rule add pref 1 from $near_address to $2 oif $near lookup $3
    ip rule add pref 1 from $2 to $near_address oif $1 lookup 1$3
    ip rule add pref 2 to $2 iif lo lookup $3
    ip rule add pref 2 from $2 to $near_address iif lo lookup 1$3
}

bring_up() {
    modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs || return 1
    for f in $(functions); do within "test -n \"\$(netdev $f)\"" && ip link set $(netdev $f) up || return 1; done
    within "test \$(active) = 3" && name_ports || return 1
    for d in all $near $far $lossy; do
        cd /proc/sys/net/ipv4/conf/$d && echo 1 >accept_local && echo 0 >rp_filter && echo 1 >arp_ignore || return 1
    done
    cd /
    ip addr replace $near_address/32 dev $near
    way $far $far_address 1 && way $lossy $lossy_address 2 || return 1
    ip rule add pref 100 lookup local && ip rule del pref 0 || return 1
    for peer in $far_address $lossy_address; do ping -w 30 -c 1 $peer || return 1; done
    ibv_devinfo -v -d $rdma_near
}

# Takes the link of the near port down for a second. Its address stays; routes through it are lost.
blink() {
    ip link set $near down && sleep 1 && ip link set $near up || return 1
    within "ip route replace $far_address dev $near src $near_address table 1 2>/dev/null" &&
        ip route replace $lossy_address dev $near src $near_address table 2
}

# Bytes of RDMA that a port has sent and received; loopback traffic does not count.
crossed() { ethtool -S $1 | sed -n 's/.*[rt]x_vport_rdma_unicast_bytes: //p' | { read a; read b; echo $((a + b)); }; }

# Runs a command that moves bytes, and checks that at least this many MiB crossed the wire.
crossing() {
    least=$1; shift
    before=$(crossed $near)
    "$@" || return 1
    after=$(crossed $near)
    [ $((after - before)) -ge $((least << 20)) ] || { echo "only $((after - before)) bytes crossed the wire"; return 1; }
    echo "same bytes, $(((after - before) >> 20)) MiB crossed the wire"
}
