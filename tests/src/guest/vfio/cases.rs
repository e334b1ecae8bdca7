//! The cases in the guest: shell commands, the exit status they must have, and what they must print.

use std::time::Duration;

/// A command in the environment that [`super::run`] sets up.
pub fn surrounded(command: &str) -> String {
    format!(". /tmp/devices; export PATH=/tmp/bin:$PATH rig='rig in-guest'\n{command}")
}

/// One case.
#[derive(Debug, Clone)]
pub struct VfioCase {
    /// Its name.
    pub name: &'static str,
    /// The command; `$a`, `$b`, … are PCI addresses, `$rig` this program, `bareverbs` the command.
    pub command: String,
    /// What its output must contain, each text within a line. The report shows the line of the first text.
    pub wanted: &'static [&'static str],
    /// If set, the server of `mortal` is killed this long after the command began.
    pub kill_server_after: Option<Duration>,
    /// Its time limit.
    pub limit: Duration,
    /// Whether other cases depend on it.
    pub set_up: bool,
}

impl VfioCase {
    fn new(name: &'static str, wanted: &'static [&'static str], command: impl Into<String>) -> Self {
        Self {
            name,
            command: command.into(),
            wanted,
            kill_server_after: None,
            limit: Duration::from_secs(120),
            set_up: false,
        }
    }

    /// The line that contains the first wanted text, or an error with what is missing.
    pub fn seen(&self, output: &str) -> Result<String, String> {
        for wanted in self.wanted {
            if !output.contains(wanted) {
                return Err(format!("'{wanted}' is not in: {}", output.trim()));
            }
        }
        let first = self.wanted.first().copied().unwrap_or_default();
        Ok(output.lines().find(|line| line.contains(first)).unwrap_or_default().trim().to_owned())
    }
}

/// Runs a command that must fail.
const FAILS: &str = "fails() { \"$@\" 2>&1 && { echo 'it did not fail'; exit 1; }; return 0; }";
/// An ordinary user without any of root's privileges.
const USER: &str = "setpriv --reuid 1000 --regid 1000 --clear-groups --no-new-privs --";

/// The case whose output is the list of conversations, read line by line.
pub const CONVERSATIONS: &str = "conversations";
/// The runs that are killed, and the run after them.
pub const AFTER_KILL: &str = "after kill -9";

/// All cases that run before the conversations.
pub fn before() -> Vec<VfioCase> {
    vec![
        VfioCase {
            set_up: true,
            ..VfioCase::new(
                "bareverbs vfio list",
                &["ConnectX-5"],
                "modprobe vfio-pci && bareverbs vfio list && bareverbs vfio list --json >/dev/null",
            )
        },
        fault(
            "bound to no driver",
            &["no driver is bound to the device", "bareverbs vfio bind"],
            "$rig open $a",
        ),
        fault(
            "not bound by an ordinary user",
            &["run this as root"],
            format!("{USER} bareverbs vfio bind $a"),
        ),
        VfioCase {
            set_up: true,
            ..VfioCase::new(
                "bareverbs vfio bind",
                &["is bound to vfio-pci"],
                "for f in $a $b $ib $slow $mortal $victim $crowded; do bareverbs vfio bind $f || exit 1; done
                 bareverbs vfio bind --force $old && bareverbs vfio list",
            )
        },
        VfioCase::new(
            "no huge pages",
            &["4 KiB pages will be used", "nr_hugepages"],
            "bareverbs vfio check $a",
        ),
        VfioCase::new(
            "4 KiB pages instead",
            &["of 4 KiB pages; not 1 GiB pages", "closed in order"],
            "$rig --segment 2 open $a",
        ),
        VfioCase {
            set_up: true,
            ..VfioCase::new(
                "huge pages",
                &["of 2 MiB pages"],
                "echo 96 >/proc/sys/vm/nr_hugepages && $rig open $a",
            )
        },
    ]
}

fn fault(name: &'static str, wanted: &'static [&'static str], command: impl Into<String>) -> VfioCase {
    VfioCase::new(name, wanted, format!("{FAILS}; fails {}", command.into()))
}

/// The cases after them: all faults, and teardown and bring-up.
pub fn after() -> Vec<VfioCase> {
    let mut cases = vec![
        fault("not root", &["this process may not open /dev/vfio/", "sudo chown"], format!("{USER} $rig open $a")),
        fault(
            "memlock too small",
            &["this process may lock 64 KiB", "ulimit -l unlimited"],
            format!("sh -c \"chown 1000 /dev/vfio/[0-9]* && ulimit -l 64 && {USER} $rig open $a\""),
        ),
        VfioCase::new(
            "an ordinary user with enough memlock",
            &["closed in order"],
            format!("ulimit -l 65536 && {USER} $rig --segment 4 open $a"),
        ),
        fault(
            "bound elsewhere",
            &["the kernel driver pci-stub is bound to the device", "bareverbs vfio bind"],
            "sh -c 'modprobe pci-stub; bareverbs vfio unbind $b >/dev/null
                    echo pci-stub >/sys/bus/pci/devices/$b/driver_override; echo $b >/sys/bus/pci/drivers_probe
                    $rig open $b; status=$?; bareverbs vfio bind $b >/dev/null; exit $status'",
        ),
        fault("wrong device id", &["15b3:1003, ConnectX-3: it is an mlx4 device", "vfio list"], "$rig open $old"),
        fault("group not viable", &["is not viable: kernel drivers hold", "virtio-pci", "bind --force"], "$rig open $crowded"),
        fault(
            "firmware that is never ready",
            &["opening the device failed at WaitForFirmware: firmware is not ready after"],
            "$rig open --firmware 2000 $slow",
        ),
        fault(
            "a second process",
            &["another process has the device"],
            "sh -c '$rig hold $a & first=$!; sleep 4; $rig open $a; status=$?; kill -INT $first; wait $first; exit $status'",
        ),
        VfioCase::new(
            "SIGINT tears down in order",
            &["interrupted", "closed in order, 0 bytes in use"],
            "$rig hold $a & holder=$!; sleep 4; kill -INT $holder; wait $holder && $rig open $a",
        ),
        no_system_call(),
    ];
    cases.extend(removals());
    cases
}

/// A trace of system calls shows nothing between the two marks.
fn no_system_call() -> VfioCase {
    VfioCase::new(
        "no system call on the data path (strace)",
        &["0 system calls", "2000 writes"],
        "strace -f -o /tmp/trace -s 64 $rig quiet $a $b && strace -c -f -o /tmp/count $rig quiet $a $b || exit 1
         sed -n '/the data path begins/,/the data path ends/p' /tmp/trace >/tmp/between
         test $(grep -c 'the data path' /tmp/between) = 2 || { echo 'no marks in the trace'; exit 1; }
         echo $(grep -vc 'the data path' /tmp/between) system calls between 2000 writes and their completions
         grep -v 'the data path' /tmp/between; tail -n 1 /tmp/count",
    )
}

fn removals() -> Vec<VfioCase> {
    vec![
        VfioCase::new(
            "removed while in use",
            &["the system wants the device back", "closed in order", "it is gone"],
            "$rig hold $victim & holder=$!
             sleep 4; echo 1 >/sys/bus/pci/devices/$victim/remove; wait $holder || exit 1
             [ ! -e /sys/bus/pci/devices/$victim ] && echo it is gone",
        ),
        VfioCase {
            kill_server_after: Some(Duration::from_secs(6)),
            ..VfioCase::new(
                "gone while in use (its server is killed)",
                &["the device has left the bus", "the device does not answer any more"],
                "$rig hold $mortal >/tmp/mortal 2>&1 &
                 for i in $(seq 300); do grep -q 'does not answer' /tmp/mortal && break; sleep 0.2; done; cat /tmp/mortal",
            )
        },
    ]
}

/// A run that is killed halfway.
pub fn kill() -> VfioCase {
    VfioCase::new(
        "kill -9 in the middle",
        &["killed"],
        "$rig conversations $a $b --operations 1000000 >/tmp/killed & victim=$!
         for i in $(seq 200); do grep -q 'refused access' /tmp/killed && break; sleep 0.2; done; sleep 1
         kill -9 $victim; wait $victim; status=$?
         grep -q 'mix of all' /tmp/killed && { echo 'it had ended already'; exit 1; }
         [ $status = 137 ] && echo killed after $(wc -l </tmp/killed) conversations",
    )
}

/// The message on a machine without an IOMMU; it needs a guest of its own.
pub fn no_iommu() -> Vec<VfioCase> {
    vec![
        VfioCase {
            set_up: true,
            ..VfioCase::new(
                "bound without an IOMMU",
                &["ConnectX-5"],
                "modprobe vfio-pci; bareverbs vfio bind $a; bareverbs vfio list",
            )
        },
        fault(
            "no IOMMU",
            &["this machine has no IOMMU, or it is switched off", "intel_iommu=on"],
            "$rig open $a",
        ),
    ]
}

/// The example that the documentation recommends to the owner of a card: between two ports, and from a port
/// to itself.
pub fn example() -> Vec<VfioCase> {
    let run = |name, arguments: &str| {
        VfioCase::new(
            name,
            &["the other end reads \"hello, remote memory\"", "Success"],
            format!("vfio_write {arguments}"),
        )
    };
    vec![
        run("example vfio_write between two functions", "$a $b"),
        run("example vfio_write on one function", "$a"),
    ]
}

/// rdma-core's own VFIO driver on the same kind of device, with the tests of rdma-core. They read 8 of the 64
/// bytes of an event queue entry, and scapy since 2.6 dissects a packet only if it is complete, so zeros are
/// appended.
pub fn rdma_core() -> Vec<VfioCase> {
    let test = |name, which: &str| {
        VfioCase {
        limit: Duration::from_secs(150),
        ..VfioCase::new(
            name,
            &["OK"],
            format!(
                "[ -e /tmp/rdma-core-tests ] || {{ cp -r /usr/share/doc/rdma-core/tests /tmp/rdma-core-tests && gunzip -qr /tmp/rdma-core-tests
                 sed -i \"s/to_bytes(length=8, byteorder='little')/& + bytes(56)/\" /tmp/rdma-core-tests/test_mlx5_vfio.py; }}
                 cd /tmp/rdma-core-tests && timeout 120 python3 run_tests.py -v --pci-dev $ib \
                 tests.test_mlx5_vfio.Mlx5VfioTrafficTest.{which} 2>&1 | tee /tmp/rdma-core.log
                 grep -q skipped /tmp/rdma-core.log && exit 1; grep -q '^OK' /tmp/rdma-core.log"
            ),
        )
    }
    };
    vec![
        test("rdma-core mlx5 over VFIO: RC SEND with immediate", "test_mlx5vfio_rc_qp_send_imm_traffic"),
        test("rdma-core mlx5 over VFIO: port event", "test_mlx5vfio_async_event"),
    ]
}
