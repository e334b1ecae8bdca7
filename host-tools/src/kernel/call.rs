//! Calls a kernel or a program of a service once, with arbitrary parameters.

use super::digits::{bytes_of, hex};
use crate::Failure;
use crate::dpu::client::{ServiceArguments, ServiceConnector, ServiceTask};
use crate::dpu::offer::ConnectionKind;
use crate::dpu::opcode::{opcode_text, parse_opcode};
use crate::output::json_object;
use anyhow::{Result, anyhow};
use bareverbs_core::hal::Hal;
use bareverbs_offload::client::slots::SlotLayout;
use bareverbs_offload::client::{Call, CallResult, Ended, KernelClient, KernelClientConfig, KernelPlace};
use bareverbs_offload::kernel::Opcode;
use bareverbs_offload::wire::RegionHandle;
use bareverbs_prm::time::Duration;
use clap::Args;
use serde_json::{Value, json};

#[derive(Debug, Clone, Args)]
pub(super) struct CallArguments {
    /// What to call: up to eight letters, such as KVLOOKUP, or a number such as 0x1234.
    #[arg(value_name = "OPCODE", value_parser = parse_opcode)]
    opcode: Opcode,
    #[command(flatten)]
    service: ServiceArguments,
    /// Parameters of the request, in hexadecimal digits; with the payload at most 448 bytes.
    #[arg(long, value_name = "HEX", default_value = "")]
    parameters: String,
    /// Payload of the request, in hexadecimal digits.
    #[arg(long, value_name = "HEX", default_value = "")]
    payload: String,
    /// Largest answer in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(..=65_536))]
    max_answer: u32,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

struct OneCall<'a> {
    arguments: &'a CallArguments,
    parameters: Vec<u8>,
    payload: Vec<u8>,
}

/// The outcome of a call.
struct CallOutcome {
    result: CallResult,
    answer: Vec<u8>,
    latency: Duration,
}

/// Runs the call. Returns false with a status instead of an answer.
pub(super) fn call(arguments: &CallArguments) -> Result<(String, bool), Failure> {
    let parameters = bytes_of("--parameters", &arguments.parameters)?;
    let payload = bytes_of("--payload", &arguments.payload)?;
    let outcome = arguments.service.with_service(OneCall { arguments, parameters, payload })?;
    let text = match arguments.json {
        true => json_object("kernel-call", outcome.object(arguments.opcode))?,
        false => outcome.text(),
    };
    Ok((text, outcome.result.ended == Ended::Found))
}

impl ServiceTask for OneCall<'_> {
    type Output = CallOutcome;

    fn run<H: Hal>(self, connector: &ServiceConnector<'_, H>) -> Result<CallOutcome, Failure> {
        let max_response = self.arguments.max_answer;
        let stride = SlotLayout::min_stride(max_response).next_multiple_of(64);
        let mut connection =
            connector.connect(ConnectionKind::Lookup, stride as usize).map_err(Failure::Input)?;
        let region = connection.endpoint.region();
        let layout =
            SlotLayout { address: region.address(), rkey: region.rkey().value(), stride, max_response };
        let timeout = Duration::from_millis(u64::try_from(connector.timeout.as_millis()).unwrap_or(u64::MAX));
        let (place, credits) = (KernelPlace::Cores, connection.credits());
        let limits = connection.offer.limits();
        let mut client =
            KernelClient::<1>::new(KernelClientConfig { place, layout, credits, timeout, limits });
        let mut answer = vec![0; client.buffer_size()];
        let call = Call {
            opcode: self.arguments.opcode,
            region: RegionHandle(connection.offer.region),
            parameters: &self.parameters,
            payload: &self.payload,
        };
        let hal = connector.device.hal();
        let begun = hal.now();
        let started = client.start(begun, &mut connection.endpoint, &call);
        started.map_err(|error| Failure::Input(self.described(&error)))?;
        let result = loop {
            let now = hal.now();
            if let Some(result) = client.poll(now, &mut connection.endpoint, &mut answer) {
                break result;
            }
            connector.rest();
        };
        let latency = hal.now().since(begun);
        let lost = match result.ended {
            Ended::Found | Ended::Status(_) => None,
            Ended::TimedOut => Some("no answer in time: --timeout SECONDS waits longer"),
            Ended::Disconnected => Some("the connection broke"),
        };
        if let Some(lost) = lost {
            let said = connection.farewell().map_or(String::new(), |said| format!("; {said}"));
            let name = opcode_text(call.opcode);
            return Err(Failure::Run(anyhow!("calling {name}: {lost}{said}")));
        }
        answer.truncate(if result.ended == Ended::Found { result.length as usize } else { 0 });
        Ok(CallOutcome { result, answer, latency })
    }
}

impl OneCall<'_> {
    /// The error of a call that could not be started.
    fn described(&self, error: &impl std::fmt::Display) -> anyhow::Error {
        let bytes = [self.parameters.len(), self.payload.len()];
        let name = opcode_text(self.arguments.opcode);
        anyhow!("calling {name} with {} bytes of parameters and {} of payload: {error}", bytes[0], bytes[1])
    }
}

impl CallOutcome {
    /// The status if there is no answer.
    fn status(&self) -> Option<String> {
        match self.result.ended {
            Ended::Status(status) => Some(status.to_string()),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let CallResult { version, hops, retries, server_time, .. } = self.result;
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let outcome = match self.status() {
            Some(status) => format!("no answer: {status}"),
            None => {
                format!("answer of {} bytes, version {version}: {}", self.answer.len(), hex(&self.answer))
            }
        };
        format!(
            "{outcome}\n{hops} elements read, {retries} retries; {:.1} µs, {:.1} of them on the server",
            micros(self.latency),
            micros(server_time)
        )
    }

    fn object(&self, opcode: Opcode) -> Value {
        let CallResult { version, hops, retries, server_time, .. } = self.result;
        let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
        let status = self.status();
        let answer = status.is_none().then(|| hex(&self.answer));
        json!({
            "opcode": opcode_text(opcode),
            "status": status.unwrap_or_else(|| "ok".to_owned()),
            "answer": answer,
            "version": version,
            "hops": hops,
            "retries": retries,
            "latency_us": micros(self.latency),
            "server_us": micros(server_time),
        })
    }
}
