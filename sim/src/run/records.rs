//! Records of a recording and their text (docs/adr/0029): what a device did, and what its host says of itself.

use super::topology::NodeId;
use crate::net::capture::Capture;
use crate::nic::{DeviceEvent, TextError, TextWords};
use core::fmt;

/// Behind the name of a node: the interface of what its device and its host do.
pub const RECORDS_SUFFIX: &str = " (device)";

/// One packet of an interface of records.
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
    /// What the device did.
    Device(DeviceEvent),
    /// So many records of the device are missing here: too many came at one moment.
    Lost(u64),
    /// A program has the device from now on.
    Program {
        /// Number of its process.
        pid: u32,
        /// As the process table has it.
        name: &'a str,
    },
    /// The host began something.
    SpanBegan {
        /// Names the span to its end; unique in a recording.
        id: u64,
        /// What the host does.
        name: &'a str,
    },
    /// The host ended it.
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
    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// It is something else.
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

/// A capture that is being written, and what it is to have.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) capture: Capture,
    /// Number of the first interface of records, if records are written; that of node `n` is `n` numbers later.
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
        fn what_is_written_is_read(id: u64, pid: u32, vector: u16, name in "[^\n]{0,40}") {
            let device = RecordText::Device(DeviceEvent::Interrupt { vector });
            let spans = [RecordText::SpanBegan { id, name: &name }, RecordText::SpanEnded { id }];
            let program = RecordText::Program { pid, name: &name };
            for record in spans.into_iter().chain([device, program, RecordText::Lost(id)]) {
                let text = record.to_string();
                prop_assert_eq!(RecordText::parse(&text), Ok(record));
            }
        }

        /// A capture may be anybody's.
        #[test]
        fn no_text_panics(text: String, prefix in prop::sample::select(vec!["", "begin", "begin ", "program ", "lost "])) {
            let _ = RecordText::parse(&format!("{prefix}{text}"));
        }
    }
}
