//! The judge of subnet management: the programs of infiniband-diags, in a guest with two InfiniBand ports at
//! two switches that a cable joins.
//!
//! One switch has the manager and the subnet's administration; the other one is managed over the cable. Every
//! row is a program and the values that it has to print, which follow from what was built and from the LIDs
//! that the manager assigned. OpenSM runs in the guest, too: beside that manager, and alone at a third switch
//! with two more ports. A warning in the kernel's log is a failure. Start reading at `rows`, then
//! `subnet.sh`; `built` says what `ibnetdiscover` must print.

mod administration;
mod built;
mod gateway;
mod ipoib;
mod opensm;
mod own_side;
mod quick;
mod row;
mod rows;

use super::kernel::{self, Kernel};
use super::machine::{Configuration, Machine};
use super::mlx5::nic::ServedNics;
use super::root::Root;
use super::table::Report;
use anyhow::{Context, Result, bail};
use bareverbs_serve::fabric::Fabric;
use bareverbs_serve::real_time::Outside;
use bareverbs_sim::net::SubnetSwitchConfig;
use bareverbs_sim::nic::LinkLayer;
use built::{BuiltSubnet, LEAF, LEAF_GUID, LEAF_PORTS};
use gateway::FarSwitch;
use row::DiagnosticRow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Numbers of the NICs: at the switch with the manager, at the other one, and two at a switch of a subnet
/// without a manager.
const NEAR: usize = 0;
const FAR: usize = 1;
const LONE: [usize; 2] = [2, 3];
/// The shell functions that the cases are made of: the name of their file in the guest.
const FUNCTIONS: &str = "subnet.sh";
const PARTS: [&str; 2] = [include_str!("subnet.sh"), include_str!("opensm.sh")];
/// How long the manager may take to discover the whole subnet, once the guest's drivers are up.
const FOUND_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What to run, and where to put consoles and logs.
#[derive(Debug, Clone)]
pub struct SubnetOptions {
    /// Only rows whose name contains this; what they need is always run.
    pub only: Option<String>,
    /// Only the rows of `quick`.
    pub quick: bool,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// Directory for the console and the log of commands.
    pub output: PathBuf,
}

/// Boots the guest and runs every case.
pub fn run(options: &SubnetOptions) -> Result<Report> {
    let root = Root::with_kernel(options.kernel)?;
    std::fs::create_dir_all(&options.output)?;
    // Dropped in this order: the guest before what serves it.
    let mut nics = ServedNics::start(LinkLayer::InfiniBand, &[NEAR], &options.output)?;
    let config = SubnetSwitchConfig { guid: LEAF_GUID, ports: LEAF_PORTS, description: LEAF.to_owned() };
    let leaf = Fabric::without_manager(&config)?;
    let (leaf_end, spine_end) = nics.wire("leaf")?;
    leaf.plug_wire(LinkLayer::InfiniBand, &Outside::datagram(leaf_end, spine_end))?;
    nics.serve_at(FAR, &leaf)?;
    let lone = Fabric::without_manager(&opensm::lone_switch())?;
    LONE.into_iter().try_for_each(|index| nics.serve_at(index, &lone))?;
    let configuration = Configuration {
        vfio_user: [NEAR, FAR].into_iter().chain(LONE).map(|index| nics.socket(index)).collect(),
        files: files(),
        kernel_words: kernel::short_form_words(!options.quick),
        ..Configuration::default()
    };
    let mut machine = Machine::boot(&root, &configuration, &options.output.join("subnet-console.log"))?;
    let mut report = Report::new(&["case"]);
    let functions = Machine::path_inside(FUNCTIONS);
    report.add(rows::bring_up().ask(&mut machine, &functions, None)?);
    let built = wait_for(&nics)?;
    let wants = |row: &DiagnosticRow| {
        let is_asked = !options.quick || quick::ROWS.contains(&row.name);
        let is_named = options.only.as_ref().is_none_or(|only| row.name.contains(only.as_str()));
        row.is_needed || is_asked && is_named
    };
    for row in rows::all(&built).into_iter().filter(wants) {
        report.add(row.ask(&mut machine, &functions, Some(&built))?);
    }
    let far = FarSwitch { nics: &nics, fabric: &leaf, output: &options.output };
    if !options.quick {
        gateway::play(&mut machine, &functions, &far, options.only.as_deref(), &mut report)?;
        own_side::play(&mut machine, &functions, &far, options.only.as_deref(), &mut report)?;
    }
    report.add(rows::kernel_log("kernel log at the end").ask(&mut machine, &functions, Some(&built))?);
    drop(machine);
    report.add(nics.entry("commands of the drivers"));
    Ok(report)
}

/// The files of the guest: shell functions, and what the cases of IPoIB need.
fn files() -> Vec<(String, Vec<u8>)> {
    let functions = (FUNCTIONS.to_owned(), PARTS.concat().into());
    let further = ipoib::FILES
        .iter()
        .chain(administration::FILES)
        .map(|(name, text)| ((*name).to_owned(), (*text).into()));
    std::iter::once(functions).chain(further).collect()
}

/// Waits until the manager has discovered everything that was built.
fn wait_for(nics: &ServedNics) -> Result<BuiltSubnet> {
    let start = Instant::now();
    loop {
        let found = nics.topology().context("the switch of the near port has no manager")?;
        if let Some(built) = BuiltSubnet::of(&found) {
            return Ok(built);
        }
        if start.elapsed() > FOUND_WITHIN {
            bail!(
                "the manager has not found what was built within {} s, but: {found}",
                FOUND_WITHIN.as_secs()
            );
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
