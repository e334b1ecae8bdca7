//! Connects device and wire: faults, the capture, and waiting frames.

use crate::program::Program;
use crate::settings::Settings;
use bareverbs_network::{EndedProcess, Wire, WireCounters};
use bareverbs_prm::time::Time;
use bareverbs_serve::network::{LONGEST_OBJECTS, ObjectRequest, answer_objects};
use bareverbs_serve::real_time::{FaultScript, Lane, Recorder};
use bareverbs_sim::net::Direction;
use bareverbs_sim::nic::LinkLayer;
use bareverbs_sim::run::{RecordText, Seed};
use bareverbs_sim::wire::FrameBuffer;
use bareverbs_uverbs::netlink::{ListedObject, ObjectKind, ObjectOwner};
use bareverbs_uverbs::{Connections, Uverbs, VirtualHost};

/// Frames to take from the wire before the device is asked for its own.
const RECEIVE_BATCH: usize = 64;
/// Frames to ask the device for at once, so that others get their turn.
const SEND_BATCH: usize = 256;
/// Frames that may wait to be sent before the device is asked for no more.
const SEND_LIMIT: usize = 64;

/// The link of a device; see the module.
#[derive(Debug)]
pub(crate) struct Link {
    wire: Wire,
    /// Present if there are faults, or have been some.
    lanes: Option<Lanes>,
    /// Faults set when the program was started.
    usual_faults: Option<FaultScript>,
    /// Faults set for the host in the network, which take precedence; as text, empty if there are none.
    network_faults: String,
    seed: Seed,
    is_infiniband: bool,
    capture: Option<Recorder>,
    frame: Vec<u8>,
    outgoing: FrameBuffer,
    /// Whether `outgoing` has a frame that the wire could not take.
    is_stuck: bool,
    /// Whether the cable is plugged in, as last reported to the device.
    has_cable: bool,
}

/// Frames in transit through a wire with faults.
#[derive(Debug, Default)]
struct Lanes {
    inbound: Lane,
    outbound: Lane,
}

impl Link {
    /// The link of a port of this process. Its frames go to the capture, if there is one.
    pub(crate) fn new(
        wire: Wire,
        settings: &Settings,
        port: &VirtualHost,
        capture: Option<&Recorder>,
    ) -> Self {
        let capture = capture.map(|capture| settings.interface(capture, port));
        if let Some(capture) = &capture {
            let (pid, name) = (std::process::id(), program_name());
            capture.record(Time::ZERO, Time::ZERO, &RecordText::Program { pid, name: &name });
        }
        let mut link = Self {
            lanes: None,
            usual_faults: settings.faults.clone(),
            network_faults: String::new(),
            seed: settings.seed_of(port, wire.number()),
            is_infiniband: port.link() == LinkLayer::InfiniBand,
            wire,
            capture,
            frame: Vec::new(),
            outgoing: FrameBuffer::new(),
            is_stuck: false,
            has_cable: true,
        };
        link.set_faults(settings.faults.as_ref());
        link
    }

    /// Sets or removes the faults in both directions. Waiting frames keep waiting.
    fn set_faults(&mut self, script: Option<&FaultScript>) {
        if script.is_none() && self.lanes.is_none() {
            return;
        }
        let (seed, is_infiniband) = (self.seed, self.is_infiniband);
        let faults = |direction| {
            let faults = script?.faults(direction, seed);
            Some(if is_infiniband { faults.of_infiniband() } else { faults })
        };
        let lanes = self.lanes.get_or_insert_default();
        lanes.inbound.set_faults(faults(Direction::Inbound));
        lanes.outbound.set_faults(faults(Direction::Outbound));
    }

    /// Applies faults that are set for the host while the program runs.
    fn watch_faults(&mut self) {
        if self.network_faults == self.wire.faults() {
            return;
        }
        self.network_faults = self.wire.faults().to_owned();
        let script = match self.network_faults.as_str() {
            "" => self.usual_faults.clone(),
            text => match text.parse() {
                Ok(script) => Some(script),
                Err(error) => {
                    return eprintln!(
                        "bareverbs run: faults of the network, {text:?}: {error}; they are ignored"
                    );
                }
            },
        };
        self.set_faults(script.as_ref());
    }

    /// In a child after `fork`: closes the parent's resources.
    pub(crate) fn abandon(self) {
        self.wire.abandon();
    }

    /// When there is work next, unless something arrives earlier.
    pub(crate) fn next_wakeup(&self) -> Option<Time> {
        let lanes = self.lanes.as_ref()?;
        [lanes.inbound.next_due(), lanes.outbound.next_due()].into_iter().flatten().min()
    }

    /// Delivers frames to the device and reports cable changes. Returns whether there were frames.
    pub(crate) fn take_in(
        &mut self,
        now: Time,
        uverbs: &mut Uverbs,
        program: &mut Program,
        connections: &Connections,
    ) -> bool {
        self.wire.look(now, |counters| status(uverbs, connections, counters, program.driven_rounds));
        self.tell_objects(uverbs, program, connections);
        self.watch_capture(uverbs);
        self.watch_faults();
        self.report_cable(now, uverbs, program);
        let received = self.receive(now, uverbs, program);
        if let Some(capture) = &self.capture {
            capture.records_of(now, uverbs.observed());
        }
        received
    }

    /// Tells the device if its cable was pulled out or plugged in.
    pub(crate) fn report_cable(&mut self, now: Time, uverbs: &mut Uverbs, program: &mut Program) {
        if self.has_cable != self.wire.has_cable() {
            self.has_cable = self.wire.has_cable();
            uverbs.set_link_up(now, program, self.has_cable);
        }
    }

    /// Answers queries for individual objects.
    fn tell_objects(&mut self, uverbs: &mut Uverbs, program: &mut Program, connections: &Connections) {
        let owner = ObjectOwner { process_id: std::process::id(), number: self.wire.number() };
        while let Some((asker, ObjectRequest { kind, from })) = self.wire.poll_object_request() {
            let listed = match ObjectKind::from_raw(kind) {
                Some(ObjectKind::ConnectionIdentifier) => connections.list(uverbs.index(), owner),
                Some(kind) => uverbs.list(program, kind, owner),
                None => continue,
            };
            // A requester that no longer waits gets no answer.
            drop(answer_objects(&asker, &ListedObject::encode(listed, from, LONGEST_OBJECTS)));
        }
    }

    /// The next dead process that had been sent frames.
    pub(crate) fn poll_ended(&mut self, now: Time) -> Option<EndedProcess> {
        self.wire.poll_ended(now)
    }

    fn receive(&mut self, now: Time, uverbs: &mut Uverbs, program: &mut Program) -> bool {
        let mut busy = false;
        for _ in 0..RECEIVE_BATCH {
            if !self.wire.receive(&mut self.frame) {
                break;
            }
            busy = true;
            let fate = self.lanes.as_mut().map(|lanes| lanes.inbound.push(now, &mut self.frame));
            if let Some(capture) = &self.capture {
                capture.frame(Direction::Inbound, &self.frame, fate.flatten());
            }
            if fate.is_none() {
                uverbs.handle_frame(now, program, &self.frame);
            }
        }
        if let Some(lanes) = &mut self.lanes {
            while lanes.inbound.pop(now, &mut self.frame) {
                uverbs.handle_frame(now, program, &self.frame);
                busy = true;
            }
        }
        busy
    }

    /// Sends the device's outgoing frames. Returns whether there were any.
    pub(crate) fn transmit(&mut self, now: Time, uverbs: &mut Uverbs, program: &mut Program) -> bool {
        let mut busy = self.send_waiting(now);
        for _ in 0..SEND_BATCH {
            let waiting = self.lanes.as_ref().map_or(0, |lanes| lanes.outbound.len());
            if self.is_stuck || waiting >= SEND_LIMIT || !uverbs.has_frame() {
                break;
            }
            if uverbs.poll_frame(now, program, &mut self.outgoing).is_none() {
                busy |= uverbs.has_yielded();
                break;
            }
            busy = true;
            let fate = self.lanes.as_mut().map(|lanes| lanes.outbound.push(now, &mut self.outgoing));
            if let Some(capture) = &self.capture {
                // Records of the events that led to a frame precede it.
                capture.records_of(now, uverbs.observed());
                capture.sent(&self.outgoing, fate.flatten(), uverbs.take_frame_origin());
            }
            match fate {
                None => self.is_stuck = !self.wire.send(now, &self.outgoing),
                Some(_) => busy |= self.send_waiting(now),
            }
        }
        busy
    }

    /// Sends waiting frames. Returns whether there were any.
    fn send_waiting(&mut self, now: Time) -> bool {
        let mut busy = false;
        if self.is_stuck && self.wire.send(now, &self.outgoing) {
            self.is_stuck = false;
            busy = true;
        }
        while let Some(frame) = self.lanes.as_mut().and_then(|lanes| lanes.outbound.front(now)) {
            if !self.wire.send(now, frame) {
                break;
            }
            busy = true;
            self.lanes.iter_mut().for_each(|lanes| lanes.outbound.remove_front());
        }
        busy
    }

    /// Reports once that the capture cannot be written.
    fn watch_capture(&mut self, uverbs: &mut Uverbs) {
        if self.capture.as_ref().is_some_and(Recorder::has_failed)
            && let Some(Err(error)) = self.capture.take().and_then(|capture| capture.finish())
        {
            eprintln!("bareverbs run: {error}; the program goes on without it");
            uverbs.observe(false);
        }
    }
}

/// Name of this program in the process table, without characters that would break a line.
fn program_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim().chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// Status of this process for `bareverbs run --list`: lines of a name and a value.
fn status(uverbs: &Uverbs, connections: &Connections, wire: WireCounters, driven: u64) -> String {
    let objects = uverbs.objects(connections.count(uverbs.index()));
    let WireCounters { sent, received, unreachable, overrun, refused } = wire;
    format!(
        "pid {}\nprogram {}\nqueue-pairs {}\ncompletion-queues {}\nmemory-regions {}\n\
         sent {sent}\nreceived {received}\nlost {}\ndriven {driven}\n{}",
        std::process::id(),
        program_name(),
        objects.queue_pairs,
        objects.completion_queues,
        objects.memory_regions,
        unreachable + overrun + refused,
        objects.to_lines(),
    )
}
