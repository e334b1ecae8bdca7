//! Writes events of Chrome's trace event format one after the other.

use serde_json::{Value, json};
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

    fn event(&mut self, event: &Value) -> io::Result<()> {
        if self.comma {
            self.out.write_all(b",\n")?;
        }
        self.comma = true;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    /// An event with a one-letter phase at a place, with further members.
    fn at(&mut self, phase: &str, place: Place, further: Value) -> io::Result<()> {
        let Place { device, tid, nanos } = place;
        let mut event =
            json!({"ph": phase, "pid": device + 1, "tid": tid, "ts": micros(nanos), "cat": "rdma"});
        if let (Some(event), Value::Object(further)) = (event.as_object_mut(), further) {
            event.extend(further.into_iter().filter(|(_, value)| !value.is_null()));
        }
        self.event(&event)
    }

    /// A slice begins.
    pub(super) fn begin(&mut self, place: Place, name: &str, arguments: &Value) -> io::Result<()> {
        self.at("B", place, json!({"name": name, "args": arguments}))
    }

    /// The slice of a thread that began last ends.
    pub(super) fn end(&mut self, place: Place, arguments: &Value) -> io::Result<()> {
        self.at("E", place, json!({"args": arguments}))
    }

    /// A slice with a duration in nanoseconds.
    pub(super) fn complete(
        &mut self,
        place: Place,
        length: u64,
        name: &str,
        arguments: &Value,
    ) -> io::Result<()> {
        let cat = "wire";
        self.at("X", place, json!({"name": name, "cat": cat, "dur": micros(length), "args": arguments}))
    }

    /// A step of an arrow, at the slice that begins at its place. Arrows with the same name have different
    /// IDs. An ID is a number: the format does not demand that, but Perfetto drops arrows with other IDs.
    pub(super) fn flow(&mut self, step: FlowStep, place: Place, name: &str, id: u64) -> io::Result<()> {
        let phase = match step {
            FlowStep::Start => "s",
            FlowStep::Step => "t",
            FlowStep::End => "f",
        };
        self.at(phase, place, json!({"name": name, "id": format!("{id:#x}"), "bp": "e"}))
    }

    /// A number over time, for a whole device.
    pub(super) fn counter(&mut self, place: Place, name: &str, value: u64) -> io::Result<()> {
        self.at("C", Place { tid: 0, ..place }, json!({"name": name, "args": {"value": value}}))
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
