//! The cable of a served device, which another thread may unplug and plug in again.

use crate::real_time::Waker;
use core::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The cable of a served device. The device sees its link go down and come up. The other end sees no change, as if a switch were between
/// them.
///
/// ```no_run
/// use bareverbs_prm::ids::MacAddress;
/// use bareverbs_serve::vfio_user::{Server, ServerConfig};
/// use bareverbs_sim::nic::NicConfig;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 0, 1]));
/// let mut server = Server::bind("/run/nic0.socket".as_ref(), ServerConfig::new(nic))?;
/// let cable = server.cable();
/// std::thread::spawn(move || {
///     std::thread::sleep(std::time::Duration::from_secs(10));
///     cable.set_plugged(false);
/// });
/// server.serve()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Cable {
    is_plugged: Arc<AtomicBool>,
    waker: Arc<Mutex<Waker>>,
}

impl Cable {
    pub(super) fn new(end: CableEnd, waker: Waker) -> Self {
        Self { is_plugged: end.is_plugged, waker: Arc::new(Mutex::new(waker)) }
    }

    /// Plugs the cable in or unplugs it. The state persists across resets of the device and across clients.
    pub fn set_plugged(&self, is_plugged: bool) {
        self.is_plugged.store(is_plugged, Ordering::Release);
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        waker();
    }

    /// Whether the cable is plugged in.
    pub fn is_plugged(&self) -> bool {
        self.is_plugged.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cable").field("is_plugged", &self.is_plugged).finish_non_exhaustive()
    }
}

/// The cable as the device's thread sees it.
#[derive(Debug, Clone)]
pub(super) struct CableEnd {
    is_plugged: Arc<AtomicBool>,
    /// The state that the device was last given.
    was_plugged: bool,
}

impl Default for CableEnd {
    fn default() -> Self {
        Self { is_plugged: Arc::new(AtomicBool::new(true)), was_plugged: true }
    }
}

impl CableEnd {
    /// Whether the cable is plugged in, if the device has not been given that state yet.
    pub(super) fn changed(&mut self) -> Option<bool> {
        let is_plugged = self.is_plugged.load(Ordering::Acquire);
        let has_changed = is_plugged != self.was_plugged;
        self.was_plugged = is_plugged;
        has_changed.then_some(is_plugged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_cable_change_is_reported_once_and_wakes_the_device() {
        let woken = Arc::new(AtomicUsize::new(0));
        let waker: Waker = Box::new({
            let woken = woken.clone();
            move || {
                woken.fetch_add(1, Ordering::SeqCst);
            }
        });
        let mut end = CableEnd::default();
        let cable = Cable::new(end.clone(), waker);
        assert_eq!(end.changed(), None, "the device begins with a cable");
        for is_plugged in [false, true] {
            cable.set_plugged(is_plugged);
            assert_eq!(cable.is_plugged(), is_plugged);
            assert_eq!(end.changed(), Some(is_plugged));
            assert_eq!(end.changed(), None);
        }
        assert_eq!(woken.load(Ordering::SeqCst), 2);
    }
}
