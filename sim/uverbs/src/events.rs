//! Event files, and records waiting for them.
//!
//! The owner of the program keeps the files; this table keeps their owners and counts. It counts the records handed out
//! per element: when the object behind an element is destroyed, libibverbs asks how many of its events the program has
//! *read*, and blocks until that many have been acknowledged (`ib_uverbs_release_ucq`). The owner of the program knows
//! the unread ones, because it discards them ([`Process::discard_events`]); the rest was read.

use crate::Errno;
use crate::device_index::{DeviceIndex, FileNumbers};
use crate::event_record::{EventFileId, EventFileKind, EventRecord};
use crate::files::FileId;
use crate::process::Process;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// The owner of a file.
#[derive(Debug, Clone, Copy)]
struct EventFile {
    owner: FileId,
    kind: EventFileKind,
}

/// All event files.
#[derive(Debug, Default)]
pub(crate) struct EventFiles {
    files: BTreeMap<EventFileId, EventFile>,
    numbers: FileNumbers,
    waiting: VecDeque<EventRecord>,
    /// Records handed out, by file and element.
    handed_out: BTreeMap<(EventFileId, u64), u32>,
}

impl EventFiles {
    /// Gives new files numbers of this device.
    pub(crate) fn numbered(&mut self, index: DeviceIndex) {
        self.numbers = FileNumbers::of(index);
    }

    /// Opens a file and returns the number of its descriptor.
    pub(crate) fn open<P: Process>(
        &mut self,
        process: &mut P,
        owner: FileId,
        kind: EventFileKind,
    ) -> Result<i32, Errno> {
        let file = EventFileId::from_raw(self.numbers.next());
        let descriptor = process.open_event_file(file, kind)?;
        self.numbers.take();
        self.files.insert(file, EventFile { owner, kind });
        Ok(descriptor)
    }

    /// Removes a file whose last descriptor was closed.
    pub(crate) fn close(&mut self, file: EventFileId) {
        self.files.remove(&file);
        self.waiting.retain(|record| record.file != file);
        self.handed_out.retain(|(of, _), _| *of != file);
    }

    /// Hangs up the event files of a closed device file: nothing comes from them any more.
    pub(crate) fn hang_up<P: Process>(&mut self, process: &mut P, owner: FileId) {
        let gone: Vec<_> =
            self.files.iter().filter(|(_, file)| file.owner == owner).map(|(id, _)| *id).collect();
        for file in gone {
            self.close(file);
            process.hang_up(file);
        }
    }

    /// The file behind a descriptor, if it is an event file of this kind and this device file.
    pub(crate) fn find<P: Process>(
        &self,
        process: &mut P,
        descriptor: u64,
        owner: FileId,
        kind: EventFileKind,
    ) -> Result<EventFileId, Errno> {
        let descriptor = i32::try_from(descriptor.cast_signed()).map_err(|_| Errno::BadDescriptor)?;
        let file = process.event_file(descriptor).ok_or(Errno::BadDescriptor)?;
        let known = self.files.get(&file).ok_or(Errno::BadDescriptor)?;
        if known.owner == owner && known.kind == kind { Ok(file) } else { Err(Errno::Invalid) }
    }

    /// A device file's first file for asynchronous events.
    pub(crate) fn first_asynchronous(&self, owner: FileId) -> Option<EventFileId> {
        let good = |file: &EventFile| file.owner == owner && file.kind == EventFileKind::Asynchronous;
        self.files.iter().find(|(_, file)| good(file)).map(|(&id, _)| id)
    }

    /// Reports an event of an object to its file, if that is still open.
    pub(crate) fn tell(&mut self, id: EventFileId, element: u64, event_type: u32) {
        if let Some(file) = self.files.get(&id) {
            self.waiting.push_back(EventRecord::new(id, file.kind, element, event_type));
        }
    }

    /// Discards the unread records of a destroyed element. Returns how many were read.
    pub(crate) fn retire<P: Process>(&mut self, process: &mut P, file: EventFileId, element: u64) -> u32 {
        self.waiting.retain(|record| (record.file, record.element()) != (file, element));
        let handed_out = self.handed_out.remove(&(file, element)).unwrap_or(0);
        // The counts of a file that the program closed are gone.
        if handed_out == 0 { 0 } else { handed_out.saturating_sub(process.discard_events(file, element)) }
    }

    /// Reports an event of the port to every file for asynchronous events.
    pub(crate) fn tell_all(&mut self, element: u64, event_type: u32) {
        let told = self.files.iter().filter(|(_, file)| file.kind == EventFileKind::Asynchronous);
        let records = told.map(|(&id, file)| EventRecord::new(id, file.kind, element, event_type));
        self.waiting.extend(records);
    }

    /// The next record to put into its file.
    pub(crate) fn poll(&mut self) -> Option<EventRecord> {
        let record = self.waiting.pop_front()?;
        *self.handed_out.entry((record.file, record.element())).or_default() += 1;
        Some(record)
    }
}
