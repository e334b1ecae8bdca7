//! Remote keys: memory windows and fast registrations that a side opens and closes while its peer accesses memory
//! with them.

use crate::node::{Handle, Node, all_access};
use crate::walk::plan::Dice;
use crate::walk::slots::{Area, Layout, Slot};
use bareverbs_core::fast_region::{FastRegion, FastRegistration};
use bareverbs_core::key_update::KeyUpdate;
use bareverbs_core::memory_region::{MemoryRegion, RemoteSlice};
use bareverbs_core::memory_window::{MemoryWindow, WindowRange, WindowType};
use bareverbs_core::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::{Mkey, Qpn};
use bareverbs_prm::time::{Duration, Time};

/// The remote address of the first byte of a fast registration.
const FAST_ADDRESS: u64 = 0x5000_0000;
const LOG_PAGE: u8 = 12;
/// How late repeated packets of a request may arrive. They need its key again.
const ECHOES: Duration = Duration::from_micros(100);

/// A remote key with a limited life.
pub struct RemoteKey {
    opener: Opener,
    state: RemoteKeyState,
    /// The peer's requests that use it and have not ended.
    users: usize,
    last_used: Time,
}

enum Opener {
    Window(MemoryWindow<Handle>),
    Fast(FastRegion<Handle>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteKeyState {
    Closed,
    /// Will get this key, with offset 0 of the memory at this address.
    Opening(Mkey, u64),
    Open(Mkey, u64),
    Closing,
}

/// The memory behind a remote key, or the region of a side without such keys.
pub enum Target<'a> {
    /// The region, in which there is an area for it.
    Region(&'a MemoryRegion<Handle>),
    /// Pages of its own.
    Fast(&'a FastRegion<Handle>),
}

macro_rules! bytes {
    ($target:expr, $memory:ident => $work:expr) => {
        match $target {
            $crate::walk::verbs::remote_key::Target::Region($memory) => $work,
            $crate::walk::verbs::remote_key::Target::Fast($memory) => $work,
        }
    };
}
pub(super) use bytes;

impl Target<'_> {
    /// The slot of this number, as one piece.
    pub fn slot(&self, layout: Layout, number: usize, length: usize) -> Slot {
        match self {
            Self::Region(_) => layout.slot(Area::Target, number, &[length]),
            Self::Fast(_) => layout.slot(Area::Own, number, &[length]),
        }
    }
}

impl RemoteKey {
    /// One of each kind, closed.
    pub fn all(node: &Node, layout: Layout) -> Vec<Self> {
        let window = |kind| Opener::Window(MemoryWindow::allocate(&node.domain, kind).expect("a window"));
        let pages = layout.bytes(1).div_ceil(1 << LOG_PAGE);
        let fast = FastRegion::allocate(&node.domain, pages, LOG_PAGE).expect("a fast region");
        let closed = |opener| Self { opener, state: RemoteKeyState::Closed, users: 0, last_used: Time::ZERO };
        [window(WindowType::Type1), window(WindowType::Type2), Opener::Fast(fast)].map(closed).into()
    }

    /// Whether requests can go through it.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, RemoteKeyState::Open(..))
    }

    /// Whether it can be opened.
    pub fn is_closed(&self) -> bool {
        self.state == RemoteKeyState::Closed
    }

    /// Whether it is open and the peer does not need it any more. Windows of type 1 are not invalidated.
    pub fn can_close(&self, now: Time) -> bool {
        let of_type_1 = matches!(&self.opener, Opener::Window(window) if window.kind() == WindowType::Type1);
        self.is_open() && !of_type_1 && self.users == 0 && now > self.last_used + ECHOES
    }

    /// The request that opens it, for the peer of this queue pair.
    pub fn open(
        &mut self,
        dice: &mut Dice,
        region: &MemoryRegion<Handle>,
        layout: Layout,
        qpn: Qpn,
    ) -> KeyUpdate {
        let (update, base) = match &mut self.opener {
            Opener::Window(window) => {
                let (offset, length) = (layout.bytes(1) as u64, layout.bytes(1) as u64);
                let zero_based = dice.percent(50);
                let range = WindowRange { offset, length, access: all_access(), zero_based };
                let base = if zero_based { 0u64.wrapping_sub(offset) } else { region.address() };
                (window.bind(region, &range, qpn).expect("a range of the region"), base)
            }
            Opener::Fast(region) => {
                let pages: Vec<u32> = (0..layout.bytes(1).div_ceil(1 << LOG_PAGE) as u32).collect();
                let length = layout.bytes(1) as u64;
                let (address, access) = (FAST_ADDRESS, all_access());
                let registration = FastRegistration { pages: &pages, address, length, access };
                (region.register(&registration).expect("pages of the region"), FAST_ADDRESS)
            }
        };
        self.state = RemoteKeyState::Opening(update.key(), base);
        update
    }

    /// Records that the binding or the registration succeeded.
    #[track_caller]
    pub fn opened(&mut self, opcode: Option<WorkCompletionOpcode>) {
        let RemoteKeyState::Opening(key, base) = self.state else {
            panic!("a remote_key that was not opening was opened")
        };
        let wanted = match self.opener {
            Opener::Window(_) => WorkCompletionOpcode::BindWindow,
            Opener::Fast(_) => WorkCompletionOpcode::FastRegister,
        };
        assert!(opcode.is_none_or(|opcode| opcode == wanted), "{opcode:?} in place of {wanted:?}");
        self.state = RemoteKeyState::Open(key, base);
    }

    /// The request that closes it.
    pub fn close(&mut self) -> KeyUpdate {
        self.state = RemoteKeyState::Closing;
        match &mut self.opener {
            Opener::Window(window) => window.invalidate().expect("a window that is bound"),
            Opener::Fast(region) => region.invalidate().expect("pages that are registered"),
        }
    }

    /// Records that the peer is about to close it, and returns the key.
    pub fn close_by_peer(&mut self) -> Mkey {
        let RemoteKeyState::Open(key, _) = self.state else {
            panic!("a remote_key that is not open cannot be closed")
        };
        self.state = RemoteKeyState::Closing;
        key
    }

    /// Records that the peer invalidated this key. Returns whether it was the key of this remote_key.
    pub fn closed_by_peer(&mut self, key: Mkey) -> bool {
        let ours = match &mut self.opener {
            Opener::Window(window) => window.closed_by_peer(key),
            Opener::Fast(region) => region.closed_by_peer(key),
        };
        if ours {
            self.state = RemoteKeyState::Closed;
        }
        ours
    }

    /// Records that the invalidation succeeded.
    pub fn closed(&mut self) {
        self.state = RemoteKeyState::Closed;
    }

    /// The remote address and key of the byte at `offset` of the memory behind it.
    pub fn remote(&self, offset: usize) -> RemoteSlice {
        let RemoteKeyState::Open(rkey, base) = self.state else {
            panic!("a remote key that is not open has no value")
        };
        RemoteSlice::from_raw(base.wrapping_add(offset as u64), u32::MAX, rkey)
    }

    /// The memory behind it.
    pub fn target<'a>(&'a self, region: &'a MemoryRegion<Handle>) -> Target<'a> {
        match &self.opener {
            Opener::Window(_) => Target::Region(region),
            Opener::Fast(fast) => Target::Fast(fast),
        }
    }

    /// Records that a request of the peer uses it.
    pub fn enter(&mut self) {
        self.users += 1;
    }

    /// Records that such a request has ended.
    pub fn leave(&mut self, now: Time) {
        (self.users, self.last_used) = (self.users - 1, now);
    }
}
