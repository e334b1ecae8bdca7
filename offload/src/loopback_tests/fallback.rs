//! A kernel that is missing or busy, and a core that answers in its place.

use super::*;
use crate::client::fallback::{FallbackCause, FallbackClient, FallbackResult, FallbackTarget, Places};
use crate::client::{Call, KernelClient, KernelClientConfig, KernelPlace};
use crate::kernel::Kernel;
use crate::kernels::kv_lookup::MAX_PARAMETERS;

/// A DPU and a core that serve the same rows, and a client of both.
struct TwoPlaces {
    dpu: Scene,
    core: Scene,
    client: FallbackClient<SLOTS>,
    buffer: Vec<u8>,
}

const TIMEOUT: Duration = Duration::from_millis(5);
const REST: Duration = Duration::from_millis(1);

fn kernel_client() -> KernelClient<SLOTS> {
    KernelClient::new(KernelClientConfig {
        place: KernelPlace::Cores,
        layout: SlotLayout { address: WINDOW, rkey: 1, stride: STRIDE, max_response: MAX_VALUE },
        credits: RECEIVES as u32,
        timeout: TIMEOUT,
        limits: Limits::default(),
    })
}

impl TwoPlaces {
    /// A DPU that runs `share` requests at a time.
    fn new(share: u16) -> Self {
        let (dpu, core) = (Scene::with_share(Kind::Dpu, share), Scene::new(Kind::Dpu));
        let client = FallbackClient::new(kernel_client(), kernel_client(), TIMEOUT, REST);
        let buffer = vec![0; client.buffer_size()];
        Self { dpu, core, client, buffer }
    }

    fn start(&mut self, opcode: Opcode, key: &[u8]) -> u64 {
        let mut parameters = [0; MAX_PARAMETERS];
        let parameters = self.dpu.table.lookup(key).encode(&mut parameters).expect("fits");
        let region = RegionHandle(0);
        let call = Call { opcode, region, parameters, payload: &[] };
        let instead = FallbackTarget { opcode: KvLookup::OPCODE, region };
        let places = Places { kernels: &mut self.dpu.near, instead: &mut self.core.near };
        self.client.start(self.dpu.now, places, &call, instead).expect("a slot")
    }

    fn poll(&mut self) -> Option<FallbackResult> {
        let places = Places { kernels: &mut self.dpu.near, instead: &mut self.core.near };
        self.client.poll(self.dpu.now, places, &mut self.buffer)
    }

    #[track_caller]
    fn finish(&mut self) -> (FallbackResult, Vec<u8>) {
        for _ in 0..1000 {
            let active = self.dpu.serve() | self.core.serve();
            if let Some(ended) = self.poll() {
                let length = if ended.result.ended == Ended::Found { ended.result.length } else { 0 };
                return (ended, self.buffer[..length as usize].to_vec());
            }
            if !active {
                let now = self.client.poll_timeout().expect("something is under way").max(self.dpu.now);
                (self.dpu.now, self.core.now) = (now, now);
            }
        }
        panic!("the call never ended");
    }
}

#[test]
fn a_kernel_that_is_missing_is_asked_again_after_a_rest() {
    let mut pair = TwoPlaces::new(SLOTS as u16);
    for (n, asked) in [(1, 1), (2, 1), (3, 2)] {
        let id = pair.start(Opcode(77), &[n, 1, 2]);
        let (ended, found) = pair.finish();
        assert_eq!((ended.result.request_id, ended.result.ended), (id, Ended::Found));
        assert_eq!((ended.fell_back, found), (Some(FallbackCause::Missing), value(n)));
        assert_eq!(LookupResult::from(ended).round_trips, 2);
        assert_eq!(pair.client.counters().missing, asked);
        if n == 2 {
            pair.dpu.now += REST;
            pair.core.now = pair.dpu.now;
        }
    }
    assert_eq!((pair.client.counters().not_asked, pair.client.counters().busy), (1, 0));
    pair.start(KvLookup::OPCODE, &[4, 1, 2]);
    let (ended, found) = pair.finish();
    assert_eq!((ended.fell_back, found), (None, value(4)), "the other kernel is deployed");
}

#[test]
fn lookups_that_a_busy_kernel_refuses_are_served_elsewhere_once() {
    let mut pair = TwoPlaces::new(1);
    for round in 0..20_u8 {
        let keys = [0, 1, 2, 3].map(|n| (round + n * 5) % 20);
        let mut asked: Vec<_> =
            keys.iter().map(|n| (pair.start(KvLookup::OPCODE, &[*n, 1, 2]), *n)).collect();
        while !asked.is_empty() {
            let (ended, found) = pair.finish();
            let index = asked.iter().position(|(id, _)| *id == ended.result.request_id).expect("asked once");
            let (_, n) = asked.swap_remove(index);
            assert_eq!((ended.result.ended, found), (Ended::Found, value(n)), "round {round}");
            assert!(matches!(ended.fell_back, None | Some(FallbackCause::Busy)));
        }
    }
    let counters = pair.client.counters();
    assert!(counters.busy >= 20 && counters.busy < 80, "{counters:?}");
    assert_eq!((counters.missing, pair.client.poll_timeout()), (0, None));
}

#[test]
fn a_lost_response_is_not_requested_elsewhere() {
    let mut pair = TwoPlaces::new(SLOTS as u16);
    pair.start(KvLookup::OPCODE, &[1, 1, 2]);
    pair.dpu.far.own.borrow_mut().refuses = 1;
    let (ended, _) = pair.finish();
    assert_eq!((ended.result.ended, ended.fell_back), (Ended::TimedOut, None));
}

#[test]
fn lookups_fall_back_when_a_place_is_unreachable() {
    let mut pair = TwoPlaces::new(SLOTS as u16);
    let lost = pair.start(KvLookup::OPCODE, &[1, 1, 2]);
    pair.dpu.near.done(0, Outcome::Failed);
    let ended = pair.poll().expect("the connection is broken");
    assert_eq!((ended.result.request_id, ended.result.ended), (lost, Ended::Disconnected));
    pair.start(KvLookup::OPCODE, &[2, 1, 2]);
    let (ended, found) = pair.finish();
    assert_eq!((ended.fell_back, found), (Some(FallbackCause::Unreachable), value(2)));
    assert_eq!(pair.client.counters().unreachable, 1);
}
