//! A timeline for the public viewers of Perfetto: Chrome's trace event format, written as it is read. A process for each interface, a thread
//! for each queue pair that frames are for, a slice for each frame, and an arrow from a request to the response that names its PSN.

use super::frames::Frame;
use super::tally::{Pair, address, refusal};
use serde_json::json;
use std::io::{self, Write};

/// How long a frame is shown, in microseconds. A capture knows when a frame passed and not for how long.
const SHOWN: f64 = 0.05;

/// Writes a timeline.
pub(super) struct Timeline<W: Write> {
    out: W,
    first: Option<u64>,
    comma: bool,
}

impl<W: Write> Timeline<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        Ok(Self { out, first: None, comma: false })
    }

    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        if self.comma {
            self.out.write_all(b",\n")?;
        }
        self.comma = true;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    pub(super) fn frame(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let first = *self.first.get_or_insert(frame.nanos);
        let at = frame.nanos.saturating_sub(first) as f64 / 1000.0;
        let process = frame.interface + 1;
        let Ok(packet) = &frame.packet else {
            let bytes = json!({"bytes": frame.bytes});
            return self.event(&json!({
                "ph": "X", "name": "not RoCE", "cat": "wire", "pid": process, "tid": 0, "ts": at, "dur": SHOWN, "args": bytes,
            }));
        };
        let pair = Pair::of(packet);
        let (qpn, psn) = (packet.bth.destination.value(), packet.bth.psn.value());
        let name = match (frame.note, refusal(packet)) {
            (Some(note), _) => format!("{} ({note})", packet.bth.opcode),
            (None, Some((refusal, _))) => format!("NAK: {refusal}"),
            (None, None) => packet.bth.opcode.to_string(),
        };
        let arguments = json!({
            "psn": psn, "qp": qpn, "bytes": frame.bytes, "from": address(pair.from), "to": address(pair.to),
        });
        self.event(&json!({
            "ph": "X", "name": name, "cat": "wire", "pid": process, "tid": qpn, "ts": at, "dur": SHOWN, "args": arguments,
        }))?;
        let response = packet.bth.opcode.is_response();
        let (asks, answers) = if response { (pair.to, pair.from) } else { (pair.from, pair.to) };
        let phase = if response { "f" } else { "s" };
        self.event(&json!({
            "ph": phase, "bp": "e", "name": "answer", "cat": "wire", "pid": process, "tid": qpn, "ts": at,
            "id": format!("{asks}/{answers}/{psn}"),
        }))
    }

    /// Names the interfaces and ends the file.
    pub(super) fn finish(mut self, interfaces: &[String]) -> io::Result<()> {
        for (number, name) in (1..).zip(interfaces) {
            let arguments = json!({"name": format!("wire at {name}")});
            self.event(
                &json!({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": arguments}),
            )?;
        }
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }
}
