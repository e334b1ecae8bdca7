//! The exchange of perftest (`ib_write_bw`, `ib_send_bw`, `ib_read_lat`, `ib_atomic_lat` …), version 5.70 and
//! later.
//!
//! Both ends exchange messages of equal size: the client sends and then receives, the server does the
//! reverse. First the version, 16 bytes of text; the cycle buffer and the cache line, four bytes each in
//! network order; the path MTU as a digit of IBTA's numbering and a zero byte. Then handshakes, which always
//! carry the same line of hexadecimal text; their number, and what happens between them, differs from program
//! to program. Last, for one-sided bandwidth tests, the client's report.
//!
//! With `-R` the same messages are SENDs over an RDMA CM connection, and a handshake is a record of 56 bytes.

use crate::Role;
use crate::line::{Carrier, DestinationForm, Line, Listener, Stranger, WaitHook};
use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::{Gid, Qpn, Srqn};
use bareverbs_prm::psn::Psn;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Bytes of a handshake with a GID.
pub const LENGTH: usize = 108;
/// Bytes of a handshake between InfiniBand ends that use no GID.
pub const LOCAL_LENGTH: usize = 59;
/// Bytes of a handshake as a record.
pub const RECORD_LENGTH: usize = 56;
/// The version that we claim: the messages have had this form since 5.70. perftest stops reading at the first
/// zero byte; the text after it lets two ends of ours recognise each other.
const VERSION: [u8; 16] = *b"6.20\0bareverbs1\0";
/// Offset of the text that perftest does not read.
const MARK_AT: usize = 5;
const OLDEST: f32 = 5.70;
/// Time limit for the first message. perftest sends its version as soon as it has connected.
const FIRST_WORD: Duration = Duration::from_secs(10);
/// Number of refused strangers that a listening end reports. It refuses any number of them.
const STRANGERS_TOLD: u64 = 10;
/// Bytes over which small messages are spread.
pub const CYCLE_BUFFER: u32 = 4096;
/// Distance between small messages.
pub const CACHE_LINE: u32 = 64;

/// One end of the connection, as the other end learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Destination {
    /// READs and atomics that it serves at once.
    pub outstanding_reads: u8,
    /// Its queue pair.
    pub qpn: Qpn,
    /// First PSN it sends.
    pub psn: Psn,
    /// Key of its buffer.
    pub rkey: u32,
    /// The address that the peer may write, read or access with atomics.
    pub address: u64,
    /// Its GID; zero if packets have no global route header.
    pub gid: Gid,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
    /// The shared receive queue that the peer must name, with XRC.
    pub shared_queue: Option<Srqn>,
}

impl Destination {
    /// The bytes to send.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut text = self.begin();
        for byte in self.gid.0 {
            text.push_str(&format!("{byte:02x}:"));
        }
        text.push_str(&format!("{:08x}:", self.shared_number()));
        padded(&text)
    }

    /// The bytes to send between ends without GIDs.
    pub fn encode_local(&self) -> [u8; LOCAL_LENGTH] {
        padded(&format!("{}{:08x}", self.begin(), self.shared_number()))
    }

    /// Zero stands for none.
    fn shared_number(&self) -> u32 {
        self.shared_queue.map_or(0, Srqn::value)
    }

    fn begin(&self) -> String {
        format!(
            "{:04x}:{:04x}:{:06x}:{:06x}:{:08x}:{:016x}:",
            self.lid,
            self.outstanding_reads,
            self.qpn.value(),
            self.psn.value(),
            self.rkey,
            self.address
        )
    }

    /// The bytes to send over an RDMA CM connection. Offsets, in network order: 0 LID, 4 READs, 8 queue pair,
    /// 12 PSN, 16 key, 20 unused, 24 address, 32 GID, 48 shared receive queue, 52 GID index, which means
    /// nothing to the peer.
    pub fn encode_record(&self) -> [u8; RECORD_LENGTH] {
        let mut record = [0; RECORD_LENGTH];
        let words = [
            (0, self.lid.into()),
            (4, self.outstanding_reads.into()),
            (8, self.qpn.value()),
            (12, self.psn.value()),
            (16, self.rkey),
            (48, self.shared_number()),
        ];
        for (at, word) in words {
            record[at..at + 4].copy_from_slice(&u32::to_be_bytes(word));
        }
        record[24..32].copy_from_slice(&self.address.to_be_bytes());
        record[32..48].copy_from_slice(&self.gid.0);
        record
    }

    /// Parses what was received over an RDMA CM connection.
    pub fn parse_record(record: &[u8; RECORD_LENGTH]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(*record[at..].first_chunk()?));
        let shared = Srqn::new(word(48)?)?;
        Some(Self {
            outstanding_reads: u8::try_from(word(4)?).ok()?,
            qpn: Qpn::new(word(8)?)?,
            psn: word(12).filter(|psn| *psn < 1 << 24).map(Psn::new)?,
            rkey: word(16)?,
            address: u64::from_be_bytes(*record[24..].first_chunk()?),
            gid: Gid(*record[32..].first_chunk()?),
            lid: u16::try_from(word(0)?).ok()?,
            shared_queue: Some(shared).filter(|queue| queue.value() != 0),
        })
    }

    /// Parses what was received, with a GID or without.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(line).ok()?.trim_end_matches('\0');
        let mut parts = text.split(':').map(|part| u64::from_str_radix(part, 16).ok());
        let mut next = || parts.next().flatten();
        let lid = u16::try_from(next()?).ok()?;
        let outstanding_reads = u8::try_from(next()?).ok()?;
        let qpn = Qpn::new(u32::try_from(next()?).ok()?)?;
        let psn = u32::try_from(next()?).ok().filter(|psn| *psn < 1 << 24)?;
        let rkey = u32::try_from(next()?).ok()?;
        let address = next()?;
        let mut gid = [0; 16];
        if line.len() > LOCAL_LENGTH {
            for byte in &mut gid {
                *byte = u8::try_from(next()?).ok()?;
            }
        }
        let shared = Srqn::new(u32::try_from(next()?).ok()?)?;
        let shared_queue = Some(shared).filter(|queue| queue.value() != 0);
        Some(Self {
            outstanding_reads,
            qpn,
            psn: Psn::new(psn),
            rkey,
            address,
            gid: Gid(gid),
            lid,
            shared_queue,
        })
    }
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut line = [0; N];
    for (to, from) in line.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    line
}

/// A connection whose ends have agreed on the parameters.
pub struct Session<'a> {
    carrier: Box<dyn Carrier + 'a>,
    role: Role,
    mtu: u32,
    version: [u8; 16],
}

/// The results of a bandwidth test that the client sends to the server, or both ends to each other if both
/// measure.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BandwidthReport {
    /// Bytes of a message.
    pub size: u64,
    /// Messages.
    pub iterations: u64,
    /// Highest rate over some of the messages, in MiB/s, or in units of 10^9 bit/s if both ends were told so.
    pub peak: f64,
    /// Rate over all messages, in the same unit.
    pub average: f64,
    /// Millions of messages per second.
    pub message_rate: f64,
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (form, version) = (self.carrier.form(), self.peer_version());
        let mut text = f.debug_struct("Session");
        text.field("form", &form).field("role", &self.role).field("mtu", &self.mtu);
        text.field("peer_version", &version).finish()
    }
}

impl Session<'static> {
    /// Connects to a program that listens.
    pub fn connect(
        address: SocketAddr,
        mtu: u32,
        limit: Duration,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Self> {
        let mut line = Line::connect(address, &VERSION, limit, meanwhile)?;
        let version = line.receive(meanwhile)?;
        Self { carrier: Box::new(line), role: Role::Client, mtu: 0, version }.agree(mtu, meanwhile)
    }

    /// Accepts the connection of a program. Any other caller, such as a port scanner, is refused, and the
    /// wait for the program goes on until the limit.
    pub fn accept(
        listener: &Listener,
        mtu: u32,
        limit: Duration,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Self> {
        let deadline = Instant::now() + limit;
        let mut refused = 0;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let taken = listener.accept(left, meanwhile);
            let mut line = taken.map_err(|error| after_strangers(error, refused))?;
            Carrier::set_limit(&mut line, limit.min(FIRST_WORD));
            match first_word(&mut line, meanwhile)? {
                Ok(version) => {
                    Carrier::set_limit(&mut line, limit);
                    line.send(&VERSION)?;
                    let session = Self { carrier: Box::new(line), role: Role::Server, mtu: 0, version };
                    return session.agree(mtu, meanwhile);
                }
                Err(deed) if refused < STRANGERS_TOLD => {
                    listener.tell(&Stranger { address: line.peer(), deed });
                }
                Err(_) => {}
            }
            refused += 1;
        }
    }
}

/// The first message of a program, its version. The inner error says what a stranger did instead.
fn first_word(line: &mut Line, meanwhile: &mut WaitHook<'_>) -> Result<Result<[u8; 16], String>> {
    let mut own_failure = false;
    let said = line.receive::<16>(&mut || {
        let done = meanwhile();
        own_failure = done.is_err();
        done
    });
    match said {
        Ok(version) if leading_number(&version_text(&version)).is_some() => Ok(Ok(version)),
        Ok(words) => {
            let text = String::from_utf8_lossy(&words).into_owned();
            Ok(Err(format!("it says {text:?}, which is not a version of perftest")))
        }
        Err(error) if own_failure => Err(error),
        Err(error) => Ok(Err(format!("{error:#}"))),
    }
}

/// Adds to an error of a waiting server how many strangers it refused.
fn after_strangers(error: anyhow::Error, refused: u64) -> anyhow::Error {
    match refused {
        0 => error,
        1 => error.context("one connection was refused, because the caller was not perftest"),
        _ => error
            .context(format!("{refused} connections were refused, because the callers were not perftest")),
    }
}

impl<'a> Session<'a> {
    /// Begins over an existing connection.
    pub fn over(
        carrier: Box<dyn Carrier + 'a>,
        role: Role,
        mtu: u32,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Self> {
        let mut session = Self { carrier, role, mtu: 0, version: [0; 16] };
        session.version = session.swap(&VERSION, meanwhile)?;
        session.agree(mtu, meanwhile)
    }

    /// How long every later wait for the peer may take. An end that has nothing to do waits as long as the
    /// test takes.
    pub fn set_limit(&mut self, limit: Duration) {
        self.carrier.set_limit(limit);
    }

    /// Path MTU of the connection in bytes: the smaller one of the two ends.
    pub fn mtu(&self) -> u32 {
        self.mtu
    }

    /// Version of perftest that the peer claims.
    pub fn peer_version(&self) -> String {
        version_text(&self.version)
    }

    /// Whether the peer is this program and not perftest: then we know its data.
    pub fn peer_is_ours(&self) -> bool {
        self.version.get(MARK_AT..) == VERSION.get(MARK_AT..)
    }

    /// Exchanges the line about the queue pairs, or just synchronises: the programs use it for both. The line
    /// is shorter if the program got no GID index, which is the case when we have no GID.
    pub fn hand_shake(&mut self, own: &Destination, meanwhile: &mut WaitHook<'_>) -> Result<Destination> {
        let (said, parsed) = match (self.carrier.form(), own.gid.is_zero()) {
            (DestinationForm::Record, _) => {
                let record = self.swap(&own.encode_record(), meanwhile)?;
                (record.to_vec(), Destination::parse_record(&record))
            }
            (DestinationForm::Text, true) => {
                let line = self.swap(&own.encode_local(), meanwhile)?;
                (line.to_vec(), Destination::parse(&line))
            }
            (DestinationForm::Text, false) => {
                let line = self.swap(&own.encode(), meanwhile)?;
                (line.to_vec(), Destination::parse(&line))
            }
        };
        parsed.with_context(|| {
            format!("instead of a queue pair the peer says {:?}", String::from_utf8_lossy(&said))
        })
    }

    /// Exchanges the reports of a bandwidth test and returns the peer's. Each number is a message of its own;
    /// rates are doubles in this machine's format with their bytes reversed.
    pub fn exchange_reports(
        &mut self,
        own: &BandwidthReport,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<BandwidthReport> {
        let size = self.swap(&own.size.to_be_bytes(), meanwhile)?;
        let iterations = self.swap(&own.iterations.to_be_bytes(), meanwhile)?;
        let mut rates = [own.peak, own.average, own.message_rate];
        for rate in &mut rates {
            *rate = f64::from_be_bytes(self.swap(&rate.to_be_bytes(), meanwhile)?);
        }
        let [peak, average, message_rate] = rates;
        let (size, iterations) = (u64::from_be_bytes(size), u64::from_be_bytes(iterations));
        Ok(BandwidthReport { size, iterations, peak, average, message_rate })
    }

    fn agree(mut self, mtu: u32, meanwhile: &mut WaitHook<'_>) -> Result<Self> {
        let text = self.peer_version();
        let number = leading_number(&text).with_context(|| {
            format!("the peer's version {text:?} is not one of perftest: something else has that TCP port; choose another with -p")
        })?;
        if number < OLDEST {
            bail!(
                "the peer speaks the exchange of perftest {number}, which is older than {OLDEST} and has another message format"
            );
        }
        let cycle = u32::from_be_bytes(self.swap(&CYCLE_BUFFER.to_be_bytes(), meanwhile)?);
        let line = u32::from_be_bytes(self.swap(&CACHE_LINE.to_be_bytes(), meanwhile)?);
        if (cycle, line) != (CYCLE_BUFFER, CACHE_LINE) {
            bail!(
                "the peer has pages of {cycle} and cache lines of {line} bytes; this end supports only 4096 and 64"
            );
        }
        let code = mtu_code(mtu).with_context(|| format!("{mtu} is not a path MTU"))?;
        let [digit, _] = self.swap(&[b'0' + code, 0], meanwhile)?;
        let peer = mtu_bytes(digit.wrapping_sub(b'0')).context("the peer named no path MTU")?;
        self.mtu = mtu.min(peer);
        Ok(self)
    }

    fn swap<const N: usize>(&mut self, own: &[u8; N], meanwhile: &mut WaitHook<'_>) -> Result<[u8; N]> {
        let mut peer = [0; N];
        match self.role {
            Role::Client => {
                self.carrier.send(own, meanwhile)?;
                self.carrier.receive(&mut peer, meanwhile)?;
            }
            Role::Server => {
                self.carrier.receive(&mut peer, meanwhile)?;
                self.carrier.send(own, meanwhile)?;
            }
        }
        Ok(peer)
    }
}

/// The text of a version, which perftest reads up to the first zero byte.
fn version_text(version: &[u8; 16]) -> String {
    let text = String::from_utf8_lossy(version).into_owned();
    text.split('\0').next().unwrap_or_default().to_owned()
}

fn leading_number(version: &str) -> Option<f32> {
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    version.get(..end)?.parse().ok()
}

/// IBTA's code of a path MTU: from 1 for 256 to 5 for 4096.
pub const fn mtu_code(bytes: u32) -> Option<u8> {
    match bytes {
        256 => Some(1),
        512 => Some(2),
        1024 => Some(3),
        2048 => Some(4),
        4096 => Some(5),
        _ => None,
    }
}

const fn mtu_bytes(code: u8) -> Option<u32> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
