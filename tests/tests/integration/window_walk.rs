//! Random walks over memory windows and fast registration. Side B opens and closes them, side A writes and
//! reads through the open ones, over a cable that loses, duplicates and reorders. A flat model says what
//! every byte must be. A walk ends with an access that must be refused.

use bareverbs_core::fast_region::{FastRegion, FastRegistration};
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::key_update::KeyUpdate;
use bareverbs_core::memory_region::{AccessFlags, RemoteSlice};
use bareverbs_core::memory_window::{MemoryWindow, WindowRange, WindowType};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionStatus};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_sim::net::fault::RandomFaults;
use bareverbs_tests::node::{Handle, NodeOptions, all_access};
use bareverbs_tests::pair::{Pair, PairOptions};
use bareverbs_tests::walk::plan::Dice;

const MEMORY: usize = 1 << 15;
const PAGES: usize = 8;
const PAGE: usize = 4096;
const SEEDS: u64 = 24;
const STEPS: usize = 40;

/// What peers can reach through a key: for every byte its place, in the memory (0) or in the fast region (1).
#[derive(Clone)]
struct Open {
    key: Mkey,
    address: u64,
    places: Vec<(usize, usize)>,
    access: AccessFlags,
}

/// A window or the fast region, and what it currently opens.
enum Opener {
    Window(MemoryWindow<Handle>),
    Fast(FastRegion<Handle>),
}

struct Walk {
    pair: Pair,
    dice: Dice,
    openers: Vec<(Opener, Option<Open>)>,
    /// The expected bytes of both areas.
    model: [Vec<u8>; 2],
    /// Keys that once opened something.
    closed: Vec<Open>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let node = NodeOptions { unforgiving: true, ..NodeOptions::default() };
        let memory_access = all_access() | AccessFlags::MEMORY_WINDOW_BIND;
        let pair =
            Pair::new(&PairOptions { seed, node, memory_access, memory: MEMORY, ..PairOptions::default() });
        pair.world.with(|world| world.set_random_faults_everywhere(RandomFaults::loss(0.01)));
        let domain = &pair.b.node.domain;
        let mut openers: Vec<_> = [WindowType::Type1, WindowType::Type2, WindowType::Type2]
            .map(|kind| (Opener::Window(MemoryWindow::allocate(domain, kind).unwrap()), None))
            .into_iter()
            .collect();
        openers.push((Opener::Fast(FastRegion::allocate(domain, PAGES, 12).unwrap()), None));
        let model = [vec![0; MEMORY], vec![0; PAGES * PAGE]];
        Self { pair, dice: Dice::new(seed, "windows"), openers, model, closed: Vec::new() }
    }

    #[track_caller]
    fn sent_by_b(&mut self) -> WorkCompletion {
        self.pair.wait(|pair| pair.b.sends.poll_one().expect("a completion that can be true"))
    }

    #[track_caller]
    fn change(&mut self, update: &KeyUpdate) {
        self.pair.b.queue_pair.post_send(&update.request(7)).unwrap();
        let completion = self.sent_by_b();
        assert!(completion.is_success(), "{update:?}: {}", completion.status);
    }

    fn step(&mut self) {
        let which = self.dice.below(self.openers.len());
        match (&self.openers[which].1, self.dice.below(4)) {
            (None, _) => self.open(which),
            (Some(_), 0) => self.close(which),
            (Some(open), choice) => {
                let open = open.clone();
                self.access(&open, choice == 1);
            }
        }
    }

    fn open(&mut self, which: usize) {
        let rights = [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_READ];
        let access = match self.dice.below(3) {
            2 => rights[0] | rights[1],
            one => rights[one],
        };
        let qpn = self.pair.b.queue_pair.qpn();
        let (offset, length) = (self.dice.below(MEMORY - 1), 1 + self.dice.below(9000));
        let length = length.min(MEMORY - offset);
        let zero_based = self.dice.percent(50);
        let pages: Vec<u32> = (0..1 + self.dice.below(4)).map(|_| self.dice.below(PAGES) as u32).collect();
        let (update, open) = match &mut self.openers[which].0 {
            Opener::Window(window) => {
                let (offset, length) = (offset as u64, length as u64);
                let range = WindowRange { offset, length, access, zero_based };
                let update = window.bind(&self.pair.b.memory, &range, qpn).unwrap();
                let address = if zero_based { 0 } else { self.pair.b.memory.address() + offset };
                let places = (offset as usize..(offset + length) as usize).map(|at| (0, at)).collect();
                let open = Open { key: update.key(), address, places, access };
                (update, open)
            }
            Opener::Fast(region) => {
                let lead = offset % PAGE;
                let length = length.min(pages.len() * PAGE - lead);
                let address = 0x5000_0000 + lead as u64;
                let access = access | AccessFlags::LOCAL_WRITE;
                let registration = FastRegistration { pages: &pages, address, length: length as u64, access };
                let update = region.register(&registration).unwrap();
                let place = |at: usize| (1, pages[at / PAGE] as usize * PAGE + at % PAGE);
                let places = (lead..lead + length).map(place).collect();
                let open = Open { key: update.key(), address, places, access };
                (update, open)
            }
        };
        self.change(&update);
        self.openers[which].1 = Some(open);
    }

    /// Closed by its owner, or by its peer with SEND with invalidate; a window of type 1 by its next binding.
    fn close(&mut self, which: usize) {
        let Some(open) = self.openers[which].1.take() else { return };
        self.closed.push(open.clone());
        let by_peer = self.dice.percent(50);
        let update = match &mut self.openers[which].0 {
            Opener::Window(window) if window.kind() == WindowType::Type1 => return self.open(which),
            Opener::Window(_) | Opener::Fast(_) if by_peer => return self.close_by_peer(which, open.key),
            Opener::Window(window) => window.invalidate().unwrap(),
            Opener::Fast(region) => region.invalidate().unwrap(),
        };
        self.change(&update);
    }

    fn close_by_peer(&mut self, which: usize, key: Mkey) {
        self.pair.b.queue_pair.post_receive(&ReceiveRequest::new(3, &[])).unwrap();
        let request = WorkRequest::send(4, &[]).invalidating(key);
        self.pair.a.queue_pair.post_send(&request).unwrap();
        let received = self.pair.received();
        assert_eq!((received.status, received.invalidated()), (WorkCompletionStatus::Success, Some(key)));
        assert!(self.pair.sent().is_success());
        let ours = match &mut self.openers[which].0 {
            Opener::Window(window) => window.closed_by_peer(key),
            Opener::Fast(region) => region.closed_by_peer(key),
        };
        assert!(ours);
    }

    fn access(&mut self, open: &Open, write: bool) {
        let right = if write { AccessFlags::REMOTE_WRITE } else { AccessFlags::REMOTE_READ };
        if !open.access.contains(right) {
            return;
        }
        let start = self.dice.below(open.places.len());
        let length = 1 + self.dice.below(open.places.len() - start);
        let places = &open.places[start..start + length];
        let remote = RemoteSlice::from_raw(open.address + start as u64, u32::MAX, open.key);
        let data = [self.pair.a.memory.slice(0, length).unwrap()];
        let request = if write {
            let mut bytes = vec![0; length];
            self.dice.fill(&mut bytes);
            self.pair.a.memory.copy_in(0, &bytes).unwrap();
            places.iter().zip(&bytes).for_each(|(&(area, at), &byte)| self.model[area][at] = byte);
            WorkRequest::write(1, &data, remote)
        } else {
            WorkRequest::read(1, &data, remote)
        };
        self.pair.a.queue_pair.post_send(&request).unwrap();
        let completion = self.pair.sent();
        assert!(completion.is_success(), "{}", completion.status);
        if !write {
            self.pair.a.node.device.hal().barrier(Barrier::FromDevice);
            let mut bytes = vec![0; length];
            self.pair.a.memory.copy_out(0, &mut bytes).unwrap();
            assert!(
                places.iter().map(|&(area, at)| self.model[area][at]).eq(bytes),
                "a READ brought other bytes"
            );
        }
    }

    #[track_caller]
    fn check(&mut self) {
        self.pair.b.node.device.hal().barrier(Barrier::FromDevice);
        let mut found = [vec![0; MEMORY], vec![0; PAGES * PAGE]];
        self.pair.b.memory.copy_out(0, &mut found[0]).unwrap();
        for (opener, _) in &self.openers {
            if let Opener::Fast(region) = opener {
                region.copy_out(0, &mut found[1]).unwrap();
            }
        }
        assert!(found == self.model, "memory differs from the model");
    }

    /// An access that must be refused, if there is one: with a closed key, beyond the end, or without the
    /// right.
    fn trespass(&mut self) {
        let open: Vec<Open> = self.openers.iter().filter_map(|(_, open)| open.clone()).collect();
        let (key, address, read) = match (self.dice.below(3), self.closed.last(), open.first()) {
            (0, Some(old), _) => (old.key, old.address, false),
            (1, _, Some(open)) => (open.key, open.address + open.places.len() as u64, false),
            (_, _, Some(open)) if !open.access.contains(AccessFlags::REMOTE_READ) => {
                (open.key, open.address, true)
            }
            (_, _, Some(open)) if !open.access.contains(AccessFlags::REMOTE_WRITE) => {
                (open.key, open.address, false)
            }
            _ => (Mkey::new(0x0fff_ff01), 0, false),
        };
        let (data, remote) =
            ([self.pair.a.memory.slice(0, 1).unwrap()], RemoteSlice::from_raw(address, u32::MAX, key));
        let request =
            if read { WorkRequest::read(2, &data, remote) } else { WorkRequest::write(2, &data, remote) };
        self.pair.a.queue_pair.post_send(&request).unwrap();
        assert_eq!(self.pair.sent().status, WorkCompletionStatus::Failed(CqeSyndrome::RemoteAccess));
    }
}

#[test]
fn open_windows_admit_and_closed_ones_refuse() {
    for seed in 0..SEEDS {
        let mut walk = Walk::new(seed);
        (0..STEPS).for_each(|_| walk.step());
        walk.check();
        walk.trespass();
        walk.check();
        for side in [&walk.pair.a, &walk.pair.b] {
            let counters = side.node.device.hal().memory().counters();
            assert_eq!(counters.faults, 0, "seed {seed}: {counters:?}");
        }
    }
}
