//! The configuration file of a service, in TOML. Unknown names and out-of-range numbers are errors.

use super::tenant::{CONNECTIONS, SHARE, Tenant};
use crate::input_file::read_text_at_most;
use crate::place::DeviceSelector;
use crate::port_address::PortAddress;
use anyhow::{Context as _, Result, anyhow, bail};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::program::Fuel;
use bareverbs::offload::runtime::Allowance;
use bareverbs::prm::time::Duration;
use bareverbs_offload_native::MachineCode;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// The configuration of a service, without its tenants' keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceConfig {
    /// Where the service accepts tenants over TCP.
    pub(super) listen: String,
    pub(super) device: Option<DeviceSelector>,
    pub(super) addresses: Vec<PortAddress>,
    pub(super) gid_index: Option<u8>,
    /// How long running requests may take to end at a graceful shutdown.
    pub(super) drain: Duration,
    pub(super) table: Option<TableSource>,
    pub(super) limits: Limits,
    pub(super) fuel: Fuel,
    /// What runs programs.
    pub(super) engine: MachineCode,
    pub(super) tenants: Vec<TenantSettings>,
}

/// Where the rows of the table come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TableSource {
    /// A file as `bareverbs demo --data` takes it.
    File(PathBuf),
    /// This many made-up rows.
    Demo(u32),
    /// Memory of the host, shared by the tenant with this name.
    Host(String),
}

/// A tenant in the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantSettings {
    name: String,
    key_file: PathBuf,
    #[serde(default)]
    deploy: bool,
    #[serde(default)]
    read: bool,
    #[serde(default)]
    write: bool,
    #[serde(default = "four")]
    connections: u16,
    #[serde(default = "share")]
    requests_at_a_time: u16,
    requests_per_second: Option<u64>,
    dmas_per_second: Option<u64>,
    bytes_per_second: Option<u64>,
    #[serde(default = "thousand")]
    burst_us: u64,
}

const fn four() -> u16 {
    4
}
const fn share() -> u16 {
    SHARE as u16
}
const fn thousand() -> u64 {
    1000
}

/// The format of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSettings {
    listen: String,
    device: Option<String>,
    #[serde(default)]
    addresses: Vec<String>,
    gid_index: Option<u8>,
    #[serde(default = "drain_seconds")]
    drain_seconds: u32,
    table: Option<TableSettings>,
    #[serde(default)]
    limits: LimitSettings,
    #[serde(default)]
    programs: ProgramSettings,
    #[serde(default)]
    tenant: Vec<TenantSettings>,
}

const fn drain_seconds() -> u32 {
    10
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableSettings {
    data: Option<PathBuf>,
    demo_rows: Option<u32>,
    shared_by: Option<String>,
}

/// Limits of one request. The millisecond of a real card is too short for a simulated device, so the default
/// here is a tenth of a second.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitSettings {
    hops: u16,
    bytes: u32,
    retries: u16,
    time_us: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        let Limits { hops, bytes, retries, .. } = Limits::default();
        Self { hops, bytes, retries, time_us: 100_000 }
    }
}

/// The default fuel suffices for the checksum of the longest value, and for a walk of as many elements as a
/// request allows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProgramSettings {
    step_fuel: u32,
    request_fuel: u32,
    machine_code: bool,
}

impl Default for ProgramSettings {
    fn default() -> Self {
        Self { step_fuel: 8 * 1024, request_fuel: 64 * 1024, machine_code: false }
    }
}

impl ServiceConfig {
    /// Reads a file. Paths in it are relative to its directory.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let config = || {
            let text = read_text_at_most(path, LARGEST)?;
            Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
        };
        config().with_context(|| format!("configuration {}", path.display()))
    }

    fn parse(text: &str, directory: &Path) -> Result<Self> {
        let file: FileSettings =
            toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
        let mut tenants = file.tenant;
        check_tenants(&tenants)?;
        tenants.iter_mut().for_each(|tenant| tenant.key_file = directory.join(&tenant.key_file));
        let table = file.table.map(|table| source(table, directory)).transpose()?;
        if let Some(TableSource::Host(host)) = &table
            && !tenants.iter().any(|tenant| tenant.name == *host)
        {
            bail!("table: shared_by = {host:?} does not name a [[tenant]]");
        }
        Ok(Self {
            listen: file.listen,
            device: file.device.as_deref().map(|text| parsed("device", text)).transpose()?,
            addresses: file.addresses.iter().map(|text| parsed("addresses", text)).collect::<Result<_>>()?,
            gid_index: file.gid_index,
            drain: Duration::from_secs(file.drain_seconds.into()),
            table,
            limits: limits(&file.limits)?,
            fuel: fuel(&file.programs)?,
            engine: engine(&file.programs)?,
            tenants,
        })
    }

    /// The tenants with their keys, as the files have them now.
    pub(super) fn load_tenants(&self) -> Result<Vec<Tenant>> {
        self.tenants.iter().map(TenantSettings::load).collect()
    }
}

fn parsed<T: FromStr<Err = String>>(name: &str, text: &str) -> Result<T> {
    text.parse().map_err(|error: String| anyhow!("{name}: {error}"))
}

fn source(table: TableSettings, directory: &Path) -> Result<TableSource> {
    match (table.data, table.demo_rows, table.shared_by) {
        (Some(path), None, None) => Ok(TableSource::File(directory.join(path))),
        (None, Some(rows @ 1..=1_000_000), None) => Ok(TableSource::Demo(rows)),
        (None, Some(rows), None) => bail!("table: demo_rows = {rows} must be from 1 to 1000000"),
        (None, None, Some(host)) => Ok(TableSource::Host(host)),
        _ => bail!("table: give one of data = \"FILE\", demo_rows = N and shared_by = \"TENANT\""),
    }
}

fn limits(settings: &LimitSettings) -> Result<Limits> {
    let LimitSettings { hops, bytes, retries, time_us } = *settings;
    if hops == 0 || bytes == 0 || time_us == 0 {
        bail!(
            "limits: with hops = {hops}, bytes = {bytes}, time_us = {time_us} no request could do anything; give 1 or more"
        );
    }
    Ok(Limits { hops, bytes, retries, time: Duration::from_micros(time_us.into()) })
}

fn fuel(settings: &ProgramSettings) -> Result<Fuel> {
    let ProgramSettings { step_fuel: step, request_fuel: invocation, .. } = *settings;
    if step == 0 || invocation < step {
        bail!(
            "programs: step_fuel = {step} must be 1 or more, and request_fuel = {invocation} at least as much"
        );
    }
    Ok(Fuel { step, invocation })
}

fn engine(settings: &ProgramSettings) -> Result<MachineCode> {
    if !settings.machine_code {
        return Ok(MachineCode::OFF);
    }
    MachineCode::new().context("programs: machine_code = true")
}

fn check_tenants(tenants: &[TenantSettings]) -> Result<()> {
    if tenants.is_empty() {
        bail!("there is no [[tenant]]: nobody could use the service");
    }
    let mut names = BTreeSet::new();
    for tenant in tenants {
        tenant.check().with_context(|| format!("tenant {:?}", tenant.name))?;
        if !names.insert(&tenant.name) {
            bail!("tenant {:?} is listed twice", tenant.name);
        }
    }
    Ok(())
}

impl TenantSettings {
    fn check(&self) -> Result<()> {
        if !(1..=64).contains(&self.name.len()) {
            bail!("a name has 1 to 64 bytes");
        }
        for (name, value, most) in [
            ("connections", self.connections, CONNECTIONS),
            ("requests_at_a_time", self.requests_at_a_time, SHARE),
        ] {
            if !(1..=most).contains(&value.into()) {
                bail!("{name} = {value} must be from 1 to {most}");
            }
        }
        let rates = [self.requests_per_second, self.dmas_per_second, self.bytes_per_second];
        if rates.contains(&Some(0)) {
            bail!("a rate of 0 a second lets nothing through: leave out the tenant, or the rate");
        }
        Ok(())
    }

    fn load(&self) -> Result<Tenant> {
        let key =
            super::key_file::read_key(&self.key_file).with_context(|| format!("tenant {:?}", self.name))?;
        Ok(Tenant {
            name: self.name.clone(),
            key,
            deploy: self.deploy,
            read: self.read,
            write: self.write,
            connections: self.connections.into(),
            share: self.requests_at_a_time,
            allowance: Allowance {
                per_request: interval(self.requests_per_second),
                per_dma: interval(self.dmas_per_second),
                per_byte: interval(self.bytes_per_second),
                burst: Duration::from_micros(self.burst_us),
            },
        })
    }
}

/// The interval for a rate per second; zero without a limit. A rate above one per picosecond is no limit.
fn interval(per_second: Option<u64>) -> Duration {
    per_second.map_or(Duration::ZERO, |rate| Duration::from_picos(1_000_000_000_000 / rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: &str = "[[tenant]]\nname = \"shop\"\nkey_file = \"shop.key\"\n";

    fn parse(text: &str) -> Result<ServiceConfig> {
        ServiceConfig::parse(text, Path::new("/etc/dpu"))
    }

    fn complaint(text: &str) -> String {
        format!("{:#}", parse(text).expect_err(text))
    }

    #[test]
    fn a_minimal_configuration_gets_defaults() {
        let config = parse(&format!("listen = \"127.0.0.1:0\"\n{TENANT}")).expect("enough");
        assert_eq!((config.device, config.table, config.gid_index), (None, None, None));
        assert_eq!(config.limits.time, Duration::from_millis(100));
        assert_eq!(config.engine, MachineCode::OFF);
        let [tenant] = &config.tenants[..] else { panic!("one tenant") };
        assert_eq!(tenant.key_file, Path::new("/etc/dpu/shop.key"));
        assert!(!tenant.deploy && !tenant.read && !tenant.write);
        assert_eq!((tenant.connections, usize::from(tenant.requests_at_a_time)), (4, SHARE));
    }

    #[test]
    fn every_setting_is_parsed() {
        let text = format!(
            "listen = \"[::]:7471\"\ndevice = \"vfio-user:/run/nic\"\naddresses = [\"10.0.0.1/24@7\"]\ngid_index = 3\n\
             drain_seconds = 2\n[table]\ndata = \"rows.csv\"\n[limits]\nhops = 5\nbytes = 4096\nretries = 0\ntime_us = 7\n\
             [programs]\nstep_fuel = 10\nrequest_fuel = 20\n{TENANT}deploy = true\nread = true\nwrite = true\nconnections = 2\n\
             requests_at_a_time = 1\nrequests_per_second = 1000\ndmas_per_second = 2000\nbytes_per_second = 4000\nburst_us = 9\n"
        );
        let config = parse(&text).expect("all of it");
        assert_eq!(config.device, Some(DeviceSelector::VfioUser("/run/nic".into())));
        assert_eq!(
            (config.addresses.len(), config.gid_index, config.drain),
            (1, Some(3), Duration::from_secs(2))
        );
        assert_eq!(config.table, Some(TableSource::File("/etc/dpu/rows.csv".into())));
        assert_eq!(
            config.limits,
            Limits { hops: 5, bytes: 4096, retries: 0, time: Duration::from_micros(7) }
        );
        assert_eq!(config.fuel, Fuel { step: 10, invocation: 20 });
        assert_eq!(config.engine, MachineCode::OFF);
        assert_eq!(config.tenants[0].requests_per_second, Some(1000));
        assert!(config.tenants[0].write);
        assert_eq!(interval(Some(1000)), Duration::from_millis(1));
        assert_eq!(interval(None), Duration::ZERO);
    }

    #[test]
    fn machine_code_is_on_where_there_is_any_or_an_error() {
        let text = format!("listen = \"127.0.0.1:0\"\n[programs]\nmachine_code = true\n{TENANT}");
        match MachineCode::new() {
            Ok(engine) => {
                assert_ne!(engine, MachineCode::OFF);
                assert_eq!(parse(&text).expect("there is").engine, engine);
            }
            Err(error) => {
                let complaint = complaint(&text);
                assert!(complaint.contains("machine_code = true"), "{complaint}");
                assert!(complaint.contains(&error.to_string()), "{complaint}");
            }
        }
    }

    #[test]
    fn invalid_settings_are_refused_by_name() {
        let with = |more: &str| format!("listen = \"127.0.0.1:0\"\n{more}\n{TENANT}");
        for (text, reason) in [
            ("listen = 3".into(), "invalid type"),
            ("listen = \"a:1\"".into(), "no [[tenant]]"),
            (with("lisen = 1"), "lisen"),
            (with("device = \"mlx5_0\""), "device: \"mlx5_0\" does not name a device"),
            (with("addresses = [\"10.0.0.1/33\"]"), "addresses: /33"),
            (with("[table]"), "table: give one of"),
            (with("[table]\ndata = \"a\"\ndemo_rows = 1"), "table: give one of"),
            (with("[table]\nshared_by = \"shop\"\ndemo_rows = 1"), "table: give one of"),
            (with("[table]\nshared_by = \"host\""), "\"host\" does not name a [[tenant]]"),
            (with("[table]\ndemo_rows = 0"), "from 1 to 1000000"),
            (with("[limits]\nhops = 0"), "no request could do anything"),
            (with("[programs]\nrequest_fuel = 1"), "request_fuel = 1"),
            (with(TENANT), "tenant \"shop\" is listed twice"),
            (format!("{}connections = 17", with("")), "connections = 17 must be from 1 to 16"),
            (format!("{}requests_at_a_time = 0", with("")), "requests_at_a_time = 0"),
            (format!("{}bytes_per_second = 0", with("")), "a rate of 0"),
            (with("").replace("shop", ""), "a name has 1 to 64 bytes"),
        ] {
            assert!(complaint(&text).contains(reason), "{text}: {}", complaint(&text));
        }
    }

    #[test]
    fn a_configuration_error_names_its_line() {
        assert!(complaint("listen = \"a:1\"\ndrain_seconds = \"ten\"").contains("line 2"));
    }

    /// This version understands the file in `deploy/`.
    #[test]
    fn the_configuration_to_start_from_is_understood() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/dpu.toml");
        let config = ServiceConfig::read(&path).expect("understood");
        assert_eq!(config.table, Some(TableSource::Host("host".into())));
        assert!(matches!(config.device, Some(DeviceSelector::Pci(_))), "{:?}", config.device);
        assert_eq!(config.tenants[1].dmas_per_second, Some(2_500_000));
    }
}
