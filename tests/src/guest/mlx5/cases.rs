//! The cases for the drivers and programs in the guest.

use super::super::kernel::WITHOUT_KEY_CACHE;
use std::time::Duration;

/// One case: a shell command that must exit with status 0, and text that one line of its output must contain.
#[derive(Debug, Clone)]
pub struct Mlx5Case {
    /// Its name.
    pub name: String,
    /// The command.
    pub command: String,
    /// What one line of the output must contain; the report shows that line.
    pub wanted: &'static str,
    /// Longest time it may take.
    pub limit: Duration,
    /// Whether other cases depend on it.
    pub set_up: bool,
}

impl Mlx5Case {
    pub(in super::super) fn new(
        name: impl Into<String>,
        wanted: &'static str,
        command: impl Into<String>,
    ) -> Self {
        let limit = Duration::from_secs(240);
        Self { name: name.into(), command: command.into(), wanted, limit, set_up: false }
    }

    /// The line that was wanted, or else the whole output.
    pub fn seen(&self, output: &str) -> Result<String, String> {
        let line = output.lines().rfind(|line| line.contains(self.wanted));
        line.map(|line| line.trim().to_owned())
            .ok_or_else(|| format!("'{}' is not in: {}", self.wanted, output.trim()))
    }
}

/// PCI address of the device, by its vendor.
const FIND_DEVICE: &str = "device=$(for d in /sys/bus/pci/devices/*; do
    [ \"$(cat $d/vendor)\" = 0x15b3 ] && basename $d; done | head -n 1); test -n \"$device\" || exit 1
    driver=/sys/bus/pci/drivers/mlx5_core";
/// Checks that the kernel's log has no message of mlx5 or the RDMA core at level warning or above.
const CLEAN_LOG: &str = "bad=$(dmesg --level=emerg,alert,crit,err,warn | grep -iE 'mlx5|infiniband|ib_|rdma')
    echo \"$bad\"; test -z \"$bad\" || exit 1";
/// Waits until every device has a port in state ACTIVE.
const WAIT_ACTIVE: &str = "for i in $(seq 100); do
        all=$(ls /sys/bus/pci/drivers/mlx5_core | grep -c :)
        active=$(cat /sys/class/infiniband/*/ports/1/state 2>/dev/null | grep -c ACTIVE)
        [ $all -gt 0 ] && [ $active = $all ] && break; sleep 0.2
    done";

/// All cases, in order.
pub fn all(long: bool) -> Vec<Mlx5Case> {
    let mut cases = vec![probe(), clean("after the probe")];
    cases.extend(lists());
    cases.extend(programs(long));
    cases.extend(between_two_nics());
    cases.push(pages());
    cases.push(reload(long));
    cases.push(rebind(if long { 20 } else { 3 }));
    cases.push(reset());
    cases.push(Mlx5Case {
        name: "ibv_rc_pingpong after all that".into(),
        ..pair("ibv_rc_pingpong -n 20 -c", "iters in")
    });
    cases.push(clean("in the end"));
    cases
}

pub(in super::super) fn probe() -> Mlx5Case {
    let command = format!(
        "modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && {{ {WAIT_ACTIVE}; }}
         dmesg | grep 'firmware version'"
    );
    Mlx5Case { set_up: true, ..Mlx5Case::new("mlx5_core and mlx5_ib probe", "firmware version", command) }
}

pub(in super::super) fn clean(when: &str) -> Mlx5Case {
    Mlx5Case::new(format!("kernel log {when}"), "", format!("{CLEAN_LOG}; echo"))
}

/// What programs report of the devices: both NICs, active, with LIDs.
fn lists() -> Vec<Mlx5Case> {
    vec![
        Mlx5Case::new("ibv_devices", "mlx5_1", "ibv_devices"),
        Mlx5Case::new("ibv_devinfo -v", "PORT_ACTIVE", "ibv_devinfo -v"),
        Mlx5Case::new(
            "ibstat",
            "State: Active",
            "modprobe ib_umad && ibstat && ! ibstat | grep -q 'Base lid: 0$'",
        ),
        Mlx5Case::new(
            "rdma link",
            "state ACTIVE",
            "rdma link && ! rdma link | grep -v 'state ACTIVE physical_state LINK_UP'",
        ),
    ]
}

/// Server on one NIC and client on the other, so that the traffic crosses the switch.
fn between_two_nics() -> Vec<Mlx5Case> {
    let programs = [
        "ibv_rc_pingpong -n 200 -c",
        "ibv_rc_pingpong -s 262144 -n 20 -c",
        "ibv_rc_pingpong -g 0 -n 100 -c",
        "ibv_uc_pingpong -n 200 -c",
        "ibv_ud_pingpong -n 200 -c",
        "ibv_srq_pingpong -n 200 -c",
    ];
    let pingpongs = programs.iter().map(|program| across(program, "iters in"));
    let perftest = [
        "ib_send_bw -s 4096",
        "ib_send_lat -c UD -s 64",
        "ib_write_bw -s 65536",
        "ib_read_bw -s 65536",
        "ib_atomic_lat -A FETCH_AND_ADD",
    ];
    let perftest = perftest.iter().map(|program| across(&format!("{program} -F -n 100 -p 18515"), "100"));
    pingpongs.chain(perftest).collect()
}

fn across(program: &str, wanted: &'static str) -> Mlx5Case {
    let command = both(&format!("{program} -d mlx5_0"), &format!("{program} -d mlx5_1"));
    Mlx5Case::new(format!("between two NICs: {program}"), wanted, command)
}

/// The third NIC loses, duplicates and delays frames in both directions. Reliable connections must hide that.
///
/// rdma-core's pingpongs cannot be asked: each leaves with the last message that it awaits, and if the ACK of that message is lost,
/// nobody repeats it and the SEND of the other end fails. perftest's programs agree over TCP before they leave.
pub fn over_faults(long: bool) -> Vec<Mlx5Case> {
    let quick = ["ib_send_bw -s 4096 -F -n 100 -p 18515"];
    let more = [
        "ib_write_bw -s 65536 -F -n 100 -p 18515",
        "ib_read_bw -s 65536 -F -n 100 -p 18515",
        "ib_atomic_bw -A FETCH_AND_ADD -F -n 100 -p 18515",
    ];
    let programs = quick.into_iter().chain(more.into_iter().filter(|_| long));
    let ends = [("mlx5_0", "mlx5_2"), ("mlx5_2", "mlx5_0")];
    let pairs = programs.flat_map(|program| ends.map(|ends| (program, ends)));
    pairs
        .map(|(program, (server, client))| {
            let command = both(&format!("{program} -d {server}"), &format!("{program} -d {client}"));
            Mlx5Case::new(format!("over faults, server {server}: {program}"), " 100 ", command)
        })
        .collect()
}

/// Unbinds the third NIC from its driver, so that later programs do not choose it.
pub const HIDE_FAULTY: &str = "for d in /sys/class/infiniband/mlx5_2; do
    [ ! -e $d ] || basename $(readlink -f $d/device) >/sys/bus/pci/drivers/mlx5_core/unbind; done";

/// Linux warns if pages do not come back when it shuts a device down. The case counts the pages before and
/// after.
fn pages() -> Mlx5Case {
    let command = format!(
        "{FIND_DEVICE}
         grep -q ' /sys/kernel/debug ' /proc/mounts || mount -t debugfs debugfs /sys/kernel/debug
         count=/sys/kernel/debug/mlx5/$device/pages/fw_pages_total
         before=$(cat $count) || exit 1
         echo $device >$driver/unbind && echo $device >$driver/bind || exit 1
         {WAIT_ACTIVE}
         after=$(cat $count)
         dmesg | grep 'FW pages counter' && exit 1
         echo \"pages given before and after: $before $after\"; test $before = $after -a $before -gt 0"
    );
    Mlx5Case::new("all pages come back", "pages given", command)
}

fn programs(long: bool) -> Vec<Mlx5Case> {
    let many = if long { 20_000 } else { 1000 };
    let mut cases: Vec<Mlx5Case> = [
        ("ibv_rc_pingpong -s 1 -n 100 -c".to_owned(), "iters in"),
        (format!("ibv_rc_pingpong -n {many} -c"), "iters in"),
        ("ibv_rc_pingpong -s 1048576 -n 20 -c".to_owned(), "iters in"),
        ("ibv_rc_pingpong -n 100 -e -c".to_owned(), "iters in"),
        ("ibv_rc_pingpong -g 0 -n 100 -c".to_owned(), "iters in"),
        (format!("ibv_srq_pingpong -n {many} -c"), "iters in"),
        ("ibv_uc_pingpong -n 500 -c".to_owned(), "iters in"),
        // It prints nothing more when everything has arrived.
        ("ibv_xsrq_pingpong -n 200".to_owned(), "success"),
        ("ibv_xsrq_pingpong -s 100000 -n 100 -e".to_owned(), "success"),
        ("ibv_ud_pingpong -n 500 -c".to_owned(), "iters in"),
        ("ibv_ud_pingpong -s 1 -n 100 -e -c".to_owned(), "iters in"),
    ]
    .into_iter()
    .map(|(program, wanted)| pair(&program, wanted))
    .collect();
    cases.extend(PERFTEST.iter().map(|program| pair(&format!("{program} -F -n 100 -p 18515"), "100")));
    cases
}

/// Perftest's programs. Atomics always have 8 bytes.
const PERFTEST: &[&str] = &[
    "ib_send_bw -s 4096",
    "ib_send_lat -s 4096",
    "ib_send_bw -c UD -s 1024",
    "ib_send_lat -c UD -s 64",
    "ib_write_bw -s 65536",
    "ib_write_lat -s 64",
    "ib_read_bw -s 65536",
    "ib_read_lat -s 4096",
    "ib_atomic_bw -A FETCH_AND_ADD",
    "ib_atomic_lat -A CMP_AND_SWAP",
];

/// Waits until somebody listens at TCP port 18515, without starting a process for every look.
const LISTENING: &str = "listening() {
        for i in $(seq 200); do
            for table in /proc/net/tcp /proc/net/tcp6; do
                while read -r line; do
                    case \"$line\" in *:4853[[:space:]]*:0000[[:space:]]0A[[:space:]]*) return 0;; esac
                done <$table
            done
            sleep 0.2
        done
        echo 'the server does not listen'; return 1
    }";

/// Both sides of a program in one guest and on one device, so that the traffic does not leave the device.
fn pair(program: &str, wanted: &'static str) -> Mlx5Case {
    Mlx5Case::new(program, wanted, both(program, program))
}

/// Runs two programs that meet over TCP.
fn both(server: &str, client: &str) -> String {
    format!(
        "{LISTENING}
         {server} >/tmp/server 2>&1 & server=$!
         listening && {client} 127.0.0.1; client=$?
         [ $client = 0 ] || kill $server
         wait $server; status=$?; cat /tmp/server; exit $((client + status))"
    )
}

/// A server that runs in the background of a guest of its own.
pub fn server(program: &str) -> String {
    format!("{program} 2>&1")
}

/// Waits until that server listens.
pub fn wait_for_server() -> String {
    format!("{LISTENING}; listening")
}

/// After a reboot of the guest, the drivers find the device as after power-on.
pub fn after_reboot() -> Vec<Mlx5Case> {
    let clean = Mlx5Case { name: "kernel log after the reboot".into(), ..clean("after the reboot") };
    vec![
        Mlx5Case { name: "probe after the reboot".into(), ..probe() },
        Mlx5Case {
            name: "ibv_rc_pingpong after the reboot".into(),
            ..pair("ibv_rc_pingpong -n 20 -c", "iters in")
        },
        clean,
    ]
}

/// Loads the drivers of the second guest.
pub fn second_guest() -> Mlx5Case {
    Mlx5Case { name: "second guest: probe".into(), ..probe() }
}

fn rebind(times: u32) -> Mlx5Case {
    let command = format!(
        "{FIND_DEVICE}
         for n in $(seq {times}); do
             echo $device >$driver/unbind || exit 1
             echo $device >$driver/bind || exit 1
             {WAIT_ACTIVE}
             ibv_devinfo | grep -q PORT_ACTIVE || {{ echo \"no active port after rebind $n\"; exit 1; }}
         done; echo \"$n rebinds\""
    );
    let limit = Duration::from_secs(60 + 20 * u64::from(times));
    Mlx5Case { limit, ..Mlx5Case::new(format!("{times} rebinds"), "rebinds", command) }
}

/// The short form has had a cache of memory keys until here, and does without from here on.
fn reload(long: bool) -> Mlx5Case {
    let parameter = if long { "" } else { WITHOUT_KEY_CACHE };
    let command = format!(
        "modprobe -r mlx5_ib && modprobe -r mlx5_core && modprobe mlx5_core {parameter} && modprobe mlx5_ib || exit 1
         {WAIT_ACTIVE}; ibv_devinfo"
    );
    Mlx5Case::new("driver reload", "PORT_ACTIVE", command)
}

/// Without a driver, the kernel resets the function by itself: function-level reset.
fn reset() -> Mlx5Case {
    let command = format!(
        "{FIND_DEVICE}
         echo $device >$driver/unbind || exit 1
         cat /sys/bus/pci/devices/$device/reset_method
         echo flr >/sys/bus/pci/devices/$device/reset_method && echo 1 >/sys/bus/pci/devices/$device/reset || exit 1
         echo $device >$driver/bind || exit 1
         {WAIT_ACTIVE}; ibv_devinfo"
    );
    Mlx5Case::new("function-level reset", "PORT_ACTIVE", command)
}
