//! A second guest with devices of its own at the same switch: a program on one side in one guest, on the other in the other.
//!
//! On InfiniBand the second guest has a NIC. On Ethernet it has one too, served by `bareverbs serve --wire`, and a network
//! card with Soft-RoCE on it.

use super::super::kernel;
use super::super::machine::{Configuration, HOST_FROM_GUEST, Machine};
use super::super::root::Root;
use super::super::rxe::bout;
use super::super::rxe::guest_side::wait_for_gid;
use super::super::table::{Entry, Report, Verdict};
use super::cases::{self, Mlx5Case};
use super::ethernet;
use super::nic::ServedNics;
use super::options::{Mlx5Options, ask};
use anyhow::{Context, Result};
use bareverbs_prm::ids::{Gid, MacAddress};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Address of the second guest's network card.
const CARD: MacAddress = MacAddress([0x52, 0x54, 0, 0, 5, 2]);
/// TCP port at which a server listens in its guest.
const PORT: u16 = bout::PORT;
/// Devices of the second guest on Ethernet.
const MLX5: &str = "mlx5";
const SOFT_ROCE: &str = "Soft-RoCE";
/// Devices of the second guest that talk to the first guest's, and where the client runs.
const PAIRS: [(&str, Client); 3] =
    [(MLX5, Client::First), (SOFT_ROCE, Client::First), (SOFT_ROCE, Client::Second)];
const LIMIT: Duration = Duration::from_secs(240);

/// Devices of both guests.
#[derive(Debug)]
struct Device {
    /// Its name in the table.
    title: &'static str,
    name: String,
    /// Index of its GID, where peers need one.
    gid: Option<usize>,
}

/// An RDMA program to run between two guests, and what one line of the client's output must contain.
type PairProgram = (&'static str, &'static str);

const INFINIBAND: &[PairProgram] = &[
    ("ibv_rc_pingpong -n 200 -c", "iters in"),
    ("ibv_uc_pingpong -n 200 -c", "iters in"),
    ("ibv_ud_pingpong -n 200 -c", "iters in"),
    ("ib_write_bw -s 65536 -F -n 100", " 100 "),
    ("ib_read_lat -s 4096 -F -n 100", " 100 "),
    ("ib_atomic_bw -A CMP_AND_SWAP -F -n 100", " 100 "),
];
/// perftest asks for as many concurrent READs and atomics as the peer offers. Soft-RoCE offers 128, a
/// ConnectX-5 16.
const ETHERNET: &[PairProgram] = &[
    ("ibv_rc_pingpong -n 100 -c", "iters in"),
    ("ib_write_bw -s 16384 -F -n 50", " 50 "),
    ("ibv_ud_pingpong -s 1000 -n 100 -c", "iters in"),
    ("ib_send_bw -s 4096 -F -n 50", " 50 "),
    ("ib_read_bw -s 4096 -o 16 -F -n 50", " 50 "),
    ("ibv_uc_pingpong -n 100 -c", "iters in"),
    ("ibv_srq_pingpong -n 100 -c", "iters in"),
    ("ib_atomic_bw -A FETCH_AND_ADD -o 16 -F -n 50", " 50 "),
];
/// How many of the Ethernet programs every run plays on each pair of devices, counted from the first.
const QUICK: usize = 1;

/// The name of a row. It omits the second guest's device where there is only one.
fn name((program, _): &PairProgram, client: Client, second: &str) -> String {
    match (second, client) {
        ("", _) => format!("between two guests: {program}"),
        (_, Client::First) => format!("between two guests: {program}, server {second}, client mlx5"),
        (_, Client::Second) => format!("between two guests: {program}, server mlx5, client {second}"),
    }
}

/// Which guest has the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    First,
    Second,
}

/// A row: a program between a device of the first guest and one of the second.
#[derive(Debug)]
struct Row<'a> {
    program: &'a PairProgram,
    first: &'a Device,
    second: &'a Device,
    client: Client,
}

impl Row<'_> {
    fn name(&self) -> String {
        name(self.program, self.client, self.second.title)
    }

    /// Server and client.
    fn ends(&self) -> (&Device, &Device) {
        match self.client {
            Client::First => (self.second, self.first),
            Client::Second => (self.first, self.second),
        }
    }
}

impl Device {
    fn roce(title: &'static str, machine: &mut Machine, name: &str, address: [u8; 4]) -> Result<Self> {
        let gid = wait_for_gid(machine, name, Gid::from_ipv4(address))?;
        Ok(Self { title, name: name.to_owned(), gid: Some(gid) })
    }

    /// The options that select the device on the command line of a program.
    fn options(&self, program: &str) -> String {
        let option = if program.starts_with("ibv_") { "-g" } else { "-x" };
        let gid = self.gid.map_or(String::new(), |index| format!("{option} {index}"));
        format!("{program} -d {} {gid}", self.name)
    }
}

/// Both guests. The second one boots when the first row that needs it runs.
pub struct Guests<'a> {
    /// The first.
    pub first: &'a mut Machine,
    /// The switch.
    pub nics: &'a ServedNics,
    /// The second one's NIC.
    pub nic: PathBuf,
    /// The root of both.
    pub root: &'a Root,
    /// What is wanted, and where the console goes.
    pub options: &'a Mlx5Options,
}

impl Guests<'_> {
    /// The rows of InfiniBand.
    pub fn infiniband(&mut self, report: &mut Report) -> Result<()> {
        let device = Device { title: "", name: "mlx5_0".into(), gid: None };
        let row = |program| Row { program, first: &device, second: &device, client: Client::First };
        let rows: Vec<_> = INFINIBAND.iter().map(row).filter(|row| self.options.wants(&row.name())).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut second = self.boot(Vec::new())?;
        report.add(ask(&mut second, &cases::second_guest())?);
        self.play_all(&rows, &mut second, report)
    }

    /// The rows of Ethernet: `mlx5_ib` with `mlx5_ib`, and with Soft-RoCE. `device` and `netdev` are the
    /// first guest's device at the switch and its network device.
    pub fn ethernet(&mut self, device: &str, netdev: &str, report: &mut Report) -> Result<()> {
        let programs = if self.options.long { ETHERNET } else { &ETHERNET[..QUICK] };
        let all = programs.iter().flat_map(|program| PAIRS.map(|(title, client)| (program, title, client)));
        let wanted: Vec<_> = all
            .filter(|(program, title, client)| self.options.wants(&name(program, *client, title)))
            .collect();
        let ping = Some(ping()).filter(|ping| self.options.wants(&ping.name));
        if wanted.is_empty() && ping.is_none() {
            return Ok(());
        }
        let mut second = self.boot(vec![CARD])?;
        let (ours, card) = second.wire_sockets(0);
        self.nics.join(ours, card)?;
        report.add(ask(&mut second, &ethernet::second_guest(CARD))?);
        self.first.control.require(&ethernet::meet(netdev), LIMIT)?;
        let first = Device::roce(MLX5, self.first, device, ethernet::FIRST)?;
        let mlx5 = Device::roce(MLX5, &mut second, "mlx5_0", ethernet::SECOND)?;
        let rxe = Device::roce(SOFT_ROCE, &mut second, "rxe0", ethernet::SECOND_CARD)?;
        if let Some(ping) = ping {
            report.add(ask(self.first, &ping)?);
        }
        let rows = wanted.into_iter().map(|(program, title, client)| {
            let second = if title == MLX5 { &mlx5 } else { &rxe };
            Row { program, first: &first, second, client }
        });
        self.play_all(&rows.collect::<Vec<_>>(), &mut second, report)
    }

    fn boot(&self, wires: Vec<MacAddress>) -> Result<Machine> {
        let configuration = Configuration {
            memory: 512,
            processors: 1,
            vfio_user: vec![self.nic.clone()],
            tcp_ports: vec![PORT],
            wires,
            kernel_words: kernel::short_form_words(self.options.long),
            ..Configuration::default()
        };
        Machine::boot(self.root, &configuration, &self.options.output.join("mlx5-second-console.log"))
    }

    fn play_all(&mut self, rows: &[Row<'_>], second: &mut Machine, report: &mut Report) -> Result<()> {
        for row in rows {
            let start = Instant::now();
            let verdict = match row.client {
                Client::First => exchange(row, second, self.first)?,
                Client::Second => exchange(row, self.first, second)?,
            };
            report.add(Entry { columns: vec![row.name()], verdict, elapsed: start.elapsed() });
        }
        Ok(())
    }
}

fn ping() -> Mlx5Case {
    let command = format!("ping -w 30 -c 5 -i 0.2 {}", Ipv4Addr::from(ethernet::SECOND));
    Mlx5Case::new("between two guests: ping", " 0% packet loss", command)
}

/// Runs both ends of a program until both have ended.
fn exchange(row: &Row<'_>, server: &mut Machine, client: &mut Machine) -> Result<Verdict> {
    let (program, wanted) = *row.program;
    let (at_server, at_client) = row.ends();
    let port = server.forward(PORT).context("the guest of the server has no port forwarded")?.port();
    let job =
        server.control.start(&cases::server(&format!("{} -p {PORT}", at_server.options(program))), LIMIT)?;
    let listens = server.control.run(&cases::wait_for_server(), LIMIT)?;
    let command = format!("{} -p {port} {HOST_FROM_GUEST}", at_client.options(program));
    let outcome = client.control.run(&command, LIMIT)?;
    let served =
        if outcome.is_success() { server.control.wait(&job)? } else { server.control.cancel(&job)? };
    let line = outcome.output.lines().rfind(|line| line.contains(wanted));
    let good = listens.is_success() && outcome.is_success() && served.is_success();
    Ok(match line.filter(|_| good) {
        Some(line) => Verdict::Pass(line.trim().to_owned()),
        None => Verdict::Fail(format!(
            "client {}: {}; server {}: {}",
            outcome.status,
            outcome.output.trim(),
            served.status,
            served.output.trim()
        )),
    })
}
