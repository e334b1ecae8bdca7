#!/bin/sh
# First process of the guest: makes the usual mounts, then serves commands that come over a virtio-serial port.
#
# A request is one line, `NUMBER SECONDS COMMAND`, the command in base64. The answer is one line,
# `done NUMBER STATUS OUTPUT`, the output (standard output and error, the last 64 KiB) in base64. Commands run side by
# side; each is killed after its seconds (status 124 or 137).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
is_mounted() { grep -q " $1 " /proc/mounts; }
[ -e /proc/mounts ] || mount -t proc proc /proc
is_mounted /sys || mount -t sysfs sysfs /sys
is_mounted /dev || mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
is_mounted /dev/pts || mount -t devpts devpts /dev/pts
is_mounted /dev/shm || mount -t tmpfs tmpfs /dev/shm
is_mounted /run || mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /var/tmp
ulimit -l unlimited
ip link set lo up

port=
for entry in /sys/class/virtio-ports/*; do
    [ "$(cat "$entry/name" 2>/dev/null)" = bareverbs.control ] && port=/dev/${entry##*/}
done
if [ -z "$port" ]; then
    echo "bareverbs: no control port"
    echo o > /proc/sysrq-trigger
    sleep 5
fi
exec 3<>"$port"
jobs=/run/bareverbs
mkdir -p "$jobs"
cd /root

serve() {
    command=$(printf %s "$3" | base64 -d)
    timeout -k 2 "$2" sh -c "$command" >"$jobs/$1" 2>&1 </dev/null 3>&- &
    echo $! >"$jobs/$1.process"
    wait $!
    status=$?
    output=$(tail -c 65536 "$jobs/$1" | base64 -w 0)
    rm -f "$jobs/$1" "$jobs/$1.process"
    (
        flock 9
        printf 'done %s %s %s\n' "$1" "$status" "$output" >&3
    ) 9>"$jobs/lock"
}

echo "ready $(uname -r)" >&3
while read -r number seconds encoded <&3; do
    serve "$number" "$seconds" "$encoded" &
done
echo "bareverbs: the control port is closed"
echo o > /proc/sysrq-trigger
sleep 60
