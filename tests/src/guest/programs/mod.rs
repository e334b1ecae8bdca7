//! The judge of programs of other projects on Linux's mlx5_ib: UCX, OpenMPI, libfabric, qperf and DPDK,
//! between two ports of one guest, and programs of RDMA CM between a port of the guest and a host of
//! `bareverbs run`.
//!
//! Three ports are at one switch, as for [`super::storage`], and the last one loses frames. Each program
//! compares what it receives, or counts it. A warning in the kernel's log is a failure. Start reading at
//! `verbs`, then `programs.sh`.

mod functions;
mod hosted;
pub mod snabb;

use super::kernel::{self, Kernel};
use super::machine::{Configuration, Machine};
use super::mlx5::cases::{self, Mlx5Case};
use super::mlx5::nic::ServedNics;
use super::mlx5::options::ask;
use super::ports::{self, PORTS};
use super::root::Root;
use super::table::Report;
use anyhow::Result;
use bareverbs_sim::nic::LinkLayer;
use functions::FUNCTIONS;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Numbers of the NICs at the switch; a wire would join NICs with lower numbers.
const NEAR: usize = 2;
const FAR: usize = 3;
const LOSSY: usize = 4;
/// Faults on the frames of the last one, in both directions.
const FAULTS: &str = "loss=0.01";
/// The script that compares the bytes of two ends, and its name in the guest.
const EXCHANGE: (&str, &str) = ("exchange.py", include_str!("exchange.py"));
/// Memory of the guest in MiB: DPDK wants huge pages.
const MEMORY: u32 = 2048;

/// What to run, and where to put consoles and logs.
#[derive(Debug, Clone)]
pub struct ProgramsOptions {
    /// Only rows whose name contains this; what they need is always run.
    pub only: Option<String>,
    /// Run every transport and operation instead of one of each kind.
    pub long: bool,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and runs every case.
pub fn run(options: &ProgramsOptions) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    fs::create_dir_all(&options.output)?;
    // Dropped in this order: the guest before what serves it.
    let mut nics = ServedNics::start(LinkLayer::Ethernet, &[NEAR, FAR], &options.output)?;
    nics.serve_by_command(LOSSY, Some(FAULTS), &options.output)?;
    let files = [PORTS, FUNCTIONS, EXCHANGE];
    let configuration = Configuration {
        memory: MEMORY,
        vfio_user: [NEAR, FAR, LOSSY].map(|index| nics.socket(index)).to_vec(),
        files: files.map(|(name, text)| (name.to_owned(), text.into())).to_vec(),
        kernel_words: kernel::short_form_words(options.long),
        ..Configuration::default()
    };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("programs-console.log"))?;
    let mut report = Report::new(&["case"]);
    let only = options.only.as_deref();
    let wanted = |case: &Mlx5Case| case.set_up || only.is_none_or(|only| case.name.contains(only));
    for case in verbs(options.long).iter().filter(|case| wanted(case)) {
        report.add(ask(&mut machine, case)?);
    }
    hosted::play(&mut machine, &nics, only, &mut report)?;
    for case in packets_and_logs().iter().filter(|case| wanted(case)) {
        report.add(ask(&mut machine, case)?);
    }
    drop(machine);
    // The switch floods what testpmd sends to unknown addresses, and the third port does not read: losses at
    // the switch are no fault.
    report.add(nics.entry("commands of the drivers"));
    Ok(report)
}

/// All cases of verbs programs, in order.
fn verbs(long: bool) -> Vec<Mlx5Case> {
    let bring_up = case("mlx5 probes", "PORT_ACTIVE", "bring_up");
    let mut cases = vec![Mlx5Case { set_up: true, limit: Duration::from_secs(120), ..bring_up }];
    cases.extend(ucx(long));
    cases.extend(mpi(long));
    cases.extend(fabric(long));
    cases.push(qperf(long));
    cases
}

/// The cases of the kernel's log and of DPDK, which takes the ports from the kernel's drivers.
fn packets_and_logs() -> Vec<Mlx5Case> {
    let (after_verbs, at_end) = (cases::clean("after verbs"), cases::clean("in the end"));
    [after_verbs].into_iter().chain(packets()).chain([at_end]).collect()
}

/// UCX's own benchmarks over its mlx5 transports. They compare no bytes; OpenMPI's exchange does. `run-judge` runs each
/// transport without Linux's driver, so the short form asks one reliable transport and one of datagrams.
fn ucx(long: bool) -> Vec<Mlx5Case> {
    let tests: &[&str] = if long {
        &["tag_lat", "ucp_put_bw", "ucp_get", "ucp_add", "ucp_cswap", "stream_bw"]
    } else {
        &["tag_lat", "ucp_get"]
    };
    let transports: &[&str] =
        if long { &["rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5"] } else { &["rc_mlx5", "ud_verbs"] };
    let mut cases = vec![case("ucx_info", "Transport: rc_mlx5", "ucx_info -d")];
    for transport in transports {
        for test in tests {
            // UCX knows atomics of 4 and of 8 bytes.
            let size = if ["ucp_add", "ucp_cswap"].contains(test) { 8 } else { 1024 };
            let command = format!("ucx_between {transport} -t {test} -n 500 -s {size}");
            cases.push(case(format!("ucx_perftest {test} over {transport}"), "Final:", &command));
        }
    }
    cases.push(case(
        "ucx_perftest tag_bw of 1 MiB over rc_mlx5",
        "Final:",
        "ucx_between rc_mlx5 -t tag_bw -n 50 -s 1048576",
    ));
    cases
}

/// Four ranks of OpenMPI, two on each port, send each other blocks of 1 B to 256 KiB and compare them.
fn mpi(long: bool) -> Vec<Mlx5Case> {
    let transports: &[&str] =
        if long { &["rc_verbs", "rc_mlx5", "ud_verbs", "ud_mlx5"] } else { &["rc_mlx5"] };
    let program = Machine::path_inside(EXCHANGE.0);
    let one = |transport: &&str| {
        let command = format!("mpi_between {transport} {program}");
        case(format!("OpenMPI all-to-all over UCX {transport}"), "same bytes, 4 ranks", &command)
    };
    transports.iter().map(one).collect()
}

/// `verbs;ofi_rxm` sends its datagrams by messages of `verbs`.
fn fabric(long: bool) -> Vec<Mlx5Case> {
    let one = |(provider, endpoint): &(&str, &str)| {
        let command = format!("fabric_between '{provider}' {endpoint}");
        case(format!("fi_pingpong {provider} {endpoint}"), "1m", &command)
    };
    let messages = Some(("verbs", "msg")).filter(|_| long);
    messages.iter().chain(&[("verbs;ofi_rxm", "rdm")]).map(one).collect()
}

fn qperf(long: bool) -> Mlx5Case {
    let tests = if long {
        "rc_bw rc_lat rc_rdma_read_bw rc_rdma_read_lat rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat \
         rc_fetch_add_mr rc_compare_swap_mr ver_rc_fetch_add ver_rc_compare_swap"
    } else {
        "rc_lat rc_rdma_read_bw rc_rdma_write_poll_lat ver_rc_fetch_add ver_rc_compare_swap"
    };
    let wanted = if long { "11 results" } else { "5 results" };
    case("qperf through RDMA CM", wanted, &format!("qperf_between {tests}"))
}

/// DPDK's testpmd drives both ports from user space. Each row: what it does, its commands, its options, and
/// what it must count.
const PACKETS: [[&str; 4]; 6] = [
    ["forwards", "set fwd io", "", BOTH_RECEIVE],
    ["swaps addresses", "set fwd macswap", "", BOTH_RECEIVE],
    [
        "has checksums made and checked",
        r"port stop all\ncsum set ip hw 0\ncsum set udp hw 0\ncsum set ip hw 1\ncsum set udp hw 1\nport start all\nset fwd csum",
        "--enable-rx-cksum",
        "$(rx 0) -ge 32 -a $(rx 1) -ge 32 -a $(grep -c 'Bad-ipcsum: 0  *Bad-l4csum: 0 ' /tmp/testpmd) -ge 2",
    ],
    [
        "drops by a flow rule",
        r"flow create 1 ingress pattern eth / ipv4 / udp / end actions drop / end\nset fwd io",
        "",
        "$(rx 0) -ge 32 -a $(rx 1) -eq 0",
    ],
    [
        "chooses a queue by a flow rule",
        r"flow create 1 ingress pattern eth / ipv4 / udp / end actions queue index 1 / end\nset fwd io",
        "--rxq=2 --txq=2",
        "$(queue_rx 1 1) -ge 32 -a $(queue_rx 1 0) -eq 0",
    ],
    [
        "spreads flows over queues (RSS)",
        "set fwd io",
        "--rxq=4 --txq=4 --rss-udp --txonly-multi-flow",
        "$(queue_rx 1 0) -ge 8 -a $(queue_rx 1 1) -ge 8 -a $(queue_rx 1 2) -ge 8 -a $(queue_rx 1 3) -ge 8",
    ],
];
const BOTH_RECEIVE: &str = "$(rx 0) -ge 32 -a $(rx 1) -ge 32";

fn packets() -> impl Iterator<Item = Mlx5Case> {
    PACKETS.iter().map(|[name, commands, options, counted]| {
        let command = format!("testpmd '{commands}' {options} && counts \"{}\"", counted.replace('$', "\\$"));
        case(format!("DPDK testpmd {name}"), "counted", &command)
    })
}

fn case(name: impl Into<String>, wanted: &'static str, command: &str) -> Mlx5Case {
    ports::case(name, wanted, FUNCTIONS.0, command)
}
