//! What runs inside the guest: this same program, on real VFIO. Each part prints its results, one per line.

use super::super::interrupt;
use crate::places::{Ends, OverVfio, PlaceEnd, Workload, run as run_list};
use anyhow::{Result, bail};
use bareverbs_core::device::{Device, DeviceConfig};
use bareverbs_core::hal::Hal;
use bareverbs_core::work_request::WorkRequest;
use bareverbs_hal::memory::ArenaConfig;
use bareverbs_hal::pci::Address;
use bareverbs_hal::vfio::{VfioConfig, VfioHal};
use bareverbs_prm::time::Duration;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Parts of the judge that run in the guest.
#[derive(Debug, Args)]
pub struct InGuest {
    #[command(subcommand)]
    part: PayloadPart,
    /// Memory that is taken at a time, in MiB.
    #[arg(long, global = true, default_value_t = 16)]
    segment: usize,
    /// Do not try huge pages.
    #[arg(long, global = true)]
    small_pages: bool,
}

#[derive(Debug, Subcommand)]
enum PayloadPart {
    /// The list of conversations between two functions.
    Conversations {
        /// Both ends.
        #[arg(num_args = 2)]
        ends: Vec<Address>,
        /// Operations of the mix.
        #[arg(long)]
        operations: u64,
        /// How often everything is brought up and taken down.
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
    /// Open a function and bring its device up.
    Open {
        /// The function.
        address: Address,
        /// How long to wait for firmware, in milliseconds.
        #[arg(long, default_value_t = 20_000)]
        firmware: u64,
    },
    /// Keep a device until the system wants it back, it is gone, or this program is interrupted.
    Hold {
        /// The function.
        address: Address,
    },
    /// WRITEs between two lines on standard error, so that a trace of system calls shows what they cost.
    Quiet {
        /// Both ends.
        #[arg(num_args = 2)]
        ends: Vec<Address>,
    },
}

/// Runs a part.
pub fn run(arguments: &InGuest) -> Result<ExitCode> {
    let memory = ArenaConfig {
        segment: arguments.segment << 20,
        huge_pages: !arguments.small_pages,
        ..ArenaConfig::default()
    };
    match &arguments.part {
        PayloadPart::Conversations { ends, operations, rounds } => {
            conversations(ends, memory, *operations, *rounds)
        }
        PayloadPart::Open { address, firmware } => open(*address, memory, Duration::from_millis(*firmware)),
        PayloadPart::Hold { address } => hold(*address, memory),
        PayloadPart::Quiet { ends } => quiet(ends, memory),
    }
}

fn place(ends: &[Address], memory: ArenaConfig) -> Result<OverVfio> {
    let &[a, b] = ends else { bail!("two ends are needed") };
    Ok(OverVfio::new([a, b], memory))
}

fn conversations(ends: &[Address], memory: ArenaConfig, operations: u64, rounds: u32) -> Result<ExitCode> {
    let workload = Workload { operations, rounds, seed: 1 };
    let good = run_list(&mut place(ends, memory)?, &workload, |line| println!("{line}"));
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn hal(address: Address, memory: ArenaConfig) -> Result<VfioHal> {
    let hal = VfioHal::open(address, VfioConfig { memory, ..VfioConfig::default() })?;
    hal.warnings().iter().for_each(|warning| println!("warning: {warning}"));
    println!("{}", hal.memory());
    Ok(hal)
}

fn open(address: Address, memory: ArenaConfig, firmware_timeout: Duration) -> Result<ExitCode> {
    let hal = hal(address, memory)?;
    let device = Device::open(hal, DeviceConfig { firmware_timeout, ..DeviceConfig::default() })?;
    device.ping()?;
    println!("open: {:?}, {} pages for firmware", device.port()?.link_layer, device.pages_held());
    close(device)
}

fn close(device: Device<VfioHal>) -> Result<ExitCode> {
    let hal = device.close().map_err(|error| anyhow::anyhow!("{error}"))?;
    let used = hal.memory().used;
    drop(hal);
    println!("closed in order, {used} bytes in use");
    Ok(ExitCode::SUCCESS)
}

fn hold(address: Address, memory: ArenaConfig) -> Result<ExitCode> {
    let config = DeviceConfig { command_timeout: Duration::from_secs(2), ..DeviceConfig::default() };
    let device = Device::open(hal(address, memory)?, config)?;
    println!("holding");
    loop {
        if device.hal().is_wanted_back() {
            println!("the system wants the device back");
            return close(device);
        }
        if interrupt::check().is_err() {
            println!("interrupted");
            return close(device);
        }
        if let Err(error) = device.ping() {
            // Printed at once, because closing the device makes the kernel reset it for a minute.
            println!("the device does not answer any more: {error}");
            return Ok(ExitCode::FAILURE);
        }
        let hal = device.hal();
        hal.relax(hal.now() + Duration::from_millis(50));
    }
}

/// Number of WRITEs between the two lines.
const WRITES: u64 = 2000;

fn quiet(addresses: &[Address], memory: ArenaConfig) -> Result<ExitCode> {
    let mut place = place(addresses, memory)?;
    let mut ends = Ends::open(&mut place)?;
    eprintln!("the data path begins");
    let polls = writes(&mut ends.a, &ends.b)?;
    eprintln!("the data path ends");
    println!("{WRITES} writes, {polls} polls");
    Ok(ExitCode::SUCCESS)
}

fn writes(a: &mut PlaceEnd<VfioHal>, b: &PlaceEnd<VfioHal>) -> Result<u64> {
    const MOST: u64 = 2_000_000_000;
    let (from, target) = ([a.memory.slice(0, 64)?], b.memory.remote(0));
    let mut polls = 0;
    for id in 0..WRITES {
        a.queue_pair.post_send(&WorkRequest::write(id, &from, target))?;
        loop {
            polls += 1;
            match a.sends.poll_one()? {
                Some(done) if done.is_success() && done.wr_id == id => break,
                Some(done) => bail!("{done:?}"),
                None if polls > MOST => bail!("write {id} does not complete"),
                None => {}
            }
        }
    }
    Ok(polls)
}
