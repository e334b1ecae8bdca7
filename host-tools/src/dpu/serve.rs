//! The life of a service: it starts from a file, and signals make it reload the file or shut down.

use super::config::{ServiceConfig, TableSource};
use super::figures;
use super::listener::{CallerRequest, ListenerState, SHUTTING_DOWN, listen};
use super::served_table::ServedRows;
use super::service::Service;
use super::signals::Signals;
use super::tenant::{Tenant, Tenants};
use crate::Failure;
use crate::monitor::exporter::Exporter;
use crate::output::log_to_stderr;
use crate::place::DeviceSelector;
use crate::seat::{HostArguments, Seat, SeatArguments, SeatedTask};
use anyhow::Context as _;
use bareverbs::prm::time::{Duration, Time};
use bareverbs_core::hal::Hal;
use bareverbs_core::{Device, DeviceConfig};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// Interval between two updates of the metrics.
const EXPOSITION: Duration = Duration::from_millis(500);
/// How long callers may take to receive the message that the service ends.
const FAREWELL: std::time::Duration = std::time::Duration::from_millis(500);

/// Arguments of `bareverbs dpu serve`.
#[derive(Debug, Clone, Args)]
pub(super) struct DpuServeArguments {
    /// Configuration of the service, see docs/dpu.md. SIGHUP reloads tenants and keys, SIGTERM shuts down gracefully.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The device to use instead of the one in the file.
    #[arg(long, short = 'd', value_name = "DEVICE")]
    device: Option<DeviceSelector>,
    #[command(flatten)]
    place: HostArguments,
    /// Serve this many generated rows (key-0, key-1 …) instead of the file's table.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    demo_table: Option<u32>,
    /// Export metrics to Prometheus at this address, under /metrics. Port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    openmetrics: Option<SocketAddr>,
}

/// Serves until the process is told to end.
pub(super) fn run(arguments: &DpuServeArguments) -> Result<(), Failure> {
    let mut config = ServiceConfig::read(&arguments.config).map_err(Failure::Input)?;
    if let Some(rows) = arguments.demo_table {
        config.table = Some(TableSource::Demo(rows));
    }
    let device = arguments.device.clone().or_else(|| config.device.clone());
    let device = device.or_else(|| arguments.place.is_given().then_some(DeviceSelector::SIMULATED));
    let device = device
        .context("no device: name one in the configuration, or with --device")
        .map_err(Failure::Input)?;
    let seat = SeatArguments::of(device, arguments.place.clone(), config.addresses.clone());
    seat.check_cable()?;
    let source =
        config.table.as_ref().context("no table: give the configuration a [table], or --demo-table ROWS");
    let tenants = config.load_tenants().map_err(Failure::Input)?;
    let readable = tenants.iter().any(|tenant| tenant.read);
    let served = source.and_then(|source| ServedRows::of(source, readable)).map_err(Failure::Input)?;
    log_to_stderr("info").map_err(Failure::Input)?;
    let exporter = arguments.openmetrics.map(Exporter::bind).transpose().map_err(Failure::Input)?;
    if let Some(exporter) = &exporter {
        tracing::info!("figures at http://{}/metrics", exporter.address());
    }
    let signals = Signals::catch().map_err(Failure::Run)?;
    let path = arguments.config.clone();
    let task = ServeTask { path, config, served, tenants, exporter, signals };
    seat.with_device(DeviceConfig::default(), task)
}

/// A service on an open device.
struct ServeTask {
    path: PathBuf,
    config: ServiceConfig,
    /// The rows to serve; `None` if the host shares its table.
    served: Option<ServedRows>,
    tenants: Vec<Tenant>,
    exporter: Option<Exporter>,
    signals: Signals,
}

impl SeatedTask for ServeTask {
    type Output = ();

    fn run<H: Hal>(mut self, device: &Device<H>, seat: &Seat) -> Result<(), Failure> {
        let service =
            Service::new(device, seat, &self.config, self.served.as_ref()).map_err(Failure::Input)?;
        let routes = seat.kernel_routes(service.gid_index());
        let state = Arc::new(ListenerState::new(Tenants::new(std::mem::take(&mut self.tenants)), routes));
        let (address, requests) = listen(&self.config.listen, &state).map_err(Failure::Input)?;
        match &self.served {
            Some(served) => tracing::info!(rows = served.rows.len(), "serving tenants at {address}"),
            None => tracing::info!("serving tenants at {address} as soon as the host shares its table"),
        }
        Serving { task: self, service, state, rest: seat.rest }.until_told(device.hal(), &requests);
        Ok(())
    }
}

struct Serving<'d, H: Hal> {
    task: ServeTask,
    service: Service<'d, H>,
    state: Arc<ListenerState>,
    rest: Duration,
}

impl<H: Hal> Serving<'_, H> {
    /// Serves until the process is told to end and running requests have ended, or their time is over.
    fn until_told(&mut self, hal: &H, requests: &Receiver<CallerRequest>) {
        let mut end_by = None;
        let mut exposed = hal.now();
        loop {
            let now = hal.now();
            let active = self.turn(now, requests);
            if self.task.signals.take_reload() {
                self.reload(now);
            }
            if end_by.is_none() && self.task.signals.end() {
                end_by = Some(self.drain(now));
            }
            if let Some(deadline) = end_by
                && (self.service.is_idle() || now >= deadline)
            {
                return self.say_goodbye(now, hal);
            }
            if let Some(exporter) = self.task.exporter.as_ref().filter(|_| now >= exposed) {
                exporter.publish(figures::exposition(&self.service.figures()));
                exposed = now + EXPOSITION;
            }
            let rest = self.service.next_due().map_or(now + self.rest, |due| due.min(now + self.rest));
            hal.relax(if active { now } else { rest.max(now) });
        }
    }

    fn turn(&mut self, now: Time, requests: &Receiver<CallerRequest>) -> bool {
        let mut active = self.service.turn(now);
        if let Ok(request) = requests.try_recv() {
            self.service.handle_request(now, request, &self.state.tenants);
            active = true;
        }
        active
    }

    /// Reads the tenants and their keys again. An unusable file changes nothing.
    fn reload(&mut self, now: Time) {
        let read = ServiceConfig::read(&self.task.path).and_then(|config| config.load_tenants());
        match read {
            Err(error) => tracing::error!("the tenants stay as they are: {error:#}"),
            Ok(tenants) => {
                if self.task.served.as_ref().is_some_and(|served| !served.readable)
                    && tenants.iter().any(|tenant| tenant.read)
                {
                    tracing::error!(
                        "no tenant could READ the table when the service started: `read` takes effect after a restart"
                    );
                }
                let changed = self.state.tenants.replace(tenants);
                self.service.end_tenants(now, &changed);
                tracing::info!(?changed, "the tenants were read again");
            }
        }
    }

    fn drain(&mut self, now: Time) -> Time {
        self.state.closing.store(true, Ordering::Relaxed);
        self.service.drain();
        let running = self.service.figures().running;
        tracing::info!(running, "ending: running requests are answered, new ones are refused");
        now + self.task.config.drain
    }

    /// Notifies all connected callers, and waits a moment for the messages to arrive.
    fn say_goodbye(&mut self, now: Time, hal: &H) {
        let figures = self.service.figures();
        if figures.running > 0 {
            tracing::warn!(
                running = figures.running,
                "the shutdown time is over: these requests get no answer"
            );
        }
        self.service.end_all(now, SHUTTING_DOWN);
        let deadline = std::time::Instant::now() + FAREWELL;
        while self.state.callers() > 0 && std::time::Instant::now() < deadline {
            let now = hal.now();
            self.service.turn(now);
            hal.relax(now + Duration::from_millis(1));
        }
        tracing::info!(replies = figures.server.replies, "ended");
    }
}
