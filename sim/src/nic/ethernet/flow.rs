//! Flow steering: tables of entries that decide what happens to a received packet (PRM, flow tables).
//!
//! A packet starts at the root table. Among the matching entries, the one with the lowest index wins; without one, the
//! packet follows the table's miss action or is dropped. Entries and misses lead to tables of a higher level only, so
//! every path ends. An entry may ignore levels (`ignore_flow_level`): a packet in a loop is dropped after
//! [`MOST_VISITS`] tables.

use crate::nic::contexts::Slab;
use bareverbs_prm::command::flow::{FlowContext, FlowMatchHeaders, FlowTableContext};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// First number of a flow table and of a flow counter.
const FIRST_TABLE: u32 = 1;
const FIRST_COUNTER: u32 = 1;
/// The maximum number of tables that one packet visits. Only entries that ignore levels can exceed it.
const MOST_VISITS: usize = 64;

/// `flow_context.action`.
pub(crate) mod action {
    pub(crate) const ALLOW: u16 = 1 << 0;
    pub(crate) const DROP: u16 = 1 << 1;
    pub(crate) const FORWARD: u16 = 1 << 2;
    pub(crate) const COUNT: u16 = 1 << 3;
}

/// Where an entry sends a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    Table(u32),
    Tir(u32),
}

/// An entry of a flow table.
#[derive(Debug)]
pub(crate) struct FlowEntry {
    pub(crate) context: FlowContext,
    pub(crate) destinations: Vec<Destination>,
    pub(crate) counters: Vec<u32>,
    value: Words,
}

impl FlowEntry {
    pub(crate) fn new(context: FlowContext, destinations: Vec<Destination>, counters: Vec<u32>) -> Self {
        let value = words(context.match_value().outer_headers());
        Self { context, destinations, counters, value }
    }
}

/// A range of indices whose entries compare the same bits.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) mask: FlowMatchHeaders,
}

/// One flow table.
#[derive(Debug)]
pub(crate) struct FlowTable {
    pub(crate) context: FlowTableContext,
    pub(crate) kind: u8,
    pub(crate) groups: BTreeMap<u32, Group>,
    next_group: u32,
    pub(crate) entries: BTreeMap<u32, FlowEntry>,
}

impl FlowTable {
    /// How many entries it has room for.
    pub(crate) fn size(&self) -> u64 {
        1 << self.context.log_size().min(32)
    }

    /// The table for packets that no entry matches.
    pub(crate) fn miss(&self) -> Option<u32> {
        (self.context.table_miss_action() == MISS_TO_TABLE).then(|| self.context.table_miss_id().value())
    }

    /// Adds a group if its indices do not overlap those of another group.
    pub(crate) fn add_group(&mut self, group: Group) -> Option<u32> {
        let overlaps =
            self.groups.values().any(|other| group.first <= other.last && other.first <= group.last);
        if overlaps {
            return None;
        }
        self.next_group = self.next_group.wrapping_add(1);
        self.groups.insert(self.next_group, group);
        Some(self.next_group)
    }

    fn find(&self, packet: &Words) -> Option<&FlowEntry> {
        self.entries.values().find(|entry| {
            let group = self.groups.get(&entry.context.group_id());
            group.is_some_and(|group| matches(packet, &entry.value, &words(&group.mask)))
        })
    }
}

/// `table_miss_action`: packets that no entry matches go to another table.
pub(crate) const MISS_TO_TABLE: u8 = 1;

/// What a flow counter counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// A transport interface receive (TIR) that a packet goes to, and the tag that the entry assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) tir: u32,
    pub(crate) tag: u32,
}

/// All flow tables of a device.
#[derive(Debug)]
pub(crate) struct Steering {
    pub(crate) tables: Slab<FlowTable>,
    /// The table where received packets start.
    pub(crate) root: Option<u32>,
    pub(crate) counters: Slab<Traffic>,
    /// Groups and entries of all tables.
    held: u32,
}

/// The maximum number of groups and entries in all tables together: about 64 MiB.
pub(crate) const HELD_BUDGET: u32 = 1 << 15;

impl Steering {
    pub(crate) const fn new() -> Self {
        Self {
            tables: Slab::new(FIRST_TABLE, 24),
            root: None,
            counters: Slab::new(FIRST_COUNTER, 24),
            held: 0,
        }
    }

    /// Whether the budget has room for another group or entry.
    pub(crate) const fn has_room(&self) -> bool {
        self.held < HELD_BUDGET
    }

    /// Counts an added group or entry.
    pub(crate) const fn note_added(&mut self) {
        self.held += 1;
    }

    /// Counts a removed group or entry.
    pub(crate) const fn note_removed(&mut self) {
        self.held -= 1;
    }

    pub(crate) fn create_table(&mut self, kind: u8, context: FlowTableContext, limit: u64) -> Option<u32> {
        let number = self.tables.next_number(limit)?;
        let table =
            FlowTable { context, kind, groups: BTreeMap::new(), next_group: 0, entries: BTreeMap::new() };
        self.tables.insert(number, table);
        Some(number)
    }

    /// Removes a table. If it is the root, there is no root afterwards: Linux destroys its last table while
    /// it is the root.
    pub(crate) fn remove_table(&mut self, number: u32) {
        self.tables.remove(number);
        self.root = self.root.filter(|&root| root != number);
    }

    /// Whether another table still leads to this one.
    pub(crate) fn is_used(&self, number: u32) -> bool {
        let leads = |table: &FlowTable| {
            let forward = |entry: &FlowEntry| entry.destinations.contains(&Destination::Table(number));
            table.miss() == Some(number) || table.entries.values().any(forward)
        };
        self.tables.iter().any(|(_, table)| leads(table))
    }

    /// Whether an entry sends packets to a TIR.
    pub(crate) fn uses_tir(&self, tir: u32) -> bool {
        let uses = |entry: &FlowEntry| entry.destinations.contains(&Destination::Tir(tir));
        self.tables.iter().any(|(_, table)| table.entries.values().any(uses))
    }

    /// Whether an entry uses a flow counter.
    pub(crate) fn uses_counter(&self, counter: u32) -> bool {
        let uses = |entry: &FlowEntry| entry.counters.contains(&counter);
        self.tables.iter().any(|(_, table)| table.entries.values().any(uses))
    }

    /// Where a packet of `length` bytes goes: nowhere, to one destination or to several.
    pub(crate) fn steer(&mut self, packet: &FlowMatchHeaders, length: usize) -> Vec<Target> {
        let packet = words(packet);
        let mut targets = Vec::new();
        let mut visits: Vec<u32> = self.root.into_iter().collect();
        let mut next = 0;
        while let Some(&number) = visits.get(next).filter(|_| next < MOST_VISITS) {
            next += 1;
            // There always is one: a table to which another leads is not destroyed, and without a root there is no visit.
            let Some(table) = self.tables.get(number) else { continue };
            let Some(entry) = table.find(&packet) else {
                visits.extend(table.miss());
                continue;
            };
            for &destination in &entry.destinations {
                match destination {
                    Destination::Table(table) => visits.push(table),
                    Destination::Tir(tir) => targets.push(Target { tir, tag: entry.context.flow_tag() }),
                }
            }
            count(&mut self.counters, &entry.counters, length);
        }
        targets
    }
}

fn count(counters: &mut Slab<Traffic>, numbers: &[u32], length: usize) {
    for &number in numbers {
        if let Some(counter) = counters.get_mut(number) {
            counter.packets += 1;
            counter.bytes += length as u64;
        }
    }
}

/// Headers as 64-bit words, for fast comparison.
type Words = [u64; FlowMatchHeaders::SIZE / 8];

fn words(headers: &FlowMatchHeaders) -> Words {
    let mut words = [0; FlowMatchHeaders::SIZE / 8];
    for (word, bytes) in words.iter_mut().zip(headers.as_bytes().chunks_exact(8)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    }
    words
}

fn matches(packet: &Words, value: &Words, mask: &Words) -> bool {
    packet.iter().zip(value).zip(mask).all(|((packet, value), mask)| (packet ^ value) & mask == 0)
}
