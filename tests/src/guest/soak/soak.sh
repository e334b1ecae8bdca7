# One of two guests, with an InfiniBand card and an Ethernet card: shell functions for the rounds of the soak.
# `ports.sh` is sourced before. Addresses end in the number of the guest: 10.6.0 on InfiniBand, 10.7.0 on
# Ethernet.
driver=/sys/bus/pci/drivers/mlx5_core

network() { [ "$(cat /sys/class/infiniband/$(rdmadev $1)/ports/1/link_layer)" = InfiniBand ] && echo 10.6.0 || echo 10.7.0; }

bring_up() {
    for f in $(functions); do
        within "test -n \"\$(rdmadev $f)\" && test -n \"\$(netdev $f)\"" || return 1
        ip addr replace $(network $f).$1/24 dev $(netdev $f) && ip link set $(netdev $f) up || return 1
    done
    within "test \$(active) = 2"
}

load() {
    for module in mlx5_core mlx5_ib ib_uverbs ib_ipoib rdma_ucm; do modprobe $module || return 1; done
    bring_up $1
}

rebind() {
    for f in $(functions); do echo $f >$driver/unbind && echo $f >$driver/bind || return 1; done
    bring_up $1
}

# Without a driver, the kernel resets a function by itself: function-level reset.
reset() {
    for f in $(functions); do
        echo $f >$driver/unbind && echo flr >/sys/bus/pci/devices/$f/reset_method &&
            echo 1 >/sys/bus/pci/devices/$f/reset && echo $f >$driver/bind || return 1
    done
    bring_up $1
}

# Drops what a guest remembers of the other from before its reset.
meet() { ip neigh flush all; within "ping -c 1 -W 1 $1 >/dev/null"; }
