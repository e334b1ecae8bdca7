//! What the two sides tell each other before they can speak over RDMA: a line each, over the console.
//!
//! ```text
//! bareverbs offer way=kernel-dpu qpn=0x41 psn=0x123456 gid=… mac=02:00:00:00:00:01 slots=0x200000,4096,0x1234
//! bareverbs answer qpn=… psn=… gid=… mac=… region=0x100 table=… address=0x… length=… rkey=0x…
//! ```
//! Numbers are decimal, or hexadecimal after `0x`; `gid` and `table` are hexadecimal digits without separators.

use bareverbs_core::RemoteEndpoint;
use bareverbs_offload::table::{DESCRIPTOR_SIZE, TableDescriptor};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::psn::Psn;
use core::fmt;

/// How keys are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayName {
    /// By a kernel on the cores of a DPU.
    KernelDpu,
    /// By RDMA READs.
    Read,
}

impl WayName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::KernelDpu, Self::Read];

    const fn text(self) -> &'static str {
        match self {
            Self::KernelDpu => "kernel-dpu",
            Self::Read => "read",
        }
    }
}

impl fmt::Display for WayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Memory that the peer may write answers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
    /// The key that allows it.
    pub rkey: u32,
}

/// What the asking side says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// How it wants to look keys up.
    pub way: WayName,
    /// Its queue pair.
    pub endpoint: RemoteEndpoint,
    /// Where answers go.
    pub slots: Window,
}

/// What the side with the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Its queue pair.
    pub endpoint: RemoteEndpoint,
    /// The region as kernels know it.
    pub region: u32,
    /// The table.
    pub table: TableDescriptor,
    /// The memory of the table, for READs.
    pub memory: Window,
}

/// Why a line was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseError {
    /// It does not begin with these words.
    Heading(&'static str),
    /// This item is missing, or is not what it should be.
    Item(&'static str),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heading(words) => write!(f, "the line does not begin with '{words}'"),
            Self::Item(name) => write!(f, "item '{name}' of the line is missing or malformed"),
        }
    }
}

impl core::error::Error for ParseError {}

const OFFER: &str = "bareverbs offer";
const ANSWER: &str = "bareverbs answer";

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{OFFER} way={} {} slots={}", self.way, Endpoint(&self.endpoint), self.slots)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (endpoint, table) = (Endpoint(&self.endpoint), self.table.encode());
        write!(
            f,
            "{ANSWER} {endpoint} region={:#x} table={} memory={}",
            self.region,
            Hex(&table),
            self.memory
        )
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x},{},{:#x}", self.address, self.length, self.rkey)
    }
}

impl Offer {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let items = Items::of(line, OFFER)?;
        let way = items.text("way")?;
        let way = WayName::ALL.into_iter().find(|name| name.text() == way).ok_or(ParseError::Item("way"))?;
        Ok(Self { way, endpoint: items.endpoint()?, slots: items.window("slots")? })
    }
}

impl Answer {
    /// Reads a line.
    pub fn parse(line: &str) -> Result<Self, ParseError> {
        let items = Items::of(line, ANSWER)?;
        let region = u32::try_from(items.number("region")?).map_err(|_| ParseError::Item("region"))?;
        let table: [u8; DESCRIPTOR_SIZE] = items.bytes("table")?;
        let table = TableDescriptor::parse(&table).ok_or(ParseError::Item("table"))?;
        Ok(Self { endpoint: items.endpoint()?, region, table, memory: items.window("memory")? })
    }
}

struct Endpoint<'a>(&'a RemoteEndpoint);

impl fmt::Display for Endpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RemoteEndpoint { qpn, psn, gid, mac, .. } = self.0;
        write!(f, "qpn={:#x} psn={:#x} gid={} mac={mac}", qpn.value(), psn.value(), Hex(&gid.0))
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The `name=value` items of a line.
struct Items<'a>(&'a str);

impl<'a> Items<'a> {
    fn of(line: &'a str, heading: &'static str) -> Result<Self, ParseError> {
        let rest = line.trim().strip_prefix(heading).ok_or(ParseError::Heading(heading))?;
        Ok(Self(rest))
    }

    fn text(&self, name: &'static str) -> Result<&'a str, ParseError> {
        self.0
            .split_ascii_whitespace()
            .filter_map(|item| item.split_once('='))
            .find_map(|(key, value)| (key == name).then_some(value))
            .ok_or(ParseError::Item(name))
    }

    fn number(&self, name: &'static str) -> Result<u64, ParseError> {
        number(self.text(name)?).ok_or(ParseError::Item(name))
    }

    fn number24(&self, name: &'static str) -> Result<u32, ParseError> {
        let number = self.number(name)?;
        u32::try_from(number).ok().filter(|number| number >> 24 == 0).ok_or(ParseError::Item(name))
    }

    fn bytes<const N: usize>(&self, name: &'static str) -> Result<[u8; N], ParseError> {
        hex(self.text(name)?).ok_or(ParseError::Item(name))
    }

    fn window(&self, name: &'static str) -> Result<Window, ParseError> {
        window(self.text(name)?).ok_or(ParseError::Item(name))
    }

    fn endpoint(&self) -> Result<RemoteEndpoint, ParseError> {
        Ok(RemoteEndpoint {
            qpn: Qpn::from_low_bits(self.number24("qpn")?),
            psn: Psn::new(self.number24("psn")?),
            gid: Gid(self.bytes("gid")?),
            mac: mac(self.text("mac")?).ok_or(ParseError::Item("mac"))?,
            version: None,
            lid: 0,
        })
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn mac(text: &str) -> Option<MacAddress> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    parts.next().is_none().then_some(MacAddress(bytes))
}

fn window(text: &str) -> Option<Window> {
    let mut parts = text.split(',').map(number);
    let (address, length, rkey) = (parts.next()??, parts.next()??, parts.next()??);
    let rkey = u32::try_from(rkey).ok()?;
    parts.next().is_none().then_some(Window { address, length, rkey })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::fmt::Write;
    use heapless::String;
    use proptest::prelude::*;

    fn endpoint() -> RemoteEndpoint {
        RemoteEndpoint {
            qpn: Qpn::from_low_bits(0x41),
            psn: Psn::new(0xff_fffe),
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            version: None,
            lid: 0,
        }
    }

    fn offer() -> Offer {
        let slots = Window { address: 0x20_0000, length: 4096, rkey: 0xfe00_0101 };
        Offer { way: WayName::KernelDpu, endpoint: endpoint(), slots }
    }

    fn text(value: &dyn fmt::Display) -> String<512> {
        let mut line = String::new();
        write!(line, "{value}").expect("fits a line of the console");
        line
    }

    #[test]
    fn an_offer_is_read_as_it_was_written() {
        assert_eq!(Offer::parse(&text(&offer())), Ok(offer()));
    }

    #[test]
    fn errors_name_missing_and_malformed_items() {
        let line = text(&offer());
        assert_eq!(Offer::parse("bareverbs answer"), Err(ParseError::Heading(OFFER)));
        for name in ["way", "qpn", "psn", "gid", "mac", "slots"] {
            let at = line.find(name).expect("the item is there") + name.len() + 1;
            let (before, after) = line.split_at(at);
            let mut bad = String::<600>::new();
            write!(bad, "{before}?{after}").expect("fits");
            assert_eq!(Offer::parse(&bad), Err(ParseError::Item(name)), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(line in "\\PC{0,300}", pick in any::<prop::sample::Index>(), byte in any::<char>()) {
            let _ = (Offer::parse(&line), Answer::parse(&line));
            let mut chars: heapless::Vec<char, 600> = text(&offer()).chars().collect();
            let at = pick.index(chars.len());
            chars[at] = byte;
            let mut changed = String::<2400>::new();
            chars.iter().try_for_each(|c| changed.push(*c)).expect("fits");
            let _ = Offer::parse(&changed);
        }
    }
}
