//! Capture contents besides frames: the origin of each frame and, in a recording, the records of every device and the
//! spans of the hosts, as packets on interfaces of their own (docs/adr/0029).

use super::device::Device;
use super::records::{RECORDS_SUFFIX, RecordText, Recording};
use super::topology::NodeId;
use super::world::World;
use crate::net::capture::{Capture, CaptureError, Clock, LinkType};
use crate::net::frame::Frame;
use crate::nic::{DeviceEvent, HostMemory, LinkLayer};
use std::io::Write;

/// Bytes of a span's name that are recorded.
const NAME: usize = 120;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Starts capturing every frame that leaves a node, and every frame that a switch or a fault drops. Add all nodes
    /// and switches first: each is an interface of the capture. A comment names the queue pair and work request of a
    /// frame ([`FrameOrigin`](crate::nic::FrameOrigin)). Discards a capture in progress.
    pub fn start_capture(&mut self, out: Box<dyn Write>) {
        let capture = self.begin_capture(out);
        self.recording = Some(Recording::new(capture, None));
    }

    /// Like [`Self::start_capture`], and also records what devices and hosts do, on one more interface per node
    /// ([`RecordText`]). Recording changes neither the digest nor the timing of the run.
    pub fn start_recording(&mut self, out: Box<dyn Write>) {
        let mut capture = self.begin_capture(out);
        let first = (self.nodes.len() + self.switches.len()) as u32;
        for node in &self.nodes {
            capture.add_interface(&format!("{}{RECORDS_SUFFIX}", node.name), LinkType::Records);
        }
        self.recording = Some(Recording::new(capture, Some(first)));
    }

    fn begin_capture(&mut self, out: Box<dyn Write>) -> Capture {
        for node in &mut self.nodes {
            node.device.observe(true);
        }
        let mut capture = Capture::new(out, Clock::Virtual);
        for node in &self.nodes {
            capture.add_interface(&node.name, link_type(node.device.link_layer()));
        }
        for entry in &self.switches {
            capture.add_interface(&entry.name, link_type(entry.link_layer()));
        }
        capture
    }

    /// Ends the capture. Returns the number of frames in it, or the error that cut it short. Without a capture that is
    /// 0.
    pub fn finish_capture(&mut self) -> Result<u64, CaptureError> {
        for node in &mut self.nodes {
            node.device.observe(false);
        }
        self.frames.clear_comments();
        self.recording.take().map_or(Ok(0), |recording| recording.capture.finish())
    }

    /// Marks the start of an activity of the host, such as a lookup, in a recording. Returns the number for
    /// [`Self::end_span`]. Has no effect without a recording. Only the first 120 bytes of the name are recorded.
    pub fn begin_span(&mut self, node: NodeId, name: &str) -> u64 {
        let Some(recording) = &mut self.recording else { return 0 };
        recording.spans += 1;
        let (id, name) = (recording.spans, shortened(name));
        recording.record(node, self.now.as_nanos(), &RecordText::SpanBegan { id, name });
        id
    }

    /// Marks the end of an activity of the host.
    pub fn end_span(&mut self, node: NodeId, id: u64) {
        if let Some(recording) = &mut self.recording {
            recording.record(node, self.now.as_nanos(), &RecordText::SpanEnded { id });
        }
    }

    /// Writes the device's new records and interrupts.
    #[cold]
    pub(super) fn record_device(&mut self, node: NodeId) {
        let Some(recording) = &mut self.recording else { return };
        let entry = &mut self.nodes[node.index()];
        while let Some(record) = entry.device.poll_record() {
            recording.record(node, record.time.as_nanos(), &RecordText::Device(record.event));
        }
        let (now, lost) = (self.now.as_nanos(), entry.device.take_lost_records());
        if lost > 0 {
            recording.record(node, now, &RecordText::Lost(lost));
        }
        entry.collect_interrupts(|vector| {
            recording.record(node, now, &RecordText::Device(DeviceEvent::Interrupt { vector }));
        });
    }
}

/// Attaches the origin to a frame that `device` wrote.
#[cold]
pub(super) fn keep_origin<D: Device>(device: &mut D, frame: &mut Frame) {
    frame.comment = device.take_frame_origin().map(|origin| origin.to_string().into());
}

/// The first characters of a name, at most [`NAME`] bytes.
fn shortened(name: &str) -> &str {
    let end = (0..=NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    if name.len() <= NAME { name } else { &name[..end] }
}

const fn link_type(layer: LinkLayer) -> LinkType {
    match layer {
        LinkLayer::Ethernet => LinkType::Ethernet,
        LinkLayer::InfiniBand => LinkType::InfiniBand,
    }
}
