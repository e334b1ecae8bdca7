//! `bareverbs run --list`, and `--link-down` and `--link-up` while programs run: for one device of a host,
//! and for a whole host.

use crate::guest::table::Verdict;
use crate::installation::{
    HostedProgram, Installation, ListedProcess, StartedProgram, free_port, is_installed,
};
use anyhow::{Context, Result, ensure};
use std::time::{Duration, Instant};

/// Seconds for which the programs exchange messages.
const SECONDS: u32 = 6;
/// Bounds on how long a cable is out: until the other device has received some frames, for which its programs
/// may have to wait for a processor. The requesters retry for two seconds or longer (`-u 16`: eight attempts
/// of 268 ms).
const SHORTEST_OUT: Duration = Duration::from_millis(200);
const LONGEST_OUT: Duration = Duration::from_millis(1500);
/// Frames in flight when a cable is pulled out may still be counted.
const SETTLING: Duration = Duration::from_millis(50);
/// A device that counts more frames than this carries traffic; one with fewer only sees retries. The program
/// sends several thousand in this time.
const REPEATED: u64 = 20;
const DEVICES: [&str; 2] = ["mlx5_0", "mlx5_1"];
const PROGRAM: &str = "ib_send_lat";
const WATCH: &str = "ibv_asyncwatch";

fn program(host: &str, device: &str, port: u16, peer: &str) -> HostedProgram {
    let command = format!("{PROGRAM} -F -D {SECONDS} -u 16 -d {device} -p {port} {peer}");
    HostedProgram { host: host.into(), command: command.split_whitespace().map(str::to_owned).collect() }
}

/// Runs a pair of programs on each of two devices, pulls out the cable of one device and plugs it in again.
/// Its pair stops meanwhile and continues afterwards; the other pair does not notice, and a program that
/// watches the device gets the port events.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if let Some(missing) = [PROGRAM, WATCH].into_iter().find(|program| !is_installed(program)) {
        return Ok(Verdict::Skip(format!(
            "{missing} is not installed (Debian: apt-get install perftest ibverbs-utils)"
        )));
    }
    let options = ["--ports", "2"].map(str::to_owned);
    let watch = ["stdbuf", "-oL", WATCH, "-d", DEVICES[1]].map(str::to_owned).to_vec();
    let mut watch = installation.start(&HostedProgram { host: "a".into(), command: watch }, &options)?;
    watch.wait_until_said(|said| said.contains("async event FD"))?;
    let pairs = [start_pair(installation, 0, &options)?, start_pair(installation, 1, &options)?];
    for host in ["a", "a-mlx5_1", "b", "b-mlx5_1"] {
        installation.wait_for_frames(host, 100)?;
    }
    let listed = check_list(installation, &pairs)?;
    cut(installation)?;
    watch.wait_until_said(|said| ["PORT_ERR", "PORT_ACTIVE"].iter().all(|event| said.contains(event)))?;
    for ended in pairs.into_iter().flatten().map(StartedProgram::finish) {
        let ended = ended?;
        ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    }
    Ok(Verdict::Pass(format!("{listed} processes listed")))
}

/// Both ends of a test on the device with this number.
fn start_pair(installation: &Installation, number: usize, options: &[String]) -> Result<[StartedProgram; 2]> {
    let port = free_port()?;
    let mut server = installation.start(&program("a", DEVICES[number], port, ""), options)?;
    server.wait_for_port(installation, port)?;
    let client = installation.start(&program("b", DEVICES[number], port, "a"), options)?;
    Ok([server, client])
}

/// Checks what `--list` says about the programs: their numbers, names, queue pairs and frames.
fn check_list(installation: &Installation, pairs: &[[StartedProgram; 2]; 2]) -> Result<usize> {
    let listed = installation.list()?;
    for (device, pair) in pairs.iter().enumerate() {
        for (program, host) in pair.iter().zip(["a", "b"]) {
            let port = if device == 0 { host.to_owned() } else { format!("{host}-mlx5_{device}") };
            let process = listed.iter().find(|process| process.host == port && process.pid == program.id());
            let process = process
                .with_context(|| format!("process {} at {port} is not in {listed:?}", program.id()))?;
            let ListedProcess { program, queue_pairs, sent, received, .. } = process;
            ensure!(program == PROGRAM && *queue_pairs == 1 && *sent > 0 && *received > 0, "{process:?}");
        }
    }
    Ok(listed.len())
}

/// Frames that the processes of a host have received at a device, in the order of `DEVICES`.
fn received(installation: &Installation) -> Result<[u64; 2]> {
    let listed = installation.list()?;
    Ok(["a", "a-mlx5_1"].map(|port| {
        listed.iter().filter(|process| process.host == port).map(|process| process.received).sum()
    }))
}

/// What a program on host `a` reads about its two ports, the second of which has its cable out: from
/// libibverbs, sysfs and, where the `rdma` tool is installed, NETLINK_RDMA.
fn check_states(installation: &Installation) -> Result<()> {
    let states = "/sys/class/infiniband/$device/ports/1";
    let link = if is_installed("rdma") { "rdma link show $device/1; " } else { "" };
    let script = format!(
        "for device in {}; do echo $device; ibv_devinfo -d $device | grep state; cat {states}/state {states}/phys_state; {link}done",
        DEVICES.join(" ")
    );
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let options = ["--ports", "2"].map(str::to_owned);
    let ended = installation.start(&HostedProgram { host: "a".into(), command }, &options)?.finish()?;
    let (plugged, unplugged) =
        ended.said.split_once(DEVICES[1]).context("nothing about the second device")?;
    let is_up = ["PORT_ACTIVE", "4: ACTIVE", "5: LinkUp"].iter().all(|state| plugged.contains(state));
    let is_down = ["PORT_DOWN", "1: DOWN", "3: Disabled"].iter().all(|state| unplugged.contains(state));
    let is_told = link.is_empty() || plugged.contains("state ACTIVE") && unplugged.contains("state DOWN");
    ensure!(
        is_up && is_down && is_told,
        "states of the ports, of which the second has no cable:\n{}",
        ended.said
    );
    Ok(())
}

/// Pulls the cable of the second device out and plugs it in again.
fn cut(installation: &Installation) -> Result<()> {
    let cable = |option: &str| -> Result<()> {
        let ended = installation.run_tool(&["run", option, "a:1"])?;
        ensure!(ended.status.success(), "{option}: {}, and said:\n{}", ended.status, ended.said);
        Ok(())
    };
    cable("--link-down")?;
    std::thread::sleep(SETTLING);
    let (before, start) = (received(installation)?, Instant::now());
    let mut after = before;
    while start.elapsed() < SHORTEST_OUT || after[0] - before[0] <= REPEATED && start.elapsed() < LONGEST_OUT
    {
        std::thread::sleep(SETTLING);
        after = received(installation)?;
    }
    check_states(installation)?;
    let is_shown = installation
        .run_tool(&["run", "--list"])?
        .said
        .lines()
        .any(|line| line.trim_start().starts_with("a-mlx5_1 ") && line.contains("(down)"));
    cable("--link-up")?;
    ensure!(is_shown, "--list does not show that the cable is out");
    ensure!(
        after[1] - before[1] < REPEATED,
        "{} frames came through a cable that is out",
        after[1] - before[1]
    );
    ensure!(after[0] - before[0] > REPEATED, "only {} frames came by the other device", after[0] - before[0]);
    installation.wait_for_frames("a-mlx5_1", after[1] + REPEATED * 10)
}
