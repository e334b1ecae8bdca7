//! perftest's programs. Ours is the end that the program in the guest expects. The memory that it sends from,
//! and that we read, is filled from the payload file.

use super::super::cases::{Program, Service};
use super::super::our_side::{OUTSTANDING_READS, PeerEnd, Remote, Span, Work};
use super::super::pattern;
use super::part::{LIMIT, Meeting, Part, RECEIVES};
use anyhow::{Result, bail};
use bareverbs_perftest::exchange::{BandwidthReport, CACHE_LINE, CYCLE_BUFFER, Destination, Session};
use std::time::{Duration, Instant};

/// What memory holds before the peer writes there.
pub(super) const UNTOUCHED: u8 = 0xee;

/// How long the last packets of an unreliable connection may be in flight.
const ON_ITS_WAY: Duration = Duration::from_secs(5);

/// Our immediate data.
const IMMEDIATE: u32 = 0x1bad_cafe;

/// A conversation in which both ends know each other.
pub(super) struct PerftestSession {
    session: Session<'static>,
    own: Destination,
    peer: Destination,
}

impl PerftestSession {
    fn remote(&self) -> Remote {
        Remote { address: self.peer.address, rkey: self.peer.rkey }
    }
}

impl Part<'_> {
    /// `ib_write_bw`: handshakes with the queue pairs, two to synchronise, the traffic, one more, the
    /// reports, the end.
    pub(super) fn write_bandwidth(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.fill_untouched()?;
        self.one_sided(meeting, Work::Write)?;
        match meeting {
            Meeting::Connect(_) => Ok(self.unseen("written")),
            Meeting::Accept(_) => self.compare_all_written(),
        }
    }

    /// `ib_read_bw`: as `ib_write_bw`.
    pub(super) fn read_bandwidth(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.connection.fill(0, &pattern::message(0, self.half))?;
        self.one_sided(meeting, Work::Read)?;
        match meeting {
            Meeting::Connect(_) => self.compare_read(),
            Meeting::Accept(_) => Ok(self.unseen("given to read")),
        }
    }

    fn one_sided(&mut self, meeting: Meeting<'_>, work: impl Fn(Remote) -> Work) -> Result<()> {
        let mut perftest = self.open(meeting, 1)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        if matches!(meeting, Meeting::Connect(_)) {
            self.send_all(work(perftest.remote()))?;
        }
        self.synchronise(&mut perftest)?;
        let connection = &mut self.connection;
        // We measure nothing and report zero.
        perftest.session.exchange_reports(&BandwidthReport::default(), &mut || connection.step())?;
        self.synchronise(&mut perftest)
    }

    /// Data written over an unreliable connection may still be in flight, because nobody has acknowledged it.
    fn compare_all_written(&mut self) -> Result<String> {
        let deadline = Instant::now() + ON_ITS_WAY;
        while self.case.program.service() != Service::Rc && Instant::now() < deadline {
            if let Ok(seen) = self.compare_written() {
                return Ok(seen);
            }
            self.connection.step()?;
        }
        self.compare_written()
    }

    /// `ib_send_lat`: the client sends, the server answers with a message of its own.
    pub(super) fn send_latency(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.fill_untouched()?;
        let mut perftest = self.open(meeting, 1)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        self.post_receives()?;
        self.synchronise(&mut perftest)?;
        let client = matches!(meeting, Meeting::Connect(_));
        self.connection.fill(self.half, &pattern::message(0, self.size()))?;
        for round in 0..u64::from(self.case.iterations) {
            if client {
                self.connection.post(round, Work::Send, self.far(0))?;
                self.wait_for(&[round, RECEIVES + round])?;
            } else {
                match round.checked_sub(1) {
                    Some(before) => self.wait_for(&[before, RECEIVES + round])?,
                    None => self.wait_for(&[RECEIVES])?,
                }
                self.connection.post(round, Work::Send, self.far(0))?;
            }
        }
        if !client {
            self.wait_for(&[u64::from(self.case.iterations) - 1])?;
        }
        self.synchronise(&mut perftest)?;
        self.compare_first_slots()
    }

    /// `ib_write_lat`: the listener writes first. The last byte of a message is its number, and both ends
    /// poll memory for it; on an unreliable connection too the last byte arrives last. The rest of the
    /// program's buffer is zero, whatever the payload file says. The program ends without a handshake.
    pub(super) fn write_latency(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.fill_untouched()?;
        let mut perftest = self.open(meeting, 2)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        for number in 1..=self.case.iterations {
            if matches!(meeting, Meeting::Accept(_)) {
                self.write_number(number, perftest.remote())?;
                self.expect_number(number)?;
            } else {
                self.expect_number(number)?;
                self.write_number(number, perftest.remote())?;
            }
        }
        Ok(format!("{} bytes compared", self.size() * self.case.iterations as usize))
    }

    fn write_number(&mut self, number: u32, remote: Remote) -> Result<()> {
        let mut message = pattern::message(0, self.size());
        number_of(&mut message, number);
        self.connection.fill(self.half, &message)?;
        self.connection.post(number.into(), Work::Write(remote), self.far(0))?;
        self.wait_for(&[number.into()])
    }

    fn expect_number(&mut self, number: u32) -> Result<()> {
        let last = Span { offset: self.size() - 1, length: 1 };
        while self.connection.bytes(last)? != [number as u8] {
            if Instant::now() > self.deadline {
                bail!("message {number} of the guest did not come");
            }
            self.connection.step()?;
        }
        let mut expected = vec![0; self.size()];
        number_of(&mut expected, number);
        pattern::compare("message of the guest", &self.connection.bytes(self.near(0))?, &expected)
    }

    /// Latency tests send every message from the beginning of the buffer.
    fn compare_first_slots(&mut self) -> Result<String> {
        let expected = pattern::payload(0, self.size(), self.size());
        for slot in (0..self.case.iterations).map(|index| self.slot(index)) {
            let found = self.connection.bytes(self.near(slot))?;
            pattern::compare("message of the guest", &found, &expected)?;
        }
        Ok(format!("{} bytes compared", self.size() * self.case.iterations as usize))
    }

    /// `ib_send_bw`: as above, but receives are posted before the last handshake, and there are no reports.
    pub(super) fn send_bandwidth(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.two_sided(meeting, |_| Work::Send)
    }

    /// `ib_write_bw --write_with_imm`: as `ib_send_bw`.
    pub(super) fn write_immediate(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.two_sided(meeting, |remote| Work::WriteImmediate(remote, IMMEDIATE))
    }

    fn two_sided(&mut self, meeting: Meeting<'_>, work: impl Fn(Remote) -> Work) -> Result<String> {
        self.fill_untouched()?;
        let mut perftest = self.open(meeting, 1)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        let client = matches!(meeting, Meeting::Connect(_));
        if !client {
            self.post_receives()?;
        }
        self.synchronise(&mut perftest)?;
        if client {
            self.send_all(work(perftest.remote()))?;
        } else {
            self.receive_all()?;
        }
        self.synchronise(&mut perftest)?;
        if client { Ok(self.unseen("sent")) } else { self.compare_written() }
    }

    /// `ib_read_lat`: one more handshake at the beginning; then the client reads.
    pub(super) fn read_latency(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.connection.fill(0, &pattern::message(0, self.half))?;
        let mut perftest = self.open(meeting, 2)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        let mut seen = self.unseen("given to read");
        if matches!(meeting, Meeting::Connect(_)) {
            self.each(Work::Read(perftest.remote()))?;
            seen = self.compare_read()?;
        }
        self.synchronise(&mut perftest)?;
        Ok(seen)
    }

    /// `ib_atomic_lat`: like `ib_read_lat`. As the client we choose the operands; as the server we check the
    /// word afterwards.
    pub(super) fn atomic_latency(&mut self, meeting: Meeting<'_>) -> Result<String> {
        let start = 0x0123_4567_89ab_cdef_u64;
        self.connection.fill(0, &start.to_le_bytes())?;
        let mut perftest = self.open(meeting, 2)?;
        self.synchronise(&mut perftest)?;
        self.synchronise(&mut perftest)?;
        if matches!(meeting, Meeting::Connect(_)) {
            self.do_atomics(perftest.remote())?;
        }
        self.synchronise(&mut perftest)?;
        match meeting {
            Meeting::Connect(_) => Ok(format!("{} old values compared", self.case.iterations)),
            Meeting::Accept(_) => self.compare_word(start),
        }
    }

    /// Agrees on the parameters and exchanges the queue pairs `shakes` times, as the program does, then connects.
    pub(super) fn open(&mut self, meeting: Meeting<'_>, shakes: u32) -> Result<PerftestSession> {
        let identity = self.connection.identity();
        let own = Destination {
            outstanding_reads: OUTSTANDING_READS,
            qpn: identity.qpn,
            psn: identity.psn,
            rkey: identity.rkey,
            address: identity.address,
            gid: identity.gid,
            lid: identity.lid,
            shared_queue: None,
        };
        let (connection, mtu) = (&mut self.connection, self.case.mtu);
        let mut meanwhile = || connection.step();
        let mut session = match meeting {
            Meeting::Connect(address) => Session::connect(address, mtu, LIMIT, &mut meanwhile)?,
            Meeting::Accept(listener) => Session::accept(listener, mtu, LIMIT, &mut meanwhile)?,
        };
        if session.mtu() != mtu {
            bail!("the guest has a path MTU of {} and not {mtu}", session.mtu());
        }
        let mut peer = session.hand_shake(&own, &mut meanwhile)?;
        for _ in 1..shakes {
            peer = session.hand_shake(&own, &mut meanwhile)?;
        }
        let Destination { qpn, psn, gid, lid, outstanding_reads, .. } = peer;
        self.connection.connect(&PeerEnd { qpn, psn, gid, lid, outstanding_reads }, mtu)?;
        Ok(PerftestSession { session, own, peer })
    }

    pub(super) fn synchronise(&mut self, perftest: &mut PerftestSession) -> Result<()> {
        let connection = &mut self.connection;
        perftest.session.hand_shake(&perftest.own, &mut || connection.step()).map(drop)
    }

    fn fill_untouched(&mut self) -> Result<()> {
        self.connection.fill(0, &vec![UNTOUCHED; self.half])
    }

    /// Where message number `index` lies: small ones go round a buffer in steps of cache lines.
    pub(super) fn slot(&self, index: u32) -> usize {
        let (cycle, line) = (CYCLE_BUFFER as usize, CACHE_LINE as usize);
        if self.size() > cycle / 2 {
            return 0;
        }
        let step = self.size().next_multiple_of(line);
        index as usize % (cycle / step) * step
    }

    /// Sends all messages at once and waits for them.
    fn send_all(&mut self, work: Work) -> Result<()> {
        let tokens: Vec<u64> = (0..u64::from(self.case.iterations)).collect();
        for token in &tokens {
            self.connection.fill(self.half, &pattern::message(0, self.size()))?;
            self.connection.post(*token, work, self.far(0))?;
        }
        self.wait_for(&tokens)
    }

    /// Runs the operations one after the other.
    fn each(&mut self, work: Work) -> Result<()> {
        for token in 0..u64::from(self.case.iterations) {
            self.connection.fill(self.half, &vec![UNTOUCHED; self.size()])?;
            self.connection.post(token, work, self.far(0))?;
            self.wait_for(&[token])?;
        }
        Ok(())
    }

    fn post_receives(&mut self) -> Result<()> {
        for index in 0..self.case.iterations {
            let span = self.near(self.slot(index));
            self.connection.post_receive(RECEIVES + u64::from(index), span)?;
        }
        Ok(())
    }

    fn receive_all(&mut self) -> Result<()> {
        let tokens: Vec<u64> = (0..self.case.iterations).map(|index| RECEIVES + u64::from(index)).collect();
        self.wait_for(&tokens)
    }

    fn unseen(&self, what: &str) -> String {
        let bytes = u64::from(self.case.iterations) * u64::from(self.case.size);
        format!("{bytes} bytes {what}, seen by the guest only")
    }

    /// Checks that what the guest wrote or sent lies where it should and that everything else is untouched.
    fn compare_written(&mut self) -> Result<String> {
        let mut expected = vec![UNTOUCHED; self.half];
        for slot in (0..self.case.iterations).map(|index| self.slot(index)) {
            let bytes = pattern::payload(slot, self.size(), self.size());
            if let Some(place) = expected.get_mut(slot..slot + bytes.len()) {
                place.copy_from_slice(&bytes);
            }
        }
        let whole = Span { offset: 0, length: self.half };
        pattern::compare("memory that the guest wrote", &self.connection.bytes(whole)?, &expected)?;
        Ok(format!("{} bytes compared", self.half))
    }

    /// The guest offers the second half of its buffer for reading.
    fn compare_read(&mut self) -> Result<String> {
        let expected = pattern::payload(self.half, self.size(), self.size());
        pattern::compare("memory of the guest", &self.connection.bytes(self.far(0))?, &expected)?;
        Ok(format!("{} bytes compared", self.size()))
    }

    /// Each old value must be what the operations before left.
    fn do_atomics(&mut self, remote: Remote) -> Result<()> {
        let mut word = little_endian(&pattern::payload(self.half, 8, self.size()));
        for token in 0..u64::from(self.case.iterations) {
            let (work, next) = self.atomic(remote, word, token);
            self.connection.post(token, work, self.far(0))?;
            self.wait_for(&[token])?;
            let old = little_endian(&self.connection.bytes(self.far(0))?);
            if old != word {
                bail!("atomic {token} found {old:#x} instead of {word:#x}");
            }
            word = next;
        }
        Ok(())
    }

    /// An operation and the value it leaves; every third compare-and-swap compares with the wrong value.
    fn atomic(&self, remote: Remote, word: u64, token: u64) -> (Work, u64) {
        let operand = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(token + 1);
        match self.case.program {
            Program::CompareSwap if token % 3 == 2 => (Work::CompareSwap(remote, !word, operand), word),
            Program::CompareSwap => (Work::CompareSwap(remote, word, operand), operand),
            _ => (Work::FetchAdd(remote, operand), word.wrapping_add(operand)),
        }
    }

    /// The guest adds 1 each time. Its compare-and-swap compares with 0, which the word never is.
    fn compare_word(&mut self, start: u64) -> Result<String> {
        let word = little_endian(&self.connection.bytes(self.near(0))?);
        let expected = match self.case.program {
            Program::FetchAdd => start.wrapping_add(u64::from(self.case.iterations)),
            _ => start,
        };
        if word != expected {
            bail!("the word is {word:#x} instead of {expected:#x}");
        }
        Ok(format!("word {word:#x}"))
    }
}

/// The last byte of a message of `ib_write_lat` is its number.
fn number_of(message: &mut [u8], number: u32) {
    if let Some(last) = message.last_mut() {
        *last = number as u8;
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
