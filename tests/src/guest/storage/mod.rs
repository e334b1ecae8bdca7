//! The judge of fast registration: storage of Linux's kernel over RDMA, NVMe, NFS and iSER, both ends in one
//! guest, each at a port of its own.
//!
//! Three ports are at one switch, and the last one loses frames. What one port writes is read back, compared,
//! and compared with what the other end has stored; every row shows that the bytes crossed the wire. A
//! warning in the kernel's log is a failure, even if storage recovered from its cause. Start reading at
//! `all`, then `storage.sh`.

use super::kernel::{self, Kernel};
use super::machine::{Configuration, Machine};
use super::mlx5::cases::Mlx5Case;
use super::mlx5::nic::ServedNics;
use super::mlx5::options::ask;
use super::ports::{self, PORTS};
use super::root::Root;
use super::table::Report;
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use std::path::PathBuf;
use std::time::Duration;

/// Numbers of the NICs at the switch; a wire would join NICs with lower numbers.
const NEAR: usize = 2;
const FAR: usize = 3;
const LOSSY: usize = 4;
/// Faults on the frames of the last one, in both directions.
const FAULTS: &str = "loss=0.01";
/// The shell functions that the cases are made of, and the name of their file in the guest.
const FUNCTIONS: (&str, &str) = ("storage.sh", include_str!("storage.sh"));
/// Checks that the kernel's log has no message of RDMA or storage at level warning or above. Two messages
/// have nothing to do with RDMA: LIO, and NFSD where it keeps its clients' directories, complain that the
/// guest's root is read-only or new. And iSER reports that a link went down and up, which it did.
const NO_FAULTS: &str = "db_root: cannot open: /etc/target|NFSD: .*(state recovery|client state) directory|iser_event_handler: async event port (error|active)";
/// Messages that the log may also hold if frames were lost. The likely cause: an initiator whose
/// acknowledgement was lost repeats its command after the target has invalidated the key of its data. The
/// device refuses to read the data, and iSER reconnects.
const OF_LOSS: &str = "iser_err_comp: command failure: local protection error";
/// MiB of each disk behind a target (`storage.sh`). Three of them, a shared file and two copies have to fit the guest's
/// memory.
const DISK: u32 = 64;
/// What a row prints when all bytes came back and had left the machine.
const SAME: &str = "same bytes";

/// What to run, and where to put consoles and logs.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// Only rows whose name contains this; what they need is always run.
    pub only: Option<String>,
    /// More bytes; every kind of storage gets the cases that otherwise only NVMe has.
    pub long: bool,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and runs every case.
pub fn run(options: &StorageOptions) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    std::fs::create_dir_all(&options.output)?;
    // Dropped in this order: the guest before what serves it.
    let mut nics = ServedNics::start(LinkLayer::Ethernet, &[NEAR, FAR], &options.output)?;
    nics.serve_by_command(LOSSY, Some(FAULTS), &options.output)?;
    let configuration = Configuration {
        vfio_user: [NEAR, FAR, LOSSY].map(|index| nics.socket(index)).to_vec(),
        files: [PORTS, FUNCTIONS].map(|(name, text)| (name.to_owned(), text.into())).to_vec(),
        kernel_words: kernel::short_form_words(options.long),
        ..Configuration::default()
    };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("storage-console.log"))?;
    let mut report = Report::new(&["case"]);
    for case in all(options.long) {
        if case.set_up || options.only.as_ref().is_none_or(|only| case.name.contains(only.as_str())) {
            report.add(ask(&mut machine, &case)?);
        }
    }
    drop(machine);
    report.add(nics.losses());
    report.add(nics.entry("commands of the drivers"));
    Ok(report)
}

/// A kind of storage: how to set up its ends, connect, disconnect, and move bytes.
struct Storage {
    name: &'static str,
    target: &'static str,
    join: &'static str,
    leave: &'static str,
    /// Copies a number of MiB; the word `SIZE` stands for the number.
    copy: &'static str,
    /// Lets fio verify block checksums, if there are blocks.
    verify: Option<&'static str>,
}

const KINDS: [Storage; 3] = [
    Storage {
        name: "NVMe",
        target: "nvme_target",
        join: "nvme_connect",
        leave: "nvme_disconnect",
        copy: "copy_block /dev/nvme*n1 /tmp/nvme.img SIZE",
        verify: Some("verify_block /dev/nvme*n1 SIZE"),
    },
    Storage {
        name: "NFS",
        target: "nfs_server",
        join: "nfs_mount",
        leave: "nfs_unmount",
        copy: "copy_file SIZE",
        verify: None,
    },
    Storage {
        name: "iSER",
        target: "iser_target",
        join: "iser_login",
        leave: "iser_logout",
        copy: "copy_block /dev/sd? /tmp/iser.img SIZE",
        verify: Some("verify_block /dev/sd? SIZE"),
    },
];

/// All cases, in order.
fn all(long: bool) -> Vec<Mlx5Case> {
    let mut cases = vec![
        set_up(case("mlx5 offers fast registration", "MEM_MGT_EXTENSIONS", "bring_up")),
        clean("after the probe", NO_FAULTS),
    ];
    for kind in &KINDS {
        cases.extend(kind.cases(long));
        cases.push(clean(&format!("after {}", kind.name), &format!("{NO_FAULTS}|{OF_LOSS}")));
    }
    cases
}

impl Storage {
    fn cases(&self, long: bool) -> Vec<Mlx5Case> {
        let Self { name, target, join, leave, .. } = self;
        let size = if long { DISK } else { 24 };
        let mut cases = vec![
            step(format!("{name}: target"), target),
            step(format!("{name}: joined"), &format!("{join} $far_address")),
            case(format!("{name}: written, read back, compared"), SAME, &self.copying(size, "")),
        ];
        if let Some(verify) = self.verify {
            let verify = verify.replace("SIZE", if long { "48" } else { "12" });
            cases.push(case(format!("{name}: fio verifies"), SAME, &format!("crossing 6 {verify}")));
        }
        cases.push(case(
            format!("{name}: while the link goes down for a second"),
            SAME,
            &self.copying(size, "over_blink"),
        ));
        cases.push(step(format!("{name}: left"), &format!("{leave} $far_address")));
        cases.push(clean(&format!("before {name} loses frames"), NO_FAULTS));
        let lossy = if long { 48 } else { 6 };
        let over_loss =
            format!("{join} $lossy_address && {} && {leave} $lossy_address", self.copying(lossy, ""));
        cases.push(case(format!("{name}: one frame in a hundred is lost"), SAME, &over_loss));
        cases
    }

    /// Copies `size` MiB there and back. At least that many cross the wire, since a file may still be cached
    /// when it is read.
    fn copying(&self, size: u32, around: &str) -> String {
        format!("crossing {size} {around} {}", self.copy.replace("SIZE", &size.to_string()))
    }
}

fn case(name: impl Into<String>, wanted: &'static str, command: &str) -> Mlx5Case {
    ports::case(name, wanted, FUNCTIONS.0, command)
}

/// A step that other rows depend on.
fn step(name: String, command: &str) -> Mlx5Case {
    set_up(case(name, "done", &format!("{command} && echo done")))
}

fn set_up(case: Mlx5Case) -> Mlx5Case {
    Mlx5Case { set_up: true, limit: Duration::from_secs(120), ..case }
}

/// Checks the kernel's log without the lines that `expected` matches, then clears it, so that the next row
/// sees only what is new.
fn clean(when: &str, expected: &str) -> Mlx5Case {
    let look = format!(
        "bad=$(dmesg --level=emerg,alert,crit,err,warn | grep -vE '{expected}' |
        grep -iE 'mlx5|infiniband|ib_|rdma|nvme|iscsi|iser|rpc|svc|nfs|target|WARNING:|BUG:|hung')
    dmesg --clear
    test -z \"$bad\" && echo clean || {{ echo \"$bad\"; false; }}"
    );
    Mlx5Case::new(format!("kernel log {when}"), "clean", look)
}
