//! Records of a recording and their text form (docs/adr/0029): actions of a device and of its host.

use super::topology::NodeId;
use crate::net::capture::Capture;
use crate::nic::{DeviceEvent, TextError, TextWords};
use core::fmt;

/// Suffix of a node's name: the interface for the records of its device and its host.
pub const RECORDS_SUFFIX: &str = " (device)";

/// One packet on a record interface.
///
/// ```
/// use bareverbs_sim::run::RecordText;
///
/// let began = RecordText::parse("begin 1 lookup of user:4711").unwrap();
/// assert_eq!(began, RecordText::SpanBegan { id: 1, name: "lookup of user:4711" });
/// assert_eq!(RecordText::SpanEnded { id: 1 }.to_string(), "finish 1");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordText<'a> {
    /// An action of the device.
    Device(DeviceEvent),
    /// Number of device records missing here, because too many occurred at once.
    Lost(u64),
    /// A program uses the device from now on.
    Program {
        /// Process ID.
        pid: u32,
        /// Name in the process table.
        name: &'a str,
    },
    /// The host started an activity.
    SpanBegan {
        /// Identifies the span; unique in a recording.
        id: u64,
        /// The activity.
        name: &'a str,
    },
    /// The host ended an activity.
    SpanEnded {
        /// The span.
        id: u64,
    },
}

impl fmt::Display for RecordText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(event) => event.fmt(f),
            Self::Lost(count) => write!(f, "lost {count}"),
            Self::Program { pid, name } => write!(f, "program {pid} {name}"),
            Self::SpanBegan { id, name } => write!(f, "begin {id} {name}"),
            Self::SpanEnded { id } => write!(f, "finish {id}"),
        }
    }
}

impl<'a> RecordText<'a> {
    /// Parses the output of [`fmt::Display`].
    ///
    /// # Errors
    /// The text is anything else.
    pub fn parse(text: &'a str) -> Result<Self, TextError> {
        let words = &mut TextWords::new(text);
        let record = match words.word()? {
            "begin" => {
                let id = words.number()?;
                let (_, name) = text[6..].split_once(' ').ok_or(TextError)?;
                return Ok(Self::SpanBegan { id, name });
            }
            "program" => {
                let pid = words.number()?;
                let (_, name) = text[8..].split_once(' ').ok_or(TextError)?;
                return Ok(Self::Program { pid, name });
            }
            "lost" => Self::Lost(words.number()?),
            "finish" => Self::SpanEnded { id: words.number()? },
            _ => return DeviceEvent::parse(text).map(Self::Device),
        };
        words.end()?;
        Ok(record)
    }
}

/// A capture in progress and its contents.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) capture: Capture,
    /// Number of the first record interface, if records are written; the interface of node `n` is `n` later.
    pub(super) records: Option<u32>,
    pub(super) spans: u64,
}

impl Recording {
    pub(super) const fn new(capture: Capture, records: Option<u32>) -> Self {
        Self { capture, records, spans: 0 }
    }

    pub(super) fn record(&mut self, node: NodeId, nanos: u64, record: &RecordText<'_>) {
        if let Some(first) = self.records {
            self.capture.record(first + node.0, nanos, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_values_are_read_back(id: u64, pid: u32, vector: u16, name in "[^\n]{0,40}") {
            let device = RecordText::Device(DeviceEvent::Interrupt { vector });
            let spans = [RecordText::SpanBegan { id, name: &name }, RecordText::SpanEnded { id }];
            let program = RecordText::Program { pid, name: &name };
            for record in spans.into_iter().chain([device, program, RecordText::Lost(id)]) {
                let text = record.to_string();
                prop_assert_eq!(RecordText::parse(&text), Ok(record));
            }
        }

        /// A capture can come from anybody.
        #[test]
        fn no_text_panics(text: String, prefix in prop::sample::select(vec!["", "begin", "begin ", "program ", "lost "])) {
            let _ = RecordText::parse(&format!("{prefix}{text}"));
        }
    }
}
