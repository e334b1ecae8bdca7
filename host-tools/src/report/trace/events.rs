//! Writes events of Chrome's trace event format one after the other.

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};

/// Where an event is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the interface of the device.
    pub(super) device: usize,
    pub(super) tid: u32,
    /// Time since the beginning of the capture.
    pub(super) nanos: u64,
}

/// An arrow through several slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowStep {
    Start,
    Step,
    End,
}

/// An event with a one-letter phase at a place. Recordings have millions, so none of them is put together from [`Value`]s
/// first.
#[derive(Serialize)]
struct Event<'a> {
    #[serde(skip_serializing_if = "is_null")]
    args: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'a str>,
    cat: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<fmt::Arguments<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    ph: &'a str,
    pid: usize,
    tid: u32,
    ts: f64,
}

impl<'a> Event<'a> {
    fn at(ph: &'a str, place: Place) -> Self {
        let Place { device, tid, nanos } = place;
        let (pid, ts) = (device + 1, micros(nanos));
        Self { args: None, bp: None, cat: "rdma", dur: None, id: None, name: None, ph, pid, tid, ts }
    }
}

fn is_null(arguments: &Option<&Value>) -> bool {
    arguments.is_none_or(Value::is_null)
}

/// Writes events.
pub(super) struct EventWriter<W: Write> {
    out: W,
    comma: bool,
}

impl<W: Write> EventWriter<W> {
    pub(super) fn begin_file(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n")?;
        Ok(Self { out, comma: false })
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn event(&mut self, event: &impl Serialize) -> io::Result<()> {
        if self.comma {
            self.out.write_all(b",\n")?;
        }
        self.comma = true;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    /// A slice begins.
    pub(super) fn begin(&mut self, place: Place, name: &str, arguments: &Value) -> io::Result<()> {
        self.event(&Event { name: Some(name), args: Some(arguments), ..Event::at("B", place) })
    }

    /// The slice of a thread that began last ends.
    pub(super) fn end(&mut self, place: Place, arguments: &Value) -> io::Result<()> {
        self.event(&Event { args: Some(arguments), ..Event::at("E", place) })
    }

    /// A slice with a duration in nanoseconds.
    pub(super) fn complete(
        &mut self,
        place: Place,
        length: u64,
        name: &str,
        arguments: &Value,
    ) -> io::Result<()> {
        let (dur, args) = (Some(micros(length)), Some(arguments));
        self.event(&Event { name: Some(name), cat: "wire", dur, args, ..Event::at("X", place) })
    }

    /// A step of an arrow, at the slice that begins at its place. Arrows with the same name have different
    /// IDs. An ID is a number: the format does not demand that, but Perfetto drops arrows with other IDs.
    pub(super) fn flow(&mut self, step: FlowStep, place: Place, name: &str, id: u64) -> io::Result<()> {
        let phase = match step {
            FlowStep::Start => "s",
            FlowStep::Step => "t",
            FlowStep::End => "f",
        };
        let id = Some(format_args!("{id:#x}"));
        self.event(&Event { name: Some(name), id, bp: Some("e"), ..Event::at(phase, place) })
    }

    /// A number over time, for a whole device.
    pub(super) fn counter(&mut self, place: Place, name: &str, value: u64) -> io::Result<()> {
        let event = Event::at("C", Place { tid: 0, ..place });
        self.event(&Event { name: Some(name), args: Some(&json!({"value": value})), ..event })
    }

    pub(super) fn name_process(&mut self, device: usize, name: &str) -> io::Result<()> {
        self.event(
            &json!({"ph": "M", "name": "process_name", "pid": device + 1, "tid": 0, "args": {"name": name}}),
        )?;
        let order = json!({"sort_index": device});
        self.event(
            &json!({"ph": "M", "name": "process_sort_index", "pid": device + 1, "tid": 0, "args": order}),
        )
    }

    pub(super) fn name_thread(
        &mut self,
        device: usize,
        tid: u32,
        name: &str,
        order: usize,
    ) -> io::Result<()> {
        self.event(
            &json!({"ph": "M", "name": "thread_name", "pid": device + 1, "tid": tid, "args": {"name": name}}),
        )?;
        let order = json!({"sort_index": order});
        self.event(
            &json!({"ph": "M", "name": "thread_sort_index", "pid": device + 1, "tid": tid, "args": order}),
        )
    }
}

/// The unit of the format, microseconds; its three decimals are nanoseconds.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}
