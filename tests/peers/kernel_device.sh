# Our own programs at devices that the kernel owns: `bareverbs run --devx` gives each host one whose commands pass by DEVX.
# The judge has set $port and $measured, and put kv_lookup.o into this directory.
umask 077
printf '%064d' 7 >owner.key
cat >dpu.toml <<CONFIG
listen = "127.0.0.1:$port"
device = "uverbs:mlx5_0"
[limits]
time_us = 10_000_000
[table]
demo_rows = 50
[[tenant]]
name = "owner"
key_file = "owner.key"
read = true
deploy = true
CONFIG

# Everything that was started ends with the script.
service='' server=''
trap 'kill -KILL $service $server 2>/dev/null || true' EXIT

serve() {
    bareverbs run --devx --host a -- bareverbs dpu serve --config dpu.toml >log 2>&1 &
    service=$!
    for _ in $(seq 300); do
        grep -q 'serving tenants at' log && return 0
        kill -0 $service 2>/dev/null || break
        sleep 0.1
    done
    cat log
    return 1
}

# A tenant on host b.
tenant() {
    bareverbs run --devx --host b -- bareverbs "$@" --device uverbs:mlx5_0 --server 127.0.0.1:$port --tenant owner --key-file owner.key
}

serve
tenant dpu get key-7 --way kernel --way read -n 20
tenant kernel deploy kv_lookup.o --opcode KVLOOKPR
tenant dpu get key-8 --way kernel --way program --program KVLOOKPR
echo '--- the service is killed, and another one takes its place'
kill -KILL $service
wait $service || true
serve
tenant dpu get key-9
echo '--- our own performance test, beside the service'
measure() {
    bareverbs run --devx --host "$1" -- bareverbs perf $2 --device uverbs:mlx5_0 -p $measured $3
}
for test in 'write bw -s 1000000 -n 50' 'send lat -n 100' 'atomic lat -n 100' 'send bw -c UD -s 1024 -n 100'; do
    measure a "$test" >server 2>&1 &
    server=$!
    until grep -q 'waiting for the client' server; do sleep 0.1; done
    measure b "$test" a
    wait $server
    cat server
done
echo '--- the service is told to end'
kill -TERM $service
wait $service
