//! RDMA CM over InfiniBand between the guest and `bareverbs perf`, which has a NIC of its own at the far
//! switch. This side has no kernel and no TAP interface; `bareverbs` itself answers ARP and neighbour
//! discovery of IPoIB.

use super::super::command;
use super::super::machine::Machine;
use super::super::mlx5::nic::ServedNics;
use super::super::mlx5::our_tools::ToolRun;
use super::super::table::{Entry, Report, Verdict};
use super::gateway::FarSwitch;
use crate::perftest_rows::{agree, clock_note};
use anyhow::{Context, Result, ensure};
use bareverbs_perftest::Role;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Number of the NIC.
const NUMBER: usize = 5;
/// How long a program may run, on either side.
const LIMIT: Duration = Duration::from_secs(90);

/// A test: its name, the guest's program, the arguments of `bareverbs perf`, options for both, the role of
/// the guest's program, and whether addresses are IPv6.
struct OwnSideRow {
    name: &'static str,
    program: &'static str,
    words: &'static str,
    options: &'static str,
    role: Role,
    is_ipv6: bool,
}

const ROWS: &[OwnSideRow] = &[
    OwnSideRow {
        name: "RDMA CM with bareverbs perf: ib_write_bw -R calls",
        program: "ib_write_bw",
        words: "write bw",
        options: "-s 65536 -n 200 -q 2",
        role: Role::Client,
        is_ipv6: false,
    },
    OwnSideRow {
        name: "RDMA CM with bareverbs perf: ib_write_bw -R is called",
        program: "ib_write_bw",
        words: "write bw",
        options: "-s 65536 -n 200",
        role: Role::Server,
        is_ipv6: false,
    },
    OwnSideRow {
        name: "RDMA CM with bareverbs perf: ib_send_lat -R calls",
        program: "ib_send_lat",
        words: "send lat",
        options: "-n 100",
        role: Role::Client,
        is_ipv6: false,
    },
    OwnSideRow {
        name: "RDMA CM with bareverbs perf: ib_send_lat -R of datagrams is called",
        program: "ib_send_lat",
        words: "send lat",
        options: "-c UD -n 100",
        role: Role::Server,
        is_ipv6: false,
    },
    OwnSideRow {
        name: "RDMA CM with bareverbs perf: ib_read_bw -R by IPv6",
        program: "ib_read_bw",
        words: "read bw",
        options: "-s 5000 -n 100",
        role: Role::Client,
        is_ipv6: true,
    },
];

/// Our IPv4 and IPv6 addresses, and those of the guest's near interface, which is in the same networks
/// (`ipoib.sh`).
const OURS: [&str; 2] = ["10.44.0.9", "fd44::9"];
const THEIRS: [&str; 2] = ["10.44.0.1", "fd44::1"];

/// Both sides of the tests.
struct OwnSide<'a> {
    machine: &'a mut Machine,
    functions: &'a str,
    bareverbs: PathBuf,
    socket: PathBuf,
    output: &'a Path,
}

/// Runs the rows that are wanted. The interfaces of IPoIB must be up.
pub(super) fn play(
    machine: &mut Machine,
    functions: &str,
    far: &FarSwitch<'_>,
    only: Option<&str>,
    report: &mut Report,
) -> Result<()> {
    let is_wanted = |row: &&OwnSideRow| only.is_none_or(|only| row.name.contains(only));
    let rows: Vec<&OwnSideRow> = ROWS.iter().filter(is_wanted).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let nics: &ServedNics = far.nics;
    nics.serve_at(NUMBER, far.fabric)?;
    let (bareverbs, socket) = (command::build()?, nics.socket(NUMBER));
    let mut side = OwnSide { machine, functions, bareverbs, socket, output: far.output };
    for row in rows {
        let start = Instant::now();
        let verdict = match side.measure(row) {
            Ok(seen) => Verdict::Pass(seen),
            Err(error) => Verdict::Fail(format!("{error:#}")),
        };
        report.add(Entry { columns: vec![row.name.to_owned()], verdict, elapsed: start.elapsed() });
    }
    Ok(())
}

impl OwnSide<'_> {
    fn measure(&mut self, row: &OwnSideRow) -> Result<String> {
        let (theirs, ours) = match row.role {
            Role::Server => self.call(row)?,
            Role::Client => self.be_called(row)?,
        };
        let (server, client) = if row.role == Role::Server { (&theirs, &ours) } else { (&ours, &theirs) };
        agree(server, client).with_context(|| format!("what they said:\n{server}\nand\n{client}"))?;
        ensure!(
            theirs.contains("rdma_cm QPs"),
            "the guest's program does not say how it connects:\n{theirs}"
        );
        Ok(format!("the figures of {} and bareverbs perf agree{}", row.program, clock_note(&theirs)))
    }

    /// Our end resolves the guest's address and connects.
    fn call(&mut self, row: &OwnSideRow) -> Result<(String, String)> {
        let job = self.machine.control.start(&self.guest_command(row, ""), LIMIT)?;
        // If the caller is earlier than the listener, it tries again.
        let ours = self.start(row, THEIRS[usize::from(row.is_ipv6)]).and_then(ToolRun::finish);
        let control = &mut self.machine.control;
        let ended = if ours.is_ok() { control.wait(&job)? } else { control.cancel(&job)? };
        let ours = ours.with_context(|| format!("the guest's program said: {}", ended.output))?;
        ensure!(ended.status == 0, "the guest's program ended with {}: {}", ended.status, ended.output);
        Ok((ended.output, ours))
    }

    /// The guest resolves our address and connects.
    fn be_called(&mut self, row: &OwnSideRow) -> Result<(String, String)> {
        let server = self.start(row, "")?;
        server.wait_for("waiting for the client at RDMA CM port ")?;
        let command = self.guest_command(row, OURS[usize::from(row.is_ipv6)]);
        let ended = self.machine.control.run(&command, LIMIT)?;
        ensure!(ended.status == 0, "the guest's program ended with {}: {}", ended.status, ended.output);
        Ok((ended.output, server.finish()?))
    }

    /// The guest's program on the near interface, in its namespace.
    fn guest_command(&self, row: &OwnSideRow, peer: &str) -> String {
        let (functions, OwnSideRow { program, options, .. }) = (self.functions, row);
        let family = if row.is_ipv6 { "--ipv6-addr" } else { "" };
        format!(
            "functions={functions}\n. {functions}\n. $(dirname $functions)/ipoib.sh\nat near {program} -R -F -d $near {family} {options} {peer}"
        )
    }

    fn start(&self, row: &OwnSideRow, peer: &str) -> Result<ToolRun> {
        let (address, seconds) = (OURS[usize::from(row.is_ipv6)], LIMIT.as_secs());
        let OwnSideRow { words, options, .. } = row;
        let words = format!("perf {words} -R --address {address} {options} --timeout {seconds} {peer}");
        let said = self.output.join("subnet-perf.log");
        ToolRun::start(&self.bareverbs, &self.socket, said, &words)
    }
}
