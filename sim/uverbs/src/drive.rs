//! How devices are driven: what whoever runs the program does again and again, from one thread. With several devices the first four lines
//! are done for each.
//!
//! ```text
//! loop {
//!     busy  = uverbs.sweep(now, process);            // doorbells that the program rang
//!     while a frame has come { uverbs.handle_frame(now, process, frame) }
//!     uverbs.advance(now, process);                  // timers
//!     connections.advance(now, devices, process);
//!     busy |= connections.settle(now, devices, process);
//!     while uverbs.poll_frame(now, process, &mut frame).is_some() { send(frame) }
//!     while let Some(record) = uverbs.poll_event() { put it into its file }
//!     if !busy { sleep until a next_wakeup(), a frame, or some microseconds: doorbells wake nobody }
//! }
//! ```
//!
//! Time never runs backwards. A frame between two queue pairs of this device does not leave it.

use crate::Uverbs;
use crate::event_record::{EventFileId, EventRecord};
use crate::process::Process;
use crate::subnet::SubnetDoor;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{FrameOrigin, Nic, Transmit};
use bareverbs_sim::wire::FrameBuffer;

impl Uverbs {
    /// What follows every input of the device: interrupts are served.
    fn settle<P: Process>(&mut self, now: Time, process: &mut P) {
        self.device.serve_interrupts(now, process);
    }

    /// Reads the doorbell records of all live queues in the memory of the program, and rings the device for those that
    /// changed. Whether any did.
    pub fn sweep<P: Process>(&mut self, now: Time, process: &mut P) -> bool {
        let device = &mut self.device;
        let rang = device.doorbells.sweep(&mut device.commands, now, process);
        self.settle(now, process);
        rang
    }

    /// Does what is due at `now`: retransmissions, waits that end, events that moderation held back.
    pub fn advance<P: Process>(&mut self, now: Time, process: &mut P) {
        if self.nic().poll_timeout().is_some_and(|due| due <= now) {
            self.device.commands.with_device(process, |nic, memory| nic.handle_timeout(now, memory));
        }
        if let Some(subnet) = &mut self.device.subnet {
            subnet.handle_timeout(now);
            subnet.speak(&mut self.device.commands, now, process);
        }
        self.settle(now, process);
    }

    /// When [`Self::advance`] has something to do; it may find that nothing is due.
    pub fn next_wakeup(&self) -> Option<Time> {
        let subnet = self.device.subnet.as_ref().and_then(SubnetDoor::poll_timeout);
        [self.nic().poll_timeout(), subnet].into_iter().flatten().min()
    }

    /// Whether [`Self::poll_frame`] may have a frame. It may still find that there is none.
    pub fn has_frame(&self) -> bool {
        !self.device.commands.early_frames.is_empty() || self.nic().has_transmit()
    }

    /// Whether the latest [`Self::poll_frame`] gave nothing only so that others have their turn: there is more to do, at once.
    pub fn has_yielded(&self) -> bool {
        self.nic().has_yielded()
    }

    /// Begins or ends to know of each frame whose it is.
    pub fn observe(&mut self, on: bool) {
        self.device.commands.nic.observe(on);
    }

    /// Of which queue pair and work request the frame of the last [`Self::poll_frame`] is, if the device is observed.
    pub fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        self.device.commands.frame_origin.take()
    }

    /// The device, which is asked for what it has done if it is observed.
    pub fn observed(&mut self) -> &mut Nic {
        &mut self.device.commands.nic
    }

    /// Writes the next frame for the wire to `frame`, whose capacity is used again: Ethernet without its frame check
    /// sequence. `None` if there is nothing to send; `frame` then holds anything.
    pub fn poll_frame<P: Process>(
        &mut self,
        now: Time,
        process: &mut P,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        loop {
            let transmit = self.poll_any_frame(now, process, frame)?;
            let Some(subnet) = &mut self.device.subnet else { return Some(transmit) };
            if !subnet.takes(now, frame) {
                return Some(transmit);
            }
            subnet.speak(&mut self.device.commands, now, process);
        }
    }

    /// The next frame, also if it is for the subnet's manager.
    fn poll_any_frame<P: Process>(
        &mut self,
        now: Time,
        process: &mut P,
        frame: &mut FrameBuffer,
    ) -> Option<Transmit> {
        let commands = &mut self.device.commands;
        if let Some(early) = commands.early_frames.pop_front() {
            *frame = early.bytes;
            commands.frame_origin = early.origin;
            return Some(early.transmit);
        }
        let transmit = commands.with_device(process, |nic, memory| nic.poll_transmit(now, memory, frame));
        commands.frame_origin = commands.nic.take_frame_origin();
        self.settle(now, process);
        transmit
    }

    /// A frame comes from the wire: Ethernet without its frame check sequence. One that is not for this device is counted
    /// and dropped.
    pub fn handle_frame<P: Process>(&mut self, now: Time, process: &mut P, frame: &[u8]) {
        self.device.commands.with_device(process, |nic, memory| nic.handle_frame(now, memory, frame));
        self.settle(now, process);
    }

    /// The cable was plugged in or pulled out. A booted device has its cable plugged in.
    pub fn set_link_up<P: Process>(&mut self, now: Time, process: &mut P, up: bool) {
        self.device.commands.with_device(process, |nic, memory| {
            nic.set_link_up(up);
            // The device tells of it with its next input.
            nic.handle_timeout(now, memory);
        });
        if let Some(subnet) = &mut self.device.subnet {
            subnet.handle_link(now, up);
            subnet.speak(&mut self.device.commands, now, process);
        }
        self.settle(now, process);
    }

    /// The next record for a file of events. It counts as read by the program from now on; see [`Process`].
    pub fn poll_event(&mut self) -> Option<EventRecord> {
        self.device.events.poll()
    }

    /// The last descriptor of a file of events is gone: nothing is put into it any more.
    pub fn close_event_file(&mut self, file: EventFileId) {
        self.device.events.close(file);
    }
}
