//! How to drive the devices: what the owner of the program does in a loop, from one thread. With several devices, do
//! the first four lines for each.
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
//! Time never runs backwards. A frame between two queue pairs of the same device does not leave it.

use crate::Uverbs;
use crate::event_record::{EventFileId, EventRecord};
use crate::process::Process;
use crate::subnet::SubnetLink;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{FrameOrigin, Nic, Transmit};
use bareverbs_sim::wire::FrameBuffer;

impl Uverbs {
    /// Serves interrupts after every input of the device.
    fn settle<P: Process>(&mut self, now: Time, process: &mut P) {
        self.device.serve_interrupts(now, process);
    }

    /// Polls the doorbell records of all live queues in the program's memory and rings the device for those that
    /// changed. Returns whether any did.
    pub fn sweep<P: Process>(&mut self, now: Time, process: &mut P) -> bool {
        let device = &mut self.device;
        let rang = device.doorbells.sweep(&mut device.commands, now, process);
        self.settle(now, process);
        rang
    }

    /// Runs what is due at `now`: retransmissions, timeouts, moderated events.
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

    /// When to call [`Self::advance`] next; it may find nothing due.
    pub fn next_wakeup(&self) -> Option<Time> {
        let subnet = self.device.subnet.as_ref().and_then(SubnetLink::poll_timeout);
        [self.nic().poll_timeout(), subnet].into_iter().flatten().min()
    }

    /// Whether [`Self::poll_frame`] may have a frame. It may still return none.
    pub fn has_frame(&self) -> bool {
        !self.device.commands.early_frames.is_empty() || self.nic().has_transmit()
    }

    /// Whether the last [`Self::poll_frame`] returned nothing only to let others take their turn: more can follow at
    /// once.
    pub fn has_yielded(&self) -> bool {
        self.nic().has_yielded()
    }

    /// Starts or stops tracking the origin of each frame.
    pub fn observe(&mut self, on: bool) {
        self.device.commands.nic.observe(on);
    }

    /// Queue pair and work request of the frame from the last [`Self::poll_frame`], if the device is observed.
    pub fn take_frame_origin(&mut self) -> Option<FrameOrigin> {
        self.device.commands.frame_origin.take()
    }

    /// The device, whose records can be polled if it is observed.
    pub fn observed(&mut self) -> &mut Nic {
        &mut self.device.commands.nic
    }

    /// Writes the next outgoing frame to `frame`, reusing its capacity: Ethernet without frame check sequence. `None`
    /// if there is none; `frame` is then unspecified.
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

    /// The next frame, including those for the subnet manager.
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

    /// Handles an incoming frame: Ethernet without frame check sequence. A frame for another device is counted and
    /// dropped.
    pub fn handle_frame<P: Process>(&mut self, now: Time, process: &mut P, frame: &[u8]) {
        self.device.commands.with_device(process, |nic, memory| nic.handle_frame(now, memory, frame));
        self.settle(now, process);
    }

    /// The cable was plugged in or pulled. It is plugged in after boot.
    pub fn set_link_up<P: Process>(&mut self, now: Time, process: &mut P, up: bool) {
        self.device.commands.with_device(process, |nic, memory| {
            nic.set_link_up(up);
            // The device reports it with its next input.
            nic.handle_timeout(now, memory);
        });
        if let Some(subnet) = &mut self.device.subnet {
            subnet.handle_link(now, up);
            subnet.speak(&mut self.device.commands, now, process);
        }
        self.settle(now, process);
    }

    /// The next record for an event file. It counts as read by the program from now on; see [`Process`].
    pub fn poll_event(&mut self) -> Option<EventRecord> {
        self.device.events.poll()
    }

    /// The last descriptor of an event file was closed: no more records go there.
    pub fn close_event_file(&mut self, file: EventFileId) {
        self.device.events.close(file);
    }
}
