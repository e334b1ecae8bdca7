//! Random walks: one requester and one responder exchange real frames that are dropped, duplicated, delayed
//! and damaged. Every message ends exactly once and in order, and every byte arrives where it belongs.

use super::model::*;
use crate::transport::*;
use crate::wire::*;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::collections::BTreeMap;

const MESSAGES: u64 = 60;
const WRITE_AREA: u32 = 4096;
const READ_AREA: u32 = 4096;
const COUNTER: u64 = (WRITE_AREA + READ_AREA) as u64;
const LATENCY: Duration = Duration::from_micros(1);
const PACKET_TIME: Duration = Duration::from_nanos(100);

/// Faults per thousand frames.
#[derive(Debug, Clone, Copy)]
struct Faults {
    loss: u32,
    duplicate: u32,
    reorder: u32,
    corrupt: u32,
}

struct Chance(ChaCha8Rng);

impl Chance {
    fn below(&mut self, limit: u32) -> u32 {
        self.0.next_u32() % limit
    }
    fn happens(&mut self, per_thousand: u32) -> bool {
        self.below(1000) < per_thousand
    }
}

/// Frames in flight, sorted by arrival.
#[derive(Default)]
struct Channel {
    frames: BTreeMap<(Time, u64), Vec<u8>>,
    sent: u64,
}

impl Channel {
    fn send(&mut self, now: Time, mut frame: Vec<u8>, faults: Faults, chance: &mut Chance) {
        if chance.happens(faults.loss) {
            return;
        }
        if chance.happens(faults.corrupt) {
            let bit = 8 * 50 + chance.below(frame.len() as u32 * 8 - 8 * 50);
            frame[bit as usize / 8] ^= 1 << (bit % 8);
        }
        let copies = if chance.happens(faults.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let late = if chance.happens(faults.reorder) { u64::from(chance.below(20_000)) } else { 0 };
            self.sent += 1;
            let arrival = now + LATENCY + Duration::from_nanos(late);
            self.frames.insert((arrival, self.sent), frame.clone());
        }
    }
    fn next(&self) -> Option<Time> {
        self.frames.keys().next().map(|(arrival, _)| *arrival)
    }
    fn take_due(&mut self, now: Time) -> Option<Vec<u8>> {
        let first = self.frames.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

struct Walk {
    requester: Requester,
    responder: Responder<Range>,
    host: Host,
    buffers: BTreeMap<u64, Vec<u8>>,
    atomics: BTreeMap<u64, u64>,
    requests: Vec<Request>,
    submitted: usize,
    done: u64,
    there: Channel,
    back: Channel,
    now: Time,
    chance: Chance,
    faults: Faults,
    template: HeaderTemplate,
}

impl Walk {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut chance = Chance(ChaCha8Rng::seed_from_u64(seed));
        let first = Psn::new(0xff_ffff - chance.below(200));
        let parameters = ConnectionParameters {
            send_psn: first,
            receive_psn: first,
            retry_count: 7,
            rnr_retry: 7,
            max_outstanding_reads: 1 + chance.below(4) as u8,
            max_remembered_reads: 4,
            ..parameters()
        };
        let mut host = Host::new(COUNTER as usize + 8);
        let area = WRITE_AREA as usize..COUNTER as usize;
        host.memory[area.clone()].copy_from_slice(&pattern(area.len(), seed));
        let requests: Vec<Request> = (0..MESSAGES).map(|token| any_request(token, &mut chance)).collect();
        let buffers = requests.iter().map(|r| (r.token, local_buffer(r))).collect();
        Self {
            requester: Requester::new(&parameters),
            responder: Responder::new(&parameters),
            host,
            buffers,
            atomics: BTreeMap::new(),
            requests,
            submitted: 0,
            done: 0,
            there: Channel::default(),
            back: Channel::default(),
            now: Time::ZERO,
            chance,
            faults,
            template: HeaderTemplate::new(&route(), Qpn::from_low_bits(1), DEFAULT_PARTITION_KEY),
        }
    }

    fn run(&mut self) {
        for _ in 0..200_000 {
            if self.done == MESSAGES {
                return;
            }
            self.submit_and_post();
            let busy = self.transmit_request() | self.transmit_response();
            self.advance(busy);
            self.deliver();
            self.complete();
        }
        panic!("{} of {MESSAGES} messages ended: {:?}", self.done, self.requester);
    }

    fn submit_and_post(&mut self) {
        if self.chance.happens(300) && self.submitted < self.requests.len() {
            self.requester.submit(self.requests[self.submitted]).unwrap();
            self.submitted += 1;
        }
        if self.chance.happens(100) && self.host.receives.len() < 3 {
            self.host.post(2000);
        }
    }

    fn transmit_request(&mut self) -> bool {
        let Some(packet) = self.requester.poll_transmit(self.now) else { return false };
        let start = packet.payload_offset as usize;
        let payload = match packet.payload_length {
            0 => &[],
            length => &self.buffers[&packet.token][start..start + length as usize],
        };
        let frame = frame(&self.template, &packet.header, payload);
        self.there.send(self.now, frame, self.faults, &mut self.chance);
        true
    }

    fn transmit_response(&mut self) -> bool {
        let Some(packet) = self.responder.poll_transmit() else { return false };
        let payload = packet.payload.map(|payload| self.host.read(&payload)).unwrap_or_default();
        let frame = frame(&self.template, &packet.header, &payload);
        self.back.send(self.now, frame, self.faults, &mut self.chance);
        true
    }

    /// Advances by one packet time, or to the next event if nobody has anything to send or submit.
    fn advance(&mut self, busy: bool) {
        let next = [self.there.next(), self.back.next(), self.requester.poll_timeout()];
        let earliest = next.into_iter().flatten().min();
        self.now = match earliest {
            Some(at) if !busy && self.submitted == self.requests.len() => at.max(self.now),
            _ => self.now + PACKET_TIME,
        };
    }

    fn deliver(&mut self) {
        while let Some(frame) = self.there.take_due(self.now) {
            if let Ok(packet) = parse(&frame) {
                self.responder.handle_request(&packet, &mut self.host);
            }
        }
        while let Some(frame) = self.back.take_due(self.now) {
            if let Ok(packet) = parse(&frame) {
                let placement = self.requester.handle_response(self.now, &packet);
                self.place(placement, packet.payload);
            }
        }
        self.requester.handle_timeout(self.now);
    }

    fn place(&mut self, placement: Placement, payload: &[u8]) {
        match placement {
            Placement::None => {}
            Placement::Payload { token, offset } => {
                let start = offset as usize;
                let buffer = self.buffers.get_mut(&token).unwrap();
                buffer[start..start + payload.len()].copy_from_slice(payload);
            }
            Placement::Atomic { token, old } => assert_eq!(self.atomics.insert(token, old), None),
        }
    }

    fn complete(&mut self) {
        while let Some(completion) = self.requester.poll_completion() {
            assert_eq!(completion, RequestCompletion { token: self.done, result: Ok(()) });
            self.done += 1;
        }
    }

    /// Executes the messages in order on plain memory and compares the result.
    fn check(&self, seed: u64) {
        let mut memory = Host::new(self.host.memory.len()).memory;
        let area = WRITE_AREA as usize..COUNTER as usize;
        memory[area.clone()].copy_from_slice(&pattern(area.len(), seed));
        let (mut counter, mut receives, mut rpc) = (0u64, Vec::new(), Vec::new());
        for request in &self.requests {
            let data = &self.buffers[&request.token][..request.length as usize];
            match request.operation {
                Operation::Write { address, immediate, .. } => {
                    memory[(address - BASE) as usize..][..data.len()].copy_from_slice(data);
                    receives.extend(immediate.map(|_| (request.length, Vec::new())));
                }
                Operation::Read { address, .. } => {
                    assert_eq!(data, &self.host.memory[(address - BASE) as usize..][..data.len()]);
                }
                Operation::Atomic { .. } => {
                    assert_eq!(self.atomics[&request.token], counter);
                    counter += 1;
                }
                Operation::Send { .. } => receives.push((request.length, data.to_vec())),
                _ => rpc.extend_from_slice(data),
            }
        }
        memory[COUNTER as usize..].copy_from_slice(&counter.to_be_bytes());
        assert!(memory == self.host.memory, "memory differs");
        self.check_receives(&receives);
        assert_eq!(rpc, self.host.rpc.iter().flat_map(|packet| packet.5.clone()).collect::<Vec<u8>>());
        assert_eq!(self.host.errors, []);
    }

    fn check_receives(&self, expected: &[(u32, Vec<u8>)]) {
        assert_eq!(self.host.completions.len(), expected.len());
        for ((token, completion), (length, data)) in self.host.completions.iter().zip(expected) {
            assert_eq!((completion.length, completion.status), (*length, ReceiveStatus::Success));
            assert_eq!(self.host.received[*token as usize][..data.len()], data[..]);
        }
    }
}

fn any_request(token: u64, chance: &mut Chance) -> Request {
    let length = match chance.below(3) {
        0 => chance.below(9),
        1 => MTU * chance.below(5),
        _ => chance.below(2000),
    };
    let address = BASE + u64::from(chance.below(WRITE_AREA - length));
    let some = chance.happens(300).then_some(token as u32);
    let (rpc_opcode, region) = (token, 4);
    let operation = match chance.below(9) {
        0..=2 => Operation::Write { address, rkey: RKEY, immediate: some },
        3 | 4 => Operation::Read { address: address + u64::from(WRITE_AREA), rkey: RKEY },
        5 => fetch_add(BASE + COUNTER, 1),
        6 => Operation::RpcWrite { rpc_opcode, region },
        7 => Operation::RpcParams { rpc_opcode, region },
        _ => Operation::Send { immediate: some, invalidate: None },
    };
    let length = match operation {
        Operation::Atomic { .. } => 8,
        Operation::RpcParams { .. } => length.min(MTU),
        _ => length,
    };
    let service_header = crate::wire::ServiceHeader::None;
    Request {
        operation,
        length,
        token,
        solicited: chance.happens(200),
        fence: chance.happens(100),
        service_header,
    }
}

fn local_buffer(request: &Request) -> Vec<u8> {
    match request.operation {
        Operation::Read { .. } => vec![0; request.length as usize],
        _ => pattern(request.length as usize, request.token + 1),
    }
}

fn frame(template: &HeaderTemplate, header: &PacketHeader, payload: &[u8]) -> Vec<u8> {
    let mut frame = crate::wire::FrameBuffer::new();
    let mut writer = FrameWriter::begin(&mut frame, template, header, payload.len()).unwrap();
    writer.payload_mut().copy_from_slice(payload);
    writer.finish();
    frame.into_bytes()
}

fn walk(seeds: core::ops::Range<u64>, faults: Faults) -> RequesterCounters {
    let mut total = RequesterCounters::default();
    for seed in seeds {
        let mut walk = Walk::new(seed, faults);
        walk.run();
        walk.check(seed);
        let counters = walk.requester.counters();
        total.packets += counters.packets;
        total.retransmissions += counters.retransmissions;
        total.timeouts += counters.timeouts;
        total.sequence_naks += counters.sequence_naks;
        total.implied_naks += counters.implied_naks;
        total.rnr_naks += counters.rnr_naks;
    }
    total
}

#[test]
fn without_faults_only_missing_receives_cause_retransmission() {
    let total = walk(0..40, Faults { loss: 0, duplicate: 0, reorder: 0, corrupt: 0 });
    assert_eq!((total.timeouts, total.sequence_naks, total.implied_naks), (0, 0, 0));
    assert!(total.rnr_naks > 0);
}

#[test]
fn one_percent_of_everything() {
    walk(100..160, Faults { loss: 10, duplicate: 10, reorder: 10, corrupt: 10 });
}

#[test]
fn five_percent_loss_with_reordering_and_duplicates() {
    let total = walk(200..260, Faults { loss: 50, duplicate: 50, reorder: 50, corrupt: 0 });
    assert!(total.timeouts > 0 && total.sequence_naks > 0 && total.implied_naks > 0, "{total:?}");
}

#[test]
fn ten_percent_of_everything() {
    walk(300..340, Faults { loss: 100, duplicate: 100, reorder: 100, corrupt: 50 });
}
