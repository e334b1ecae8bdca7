//! Looks up keys in every requested way and compares the results.

use super::client::{ServiceArguments, ServiceConnection, ServiceConnector, ServiceTask};
use super::offer::ConnectionKind;
use super::opcode::parse_opcode;
use crate::Failure;
use crate::output::{json_object, print};
use anyhow::{Context as _, Result, anyhow};
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{ClientConfig, Ended, KvClient, LookupResult, Way};
use bareverbs::offload::grant::Grant;
use bareverbs::offload::kernel::Opcode;
use bareverbs::offload::kernels::kv_layout::MAX_VALUE;
use bareverbs::offload::status::Status;
use bareverbs::offload::wire::RegionHandle;
use bareverbs::prm::time::{Duration, Time};
use bareverbs_core::hal::Hal;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::to_value;

/// Arguments of `bareverbs dpu get`.
#[derive(Debug, Clone, Args)]
pub(super) struct GetArguments {
    /// The keys, 1 to 64 bytes each.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    service: ServiceArguments,
    /// How to look up; repeat it for several ways. [default: kernel and read]
    #[arg(long, value_enum, value_name = "WAY")]
    way: Vec<GetWay>,
    /// Opcode of the program for --way program, as given to `bareverbs kernel deploy --opcode`.
    #[arg(long, value_name = "OPCODE", value_parser = parse_opcode)]
    program: Option<Opcode>,
    /// Look up each key this many times; the latencies cover all lookups.
    #[arg(short = 'n', long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Ways of looking up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GetWay {
    /// The lookup kernel of the service.
    Kernel,
    /// RDMA READs, for tenants with that right.
    Read,
    /// A program deployed under the opcode in --program.
    Program,
}

impl GetWay {
    const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Read => "read",
            Self::Program => "program",
        }
    }

    const fn kind(self) -> ConnectionKind {
        match self {
            Self::Read => ConnectionKind::Read,
            Self::Kernel | Self::Program => ConnectionKind::Lookup,
        }
    }
}

/// A key looked up in one way.
#[derive(Debug, Clone, Serialize)]
struct WayResult {
    way: &'static str,
    /// The status if there is no value.
    status: Option<String>,
    latency_us: LookupLatency,
    round_trips: u16,
    hops: u16,
    retries: u16,
    version: u64,
    #[serde(skip)]
    value: Option<Vec<u8>>,
    #[serde(skip)]
    absent: bool,
}

/// Microseconds, measured at this end.
#[derive(Debug, Clone, Copy, Serialize)]
struct LookupLatency {
    min: f64,
    median: f64,
    max: f64,
}

/// A key looked up in all ways.
#[derive(Debug, Clone, Serialize)]
struct KeyResult {
    key: String,
    /// The value, if all ways returned the same.
    value_hex: Option<String>,
    value_text: Option<String>,
    /// Whether all ways agree, including that there is no such key.
    agree: bool,
    ways: Vec<WayResult>,
}

/// Looks the keys up. Returns false if one was not found or the ways disagree.
pub(super) fn run(arguments: &GetArguments) -> Result<bool, Failure> {
    let ways = ways(arguments).map_err(Failure::Input)?;
    let results = arguments.service.with_service(Getting { arguments, ways })?;
    let good = results.iter().all(|result| result.agree && result.value_hex.is_some());
    print(&match arguments.json {
        true => {
            let keys = to_value(&results).context("writing the results")?;
            let server = arguments.service.server();
            json_object(
                "dpu-get",
                serde_json::json!({"server": server, "repeat": arguments.repeat, "keys": keys}),
            )?
        }
        false => results.iter().map(KeyResult::text).collect::<Vec<_>>().join("\n"),
    })?;
    Ok(good)
}

fn ways(arguments: &GetArguments) -> Result<Vec<GetWay>> {
    let mut ways = arguments.way.clone();
    if ways.is_empty() {
        ways = vec![GetWay::Kernel, GetWay::Read];
        ways.extend(arguments.program.map(|_| GetWay::Program));
    }
    if ways.contains(&GetWay::Program) != arguments.program.is_some() {
        return Err(anyhow!("--way program and --program OPCODE belong together"));
    }
    Ok(ways)
}

struct Getting<'a> {
    arguments: &'a GetArguments,
    ways: Vec<GetWay>,
}

impl ServiceTask for Getting<'_> {
    type Output = Vec<KeyResult>;

    fn run<H: Hal>(self, connector: &ServiceConnector<'_, H>) -> Result<Vec<KeyResult>, Failure> {
        let askers: Result<Vec<_>> =
            self.ways.iter().map(|way| WayAsker::connect(connector, *way, self.arguments.program)).collect();
        let mut askers = askers.map_err(Failure::Input)?;
        let repeat = self.arguments.repeat;
        let result = |key: &String| -> Result<KeyResult> {
            let ways: Result<Vec<WayResult>> =
                askers.iter_mut().map(|asker| asker.look_up(connector, key, repeat)).collect();
            Ok(KeyResult::of(key, ways.with_context(|| format!("looking up {key:?}"))?))
        };
        let results: Result<Vec<KeyResult>> = self.arguments.keys.iter().map(result).collect();
        results.map_err(Failure::Run)
    }
}

/// A connection for lookups by one way, one at a time.
struct WayAsker<'d, H: Hal> {
    name: GetWay,
    client: KvClient<1>,
    connection: ServiceConnection<'d, H>,
    buffer: Vec<u8>,
}

impl<'d, H: Hal> WayAsker<'d, H> {
    fn connect(connector: &ServiceConnector<'d, H>, name: GetWay, program: Option<Opcode>) -> Result<Self> {
        let length = ClientConfig::stride(MAX_VALUE as u32) as usize;
        let connection =
            connector.connect(name.kind(), length).with_context(|| format!("way {}", name.name()))?;
        let (offer, region) = (&connection.offer, connection.endpoint.region());
        let max_response = offer.max_value.min(MAX_VALUE as u32);
        let layout = SlotLayout {
            address: region.address(),
            rkey: region.rkey().value(),
            stride: ClientConfig::stride(max_response),
            max_response,
        };
        let handle = RegionHandle(offer.region);
        let table = offer.table()?;
        let way = match name {
            GetWay::Kernel => Way::KernelDpu(handle),
            GetWay::Program => Way::Program { opcode: program.context("--program OPCODE")?, region: handle },
            GetWay::Read => {
                let slice = connection.table.context("the service offers no memory to READ")?;
                Way::Read { rkey: slice.rkey.value(), region: Grant::new(slice.address, table.length)? }
            }
        };
        let timeout = Duration::from_millis(u64::try_from(connector.timeout.as_millis())?);
        let config =
            ClientConfig { way, table, layout, credits: offer.credits, timeout, limits: offer.limits() };
        let client = KvClient::new(config);
        let buffer = vec![0; client.buffer_size()];
        Ok(Self { name, client, connection, buffer })
    }

    /// Looks a key up `repeat` times. Every answer must equal the first.
    fn look_up(&mut self, connector: &ServiceConnector<'_, H>, key: &str, repeat: u32) -> Result<WayResult> {
        let mut nanos = Vec::with_capacity(repeat as usize);
        let mut first: Option<(LookupResult, Vec<u8>)> = None;
        for _ in 0..repeat {
            let (result, value, took) = self.look_up_once(connector, key)?;
            nanos.push(took);
            let (before, was) = first.get_or_insert_with(|| (result, value.clone()));
            if (before.ended, &*was) != (result.ended, &value) {
                return Err(anyhow!(
                    "by {}, one lookup gave {:?} and another {:?}",
                    self.name.name(),
                    before.ended,
                    result.ended
                ));
            }
        }
        let (result, value) = first.context("at least one lookup")?;
        Ok(WayResult::new(self.name, &result, value, nanos))
    }

    fn look_up_once(
        &mut self,
        connector: &ServiceConnector<'_, H>,
        key: &str,
    ) -> Result<(LookupResult, Vec<u8>, u64)> {
        let hal = connector.device.hal();
        let begin: Time = hal.now();
        let started = self.client.start(begin, &mut self.connection.endpoint, key.as_bytes());
        started.map_err(|error| anyhow!("by {}: {error}", self.name.name()))?;
        loop {
            let now = hal.now();
            if let Some(result) = self.client.poll(now, &mut self.connection.endpoint, &mut self.buffer) {
                let took = hal.now().since(begin).as_nanos();
                let length = if result.ended == Ended::Found { result.length as usize } else { 0 };
                self.check(&result)?;
                return Ok((result, self.buffer.get(..length).unwrap_or_default().to_vec(), took));
            }
            connector.rest();
        }
    }

    /// A lookup without an answer ends the command.
    fn check(&mut self, result: &LookupResult) -> Result<()> {
        let why = match result.ended {
            Ended::Found | Ended::Status(_) => return Ok(()),
            Ended::TimedOut => "no answer in time".to_owned(),
            Ended::Disconnected => "the connection broke".to_owned(),
        };
        let said = self.connection.farewell().map_or(String::new(), |said| format!("; {said}"));
        Err(anyhow!("by {}: {why}{said}", self.name.name()))
    }
}

impl WayResult {
    fn new(name: GetWay, result: &LookupResult, value: Vec<u8>, nanos: Vec<u64>) -> Self {
        let LookupResult { round_trips, hops, retries, version, ended, .. } = *result;
        let status = match ended {
            Ended::Status(status) => Some(status.to_string()),
            _ => None,
        };
        let absent = ended == Ended::Status(Status::NotFound);
        let value = (ended == Ended::Found).then_some(value);
        Self {
            way: name.name(),
            status,
            latency_us: LookupLatency::of(nanos),
            round_trips,
            hops,
            retries,
            version,
            value,
            absent,
        }
    }

    fn text(&self) -> String {
        let LookupLatency { min, median, max } = self.latency_us;
        let status = self.status.as_deref().map_or(String::new(), |status| format!(": {status}"));
        format!(
            "  {:8} {median:10.1} µs ({min:.1} to {max:.1}), {} round trips, {} elements read{status}",
            self.way, self.round_trips, self.hops
        )
    }
}

impl LookupLatency {
    /// The latency of at least one measurement.
    fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let micros = |at: usize| nanos.get(at).map_or(0.0, |nanos| *nanos as f64 / 1000.0);
        Self { min: micros(0), median: micros(nanos.len() / 2), max: micros(nanos.len().saturating_sub(1)) }
    }
}

impl KeyResult {
    fn of(key: &str, ways: Vec<WayResult>) -> Self {
        let outcome = |way: &WayResult| (way.value.clone(), way.absent);
        let agree = ways.windows(2).all(|pair| outcome(&pair[0]) == outcome(&pair[1]));
        let value = ways.first().and_then(|way| way.value.clone()).filter(|_| agree);
        let value_hex = value.as_ref().map(|value| value.iter().map(|byte| format!("{byte:02x}")).collect());
        let value_text = value.and_then(|value| String::from_utf8(value).ok());
        Self { key: key.to_owned(), value_hex, value_text, agree, ways }
    }

    fn text(&self) -> String {
        let value = match (&self.value_text, &self.value_hex) {
            (Some(text), _) => format!("{text:?}"),
            (None, Some(digits)) => format!("0x{digits}"),
            (None, None) if self.agree => "no value".to_owned(),
            (None, None) => "THE WAYS DISAGREE".to_owned(),
        };
        let ways = self.ways.iter().map(WayResult::text);
        std::iter::once(format!("{}: {value}", self.key)).chain(ways).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(way: &'static str, value: Option<&[u8]>) -> WayResult {
        let latency_us = LookupLatency::of(vec![3000, 1000, 2000]);
        let absent = value.is_none();
        WayResult {
            way,
            status: None,
            latency_us,
            round_trips: 1,
            hops: 2,
            retries: 0,
            version: 1,
            value: value.map(<[u8]>::to_vec),
            absent,
        }
    }

    #[test]
    fn results_agree_only_if_all_ways_find_the_same_value() {
        let same = KeyResult::of("k", vec![way("kernel", Some(b"v")), way("read", Some(b"v"))]);
        assert_eq!(
            (same.agree, same.value_hex.as_deref(), same.value_text.as_deref()),
            (true, Some("76"), Some("v"))
        );
        let none = KeyResult::of("k", vec![way("kernel", None), way("read", None)]);
        assert!(none.agree && none.value_hex.is_none() && none.text().starts_with("k: no value"));
        let differ = KeyResult::of("k", vec![way("kernel", Some(b"v")), way("read", Some(b"w"))]);
        assert!(!differ.agree && differ.text().contains("DISAGREE"));
        let missing = KeyResult::of("k", vec![way("kernel", Some(b"v")), way("read", None)]);
        assert!(!missing.agree && missing.value_hex.is_none());
        let failed =
            KeyResult::of("k", vec![WayResult { absent: false, ..way("kernel", None) }, way("read", None)]);
        assert!(!failed.agree);
        let bytes = KeyResult::of("k", vec![way("kernel", Some(&[0xff, 0]))]);
        assert!(bytes.text().starts_with("k: 0xff00"), "{}", bytes.text());
    }

    #[test]
    fn latencies_are_those_of_all() {
        let LookupLatency { min, median, max } = LookupLatency::of(vec![3000, 1000, 2000]);
        assert_eq!([min, median, max], [1.0, 2.0, 3.0]);
    }
}
