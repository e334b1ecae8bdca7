//! The source of readings: a device, or two simulated hosts that keep each other busy.

use crate::Failure;
use crate::counters::{Readings, port_counters, queue_counters};
use crate::place::{DeviceSelector, DeviceTask};
use crate::seat::HostArguments;
use crate::traffic::{Traffic, TrafficConfig};
use anyhow::anyhow;
use bareverbs_core::Device;
use bareverbs_core::command::CommandError;
use bareverbs_core::hal::Hal;
use bareverbs_sim::nic::LinkLayer;
use std::time::{Duration, Instant};

/// Messages before the first sample.
const WARM_UP: u64 = 100;
/// Real time between two simulated messages: the traffic should be visible and not waste power.
const REST: Duration = Duration::from_millis(1);

/// Reads counters and lets time pass.
pub(super) trait Reader {
    /// Reads all counters.
    fn read(&mut self) -> anyhow::Result<Readings>;
    /// Lets time pass until `until`.
    fn pass(&mut self, until: Instant) -> anyhow::Result<()>;
}

/// The task for a reader.
pub(super) trait Watch {
    fn watch(self, reader: &mut dyn Reader) -> anyhow::Result<()>;
}

/// A failure as an error with the same text.
pub(super) fn anyhow_of(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Input(error) | Failure::Run(error) => error,
    }
}

/// Opens the device and watches it.
pub(super) fn open(
    device: &DeviceSelector,
    place: &HostArguments,
    loss: f64,
    watch: impl Watch,
) -> Result<(), Failure> {
    match device {
        _ if place.is_given() => Err(Failure::Input(anyhow!(
            "--host: a monitor opens its own device, so it would show nothing of what the host's programs \
             do; leave out --host. `bareverbs run --list` shows what their devices sent, received and lost, `bareverbs perf --host NAME` the counters of its own \
             queue pairs (-W, --json), and a capture of a program (`bareverbs run --capture FILE --records`) what it did, for `bareverbs report`"
        ))),
        DeviceSelector::Simulated(LinkLayer::Ethernet) => {
            let config = TrafficConfig { loss, ..TrafficConfig::default() };
            let mut busy = Busy(Traffic::start(config).map_err(Failure::Run)?);
            busy.steps(WARM_UP).map_err(Failure::Run)?;
            watch.watch(&mut busy).map_err(Failure::Run)
        }
        _ if loss > 0.0 => Err(Failure::Input(anyhow!(
            "--loss is for the wire between simulated hosts: --device sim:ethernet"
        ))),
        _ => device.with_device(Quiet { watch })?.map_err(Failure::Run),
    }
}

/// Two simulated hosts.
struct Busy(Traffic);

impl Busy {
    fn steps(&mut self, count: u64) -> anyhow::Result<()> {
        (0..count).try_for_each(|_| self.0.step())
    }
}

impl Reader for Busy {
    fn read(&mut self) -> anyhow::Result<Readings> {
        let mut readings = port_counters(self.0.device()).map_err(|error| anyhow!("{error}"))?;
        let [sender, _] = self.0.counter_sets();
        readings.extend(queue_counters(&sender.read().map_err(|error| anyhow!("{error}"))?));
        Ok(readings)
    }

    fn pass(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until {
            self.0.step()?;
            std::thread::sleep(REST.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }
}

/// A device on which this process runs no traffic.
struct Quiet<W> {
    watch: W,
}

impl<W: Watch> DeviceTask for Quiet<W> {
    type Output = anyhow::Result<()>;

    fn run<H: Hal>(self, device: &Device<H>) -> Result<Self::Output, CommandError> {
        Ok(self.watch.watch(&mut Alone { device }))
    }
}

struct Alone<'a, H: Hal> {
    device: &'a Device<H>,
}

impl<H: Hal> Reader for Alone<'_, H> {
    fn read(&mut self) -> anyhow::Result<Readings> {
        port_counters(self.device).map_err(|error| anyhow!("{error}"))
    }

    fn pass(&mut self, until: Instant) -> anyhow::Result<()> {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(())
    }
}
