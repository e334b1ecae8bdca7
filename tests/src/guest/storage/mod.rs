//! The judge of fast registration: storage of Linux's kernel over RDMA, NVMe, NFS and iSER, both ends in one guest, each at a
//! port of its own.
//!
//! **What this is.** Three ports at one switch, of which the last loses frames. What is written by one port is read back, compared,
//! and compared with what the other end has stored; every row shows that the bytes crossed the wire. **What it may not do.** A
//! warning of the kernel is a failure, also one that storage has recovered from. **Where to read first.** `all`, then
//! `storage.sh`.

use super::kernel::Kernel;
use super::machine::{Configuration, Machine};
use super::mlx5::cases::Mlx5Case;
use super::mlx5::nic::ServedNics;
use super::mlx5::question::ask;
use super::ports::{self, PORTS};
use super::root::Root;
use super::table::Report;
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use std::path::PathBuf;
use std::time::Duration;

/// Numbers of the NICs at the switch; lower ones would be joined by a wire.
const NEAR: usize = 2;
const FAR: usize = 3;
const LOSSY: usize = 4;
/// What happens to the frames of the last one, in both directions.
const FAULTS: &str = "loss=0.01";
/// The functions that the questions are made of, and what they are called in the guest.
const FUNCTIONS: (&str, &str) = ("storage.sh", include_str!("storage.sh"));
/// Nothing of RDMA or of storage in the kernel's log at a level from warning up. Two do not speak of RDMA: LIO, and NFSD where it
/// keeps directories of clients, say that the guest's root is read-only or new. And iSER tells that a link went down and up, as it did.
const NO_FAULTS: &str = "db_root: cannot open: /etc/target|NFSD: .*(state recovery|client state) directory|iser_event_handler: async event port (error|active)";
/// What else the log may say where frames were lost. The likely cause: an initiator whose acknowledgement was lost sends its command
/// again after the target has invalidated the key of its data. The device refuses to read the data, and iSER connects anew.
const OF_LOSS: &str = "iser_err_comp: command failure: local protection error";
/// What a row says when all bytes came back and had left the machine.
const SAME: &str = "same bytes";

/// What to run, and where to leave what was seen.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// Only rows whose name contains this; what they need is always run.
    pub only: Option<String>,
    /// More bytes, and over every kind of storage what is otherwise asked of NVMe only.
    pub long: bool,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and asks every question.
pub fn run(options: &StorageOptions) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    std::fs::create_dir_all(&options.output)?;
    // In the order of their end: the guest before what serves it.
    let mut nics = ServedNics::start(LinkLayer::Ethernet, &[NEAR, FAR], &options.output)?;
    nics.serve_by_command(LOSSY, Some(FAULTS), &options.output)?;
    let configuration = Configuration {
        vfio_user: [NEAR, FAR, LOSSY].map(|index| nics.socket(index)).to_vec(),
        files: [PORTS, FUNCTIONS].map(|(name, text)| (name.to_owned(), text.into())).to_vec(),
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

/// A kind of storage: how its ends are set up, how it is joined and left, and how it moves bytes.
struct Storage {
    name: &'static str,
    target: &'static str,
    join: &'static str,
    leave: &'static str,
    /// Moves so many MiB, which the word `SIZE` stands for.
    copy: &'static str,
    /// Has fio check sums of blocks, if there are blocks.
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

/// All questions, in order.
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
        let size = if long { 200 } else { 24 };
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

    /// Moves so many MiB there and back: at least that many cross the wire, since a file may still be in memory when it is read.
    fn copying(&self, size: u32, around: &str) -> String {
        format!("crossing {size} {around} {}", self.copy.replace("SIZE", &size.to_string()))
    }
}

fn case(name: impl Into<String>, wanted: &'static str, command: &str) -> Mlx5Case {
    ports::case(name, wanted, FUNCTIONS.0, command)
}

/// What other rows need.
fn step(name: String, command: &str) -> Mlx5Case {
    set_up(case(name, "done", &format!("{command} && echo done")))
}

fn set_up(case: Mlx5Case) -> Mlx5Case {
    Mlx5Case { set_up: true, limit: Duration::from_secs(120), ..case }
}

/// The kernel's log without what `expected` matches. It is emptied, so that the next row sees only what is new.
fn clean(when: &str, expected: &str) -> Mlx5Case {
    let look = format!(
        "bad=$(dmesg --level=emerg,alert,crit,err,warn | grep -vE '{expected}' |
        grep -iE 'mlx5|infiniband|ib_|rdma|nvme|iscsi|iser|rpc|svc|nfs|target|WARNING:|BUG:|hung')
    dmesg --clear
    test -z \"$bad\" && echo clean || {{ echo \"$bad\"; false; }}"
    );
    Mlx5Case::new(format!("kernel log {when}"), "clean", look)
}
