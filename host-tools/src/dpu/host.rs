//! The host's side of a service on the Arm cores of a DPU: creates the table in memory of the host, and shares it.
//!
//! The access key of the shared memory is derived from the secret of this call's session, which both ends
//! compute from the tenant's key and never send. The host changes the table on its own while kernels read it.
//! When this program ends, the key is destroyed, and nobody can access the memory any more.

use super::client::ServiceTask;
use super::client::{ServiceArguments, ServiceConnector};
use super::offer::{ConnectionKind, ConnectionRequest, HostTable, PURPOSE};
use super::served_table::{HostRows, demo_rows, rows_of};
use super::signals::Signals;
use crate::Failure;
use crate::demo::data::Row;
use crate::output::log_to_stderr;
use anyhow::{Context as _, Result, anyhow};
use bareverbs_core::hal::Hal;
use bareverbs_core::{AccessKey, SharedRegion};
use bareverbs_exchange::{Introduction, Session};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// How often signals are checked.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `bareverbs dpu host`.
#[derive(Debug, Clone, Args)]
pub(super) struct DpuHostArguments {
    #[command(flatten)]
    service: ServiceArguments,
    /// File with the rows, in the format of `bareverbs demo --data`. SIGHUP makes this command read the file again; it adds, changes and deletes rows while the DPU reads.
    #[arg(long, value_name = "FILE", required_unless_present = "demo_table", conflicts_with = "demo_table")]
    data: Option<PathBuf>,
    /// Share this many generated rows (key-0, key-1 …) instead.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    demo_table: Option<u32>,
    /// Spare room in the table for added and changed rows, in percent of the rows.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    room: u32,
}

/// Shares a table until the process is told to end, or the service does not need it any more.
pub(super) fn run(arguments: &DpuHostArguments) -> Result<(), Failure> {
    let rows = arguments.rows().map_err(Failure::Input)?;
    log_to_stderr("info").map_err(Failure::Input)?;
    let signals = Signals::catch().map_err(Failure::Run)?;
    arguments.service.with_service(Sharing { arguments, rows, signals })
}

impl DpuHostArguments {
    fn rows(&self) -> Result<Vec<Row>> {
        match &self.data {
            Some(path) => rows_of(path),
            None => Ok(demo_rows(self.demo_table.unwrap_or_default())),
        }
    }
}

struct Sharing<'a> {
    arguments: &'a DpuHostArguments,
    rows: Vec<Row>,
    signals: Signals,
}

impl ServiceTask for Sharing<'_> {
    type Output = ();

    fn run<H: Hal>(self, connector: &ServiceConnector<'_, H>) -> Result<(), Failure> {
        let Self { arguments, rows, signals } = self;
        let mut table = HostRows::fill(&connector.domain, &connector.device, rows, arguments.room)
            .map_err(Failure::Input)?;
        let mut session = share(connector, &table).map_err(Failure::Input)?;
        tracing::info!(rows = table.rows(), "the table is shared");
        loop {
            if signals.end() {
                tracing::info!("ending: the table is taken back");
                return Ok(());
            }
            if signals.take_reload() {
                match arguments.rows().and_then(|rows| table.change(|| connector.device.hal().now(), rows)) {
                    Ok(changes) => tracing::info!(rows = table.rows(), changes, "the rows were read again"),
                    Err(error) => tracing::error!(
                        rows = table.rows(),
                        "not all rows could be made to match the file: {error:#}"
                    ),
                }
            }
            if let Some(end) = session.ended(LOOK) {
                return Err(Failure::Run(anyhow!("the service no longer uses the table: {end}")));
            }
        }
    }
}

/// Describes the table to the service and allows it to use the memory.
fn share<H: Hal>(
    connector: &ServiceConnector<'_, H>,
    table: &HostRows<&bareverbs::Device<H>>,
) -> Result<Session> {
    let shares = HostTable::new(&table.region, table.descriptor(), table.rows(), table.max_value());
    let requested = ConnectionRequest { kind: ConnectionKind::Share, shares: Some(shares) };
    let mut own = Introduction::new(PURPOSE, connector.unused_endpoint()?);
    own.data = requested.to_data()?;
    let mut session =
        Session::connect_as(&connector.address, &own, &connector.credentials, connector.timeout)?;
    let secret = *session.secret().context("the session has no secret")?.as_bytes();
    SharedRegion::share(&table.region, AccessKey::new(secret)?)?;
    // Now the service may create its alias, and confirms it.
    session.ready(connector.timeout)?;
    session.ready(connector.timeout)?;
    Ok(session)
}
