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
use crate::line::{Carrier, DestinationForm, Line, Listener, Meanwhile};
use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::{Gid, Qpn, Srqn};
use bareverbs_prm::psn::Psn;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

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
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<Self> {
        let mut line = Line::connect(address, &VERSION, limit, meanwhile)?;
        let version = line.receive(meanwhile)?;
        Self { carrier: Box::new(line), role: Role::Client, mtu: 0, version }.agree(mtu, meanwhile)
    }

    /// Accepts the connection of a program.
    pub fn accept(
        listener: &Listener,
        mtu: u32,
        limit: Duration,
        meanwhile: &mut Meanwhile<'_>,
    ) -> Result<Self> {
        let line = listener.accept(limit, meanwhile)?;
        Session::over(Box::new(line), Role::Server, mtu, meanwhile)
    }
}

impl<'a> Session<'a> {
    /// Begins over an existing connection.
    pub fn over(
        carrier: Box<dyn Carrier + 'a>,
        role: Role,
        mtu: u32,
        meanwhile: &mut Meanwhile<'_>,
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
        let text = String::from_utf8_lossy(&self.version).into_owned();
        text.split('\0').next().unwrap_or_default().to_owned()
    }

    /// Whether the peer is this program and not perftest: then we know its data.
    pub fn peer_is_ours(&self) -> bool {
        self.version.get(MARK_AT..) == VERSION.get(MARK_AT..)
    }

    /// Exchanges the line about the queue pairs, or just synchronises: the programs use it for both. The line
    /// is shorter if the program got no GID index, which is the case when we have no GID.
    pub fn hand_shake(&mut self, own: &Destination, meanwhile: &mut Meanwhile<'_>) -> Result<Destination> {
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
        meanwhile: &mut Meanwhile<'_>,
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

    fn agree(mut self, mtu: u32, meanwhile: &mut Meanwhile<'_>) -> Result<Self> {
        let text = self.peer_version();
        let number = leading_number(&text).with_context(|| {
            format!("version {text:?} of the peer is none of perftest's: something else has that TCP port; name another one with -p")
        })?;
        if number < OLDEST {
            bail!(
                "the peer speaks the exchange of perftest {number}, which is older than {OLDEST}; its messages had another form"
            );
        }
        let cycle = u32::from_be_bytes(self.swap(&CYCLE_BUFFER.to_be_bytes(), meanwhile)?);
        let line = u32::from_be_bytes(self.swap(&CACHE_LINE.to_be_bytes(), meanwhile)?);
        if (cycle, line) != (CYCLE_BUFFER, CACHE_LINE) {
            bail!(
                "the peer has pages of {cycle} and cache lines of {line} bytes; this end speaks only with 4096 and 64"
            );
        }
        let code = mtu_code(mtu).with_context(|| format!("{mtu} is no path MTU"))?;
        let [digit, _] = self.swap(&[b'0' + code, 0], meanwhile)?;
        let peer = mtu_bytes(digit.wrapping_sub(b'0')).context("the peer named no path MTU")?;
        self.mtu = mtu.min(peer);
        Ok(self)
    }

    fn swap<const N: usize>(&mut self, own: &[u8; N], meanwhile: &mut Meanwhile<'_>) -> Result<[u8; N]> {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_the_program_prints() {
        let line = b"000b:0080:000012:0a1b2c:00000f2a:00007f2b0c0d1000:\
            00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\0";
        let destination = Destination::parse(line).expect("a line");
        assert_eq!((destination.lid, destination.outstanding_reads), (11, 128));
        assert_eq!(destination.rkey, 0xf2a);
        assert_eq!(destination.address, 0x7f2b_0c0d_1000);
        assert_eq!(destination.gid, Gid::from_ipv4([10, 0, 0, 1]));
        assert_eq!(destination.encode(), *line);
        assert_eq!(destination.shared_queue, None);
    }

    #[test]
    fn without_gid_the_line_is_shorter() {
        let line = b"0001:0010:000047:f80198:00001708:000055568156f001:00000000\0";
        let destination = Destination::parse(line).expect("a line");
        assert_eq!(
            (destination.lid, destination.outstanding_reads, destination.gid),
            (1, 16, Gid::default())
        );
        assert_eq!((destination.encode_local(), destination.address), (*line, 0x5556_8156_f001));
    }

    #[test]
    fn a_record_has_its_numbers_where_the_programs_have_them() {
        let own = Destination {
            outstanding_reads: 16,
            qpn: Qpn::from_low_bits(0x12_3456),
            psn: Psn::new(0xabcdef),
            rkey: 0x1122_3344,
            address: 0x7f2b_0c0d_1000,
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            lid: 11,
            shared_queue: Srqn::new(0x77),
        };
        let record = own.encode_record();
        assert_eq!(
            record[..20],
            [0, 0, 0, 11, 0, 0, 0, 16, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44]
        );
        assert_eq!(record[24..32], 0x7f2b_0c0d_1000_u64.to_be_bytes());
        assert_eq!((&record[42..48], record[51]), (&[0xff, 0xff, 10, 0, 0, 1][..], 0x77));
        assert_eq!(Destination::parse_record(&record), Some(own));
    }

    #[test]
    fn path_mtus_have_ibtas_numbers() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(mtu_code(bytes).and_then(mtu_bytes), Some(bytes));
        }
        assert_eq!((mtu_code(1500), mtu_bytes(0), mtu_bytes(6)), (None, None, None));
    }

    #[test]
    fn a_version_is_its_leading_number() {
        assert_eq!(leading_number("6.24\0\0\0"), Some(6.24));
        assert_eq!(leading_number("\0"), None);
        assert_eq!(leading_number("5.7"), Some(5.7));
    }

    fn rest() -> Result<()> {
        std::thread::yield_now();
        Ok(())
    }

    /// The error of an end that gets `version` as the peer's version.
    fn refusal_of(version: [u8; 16]) -> String {
        let listener = Listener::bind().expect("a port");
        let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
        let limit = Duration::from_secs(10);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut line = listener.accept(limit, &mut rest).expect("a client");
                line.receive::<16>(&mut rest).expect("a version");
                line.send(&version).expect("sent");
            });
            let refused = Session::connect(address, 4096, limit, &mut rest).expect_err("refused");
            format!("{refused:#}")
        })
    }

    #[test]
    fn a_peer_that_is_too_old_or_no_perftest_is_named() {
        assert!(refusal_of(*b"5.60\0\0\0\0\0\0\0\0\0\0\0\0").contains("5.6, which is older"));
        let refused = refusal_of(*b"HTTP/1.1 400 Bad");
        assert!(
            refused.contains("version \"HTTP/1.1 400 Bad\"") && refused.contains("something else"),
            "{refused}"
        );
        // It may close before or after it has our message; either way the peer hung up.
        for _ in 0..20 {
            let refused = refusal_of(*b"6.06\0\0\0\0\0\0\0\0\0\0\0\0");
            assert!(refused.contains("the peer hung up"), "{refused}");
        }
    }

    #[test]
    fn a_port_where_nobody_listens_is_named() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let refused = Session::connect(address, 4096, Duration::from_millis(20), &mut rest);
        let refused = format!("{:#}", refused.expect_err("refused"));
        assert!(refused.starts_with("nobody listens at 127.0.0.1:1 (TCP), "), "{refused}");
        assert!(
            refused.ends_with("; start the end that listens first, or name its port with -p"),
            "{refused}"
        );
    }

    fn report(size: u64) -> BandwidthReport {
        BandwidthReport { size, iterations: 1000, peak: 12.5, average: 10.25, message_rate: 0.125 }
    }

    #[test]
    fn client_and_server_agree() {
        let own = |qpn| Destination {
            outstanding_reads: 16,
            qpn: Qpn::from_low_bits(qpn),
            psn: Psn::new(5),
            rkey: 7,
            address: 1 << 40,
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            lid: 5,
            shared_queue: Srqn::new(qpn + 40),
        };
        let (limit, meanwhile) = (Duration::from_secs(10), &mut rest);
        let listener = Listener::bind().expect("a port");
        let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut client = Session::connect(address, 4096, limit, &mut rest).expect("a session");
                assert_eq!(client.hand_shake(&own(1), &mut rest).expect("a peer"), own(2));
                assert_eq!(client.exchange_reports(&report(1), &mut rest).expect("reports"), report(2));
                assert_eq!((client.mtu(), client.peer_is_ours()), (1024, true));
            });
            let mut server = Session::accept(&listener, 1024, limit, meanwhile).expect("a session");
            assert_eq!(server.hand_shake(&own(2), meanwhile).expect("a peer"), own(1));
            assert_eq!(server.exchange_reports(&report(2), meanwhile).expect("reports"), report(1));
            assert_eq!((server.mtu(), server.peer_version().as_str()), (1024, "6.20"));
        });
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_parsed(
            (outstanding_reads, qpn, psn, shared) in (any::<u8>(), 0u32..1 << 24, 0u32..1 << 24, 0u32..1 << 24),
            rkey: u32, address: u64, gid: [u8; 16], lid: u16,
        ) {
            let qpn = Qpn::new(qpn).expect("24 bits");
            let shared_queue = Srqn::new(shared).filter(|queue| queue.value() != 0);
            let own =
                Destination { outstanding_reads, qpn, psn: Psn::new(psn), rkey, address, gid: Gid(gid), lid, shared_queue };
            prop_assert_eq!(Destination::parse(&own.encode()), Some(own));
            prop_assert_eq!(Destination::parse_record(&own.encode_record()), Some(own));
            let local = Destination { gid: Gid::default(), ..own };
            prop_assert_eq!(Destination::parse(&own.encode_local()), Some(local));
        }

        #[test]
        fn arbitrary_lines_are_refused_or_parsed(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Destination::parse(&line);
        }
    }
}
