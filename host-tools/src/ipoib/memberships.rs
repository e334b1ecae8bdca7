//! The groups that the machine listens to, according to its IGMP and MLD reports, for which the gateway keeps
//! querying, as a switch that snoops does (RFC 4541).

use super::discovery::{self, ICMPV6, IPV6_HEADER, checksum, finish_behind};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Interval between two queries, and how long a group without a report is kept: three queries.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(60);
const KEPT: Duration = Duration::from_secs(190);
/// Most groups.
const MOST: usize = 256;

const IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;
/// Record types of IGMPv3 and MLDv2 that mean that nobody listens: "include" without a source, and a change
/// to it.
const INCLUDES: [u8; 2] = [1, 3];
/// The all-hosts groups, which are never reported (RFC 2236 §3, RFC 2710 §4).
const ALL_HOSTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(224, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))];

/// What a report says about a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MembershipReport {
    pub(super) group: IpAddr,
    pub(super) listens: bool,
}

/// The groups; see the module's comment.
#[derive(Debug, Default)]
pub(super) struct Memberships {
    last_report: BTreeMap<IpAddr, Time>,
}

impl Memberships {
    /// Takes a report. Returns whether it changes anything.
    pub(super) fn take(&mut self, now: Time, report: MembershipReport) -> bool {
        if ALL_HOSTS.contains(&report.group) {
            return false;
        }
        if !report.listens {
            return self.last_report.remove(&report.group).is_some();
        }
        let is_new = !self.last_report.contains_key(&report.group);
        if is_new && self.last_report.len() >= MOST {
            return false;
        }
        self.last_report.insert(report.group, now);
        is_new
    }

    /// All groups, without those that nobody has reported for long.
    pub(super) fn current(&mut self, now: Time) -> impl Iterator<Item = IpAddr> + '_ {
        self.last_report.retain(|_, last| now.since(*last) < KEPT);
        ALL_HOSTS.into_iter().chain(self.last_report.keys().copied())
    }
}

/// The reports in an IPv4 packet, if it is IGMP (RFC 2236 §2, RFC 3376 §4.2).
pub(super) fn ipv4_reports(packet: &[u8]) -> Vec<MembershipReport> {
    let header = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    let (Some(&IGMP), Some(message)) = (packet.get(9), packet.get(header..)) else { return Vec::new() };
    let address = |bytes: &[u8]| bytes.first_chunk::<4>().map(|octets| IpAddr::from(*octets));
    match message {
        [0x12 | 0x16, _, _, _, group @ ..] => told(address(group), true),
        [0x17, _, _, _, group @ ..] => told(address(group), false),
        [0x22, _, _, _, _, _, high, low, records @ ..] => {
            records_of(records, u16::from_be_bytes([*high, *low]), 4, address)
        }
        _ => Vec::new(),
    }
}

/// The reports in an IPv6 packet, if it is MLD, which follows a router alert option (RFC 2710 §3, RFC 3810
/// §5.2).
pub(super) fn ipv6_reports(packet: &[u8]) -> Vec<MembershipReport> {
    let Some((header, rest)) = packet.split_at_checked(IPV6_HEADER) else { return Vec::new() };
    let [ICMPV6, units, ..] = *rest else { return Vec::new() };
    if discovery::next_header(header) != Some(HOP_BY_HOP) {
        return Vec::new();
    }
    let Some(message) = rest.get((usize::from(units) + 1) * 8..) else { return Vec::new() };
    let address = |bytes: &[u8]| bytes.first_chunk::<16>().map(|octets| IpAddr::from(*octets));
    match message {
        [131, _, _, _, _, _, _, _, group @ ..] => told(address(group), true),
        [132, _, _, _, _, _, _, _, group @ ..] => told(address(group), false),
        [143, _, _, _, _, _, high, low, records @ ..] => {
            records_of(records, u16::from_be_bytes([*high, *low]), 16, address)
        }
        _ => Vec::new(),
    }
}

fn told(group: Option<IpAddr>, listens: bool) -> Vec<MembershipReport> {
    group.filter(IpAddr::is_multicast).map(|group| MembershipReport { group, listens }).into_iter().collect()
}

/// Records of a report whose addresses have `width` bytes. Stops at a truncated one.
fn records_of(
    records: &[u8],
    count: u16,
    width: usize,
    address: impl Fn(&[u8]) -> Option<IpAddr>,
) -> Vec<MembershipReport> {
    let (mut rest, mut reports) = (records, Vec::new());
    for _ in 0..count {
        let [kind, extra, high, low, ..] = *rest else { break };
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let length = 4 + width * (1 + sources) + usize::from(extra) * 4;
        let Some(record) = rest.split_off(..length) else { break };
        // A record that only allows or blocks sources says nothing about the group itself.
        if (1..=4).contains(&kind) {
            reports.extend(told(address(&record[4..]), sources != 0 || !INCLUDES.contains(&kind)));
        }
    }
    reports
}

/// The general query of IPv4, as a packet (RFC 3376 §4.1). Its sender has no address (RFC 4541 §2.1.1).
pub(super) fn ipv4_query() -> Vec<u8> {
    let mut packet = vec![0x46, 0xc0, 0, 36, 0, 0, 0, 0, 1, IGMP, 0, 0, 0, 0, 0, 0, 224, 0, 0, 1];
    packet.extend([0x94, 4, 0, 0]);
    let sum = checksum(&[&packet]).to_be_bytes();
    packet[10..12].copy_from_slice(&sum);
    let mut message = [0x11, 10, 0, 0, 0, 0, 0, 0, 2, 60, 0, 0];
    let sum = checksum(&[&message]).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    packet.extend(message);
    packet
}

/// The general query of IPv6, as a packet from this link-local address (RFC 3810 §5.1).
pub(super) fn ipv6_query(sender: Ipv6Addr) -> Option<Vec<u8>> {
    const ROUTER_ALERT: [u8; 8] = [ICMPV6, 0, 5, 2, 0, 0, 1, 0];
    let mut packet = vec![0x60, 0, 0, 0, 0, 36, HOP_BY_HOP, 1];
    packet.extend(sender.octets());
    packet.extend(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets());
    packet.extend(ROUTER_ALERT);
    packet.extend([130, 0, 0, 0, 0x03, 0xe8, 0, 0]);
    packet.extend([0; 16]);
    packet.extend([2, 60, 0, 0]);
    finish_behind(&mut packet, IPV6_HEADER + ROUTER_ALERT.len())?;
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// An IGMPv3 report from 10.0.0.1: it excludes nothing of 224.0.0.251 and leaves 239.1.1.1.
    fn report_of_igmp() -> Vec<u8> {
        let mut packet =
            vec![0x46, 0, 0, 48, 0, 0, 0, 0, 1, IGMP, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22, 0x94, 4, 0, 0];
        packet.extend([0x22, 0, 0, 0, 0, 0, 0, 2]);
        packet.extend([2, 0, 0, 0, 224, 0, 0, 251]);
        packet.extend([3, 0, 0, 0, 239, 1, 1, 1]);
        packet
    }

    #[test]
    fn reports_of_ipv4_are_read() {
        let reports = ipv4_reports(&report_of_igmp());
        let expected = [("224.0.0.251", true), ("239.1.1.1", false)];
        let expected = expected.map(|(text, listens)| MembershipReport { group: group(text), listens });
        assert_eq!(reports, expected);
        assert_eq!(ipv4_reports(&report_of_igmp()[..44]).len(), 1, "a truncated record is ignored");
        let mut old = report_of_igmp();
        old.truncate(24);
        old.extend([0x17, 0, 0, 0, 239, 1, 1, 1]);
        assert_eq!(ipv4_reports(&old), [MembershipReport { group: group("239.1.1.1"), listens: false }]);
        old[28] = 10;
        assert!(ipv4_reports(&old).is_empty(), "no group");
    }

    #[test]
    fn reports_of_ipv6_are_read() {
        let mut packet = vec![0x60, 0, 0, 0, 0, 36, HOP_BY_HOP, 1];
        packet.extend([0; 32]);
        packet.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0, 143, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0]);
        packet.extend("ff02::1:ff00:2".parse::<Ipv6Addr>().expect("an address").octets());
        assert_eq!(
            ipv6_reports(&packet),
            [MembershipReport { group: group("ff02::1:ff00:2"), listens: true }]
        );
        packet[6] = ICMPV6;
        assert!(ipv6_reports(&packet).is_empty(), "no Router Alert option");
    }

    #[test]
    fn groups_without_reports_expire() {
        let (mut memberships, later) = (Memberships::default(), Time::ZERO + KEPT);
        let report = MembershipReport { group: group("239.1.1.1"), listens: true };
        assert!(memberships.take(Time::ZERO, report) && !memberships.take(Time::ZERO, report));
        assert_eq!(memberships.current(Time::ZERO).count(), 3);
        assert_eq!(memberships.current(later).collect::<Vec<_>>(), ALL_HOSTS);
        assert!(memberships.take(later, report));
        assert!(memberships.take(later, MembershipReport { listens: false, ..report }));
        for number in 0..2 * MOST as u32 {
            let group = Ipv4Addr::from_bits(0xef00_0000 | number).into();
            memberships.take(later, MembershipReport { group, listens: true });
        }
        assert_eq!(memberships.current(later).count(), MOST + 2, "a limit");
    }

    /// Lengths and checksums are right, so that Linux accepts the queries.
    #[test]
    fn queries_have_right_checksums() {
        let query = ipv4_query();
        assert_eq!((checksum(&[&query[..24]]), checksum(&[&query[24..]])), (0, 0));
        assert_eq!(usize::from(query[3]), query.len());
        let query = ipv6_query("fe80::7".parse().expect("an address")).expect("a query");
        assert_eq!(usize::from(query[5]), query.len() - IPV6_HEADER);
        let length = (query.len() as u32 - 48).to_be_bytes();
        assert_eq!(checksum(&[&query[8..40], &length, &[0, 0, 0, ICMPV6], &query[48..]]), 0);
    }
}
