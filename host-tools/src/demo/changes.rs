//! A writer that changes the table during lookups, so that it grows, and knows which values a lookup may
//! find.

use super::data::Row;
use super::hosts::Writer;
use anyhow::{Context as _, bail};
use bareverbs::offload::runtime::ReaderProgress;
use bareverbs::offload::table::{ReaderId, TableError};
use bareverbs::prm::time::Time;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// Number of runtimes whose kernels read the table: the DPU, the NIC, and a core of the server.
pub(super) const READERS: usize = 3;
/// One turn in this many makes a change.
const TURNS: u64 = 8;
/// How many turns in a row may fail to make a change before that is an error.
const MOST_POSTPONED: u64 = 1_000_000;

/// What the writer did, as in `--json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WriterReport {
    /// Number of changes made during lookups.
    pub changes: u64,
    /// Buckets of the table before and after.
    pub buckets: [u32; 2],
}

/// A row of the file. It has either the value of the file or another one of the same length.
struct Changing {
    row: Row,
    other: Vec<u8>,
    is_other: bool,
}

impl Changing {
    fn new(row: &Row) -> Self {
        let other = row.value.iter().map(|byte| !byte).collect();
        Self { row: row.clone(), other, is_other: false }
    }

    fn value(&self) -> &[u8] {
        if self.is_other { &self.other } else { &self.row.value }
    }
}

/// The remaining changes, and the ones made.
pub(super) struct Changes {
    rows: Vec<Changing>,
    by_key: BTreeMap<Vec<u8>, usize>,
    /// Keys that are not in the file, oldest first.
    added: VecDeque<Vec<u8>>,
    names: u64,
    wanted: u64,
    made: u64,
    turn: u64,
    postponed: u64,
    /// The row that is being looked up, and whether it has changed since the lookup began.
    asked: Option<(usize, bool)>,
    readers: [ReaderId; READERS],
    buckets_before: u32,
}

impl Changes {
    /// `wanted` changes of a table that has these rows.
    pub(super) fn new(rows: &[Row], wanted: u64, table: &mut Writer) -> Result<Self, TableError> {
        let rows = if wanted > 0 { rows } else { &[] };
        let by_key = rows.iter().enumerate().map(|(index, row)| (row.key.clone(), index)).collect();
        Ok(Self {
            rows: rows.iter().map(Changing::new).collect(),
            by_key,
            added: VecDeque::new(),
            names: 0,
            wanted,
            made: 0,
            turn: 0,
            postponed: 0,
            asked: None,
            readers: [table.attach()?, table.attach()?, table.attach()?],
            buckets_before: table.usage().buckets,
        })
    }

    /// How many changes remain.
    pub(super) const fn left(&self) -> u64 {
        self.wanted - self.made
    }

    /// What was done; `None` if no changes were wanted.
    pub(super) fn report(&self, table: &Writer) -> Option<WriterReport> {
        let buckets = [self.buckets_before, table.usage().buckets];
        (self.wanted > 0).then_some(WriterReport { changes: self.made, buckets })
    }

    /// Records that a lookup of this key begins.
    pub(super) fn asks(&mut self, key: &[u8]) {
        self.asked = self.by_key.get(key).map(|index| (*index, false));
    }

    /// Whether the row had this value at any time since its lookup began.
    pub(super) fn had(&self, row: &Row, value: &[u8]) -> bool {
        let Some(changing) = self.by_key.get(&row.key).and_then(|index| self.rows.get(*index)) else {
            return row.value == value;
        };
        let changed = self.asked.is_some_and(|(index, changed)| {
            changed && self.rows.get(index).is_some_and(|asked| asked.row.key == row.key)
        });
        changing.value() == value || changed && (row.value == value || changing.other == value)
    }

    /// Reports the readers' progress to the writer.
    pub(super) fn announce(&self, table: &mut Writer, progress: [ReaderProgress; READERS]) {
        for (reader, progress) in self.readers.into_iter().zip(progress) {
            table.announce(reader, progress);
        }
    }

    /// Makes the next change, if it is time for one and there is room.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        table: &mut Writer,
        progress: [ReaderProgress; READERS],
    ) -> anyhow::Result<()> {
        self.turn += 1;
        if self.left() == 0 || !self.turn.is_multiple_of(TURNS) {
            return Ok(());
        }
        self.announce(table, progress);
        match self.change(now, table) {
            Ok(()) => (self.made, self.postponed) = (self.made + 1, 0),
            // Replaced memory is still being read; try again later.
            Err(TableError::ReadersPending { .. } | TableError::HeapFull { .. }) => self.postponed += 1,
            Err(error) => return Err(error).context("changing the table while it is read"),
        }
        if self.postponed > MOST_POSTPONED {
            let (made, wanted) = (self.made, self.wanted);
            bail!("the table has no room for changes: {made} of {wanted} were made; {:?}", table.usage());
        }
        Ok(())
    }

    /// One change in four adds a key, so that the table grows, and one deletes a key that was added. The
    /// other two change a value: that of the row being looked up, and that of any other row.
    fn change(&mut self, now: Time, table: &mut Writer) -> Result<(), TableError> {
        let any = (self.made.wrapping_mul(7919) % self.rows.len() as u64) as usize;
        match (self.made % 4, self.asked) {
            (0, _) => self.add(now, table),
            (1, _) if self.added.len() > self.rows.len() / 2 + 8 => self.take_away(now, table),
            (2, Some((asked, _))) => self.give_other(now, table, asked),
            _ => self.give_other(now, table, any),
        }
    }

    fn add(&mut self, now: Time, table: &mut Writer) -> Result<(), TableError> {
        let key = format!("added key {}", self.names).into_bytes();
        if !self.by_key.contains_key(&key) {
            table.insert(now, &key, &self.names.to_be_bytes())?;
            self.added.push_back(key);
        }
        self.names += 1;
        Ok(())
    }

    fn take_away(&mut self, now: Time, table: &mut Writer) -> Result<(), TableError> {
        let Some(key) = self.added.front() else { return Ok(()) };
        table.delete(now, key)?;
        self.added.pop_front();
        Ok(())
    }

    fn give_other(&mut self, now: Time, table: &mut Writer, index: usize) -> Result<(), TableError> {
        let row = &mut self.rows[index];
        let value = if row.is_other { &row.row.value } else { &row.other };
        table.update(now, &row.row.key, value)?;
        row.is_other = !row.is_other;
        if let Some((asked, changed)) = &mut self.asked {
            *changed |= *asked == index;
        }
        Ok(())
    }
}
