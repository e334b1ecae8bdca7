//! Counts of devices' records, in memory that does not grow with the capture.

use super::frames::Record;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::CqeOpcode;
use bareverbs_sim::nic::{DeviceEvent, TextError};
use bareverbs_sim::run::RecordText;
use bareverbs_sim::transport::RetransmissionCause;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Causes of a retransmission.
pub(super) const CAUSES: usize = RetransmissionCause::ALL.len();
/// Send queues whose depth is tracked; the work of further ones is counted, but not in the depth.
const QUEUES: usize = 4096;

/// Activity of devices in one step of the time axis.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeviceInterval {
    pub(super) doorbells: u64,
    pub(super) completions: u64,
    /// Those of the entries that report an error.
    pub(super) errors: u64,
    pub(super) interrupts: u64,
    /// Most work requests that were fetched and had not ended.
    pub(super) under_way: u64,
}

impl DeviceInterval {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            doorbells: self.doorbells + other.doorbells,
            completions: self.completions + other.completions,
            errors: self.errors + other.errors,
            interrupts: self.interrupts + other.interrupts,
            under_way: self.under_way.max(other.under_way),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        *self = self.and(other);
    }
}

/// All counts of records.
#[derive(Debug, Default)]
pub(super) struct DeviceTally {
    pub(super) records: u64,
    pub(super) work_requests: u64,
    pub(super) commands: u64,
    pub(super) kernel_calls: u64,
    pub(super) kernel_reads: u64,
    /// Doorbells, completions, errors and interrupts of all devices; and most work requests in flight.
    pub(super) sum: DeviceInterval,
    /// Retransmitted packets, by cause.
    pub(super) again: [u64; CAUSES],
    /// Records that the simulator had to drop.
    pub(super) lost: u64,
    /// Records that this version cannot parse.
    pub(super) unread: u64,
    /// Items that the timeline had no room for.
    pub(super) not_in_timeline: u64,
    /// Work requests in flight, by device and queue.
    queues: BTreeMap<(usize, Qpn), u64>,
    under_way: u64,
}

impl DeviceTally {
    /// Whether the capture is a recording.
    pub(super) const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Counts a record; returns what it adds to its step of the time axis.
    pub(super) fn take(&mut self, record: &Record<'_>) -> DeviceInterval {
        self.records += 1;
        let mut step = DeviceInterval::default();
        match &record.what {
            Ok(RecordText::Device(event)) => self.device(record.interface, event, &mut step),
            Ok(RecordText::Lost(count)) => self.lost += count,
            Ok(RecordText::Program { .. } | RecordText::SpanBegan { .. } | RecordText::SpanEnded { .. }) => {}
            Err(TextError) => self.unread += 1,
        }
        step.under_way = self.under_way;
        self.sum.add(step);
        step
    }

    fn device(&mut self, device: usize, event: &DeviceEvent, step: &mut DeviceInterval) {
        match *event {
            DeviceEvent::SendDoorbell { .. } => step.doorbells += 1,
            DeviceEvent::WqeFetched { qpn, .. } => {
                self.work_requests += 1;
                if self.queues.len() < QUEUES || self.queues.contains_key(&(device, qpn)) {
                    *self.queues.entry((device, qpn)).or_default() += 1;
                    self.under_way += 1;
                }
            }
            DeviceEvent::WqeEnded { qpn, .. } => self.end(device, qpn),
            DeviceEvent::CompletionWritten { qpn, opcode, syndrome, .. } => {
                step.completions += 1;
                step.errors += u64::from(syndrome != 0);
                if matches!(opcode, CqeOpcode::Requester | CqeOpcode::RequesterError) {
                    self.end(device, qpn);
                }
            }
            DeviceEvent::Interrupt { .. } => step.interrupts += 1,
            DeviceEvent::CommandExecuted { .. } => self.commands += 1,
            DeviceEvent::KernelCalled { .. } => self.kernel_calls += 1,
            DeviceEvent::KernelRead { .. } => self.kernel_reads += 1,
            DeviceEvent::LoopedBack(_)
            | DeviceEvent::PacketReceived { .. }
            | DeviceEvent::CompletionArmed { .. }
            | DeviceEvent::KernelReplied { .. } => {}
        }
    }

    /// Counts the end of a work request; a flushed one may never have been fetched.
    fn end(&mut self, device: usize, qpn: Qpn) {
        if let Some(queue) = self.queues.get_mut(&(device, qpn))
            && *queue > 0
        {
            *queue -= 1;
            self.under_way -= 1;
        }
    }

    /// Retransmitted packets, by the names of the causes.
    pub(super) fn causes(&self) -> Value {
        let causes = RetransmissionCause::ALL
            .map(|cause| (cause.name().to_owned(), self.again[cause as usize].into()));
        Value::Object(causes.into_iter().collect())
    }

    /// As JSON; null if the capture has no records.
    pub(super) fn object(&self) -> Value {
        if self.is_empty() {
            return Value::Null;
        }
        json!({
            "records": self.records,
            "records_lost": self.lost,
            "records_not_read": self.unread,
            "not_in_timeline": self.not_in_timeline,
            "doorbells": self.sum.doorbells,
            "work_requests": self.work_requests,
            "most_under_way": self.sum.under_way,
            "completions": self.sum.completions,
            "completions_in_error": self.sum.errors,
            "interrupts": self.sum.interrupts,
            "commands": self.commands,
            "kernel_calls": self.kernel_calls,
            "kernel_reads": self.kernel_reads,
        })
    }

    /// Lines of the summary; empty if there is nothing to say.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let causes = RetransmissionCause::ALL.iter().filter(|cause| self.again[**cause as usize] > 0);
        let causes: Vec<String> =
            causes.map(|cause| format!("{} by {cause}", self.again[*cause as usize])).collect();
        if !causes.is_empty() {
            text.push_str(&format!("\nsent again, as devices say: {}", causes.join(", ")));
        }
        if self.is_empty() {
            return text;
        }
        text.push_str(&format!(
            "\ndevices: {} work requests, at most {} under way; {} doorbells, {} completions ({} in error), {} interrupts, {} commands, {} kernel calls",
            self.work_requests,
            self.sum.under_way,
            self.sum.doorbells,
            self.sum.completions,
            self.sum.errors,
            self.sum.interrupts,
            self.commands,
            self.kernel_calls
        ));
        for (count, what) in [
            (self.lost, "records are missing: too many came at one moment"),
            (self.unread, "records were not understood: they are of a newer version"),
            (
                self.not_in_timeline,
                "work requests, spans and kernel calls are not in the timeline: too many were under way",
            ),
        ] {
            if count > 0 {
                text.push_str(&format!("\n{count} {what}"));
            }
        }
        text
    }
}
