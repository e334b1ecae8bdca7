//! The thread that acts as the NIC: polls doorbells, moves frames and events, and advances time.

use crate::own_work::OwnWork;
use bareverbs_network::Pace;
use bareverbs_prm::time::Time;
use core::mem::MaybeUninit;
use core::num::NonZero;
use std::panic::catch_unwind;

/// Lets this thread's sleeps end on time.
const TIMER_SLACK: NonZero<u64> = NonZero::<u64>::MIN;
const STACK: usize = 1 << 20;

/// Result of a turn of the thread.
#[derive(Debug)]
pub(crate) enum Turn {
    Done(Round),
    /// A thread of the program holds the device.
    Elsewhere,
    /// There is nothing left to do.
    Over,
}

/// Result of a round of the device.
#[derive(Debug)]
pub(crate) struct Round {
    /// When it ended.
    pub(crate) now: Time,
    pub(crate) busy: bool,
    /// When there is work next, unless something arrives earlier.
    pub(crate) wakeup: Option<Time>,
}

/// Callbacks of the thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ThreadCallbacks {
    pub(crate) take_turn: fn() -> Turn,
    /// What to do after a round has panicked.
    pub(crate) give_up: fn(),
}

/// Starts the thread. Signals go to the program's own threads.
pub(crate) fn start(callbacks: ThreadCallbacks) -> std::io::Result<()> {
    let before = block_signals();
    let thread = std::thread::Builder::new().name("bareverbs-nic".into()).stack_size(STACK);
    let started = thread.spawn(move || run(callbacks));
    // SAFETY: `before` is what `block_signals` was given by the kernel.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    started.map(drop)
}

/// Blocks all signals in this thread except those of its own faults. Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: `sigfillset` makes `all` a set; the kernel fills `before`, since all arguments are right.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn run(callbacks: ThreadCallbacks) {
    let _own_work = OwnWork::begin();
    // Best effort: without it sleeps are longer, but everything works.
    let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK));
    if catch_unwind(|| work(callbacks.take_turn)).is_err() {
        fail(callbacks.give_up);
    }
}

/// Cleanup after a round has panicked.
pub(crate) fn fail(give_up: fn()) {
    give_up();
    eprintln!(
        "bareverbs run: the simulated device has stopped because of the error above, a bug in bareverbs; \
         requests to it fail from now on (EIO)"
    );
}

fn work(take_turn: fn() -> Turn) {
    let mut pace = Pace::new();
    loop {
        match take_turn() {
            Turn::Done(Round { now, busy, wakeup }) => pace.rest(now, busy, wakeup),
            Turn::Elsewhere => pace.pause(),
            Turn::Over => break,
        }
    }
}
