//! `bareverbs ipoib`: connects a TAP interface of this machine to an InfiniBand subnet, by IP over InfiniBand
//! (RFC 4391, RFC 4392).
//!
//! **What this is.** `link`, `arp` and `discovery` have the packet formats; `memberships` has the groups
//! that the machine listens to; `administration`, `groups` and `neighbours` have the state of the subnet, and
//! `subnet_side` combines them; `gateway` connects the machine's side, without a clock or device. `interface`
//! is the queue pair, and `bridge` drives both. For RDMA CM over InfiniBand, `host` is an interface with its
//! own addresses and no machine behind it, and `presence` drives that.
//!
//! **What it may not do.** Use connected mode, or carry packets other than IP and ARP.
//!
//! **Where to read first.** `subnet_side`.

mod administration;
mod arp;
mod bridge;
mod discovery;
mod gateway;
mod groups;
mod host;
mod interface;
mod link;
mod memberships;
mod neighbours;
mod port;
mod presence;
mod subnet_side;

use crate::Failure;
use crate::place::{DeviceSelector, DeviceTask, SELECTOR_HELP};
use anyhow::{Context as _, Result, anyhow};
use bareverbs_core::Device;
use bareverbs_core::command::CommandError;
use bareverbs_core::hal::Hal;
use bareverbs_prm::time::Duration;
use bareverbs_serve::real_time::TapIo;
use bridge::Bridge;
use clap::Args;
pub(crate) use host::IpoibWay;
pub(crate) use presence::IpoibPresence;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Sleeps between two polls of both sides, while there is traffic and while there is none.
const SHORT_REST: Duration = Duration::from_micros(20);
const LONG_REST: Duration = Duration::from_millis(1);
/// Number of polls without traffic after which sleeps become long.
const QUIET_POLLS: u32 = 500;
/// How long joining the broadcast group may take before a message in the log says so.
const JOIN_WITHIN: Duration = Duration::from_secs(10);

/// Arguments of `bareverbs ipoib`.
#[derive(Debug, Args)]
pub struct IpoibArguments {
    /// The device; its port must be InfiniBand.
    #[arg(long, short = 'd', value_name = "DEVICE", long_help = format!("The device, whose port is InfiniBand: {SELECTOR_HELP}"))]
    device: DeviceSelector,
    /// TAP interface of this machine, created and brought up if it does not exist. Its addresses are up to you, as in
    /// `ip addr add 10.0.0.1/24 dev NAME`.
    #[arg(long, value_name = "NAME")]
    tap: String,
}

/// Connects the TAP interface to the subnet until the process ends.
///
/// # Errors
/// [`Failure::Input`] if there is no such device or interface, [`Failure::Run`] if one of them fails later.
pub fn run(arguments: &IpoibArguments) -> Result<(), Failure> {
    crate::output::log_to_stderr("warn,bareverbs_tools=info")?;
    if let DeviceSelector::Simulated(_) = arguments.device {
        return Err(Failure::Input(anyhow!(
            "{} is in no subnet: name a device that `bareverbs serve --link ib` serves (vfio-user:PATH), or a PCI function",
            arguments.device
        )));
    }
    let tap = TapIo::open(&arguments.tap).map_err(|error| Failure::Input(error.into()))?;
    let ended = ended_by_signal().map_err(Failure::Run)?;
    arguments.device.with_device(GatewayTask { tap, name: &arguments.tap, ended: &ended })?
}

/// A flag that is set when the process is asked to end.
fn ended_by_signal() -> Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot watch for signals")?;
    }
    Ok(ended)
}

struct GatewayTask<'a> {
    tap: TapIo,
    name: &'a str,
    ended: &'a AtomicBool,
}

impl DeviceTask for GatewayTask<'_> {
    type Output = Result<(), Failure>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, CommandError> {
        Ok(self.carry(device).map_err(Failure::Run))
    }
}

impl GatewayTask<'_> {
    fn carry<H: Hal>(self, device: &Device<H>) -> Result<()> {
        let (hal, name) = (device.hal(), self.name);
        let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64);
        let mut bridge = Bridge::open(device, self.tap, nanos)?;
        let (mut mtu, mut quiet, start, mut complains) = (None, 0_u32, hal.now(), true);
        while !self.ended.load(Ordering::Relaxed) {
            quiet = if bridge.step()? { 0 } else { quiet.saturating_add(1) };
            if mtu != bridge.mtu() {
                mtu = bridge.mtu();
                tracing::info!("{name} is in the subnet; packets of up to {} bytes", mtu.unwrap_or(0));
                set_mtu(bridge.frames(), name, mtu.unwrap_or(0));
            }
            if complains && mtu.is_none() && hal.now().since(start) > JOIN_WITHIN {
                complains = false;
                tracing::warn!(
                    "the broadcast group was not joined within {JOIN_WITHIN}: is the port active \
                     (`bareverbs doctor`), and does the subnet administration have the group? OpenSM \
                     creates it for partitions with the word ipoib"
                );
            }
            hal.relax(hal.now() + if quiet < QUIET_POLLS { SHORT_REST } else { LONG_REST });
        }
        tracing::info!("{:?}", bridge.counters());
        if !bridge.close()? {
            tracing::warn!(
                "the subnet administration did not confirm that {name} left its groups; it forgets them when the port goes down"
            );
        }
        Ok(())
    }
}

/// Sets the MTU of the TAP interface. Larger packets would be lost; smaller ones would only be slower.
fn set_mtu(tap: &TapIo, name: &str, mtu: usize) {
    let set = u16::try_from(mtu).map_err(std::io::Error::other).and_then(|mtu| tap.set_mtu(mtu));
    if let Err(error) = set {
        tracing::warn!(
            "the MTU of {name} stays as it is ({error}); ip link set {name} mtu {mtu} needs CAP_NET_ADMIN"
        );
    }
}

#[cfg(test)]
mod tests;
