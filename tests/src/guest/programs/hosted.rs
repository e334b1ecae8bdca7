//! RDMA CM between the guest's kernel and a host of `bareverbs run`: a wire joins a bridge of the host's
//! network to the switch of the guest's ports.
//!
//! Both ends are programs of the distribution: in the guest on Linux's `rdma_cm` and mlx5_ib, here on the
//! `rdma_cm` of `bareverbs run`.

use super::super::command;
use super::super::interrupt;
use super::super::machine::Machine;
use super::super::mlx5::nic::ServedNics;
use super::super::table::{Entry, Report, Verdict};
use super::functions::FUNCTIONS;
use crate::guest::ports::PORTS;
use crate::installation::{HostedProgram, Installation, StartedProgram, is_installed};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// The host and its addresses. The guest reaches it through its near port (`programs.sh`).
const HOST: &str = "outside";
const ADDRESSES: [&str; 2] = ["10.9.0.9", "fd0a::9"];
/// How long a program may run, on either side.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Guest,
    Host,
}

/// A pair of programs. `{guest}` and `{host}` are addresses, `{guest6}` and `{host6}` those of IPv6.
#[derive(Debug)]
struct HostedRow {
    name: &'static str,
    server: Server,
    /// The guest's command.
    guest: &'static str,
    host: &'static str,
    /// TCP or RDMA CM port of the server.
    port: u16,
    /// What the client's error has to say if it must fail; empty if both ends must succeed.
    fails_with: &'static str,
}

const fn row(
    name: &'static str,
    server: Server,
    port: u16,
    guest: &'static str,
    host: &'static str,
) -> HostedRow {
    HostedRow { name, server, guest, host, port, fails_with: "" }
}

const ROWS: &[HostedRow] = &[
    row("rping calls the guest", Server::Guest, 7174, "rping -s -V -C 20", "rping -c -V -a {guest} -C 20"),
    row("the guest's rping calls", Server::Host, 7174, "rping -c -V -a {host} -C 20", "rping -s -V -C 20"),
    row(
        "rping calls the guest by IPv6",
        Server::Guest,
        7174,
        "rping -s -V -a {guest6} -C 20",
        "rping -c -V -a {guest6} -C 20",
    ),
    row(
        "the guest's rping calls by IPv6",
        Server::Host,
        7174,
        "rping -c -V -a {host6} -C 20",
        "rping -s -V -a {host6} -C 20",
    ),
    row("ucmatose calls the guest", Server::Guest, 7471, "ucmatose -c 20 -m", "ucmatose -s {guest} -c 20 -m"),
    row("the guest's ucmatose calls", Server::Host, 7471, "ucmatose -s {host} -c 20 -m", "ucmatose -c 20 -m"),
    row("udaddy calls the guest", Server::Guest, 7174, "udaddy -c 4", "udaddy -s {guest} -c 4"),
    row("the guest's udaddy calls", Server::Host, 7174, "udaddy -s {host} -c 4", "udaddy -c 4"),
    row("rdma_client calls the guest", Server::Guest, 7471, "rdma_server", "rdma_client -s {guest}"),
    row("the guest's rdma_client calls", Server::Host, 7471, "rdma_client -s {host}", "rdma_server"),
    row(
        "ib_write_bw -R calls the guest",
        Server::Guest,
        18515,
        "ib_write_bw -R -F -d $rdma_near -n 200 -p 18515",
        "ib_write_bw -R -F -n 200 -p 18515 {guest}",
    ),
    row(
        "the guest's ib_write_bw -R calls",
        Server::Host,
        18515,
        "ib_write_bw -R -F -d $rdma_near -n 200 -p 18515 {host}",
        "ib_write_bw -R -F -n 200 -p 18515",
    ),
    row(
        "the guest's ib_send_lat -R of datagrams calls",
        Server::Host,
        18515,
        "ib_send_lat -R -F -c UD -d $rdma_near -n 100 -p 18515 {host}",
        "ib_send_lat -R -F -c UD -n 100 -p 18515",
    ),
    HostedRow {
        fails_with: "RDMA_CM_EVENT_REJECTED",
        ..row(
            "a port of the guest where nobody listens",
            Server::Guest,
            7174,
            "rping -s -C 1",
            "rping -c -a {guest} -C 1 -p 7",
        )
    },
    HostedRow {
        fails_with: "RDMA_CM_EVENT_REJECTED",
        ..row(
            "a port of the host where nobody listens",
            Server::Host,
            7174,
            "rping -c -a {host} -C 1 -p 7",
            "rping -s -C 1",
        )
    },
];

impl HostedRow {
    fn title(&self) -> String {
        format!("RDMA CM with bareverbs run: {}", self.name)
    }

    /// The program that runs here.
    fn hosted(&self) -> HostedProgram {
        let command = named(self.host).split_whitespace().map(str::to_owned).collect();
        HostedProgram { host: HOST.into(), command }
    }

    /// The program that runs in the guest. A server also gets the address at which the client will look for
    /// it; all are the near port's.
    fn in_guest(&self) -> String {
        in_guest(&format!("timeout {} {} 2>&1", LIMIT.as_secs(), named(self.guest)))
    }

    /// Whether both ends ended as they must.
    fn judge(&self, client: &HostedEnd, server: &HostedEnd) -> Result<Verdict> {
        let both = || format!("client {client:?}\nserver {server:?}");
        if self.fails_with.is_empty() {
            ensure!(client.succeeded && server.succeeded, "{}", both());
            return Ok(Verdict::Pass("both ends succeed".into()));
        }
        ensure!(!client.succeeded && client.said.contains(self.fails_with), "{}", both());
        Ok(Verdict::Pass(self.fails_with.into()))
    }
}

fn named(command: &str) -> String {
    let [host, host6] = ADDRESSES;
    let texts = [("{guest}", "10.9.0.1"), ("{guest6}", "fd0a::1"), ("{host}", host), ("{host6}", host6)];
    texts.iter().fold(command.to_owned(), |command, (name, address)| command.replace(name, address))
}

fn in_guest(command: &str) -> String {
    let [ports, functions] = [PORTS.0, FUNCTIONS.0].map(Machine::path_inside);
    format!(". {ports}; name_ports; . {functions}\n{command}")
}

/// How a program ended.
#[derive(Debug)]
struct HostedEnd {
    succeeded: bool,
    said: String,
}

/// Both ends: the guest, and the network with its bridge.
struct HostedSides<'a> {
    machine: &'a mut Machine,
    installation: Installation,
    options: Vec<String>,
    _bridge: StartedProgram,
}

/// Runs the rows that are wanted.
pub(super) fn play(
    machine: &mut Machine,
    nics: &ServedNics,
    only: Option<&str>,
    report: &mut Report,
) -> Result<()> {
    let is_wanted = |row: &&HostedRow| only.is_none_or(|only| row.title().contains(only));
    let rows: Vec<&HostedRow> = ROWS.iter().filter(is_wanted).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let mut sides = HostedSides::join(machine, nics)?;
    for row in rows {
        interrupt::check()?;
        let start = Instant::now();
        let verdict = sides.ask(row).unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")));
        report.add(Entry { columns: vec![row.title()], verdict, elapsed: start.elapsed() });
    }
    Ok(())
}

impl<'a> HostedSides<'a> {
    fn join(machine: &'a mut Machine, nics: &ServedNics) -> Result<Self> {
        command::build()?;
        command::build_library()?;
        let installation = Installation::new()?;
        let directory = installation.own_directory("wire")?;
        let [switch, own] = ["switch", "bridge"].map(|name| directory.join(name));
        nics.plug(&switch, &own)?;
        // The bridge runs without privileges and sends to a socket of this process.
        fs::set_permissions(&switch, fs::Permissions::from_mode(0o777))?;
        let [own, switch] = [own, switch].map(|path| path.to_string_lossy().into_owned());
        let bridge = installation.start_tool(&["run", "--wire", &own, "--wire-to", &switch])?;
        let bridge = bridge.wait_for_file(&installation.network_path("default").join("outside"))?;
        let [address, address6] = ADDRESSES;
        machine.control.require(&in_guest(&format!("meet_host {address} {address6}")), LIMIT)?;
        let options = ADDRESSES.iter().flat_map(|address| ["--ip".to_owned(), (*address).to_owned()]);
        Ok(Self { machine, installation, options: options.collect(), _bridge: bridge })
    }

    fn ask(&mut self, row: &HostedRow) -> Result<Verdict> {
        let hosted = row.hosted();
        if let Some(program) = hosted.command.first().filter(|program| !is_installed(program)) {
            return Ok(Verdict::Skip(format!(
                "{program} is not installed (Debian: apt-get install rdmacm-utils perftest)"
            )));
        }
        let (client, server) = match row.server {
            Server::Guest => self.call(row, &hosted)?,
            Server::Host => self.be_called(row, &hosted)?,
        };
        row.judge(&client, &server)
    }

    /// The guest's program listens; ours connects.
    fn call(&mut self, row: &HostedRow, hosted: &HostedProgram) -> Result<(HostedEnd, HostedEnd)> {
        let job = self.machine.control.start(&row.in_guest(), LIMIT)?;
        self.machine.control.require(&in_guest(&format!("listens_by_cm {}", row.port)), LIMIT)?;
        let client = self.installation.run(hosted, &self.options).context("the client, at the host")?;
        let client = HostedEnd { succeeded: client.status.success(), said: client.said };
        let control = &mut self.machine.control;
        let server = if client.succeeded { control.wait(&job)? } else { control.cancel(&job)? };
        Ok((client, HostedEnd { succeeded: server.is_success(), said: server.output }))
    }

    /// The program here listens; the guest's connects.
    fn be_called(&mut self, row: &HostedRow, hosted: &HostedProgram) -> Result<(HostedEnd, HostedEnd)> {
        let mut server = self.installation.start(hosted, &self.options)?;
        server.wait_for_port(&self.installation, row.port)?;
        let client = self.machine.control.run(&row.in_guest(), LIMIT)?;
        let client = HostedEnd { succeeded: client.is_success(), said: client.output };
        if !client.succeeded {
            // It would wait forever for a client that does not come.
            server.interrupt()?;
        }
        let server = server.finish().context("the server, at the host")?;
        Ok((client, HostedEnd { succeeded: server.status.success(), said: server.said }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RDMA CM port at which nobody listens.
    const NOBODY: &str = "7";

    #[test]
    fn each_row_names_the_other_end_and_its_servers_port() {
        for row in ROWS {
            let (client, server) = match row.server {
                Server::Guest => (row.host, row.guest),
                Server::Host => (row.guest, row.host),
            };
            let other = if row.server == Server::Guest { "{guest" } else { "{host" };
            assert!(client.contains(other), "{}: {client}", row.name);
            assert!(!named(client).contains('{') && !named(server).contains('{'), "{}", row.name);
            let is_rejected = client.ends_with(&format!("-p {NOBODY}"));
            assert_eq!(is_rejected, !row.fails_with.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn a_rejection_is_wanted_where_nobody_listens_and_a_failure_nowhere_else() {
        let end = |succeeded, said: &str| HostedEnd { succeeded, said: said.to_owned() };
        let (good, rejected) = (end(true, ""), end(false, "RDMA_CM_EVENT_REJECTED, error 8"));
        let refused = ROWS.iter().find(|row| !row.fails_with.is_empty()).expect("one is refused");
        assert!(ROWS[0].judge(&good, &good).is_ok() && ROWS[0].judge(&good, &rejected).is_err());
        assert!(ROWS[0].judge(&rejected, &good).is_err());
        assert!(refused.judge(&rejected, &good).is_ok() && refused.judge(&good, &good).is_err());
        assert!(refused.judge(&end(false, "RDMA_CM_EVENT_UNREACHABLE"), &good).is_err());
    }
}
