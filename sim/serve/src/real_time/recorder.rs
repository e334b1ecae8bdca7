//! A capture file shared by several devices, with real timestamps.

use bareverbs_prm::time::Time;
use bareverbs_sim::net::capture::{Capture, CaptureError, Clock, Direction, LinkType};
use bareverbs_sim::nic::{DeviceRecord, FrameOrigin};
use bareverbs_sim::run::{Device, RECORDS_SUFFIX, RecordText};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// State shared by all interfaces of a capture.
#[derive(Debug)]
struct Shared {
    capture: Capture<dyn Write + Send>,
    /// Timestamp of the last packet.
    latest: u64,
}

/// A capture file with a size limit.
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
        // Write whole blocks, so that the file never ends inside one.
        self.file.write_all(block)?;
        self.left = left;
        Ok(block.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// One interface of a shared capture. Clones refer to the same interface.
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
    /// Interface for the device's records, if they are written.
    records: Option<u32>,
    /// Clock reading at the start of the capture, and the time then in nanoseconds since 1970.
    start: (Instant, u64),
}

impl Recorder {
    /// Default size limit in bytes: 1 GiB. A busy port writes that in seconds.
    pub const DEFAULT_LIMIT: u64 = 1 << 30;

    /// Starts a capture file without interfaces; add one per device with [`Self::interface`].
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_limited(path, Self::DEFAULT_LIMIT)
    }

    /// Like [`Self::create`]. A frame that would make the file longer than `limit` bytes ends the capture, and
    /// [`Self::finish`] says so.
    pub fn create_limited(path: &Path, limit: u64) -> io::Result<Self> {
        Ok(Self::of_file(File::create(path)?, limit))
    }

    /// Like [`Self::create_limited`], with an open file.
    pub fn of_file(file: File, limit: u64) -> Self {
        // Unbuffered: the capture of a killed process is intact up to its end.
        let file = Limited { file, limit, left: limit };
        let capture = Shared { capture: Capture::new(Box::new(file), Clock::Real), latest: 0 };
        // The only place in the simulator that reads the date: tools sort captures by it.
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = (Instant::now(), u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX));
        Self { capture: Arc::new(Mutex::new(Some(capture))), interface: 0, records: None, start }
    }

    /// Adds an interface to the same capture.
    #[must_use]
    pub fn interface(&self, name: &str, link: LinkType) -> Self {
        let interface = self.lock().as_mut().map_or(0, |shared| shared.capture.add_interface(name, link));
        Self { interface, records: None, ..self.clone() }
    }

    /// Adds an interface, and one more for its device's records, each a line of text (docs/adr/0029).
    #[must_use]
    pub fn recording(&self, name: &str, link: LinkType) -> Self {
        let frames = self.interface(name, link);
        let name = format!("{name}{RECORDS_SUFFIX}");
        let add = |shared: &mut Shared| shared.capture.add_interface(&name, LinkType::Records);
        let records = self.lock().as_mut().map(add);
        Self { records, ..frames }
    }

    /// Whether the device's records are written.
    pub const fn has_records(&self) -> bool {
        self.records.is_some()
    }

    /// Writes a frame that passes now, with comments.
    pub fn frame<'a>(&self, direction: Direction, bytes: &[u8], comments: impl IntoIterator<Item = &'a str>) {
        // Read the clock under the lock, so that frames are in timestamp order.
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

    /// Writes a device's records, where `now` is its current time, and the number of lost records.
    pub fn records(&self, now: Time, records: impl IntoIterator<Item = DeviceRecord>, lost: u64) {
        for record in records {
            self.record(now, record.time, &RecordText::Device(record.event));
        }
        if lost > 0 {
            self.record(now, now, &RecordText::Lost(lost));
        }
    }

    /// Like [`Self::records`], for a device that can be polled directly. Without a record interface, its records are
    /// discarded.
    pub fn records_of(&self, now: Time, device: &mut impl Device) {
        self.records(now, core::iter::from_fn(|| device.poll_record()), 0);
        self.records(now, None, device.take_lost_records());
    }

    /// Writes a record of something that happened at `time`, where `now` is the device's current time. The timestamp is
    /// raised to that of packets that others have written meanwhile, because packets are in timestamp order.
    pub fn record(&self, now: Time, time: Time, record: &RecordText<'_>) {
        let Some(interface) = self.records else { return };
        if let Some(shared) = self.lock().as_mut() {
            let age = if time < now { (now - time).as_nanos() } else { 0 };
            shared.latest = self.nanos().saturating_sub(age).max(shared.latest);
            shared.capture.record(interface, shared.latest, record);
        }
    }

    /// Writes a frame that the device sends now, with its fault and its origin.
    pub fn sent(&self, bytes: &[u8], fate: Option<&str>, origin: Option<FrameOrigin>) {
        // The frame was built at the time it is sent.
        let origin = origin.map(|origin| FrameOrigin { built: None, ..origin }.to_string());
        self.frame(Direction::Outbound, bytes, fate.into_iter().chain(origin.as_deref()));
    }

    /// Whether a write has failed; [`Self::finish`] returns the error.
    pub fn has_failed(&self) -> bool {
        self.lock().as_ref().is_some_and(|shared| shared.capture.has_failed())
    }

    /// Ends the capture for all its interfaces and returns the number of frames. `None` if it has already ended.
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
