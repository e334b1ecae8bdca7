//! What is asked of the drivers and programs in the guest.

use std::time::Duration;

/// One question: a shell command that must end with status 0, and a line that must be among what it prints.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is called.
    pub name: String,
    /// The command.
    pub command: String,
    /// What one line of the output must contain; the line is shown.
    pub wanted: &'static str,
    /// Longest time it may take.
    pub limit: Duration,
    /// Whether other cases need it.
    pub set_up: bool,
}

impl Case {
    fn new(name: impl Into<String>, wanted: &'static str, command: impl Into<String>) -> Self {
        let limit = Duration::from_secs(240);
        Self { name: name.into(), command: command.into(), wanted, limit, set_up: false }
    }

    /// The line that was wanted, or all that there was.
    pub fn seen(&self, output: &str) -> Result<String, String> {
        let line = output.lines().rfind(|line| line.contains(self.wanted));
        line.map(|line| line.trim().to_owned())
            .ok_or_else(|| format!("«{}» is not in: {}", self.wanted, output.trim()))
    }
}

/// PCI address of the device, by its vendor.
const FIND_DEVICE: &str = "device=$(for d in /sys/bus/pci/devices/*; do
    [ \"$(cat $d/vendor)\" = 0x15b3 ] && basename $d; done | head -n 1); test -n \"$device\" || exit 1
    driver=/sys/bus/pci/drivers/mlx5_core";
/// Nothing of mlx5 or of the RDMA core in the kernel's log at a level from warning up.
const CLEAN_LOG: &str = "bad=$(dmesg --level=emerg,alert,crit,err,warn | grep -iE 'mlx5|infiniband|ib_|rdma')
    echo \"$bad\"; test -z \"$bad\" || exit 1";
/// Waits until every device has a port in state ACTIVE.
const WAIT_ACTIVE: &str = "for i in $(seq 100); do
        all=$(ls /sys/bus/pci/drivers/mlx5_core | grep -c :)
        active=$(cat /sys/class/infiniband/*/ports/1/state 2>/dev/null | grep -c ACTIVE)
        [ $all -gt 0 ] && [ $active = $all ] && break; sleep 0.2
    done";

/// All questions, in order.
pub fn all(long: bool) -> Vec<Case> {
    let mut cases = vec![probe(), clean("after the probe"), device_info()];
    cases.extend(programs(long));
    cases.push(rebind(if long { 20 } else { 3 }));
    cases.push(reload());
    cases.push(reset());
    cases.push(Case {
        name: "ibv_rc_pingpong after all that".into(),
        ..pair("ibv_rc_pingpong -n 20 -c", "iters in")
    });
    cases.push(clean("in the end"));
    cases
}

fn probe() -> Case {
    let command = format!(
        "modprobe mlx5_core && modprobe mlx5_ib && modprobe ib_uverbs && {{ {WAIT_ACTIVE}; }}
         dmesg | grep 'firmware version'"
    );
    Case { set_up: true, ..Case::new("mlx5_core and mlx5_ib probe", "firmware version", command) }
}

fn clean(when: &str) -> Case {
    Case::new(format!("kernel log {when}"), "", format!("{CLEAN_LOG}; echo"))
}

fn device_info() -> Case {
    Case::new("ibv_devinfo -v", "PORT_ACTIVE", "ibv_devinfo -v")
}

fn programs(long: bool) -> Vec<Case> {
    let many = if long { 20_000 } else { 1000 };
    let mut cases: Vec<Case> = [
        ("ibv_rc_pingpong -s 1 -n 100 -c".to_owned(), "iters in"),
        (format!("ibv_rc_pingpong -n {many} -c"), "iters in"),
        ("ibv_rc_pingpong -s 1048576 -n 20 -c".to_owned(), "iters in"),
        ("ibv_rc_pingpong -n 100 -e -c".to_owned(), "iters in"),
        ("ibv_rc_pingpong -g 0 -n 100 -c".to_owned(), "iters in"),
        (format!("ibv_srq_pingpong -n {many} -c"), "iters in"),
        ("ibv_ud_pingpong -n 500 -c".to_owned(), "iters in"),
        ("ibv_ud_pingpong -s 1 -n 100 -e -c".to_owned(), "iters in"),
    ]
    .into_iter()
    .map(|(program, wanted)| pair(&program, wanted))
    .collect();
    cases.extend(PERFTEST.iter().map(|program| pair(&format!("{program} -F -n 100 -p 18515"), "100")));
    cases
}

/// Perftest's programs; atomics are always of 8 bytes.
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

/// Programs that need what the model does not have, and why.
pub const LACKING: &[(&str, &str)] = &[
    ("ibv_uc_pingpong", "the model has no unreliable connections (capability uc is 0)"),
    ("ibv_xsrq_pingpong", "the model has XRC domains and queues but no XRC transport"),
];

/// Waits, without a process for every look, until somebody listens at TCP port 18515.
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

/// Both sides of a program in one guest, on one device: what is sent does not leave it.
fn pair(program: &str, wanted: &'static str) -> Case {
    let command = format!(
        "{LISTENING}
         {program} >/tmp/server 2>&1 & server=$!
         listening && {program} 127.0.0.1; client=$?
         [ $client = 0 ] || kill $server
         wait $server; status=$?; cat /tmp/server; exit $((client + status))"
    );
    Case::new(program, wanted, command)
}

fn rebind(times: u32) -> Case {
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
    Case { limit, ..Case::new(format!("{times} rebinds"), "rebinds", command) }
}

fn reload() -> Case {
    let command = format!(
        "modprobe -r mlx5_ib && modprobe -r mlx5_core && modprobe mlx5_core && modprobe mlx5_ib || exit 1
         {WAIT_ACTIVE}; ibv_devinfo"
    );
    Case::new("driver reload", "PORT_ACTIVE", command)
}

/// Without a driver, the kernel resets the function by itself: function-level reset.
fn reset() -> Case {
    let command = format!(
        "{FIND_DEVICE}
         echo $device >$driver/unbind || exit 1
         cat /sys/bus/pci/devices/$device/reset_method
         echo flr >/sys/bus/pci/devices/$device/reset_method && echo 1 >/sys/bus/pci/devices/$device/reset || exit 1
         echo $device >$driver/bind || exit 1
         {WAIT_ACTIVE}; ibv_devinfo"
    );
    Case::new("function-level reset", "PORT_ACTIVE", command)
}
