//! Captures of several devices in one file, with the time of the machine.

use bareverbs_sim::net::capture::{Capture, CaptureError, Clock, Direction, LinkType};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

type Shared = Capture<dyn Write + Send>;

/// An interface of a capture that others write too. Clones are the same interface.
#[derive(Debug, Clone)]
pub struct Recorder {
    capture: Arc<Mutex<Option<Shared>>>,
    interface: u32,
    /// The clock of the machine when the capture began, and nanoseconds since 1970 then.
    start: (Instant, u64),
}

impl Recorder {
    /// Begins a capture in a file, without an interface: give every device one by [`Self::interface`].
    pub fn create(path: &Path) -> io::Result<Self> {
        // Not buffered: a process that is killed leaves a capture that is whole up to its end.
        let capture: Shared = Capture::new(Box::new(File::create(path)?), Clock::Real);
        // The only place in the simulator that knows the date: programs sort captures by it.
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = (Instant::now(), u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX));
        Ok(Self { capture: Arc::new(Mutex::new(Some(capture))), interface: 0, start })
    }

    /// A further interface of the same capture.
    #[must_use]
    pub fn interface(&self, name: &str, link: LinkType) -> Self {
        let interface = self.lock().as_mut().map_or(0, |capture| capture.add_interface(name, link));
        Self { interface, ..self.clone() }
    }

    /// Writes one frame that passes now.
    pub fn frame(&self, direction: Direction, bytes: &[u8], comment: Option<&str>) {
        let mut capture = self.lock();
        // The time is taken with the lock held, so that frames stand in the order of their times.
        let passed = u64::try_from(self.start.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if let Some(capture) = capture.as_mut() {
            capture.frame(self.interface, self.start.1.saturating_add(passed), direction, bytes, comment);
        }
    }

    /// Ends the capture for all its interfaces; gives the number of frames in it. `None` if it has ended.
    pub fn finish(&self) -> Option<Result<u64, CaptureError>> {
        self.lock().take().map(Capture::finish)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Shared>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
