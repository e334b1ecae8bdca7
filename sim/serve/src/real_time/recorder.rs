//! Captures of several devices in one file, with the time of the machine.

use bareverbs_prm::time::Time;
use bareverbs_sim::net::capture::{Capture, CaptureError, Clock, Direction, LinkType};
use bareverbs_sim::nic::{DeviceRecord, FrameOrigin};
use bareverbs_sim::run::{Device, RECORDS_SUFFIX, RecordText};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What all interfaces of a capture share.
#[derive(Debug)]
struct Shared {
    capture: Capture<dyn Write + Send>,
    /// Time of the packet that was written last.
    latest: u64,
}

/// The file of a capture, which ends before it has more than so many bytes.
#[derive(Debug)]
struct Limited<W> {
    file: W,
    limit: u64,
    left: u64,
}

impl<W: Write> Write for Limited<W> {
    fn write(&mut self, block: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(block.len() as u64) else {
            let message = format!("the capture has reached its limit of {} bytes and ends", self.limit);
            tracing::warn!("{message}; the devices go on");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        };
        // A block goes out as a whole, so that the file ends with one.
        self.file.write_all(block)?;
        self.left = left;
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// An interface of a capture that others write too. Clones are the same interface.
///
/// ```
/// use bareverbs_serve::real_time::Recorder;
/// use bareverbs_sim::net::{Direction, LinkType};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let capture = Recorder::create(&directory.path().join("both.pcapng"))?;
/// let [one, other] = ["host 1", "host 2"].map(|name| capture.interface(name, LinkType::Ethernet));
/// one.frame(Direction::Outbound, &[0xff; 60], []);
/// other.frame(Direction::Inbound, &[0xff; 60], ["fault: bit flipped"]);
/// assert_eq!(capture.finish().ok_or("it has ended before")??, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Recorder {
    capture: Arc<Mutex<Option<Shared>>>,
    interface: u32,
    /// The interface of what the device does, if that is written.
    records: Option<u32>,
    /// The clock of the machine when the capture began, and nanoseconds since 1970 then.
    start: (Instant, u64),
}

impl Recorder {
    /// Bytes of a capture, if nothing else is said: 1 GiB. A busy port writes that in seconds.
    pub const DEFAULT_LIMIT: u64 = 1 << 30;

    /// Begins a capture in a file, without an interface: give every device one by [`Self::interface`].
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_limited(path, Self::DEFAULT_LIMIT)
    }

    /// As [`Self::create`]. A frame that would make the file longer than `limit` bytes ends the capture; [`Self::finish`] then
    /// says so.
    pub fn create_limited(path: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self::of_file(File::create(path)?, limit))
    }

    /// The same in a file that is open.
    pub fn of_file(file: File, limit: u64) -> Self {
        // Not buffered: a process that is killed leaves a capture that is whole up to its end.
        let file = Limited { file, limit, left: limit };
        let capture = Shared { capture: Capture::new(Box::new(file), Clock::Real), latest: 0 };
        // The only place in the simulator that knows the date: programs sort captures by it.
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = (Instant::now(), u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX));
        Self { capture: Arc::new(Mutex::new(Some(capture))), interface: 0, records: None, start }
    }

    /// A further interface of the same capture.
    #[must_use]
    pub fn interface(&self, name: &str, link: LinkType) -> Self {
        let interface = self.lock().as_mut().map_or(0, |shared| shared.capture.add_interface(name, link));
        Self { interface, records: None, ..self.clone() }
    }

    /// The same, and one more interface for what the device of the first does, each record a line of text (docs/adr/0029).
    #[must_use]
    pub fn recording(&self, name: &str, link: LinkType) -> Self {
        let frames = self.interface(name, link);
        let name = format!("{name}{RECORDS_SUFFIX}");
        let add = |shared: &mut Shared| shared.capture.add_interface(&name, LinkType::Records);
        let records = self.lock().as_mut().map(add);
        Self { records, ..frames }
    }

    /// Whether what the device does is written, too.
    pub const fn has_records(&self) -> bool {
        self.records.is_some()
    }

    /// Writes one frame that passes now, with comments.
    pub fn frame<'a>(&self, direction: Direction, bytes: &[u8], comments: impl IntoIterator<Item = &'a str>) {
        // The time is taken with the lock held, so that frames stand in the order of their times.
        if let Some(shared) = self.lock().as_mut() {
            shared.latest = self.nanos().max(shared.latest);
            shared.capture.frame(self.interface, shared.latest, direction, bytes, comments);
        }
    }

    /// Nanoseconds since 1970.
    fn nanos(&self) -> u64 {
        let passed = u64::try_from(self.start.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.start.1.saturating_add(passed)
    }

    /// Writes what a device has done until now, which is `now` for it, and how many records it has lost.
    pub fn records(&self, now: Time, records: impl IntoIterator<Item = DeviceRecord>, lost: u64) {
        for record in records {
            self.record(now, record.time, &RecordText::Device(record.event));
        }
        if lost > 0 {
            self.record(now, now, &RecordText::Lost(lost));
        }
    }

    /// The same of a device that can be asked itself. Without an interface for them its records are thrown away.
    pub fn records_of(&self, now: Time, device: &mut impl Device) {
        self.records(now, core::iter::from_fn(|| device.poll_record()), 0);
        self.records(now, None, device.take_lost_records());
    }

    /// Writes what happened at `time` of a device for which it is `now`. What others have written meanwhile comes before: packets stand in the
    /// order of their times.
    pub fn record(&self, now: Time, time: Time, record: &RecordText<'_>) {
        let Some(interface) = self.records else { return };
        if let Some(shared) = self.lock().as_mut() {
            let age = if time < now { (now - time).as_nanos() } else { 0 };
            shared.latest = self.nanos().saturating_sub(age).max(shared.latest);
            shared.capture.record(interface, shared.latest, record);
        }
    }

    /// Writes a frame that the device sends now: what a fault did to it, and whose it is.
    pub fn sent(&self, bytes: &[u8], fate: Option<&str>, origin: Option<FrameOrigin>) {
        // It was built when it was sent.
        let origin = origin.map(|origin| FrameOrigin { built: None, ..origin }.to_string());
        self.frame(Direction::Outbound, bytes, fate.into_iter().chain(origin.as_deref()));
    }

    /// Whether something could not be written; [`Self::finish`] says what.
    pub fn has_failed(&self) -> bool {
        self.lock().as_ref().is_some_and(|shared| shared.capture.has_failed())
    }

    /// Ends the capture for all its interfaces; gives the number of frames in it. `None` if it has ended.
    pub fn finish(&self) -> Option<Result<u64, CaptureError>> {
        self.lock().take().map(|shared| shared.capture.finish())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Shared>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_ends_at_its_limit_with_a_whole_frame() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("frames.pcapng");
        let recorder = Recorder::create_limited(&path, 1000).unwrap().interface("port", LinkType::Ethernet);
        for _ in 0..100 {
            recorder.frame(Direction::Outbound, &[0; 60], None);
        }
        let error = recorder.finish().unwrap().unwrap_err();
        assert!(error.to_string().contains("limit of 1000 bytes"), "{error}");
        assert!(error.frames > 5, "{error}");
        let bytes = std::fs::read(&path).unwrap();
        let mut rest = bytes.as_slice();
        let mut blocks = 0;
        while let Some(length) = rest.get(4..8) {
            rest = &rest[u32::from_le_bytes(length.try_into().unwrap()) as usize..];
            blocks += 1;
        }
        assert!(bytes.len() <= 1000 && rest.is_empty());
        assert_eq!(blocks, error.frames + 2, "section, interface, frames");
    }
}
