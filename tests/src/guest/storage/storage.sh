# Storage of the kernel between two ports of one guest: shell functions for the judge's cases. `ports.sh` is
# sourced before.

# Writes random bytes to a block device, reads them back, and compares both the result and the file behind the
# target.
copy_block() {
    test -b "$1" || { echo "no block device $1"; return 1; }
    head -c ${3}M /dev/urandom >/tmp/bytes
    dd if=/tmp/bytes of=$1 bs=1M oflag=direct 2>/dev/null || { echo "cannot write $1"; return 1; }
    dd if=$1 of=/tmp/back bs=1M count=$3 iflag=direct 2>/dev/null || { echo "cannot read $1"; return 1; }
    sync $2
    cmp /tmp/bytes /tmp/back && cmp -n $(($3 << 20)) /tmp/bytes $2
}

# fio writes blocks of many sizes, and verifies the checksum of each when it reads them back.
verify_block() {
    test -b "$1" || { echo "no block device $1"; return 1; }
    cd /tmp && fio --name=v --filename=$1 --direct=1 --rw=randwrite --bs=4k-256k --iodepth=16 --ioengine=libaio \
        --verify=crc32c --verify_state_save=0 --do_verify=1 --size=${2}M
}

# Copies while the link goes down for a second.
over_blink() { { sleep 0.3; blink; } & blinking=$!; "$@"; status=$?; wait $blinking && return $status; }

nvme_target() {
    mount -t configfs none /sys/kernel/config 2>/dev/null
    modprobe -a nvmet nvmet-rdma nvme-rdma loop && truncate -s 64M /tmp/nvme.img && image=$(losetup -f --show /tmp/nvme.img) || return 1
    cd /sys/kernel/config/nvmet && mkdir -p subsystems/judge/namespaces/1 && echo 1 >subsystems/judge/attr_allow_any_host &&
        echo -n $image >subsystems/judge/namespaces/1/device_path && echo 1 >subsystems/judge/namespaces/1/enable || return 1
    for peer in $far_address $lossy_address; do
        port=ports/${peer##*.}; mkdir -p $port && echo rdma >$port/addr_trtype && echo ipv4 >$port/addr_adrfam &&
            echo $peer >$port/addr_traddr && echo 4420 >$port/addr_trsvcid &&
            ln -s subsystems/judge $port/subsystems/judge || return 1
    done
    cd /
}
nvme_connect() {
    echo "nqn=judge,transport=rdma,traddr=$1,host_traddr=$near_address,trsvcid=4420,nr_io_queues=2,keep_alive_tmo=120" >/dev/nvme-fabrics &&
        within "ls /dev/nvme*n1 >/dev/null 2>&1" && nvme=$(ls /dev/nvme*n1) && test -b $nvme
}
nvme_disconnect() { for c in /sys/class/nvme/nvme*; do echo 1 >$c/delete_controller; done; within "! ls /dev/nvme*n1 >/dev/null 2>&1"; }

nfs_server() {
    modprobe -a nfsd rpcrdma && mkdir -p /tmp/shared /tmp/mounted && mount -t tmpfs tmpfs /var/lib/nfs || return 1
    mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/rpc_pipefs
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    mount -t nfsd nfsd /proc/fs/nfsd; mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs; rpcbind
    exportfs -o rw,insecure,no_root_squash,no_subtree_check,fsid=0 '*:/tmp/shared' || return 1
    echo 10 >/proc/fs/nfsd/nfsv4gracetime
    rpc.nfsd -N 3 4 && echo 'rdma 20049' >/proc/fs/nfsd/portlist && rpc.mountd -N 3
}
nfs_mount() { mount -t nfs4 -o proto=rdma,port=20049 $1:/ /tmp/mounted && grep proto=rdma /proc/mounts; }
nfs_unmount() { umount /tmp/mounted; }
copy_file() {
    head -c ${1}M /dev/urandom >/tmp/bytes
    dd if=/tmp/bytes of=/tmp/mounted/file bs=1M conv=fsync 2>/dev/null || { echo "cannot write"; return 1; }
    echo 3 >/proc/sys/vm/drop_caches
    cmp /tmp/bytes /tmp/mounted/file && cmp /tmp/bytes /tmp/shared/file
}

iser_target() {
    mount -t configfs none /sys/kernel/config 2>/dev/null
    modprobe -a sd_mod target_core_mod target_core_file iscsi_target_mod ib_isert ib_iser && truncate -s 64M /tmp/iser.img || return 1
    target=/sys/kernel/config/target; group=$target/iscsi/iqn.2000-01.judge:disk/tpgt_1
    mkdir -p $target/core/fileio_0/disk && echo fd_dev_name=/tmp/iser.img,fd_dev_size=67108864 >$target/core/fileio_0/disk/control &&
        echo 1 >$target/core/fileio_0/disk/enable && mkdir -p $target/iscsi && mkdir -p $group/lun/lun_0 &&
        ln -s $target/core/fileio_0/disk $group/lun/lun_0/disk && cd $group/attrib && echo 0 >authentication &&
        echo 1 >generate_node_acls && echo 0 >demo_mode_write_protect && cd / || return 1
    for peer in $far_address $lossy_address; do mkdir $group/np/$peer:3260 && echo 1 >$group/np/$peer:3260/iser || return 1; done
    echo 1 >$group/enable
    mount -t tmpfs tmpfs /etc/iscsi && mount -t tmpfs tmpfs /var/lib/iscsi || return 1
    echo InitiatorName=iqn.2000-01.judge:initiator >/etc/iscsi/initiatorname.iscsi; : >/etc/iscsi/iscsid.conf
    mkdir -p /run/lock/iscsi; iscsid
    iscsiadm -m iface -I wire -o new && iscsiadm -m iface -I wire -o update -n iface.transport_name -v iser
}
iser_login() {
    iscsiadm -m node -T iqn.2000-01.judge:disk -p $1 -I wire -o new &&
        iscsiadm -m node -T iqn.2000-01.judge:disk -p $1 -I wire -l && within "ls /dev/sd? >/dev/null 2>&1" && disk=$(ls /dev/sd?) && test -b $disk
}
iser_logout() { iscsiadm -m node -T iqn.2000-01.judge:disk -p $1 -I wire -u && iscsiadm -m node -T iqn.2000-01.judge:disk -p $1 -I wire -o delete; }
