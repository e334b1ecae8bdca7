//! The judge of a device that the kernel owns: Linux's mlx5_ib passes the commands of `bareverbs` on to the simulated NIC (DEVX), beside
//! its own objects.
//!
//! Two ports are at one switch, and their NICs have user contexts. The programs are ours, and what they meet is not: mlx5_core has booted
//! the NICs, and mlx5_ib decides which commands a program may send. A warning in the kernel's log is a failure. Start reading at `all`, then
//! `devx.sh`.

use super::command;
use super::kernel::Kernel;
use super::machine::{Configuration, Machine};
use super::mlx5::cases::{self, Mlx5Case};
use super::mlx5::nic::ServedNics;
use super::mlx5::options::ask;
use super::root::Root;
use super::table::Report;
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use std::fs;
use std::path::PathBuf;

/// Numbers of the NICs at the switch; a wire would join NICs with lower numbers.
const NICS: [usize; 2] = [2, 3];
/// The shell functions, and the name of their file in the guest.
const FUNCTIONS: (&str, &str) = ("devx.sh", include_str!("devx.sh"));
/// Our programs, by their names in the guest.
const COMMAND: &str = "bareverbs";
const LOOPBACK: &str = "uverbs_loopback";

/// What to run, and where to put consoles and logs.
#[derive(Debug, Clone)]
pub struct DevxOptions {
    /// Only rows whose name contains this; what they need is always run.
    pub only: Option<String>,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and runs every case.
pub fn run(options: &DevxOptions) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    fs::create_dir_all(&options.output)?;
    let programs = [(COMMAND, command::build()?), (LOOPBACK, command::build_example(LOOPBACK)?)];
    let mut files = vec![(FUNCTIONS.0.to_owned(), FUNCTIONS.1.into())];
    for (name, path) in programs {
        files.push((name.to_owned(), fs::read(path)?));
    }
    // Dropped in this order: the guest before what serves it.
    let mut nics = ServedNics::start_with_user_contexts(LinkLayer::Ethernet, &NICS, &options.output)?;
    let vfio_user = NICS.map(|index| nics.socket(index)).to_vec();
    let configuration = Configuration { vfio_user, files, ..Configuration::default() };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("devx-console.log"))?;
    let mut report = Report::new(&["case"]);
    for case in all() {
        if case.set_up || options.only.as_ref().is_none_or(|only| case.name.contains(only.as_str())) {
            report.add(ask(&mut machine, &case)?);
        }
    }
    drop(machine);
    report.add(nics.losses());
    report.add(nics.entry("commands of the drivers"));
    Ok(report)
}

fn case(name: &str, wanted: &'static str, command: &str) -> Mlx5Case {
    let functions = Machine::path_inside(FUNCTIONS.0);
    let programs = functions.trim_end_matches(FUNCTIONS.0).trim_end_matches('/').to_owned();
    Mlx5Case::new(name, wanted, format!("programs={programs}; . {functions}\n{command}"))
}

/// All cases, in order.
fn all() -> Vec<Mlx5Case> {
    let needed = |case| Mlx5Case { set_up: true, ..case };
    vec![
        cases::probe(),
        needed(case("our programs are there", "2 ports", "install_programs && ready")),
        case("WRITE, READ and SEND to itself", "SEND: 20 bytes", "uverbs_loopback $first"),
        case("again: nothing was left behind", "SEND: 20 bytes", "uverbs_loopback $first"),
        case(
            "beside a program of libibverbs, which uses DEVX, too",
            "iters in",
            "ibv_rc_pingpong -d $first -g 1 -n 50000 -c >/tmp/server 2>&1 & sleep 1
             ibv_rc_pingpong -d $first -g 1 -n 50000 -c localhost >/tmp/client 2>&1 & client=$!
             uverbs_loopback $first | grep 'SEND: 20 bytes' || exit 1
             wait $client; status=$?; cat /tmp/client; exit $status",
        ),
        needed(case("a service at the first device", "", "serve; status=$?; echo; exit $status")),
        case("lookups from the second device", "value of key-7", "look_up key-7 -n 10"),
        case(
            "our performance test between the two",
            "100000 bytes compared, all equal",
            "measure write bw -s 100000 -n 50",
        ),
        case("a service that is killed", "", "end_service KILL; status=$?; echo; exit $status"),
        needed(case("another one takes its place", "", "serve; status=$?; echo; exit $status")),
        case("lookups from the second device, again", "value of key-9", "look_up key-9"),
        case("a service that is told to end", "", "end_service TERM; status=$?; echo; exit $status"),
        case("WRITE, READ and SEND after all that", "SEND: 20 bytes", "uverbs_loopback $second"),
        needed(case("the second port in a network namespace", "", "separate; status=$?; echo; exit $status")),
        case(
            "READs between addresses of IPv4",
            "100000 bytes compared, all equal",
            "at='ip netns exec far' to=$near_address
             measure read bw -s 100000 -n 50 >/tmp/both; status=$?; cat /tmp/both
             for address in $near_address $far_address; do
                 gid=$(printf '255:255:%02d:%02d:%02d:%02d' $(echo $address | tr . ' '))
                 grep -q $gid /tmp/both || { echo no GID of $address; exit 1; }
             done
             exit $status",
        ),
        cases::clean("in the end"),
    ]
}
