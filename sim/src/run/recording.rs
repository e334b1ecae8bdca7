//! What is written to a capture beside the bytes of frames: whose each frame is, and, in a recording, every record of every device and the
//! spans of the hosts, as packets of interfaces of their own (docs/adr/0029).

use super::device::Device;
use super::records::{RECORDS_SUFFIX, RecordText, Recording};
use super::topology::NodeId;
use super::world::World;
use crate::net::FrameId;
use crate::net::capture::{Capture, CaptureError, Clock, LinkType};
use crate::nic::{DeviceEvent, HostMemory, LinkLayer};
use std::io::Write;

/// Bytes of the name of a span that are written.
const NAME: usize = 120;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Begins to record every frame that leaves a node, and every frame that a switch or a fault beyond it loses. Add all
    /// nodes and switches first: each is an interface of the capture. A comment says which queue pair and work request a frame is of
    /// ([`FrameOrigin`](crate::nic::FrameOrigin)). A capture that was running is thrown away.
    pub fn start_capture(&mut self, out: Box<dyn Write>) {
        let capture = self.begin_capture(out);
        self.recording = Some(Recording::new(capture, None));
    }

    /// As [`Self::start_capture`], and records what devices and hosts do, each record a packet of a further interface for each node
    /// ([`RecordText`]). Digest and time of the run are the same without it.
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

    /// Ends the capture; gives the number of frames in it, or why they are not all there. Without a capture that is 0.
    pub fn finish_capture(&mut self) -> Result<u64, CaptureError> {
        for node in &mut self.nodes {
            node.device.observe(false);
        }
        self.frames.clear_comments();
        self.recording.take().map_or(Ok(0), |recording| recording.capture.finish())
    }

    /// The host of `node` begins something worth seeing in a recording, such as a lookup; gives the number for
    /// [`Self::end_span`]. Nothing happens, and nothing is written, without a recording. Of the name the first 120 bytes count.
    pub fn begin_span(&mut self, node: NodeId, name: &str) -> u64 {
        let Some(recording) = &mut self.recording else { return 0 };
        recording.spans += 1;
        let (id, name) = (recording.spans, shortened(name));
        recording.record(node, self.now.as_nanos(), &RecordText::SpanBegan { id, name });
        id
    }

    /// The host of `node` ended what it began.
    pub fn end_span(&mut self, node: NodeId, id: u64) {
        if let Some(recording) = &mut self.recording {
            recording.record(node, self.now.as_nanos(), &RecordText::SpanEnded { id });
        }
    }

    /// Takes what the device of `node` did since it was last asked, and its interrupts.
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

    /// Keeps with a frame that `node` wrote whose it is.
    #[cold]
    pub(super) fn keep_origin(&mut self, node: NodeId, id: FrameId) {
        let origin = self.nodes[node.index()].device.take_frame_origin();
        self.frames.get_mut(id).comment = origin.map(|origin| origin.to_string().into());
    }
}

/// The first characters of a name, of at most [`NAME`] bytes.
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
