//! Two devices and a cable without delay. The test decides which frames are lost.

use super::verbs::Node;
use crate::nic::NicConfig;
use crate::wire::FrameBuffer;
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;

/// Two nodes with connected queue pairs.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub frames: u64,
}

impl Pair {
    pub fn new() -> Self {
        Self::with(NicConfig::default(), |_| {})
    }

    pub fn with(config: NicConfig, edit: impl Fn(&mut QueuePairContext) + Copy) -> Self {
        let mut pair = Self { a: Node::new(1, config), b: Node::new(2, config), frames: 0 };
        let (to_b, to_a) = ((pair.b.qp.qpn, pair.b.gid, pair.b.mac), (pair.a.qp.qpn, pair.a.gid, pair.a.mac));
        pair.a.connect(to_b, edit);
        pair.b.connect(to_a, edit);
        pair
    }

    /// Delivers frames until neither device has anything to send.
    pub fn run(&mut self) {
        self.run_with(|_, _| true);
    }

    /// Delivers the frames for which `pass`, called with the number of the frame and its bytes, returns true.
    pub fn run_with(&mut self, mut pass: impl FnMut(u64, &mut FrameBuffer) -> bool) {
        while self.carry(true, &mut pass) | self.carry(false, &mut pass) {}
    }

    fn carry(&mut self, from_a: bool, pass: &mut impl FnMut(u64, &mut FrameBuffer) -> bool) -> bool {
        let (from, to) = if from_a { (&mut self.a, &mut self.b) } else { (&mut self.b, &mut self.a) };
        let mut frame = FrameBuffer::new();
        let (now, memory) = (from.host.now, &mut from.host.memory);
        if from.host.nic.poll_transmit(now, memory, &mut frame).is_none() {
            return from.host.nic.has_yielded();
        }
        self.frames += 1;
        if pass(self.frames, &mut frame) {
            let now = to.host.now;
            to.host.nic.handle_buffer(now, &mut to.host.memory, &frame);
        }
        true
    }

    /// Advances the time in steps and delivers frames in between.
    pub fn pass_time(&mut self, step: Duration, steps: u32) {
        for _ in 0..steps {
            self.a.host.advance(step);
            self.b.host.advance(step);
            self.run();
        }
    }
}

/// An address that no node has.
pub const STRANGER: MacAddress = MacAddress([2, 0, 0, 0, 0, 99]);
