//! The judge of a device that the kernel owns: Linux's mlx5_ib passes the commands of `bareverbs` on to the simulated NIC (DEVX), beside
//! its own objects.
//!
//! Two functions of a DPU are at one switch, that of the host and that of the Arm cores, and both have user contexts. The programs are ours, and what they meet is not: mlx5_core has booted
//! the NICs, and mlx5_ib decides which commands a program may send. A warning in the kernel's log is a failure. Start reading at `all`, then
//! `devx.sh`.

use super::command;
use super::kernel::{self, Kernel};
use super::machine::{Configuration, Machine};
use super::mlx5::cases::{self, Mlx5Case};
use super::mlx5::nic::ServedNics;
use super::mlx5::options::ask;
use super::root::Root;
use super::table::{Entry, Report, Verdict};
use crate::device_fields::{LINUX, compare_fields, compare_gids};
use anyhow::{Context, Result};
use bareverbs_sim::nic::LinkLayer;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Numbers of the NICs at the switch; a wire would join NICs with lower numbers.
const NICS: [usize; 2] = [2, 3];
/// The shell functions, and the name of their file in the guest.
const FUNCTIONS: (&str, &str) = ("devx.sh", include_str!("devx.sh"));
/// The row that compares our tools with `ibv_devinfo -v`, and how long one of them may take.
const DESCRIBED: &str = "devinfo and gids, against ibv_devinfo -v";
const TOOL_LIMIT: Duration = Duration::from_secs(60);
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
    let mut nics = ServedNics::start_card_with_user_contexts(LinkLayer::Ethernet, &NICS, &options.output)?;
    let vfio_user = NICS.map(|index| nics.socket(index)).to_vec();
    let kernel_words = kernel::short_form_words(false);
    let configuration = Configuration { vfio_user, files, kernel_words, ..Configuration::default() };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("devx-console.log"))?;
    let mut report = Report::new(&["case"]);
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    for case in all() {
        if case.set_up || wanted(&case.name) {
            report.add(ask(&mut machine, &case)?);
        }
    }
    if wanted(DESCRIBED) {
        let start = Instant::now();
        let verdict = describe(&mut machine).unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")));
        report.add(Entry { columns: vec![DESCRIBED.into()], verdict, elapsed: start.elapsed() });
    }
    let clean = cases::clean("in the end");
    if wanted(&clean.name) {
        report.add(ask(&mut machine, &clean)?);
    }
    drop(machine);
    report.add(nics.losses());
    report.add(nics.entry("commands of the drivers"));
    Ok(report)
}

/// What our tools report of the first device has to be what libibverbs reports.
fn describe(machine: &mut Machine) -> Result<Verdict> {
    let in_guest = |command: &str| {
        let functions = Machine::path_inside(FUNCTIONS.0);
        format!(". {functions}\n{command}")
    };
    let mut said = |command: &str| machine.control.require(&in_guest(command), TOOL_LIMIT);
    let printed = said("ibv_devinfo -v -d $first")?;
    let mut object = |tool: &str| -> Result<Value> {
        let text = said(&format!("bareverbs {tool} --device uverbs:$first --json"))?;
        Ok(serde_json::from_str::<Value>(&text).with_context(|| text.clone())?[tool].take())
    };
    let (device, table) = (object("devinfo")?, object("gids")?);
    compare_fields(&printed, &device, LINUX).context("devinfo")?;
    compare_gids(&printed, &table).context("gids")?;
    let unknown = device["unknown"].as_object().context("devinfo says of no value why it is not known")?;
    let entries = table["entries"].as_array().map_or(0, Vec::len);
    Ok(Verdict::Pass(format!("all fields and {entries} GIDs are the same; not known: {}", unknown.len())))
}

fn case(name: &str, wanted: &'static str, command: &str) -> Mlx5Case {
    let functions = Machine::path_inside(FUNCTIONS.0);
    let programs = functions.trim_end_matches(FUNCTIONS.0).trim_end_matches('/').to_owned();
    Mlx5Case::new(name, wanted, format!("programs={programs}; . {functions}\n{command}"))
}

/// A case that others depend on.
fn needed(case: Mlx5Case) -> Mlx5Case {
    Mlx5Case { set_up: true, ..case }
}

/// All cases, in order.
fn all() -> Vec<Mlx5Case> {
    let mut cases = vec![
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
    ];
    cases.extend(memory_of_the_host());
    cases.extend(addresses());
    cases
}

/// A service on the Arm cores reads what the host shares.
fn memory_of_the_host() -> Vec<Mlx5Case> {
    vec![
        needed(case("a service on the Arm cores without a table", "", "serve_on_arm; status=$?; echo; exit $status")),
        case(
            "a table in the host's memory, under an alias",
            "b: \"two\"",
            "! look_up_shared a || exit 1
             share 'a,one\nb,two\n' && look_up_shared a b",
        ),
        case(
            "the host changes its table",
            "c: \"three\"",
            "cd /tmp/arm && printf 'a,uno\nc,three\n' >rows.csv && kill -HUP $(cat host.pid) && logged host.log 'changes=3' || exit 1
             look_up_shared a | grep uno && ! look_up_shared b && look_up_shared c",
        ),
        case(
            "the host is killed, and shares again",
            "a: \"due\"",
            "end_service KILL /tmp/arm/host.pid && logged /tmp/arm/log 'the table is gone' && ! look_up_shared a || exit 1
             share 'a,due\n' && look_up_shared a && end_service TERM /tmp/arm/host.pid && end_service TERM /tmp/arm/pid",
        ),
    ]
}

/// What becomes of the interfaces and their addresses, and what our tools report.
fn addresses() -> Vec<Mlx5Case> {
    vec![
        case(
            "doctor: a healthy port, and one that is switched off",
            "only port.disabled",
            "bareverbs doctor --device uverbs:$first --json >/tmp/good || { cat /tmp/good; exit 1; }
             ip link set $(netdev_of $first) down && sleep 1
             bareverbs doctor --device uverbs:$first >/tmp/bad; status=$?; cat /tmp/good /tmp/bad; ready
             [ $status = 1 ] && [ \"$(grep -c '^bad' /tmp/bad)\" = 1 ] && grep -q 'bad *port.disabled' /tmp/bad && echo only port.disabled",
        ),
        case(
            "gids: the address of the other port of this machine",
            "belongs to this machine",
            "near=$(netdev_of $first) far=$(netdev_of $second)
             ip addr add fd07::1/64 dev $near nodad && ip addr add fd07::2/64 dev $far nodad || exit 1
             for i in $(seq 50); do grep -q fd07 /sys/class/infiniband/$first/ports/1/gids/3 && break; sleep 0.1; done
             bareverbs gids --device uverbs:$first --peer fd07::2; status=$?
             ip addr del fd07::1/64 dev $near; ip addr del fd07::2/64 dev $far; [ $status = 1 ]",
        ),
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
        case(
            "gids: which addresses the kernel's routes lead from",
            "nobody at 10.9.0.77",
            "bareverbs gids --device uverbs:$first --peer $far_address >/tmp/gids; status=$?; cat /tmp/gids
             [ $status = 0 ] && grep 'use this' /tmp/gids | grep -q '10.9.0.1 *v2' || exit 1
             bareverbs gids --device uverbs:$first --peer 10.9.0.77 >/tmp/gids; status=$?; cat /tmp/gids
             [ $status = 1 ] && grep -q 'the kernel reports no path' /tmp/gids && echo nobody at 10.9.0.77",
        ),
    ]
}
