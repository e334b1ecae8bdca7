//! Datagrams on a wire that loses, duplicates and reorders them. Nobody resends them, so `ib_send_bw -c UD`
//! cannot compare its count with what was sent. We can, because the wire counts its faults: every datagram
//! that arrives must be whole, must be one of the messages that were sent, and their number must match.

use super::super::super::interrupt;
use super::super::cases::{Case, Program, Wire};
use super::super::our_side::{Span, WireFaults, Work};
use super::super::pattern;
use super::part::{Meeting, Part, RECEIVES};
use super::perftest::UNTOUCHED;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::time::Instant;

/// Receives that are posted at a time: the guest does not wait for us.
const WINDOW: u32 = 256;

/// Bytes that a case needs for what it receives.
pub(super) fn room(case: &Case) -> usize {
    let window =
        if case.program == Program::UdSendBandwidth && case.wire == Wire::Faulty { WINDOW } else { 1 };
    window as usize * case.size as usize
}

impl Part<'_> {
    pub(super) fn faulty_datagrams(&mut self, meeting: Meeting<'_>) -> Result<String> {
        let before = self.connection.wire_faults();
        let mut perftest = self.open(meeting, 1)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        let taking = matches!(meeting, Meeting::Accept(_));
        if taking {
            (0..WINDOW).try_for_each(|index| self.post_datagram(index))?;
        }
        self.synchronise(&mut perftest)?;
        let seen = if taking { self.take_datagrams(&before)? } else { self.give_datagrams(&before)? };
        self.synchronise(&mut perftest)?;
        Ok(seen)
    }

    fn place(&self, index: u32) -> Span {
        Span { offset: index as usize * self.size(), length: self.size() }
    }

    fn post_datagram(&mut self, index: u32) -> Result<()> {
        let place = self.place(index);
        self.connection.fill(place.offset, &vec![UNTOUCHED; place.length])?;
        self.connection.post_receive(RECEIVES + u64::from(index), place)
    }

    /// Takes what the guest sends until every message has arrived or been lost.
    fn take_datagrams(&mut self, before: &WireFaults) -> Result<String> {
        let messages = self.messages();
        let (mut arrived, mut total) = (vec![0u64; messages.len()], 0);
        loop {
            interrupt::check()?;
            while let Some(index) = self.next_datagram()? {
                let bytes = self.connection.bytes(self.place(index))?;
                let which = messages.iter().position(|(message, _)| *message == bytes);
                let which =
                    which.with_context(|| format!("datagram {total} is none of those that were sent"))?;
                arrived[which] += 1;
                total += 1;
                self.post_datagram(index)?;
            }
            let faults = self.connection.wire_faults().since(before);
            let passed = (total + faults.inbound.lost).saturating_sub(faults.inbound.doubled);
            if passed == u64::from(self.case.iterations) {
                let sent = messages.iter().map(|(_, sent)| *sent);
                check_each(&arrived, sent, &faults)?;
                return Ok(format!(
                    "{} bytes compared, {}",
                    total * u64::from(self.case.size),
                    told(&faults.inbound)
                ));
            }
            ensure!(
                passed < u64::from(self.case.iterations),
                "{total} datagrams arrived, the wire did {faults:?}"
            );
            if Instant::now() > self.deadline {
                bail!("{total} datagrams of {} arrived, the wire did {faults:?}", self.case.iterations);
            }
            self.connection.step()?;
        }
    }

    /// The slot of the next datagram that arrived.
    fn next_datagram(&mut self) -> Result<Option<u32>> {
        let Some(completion) = self.connection.poll()? else { return Ok(None) };
        ensure!(
            completion.received == Some(self.case.size),
            "{completion:?} instead of {} bytes",
            self.size()
        );
        Ok(Some(u32::try_from(completion.token - RECEIVES)?))
    }

    /// The messages that the guest sends, each with its count: small ones go round its buffer, where some are
    /// equal.
    fn messages(&self) -> Vec<(Vec<u8>, u64)> {
        let mut messages = BTreeMap::new();
        for slot in (0..self.case.iterations).map(|index| self.slot(index)) {
            *messages.entry(pattern::payload(slot, self.size(), self.size())).or_insert(0) += 1;
        }
        messages.into_iter().collect()
    }

    /// Sends until as many datagrams have arrived as the guest waits for; for each one that the wire lost,
    /// another is sent.
    fn give_datagrams(&mut self, before: &WireFaults) -> Result<String> {
        self.connection.fill(self.half, &pattern::message(0, self.size()))?;
        let mut sent = 0;
        loop {
            let faults = self.connection.wire_faults().since(before).outbound;
            if sent + faults.doubled >= u64::from(self.case.iterations) + faults.lost {
                return Ok(format!("{sent} datagrams sent, {}, seen by the guest only", told(&faults)));
            }
            self.connection.post(sent, Work::Send, self.far(0))?;
            self.wait_for(&[sent])?;
            sent += 1;
        }
    }
}

/// Checks that no message arrived more often than it was sent and duplicated, or less often than it was sent
/// and not lost.
fn check_each(arrived: &[u64], sent: impl Iterator<Item = u64>, faults: &WireFaults) -> Result<()> {
    for (which, (arrived, sent)) in arrived.iter().zip(sent).enumerate() {
        let (least, most) = (sent.saturating_sub(faults.inbound.lost), sent + faults.inbound.doubled);
        ensure!(
            (least..=most).contains(arrived),
            "message {which} was sent {sent} times and arrived {arrived} times; the wire did {faults:?}"
        );
    }
    Ok(())
}

fn told(faults: &bareverbs_serve::real_time::FaultCounters) -> String {
    format!("{} lost and {} doubled as the wire did", faults.lost, faults.doubled)
}
