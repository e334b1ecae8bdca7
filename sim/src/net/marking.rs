//! Congestion marking: a switch with a growing queue sets the ECN field of IP packets (RFC 3168; RoCEv2 A17.9.3).

use crate::wire::FrameBuffer;

/// Bytes of both MAC addresses.
const ADDRESSES: usize = 12;
/// Bytes of an 802.1Q tag.
const TAG: usize = 4;
/// Most VLAN tags to skip.
const TAGS: usize = 2;
/// ECN codepoint CE: congestion experienced.
const EXPERIENCED: u8 = 0b11;

/// Marks an IP frame whose sender supports ECN. Returns whether it did. The invariant CRC does not cover the field; the
/// IPv4 header checksum does and is updated.
pub(crate) fn mark_congestion(frame: &mut FrameBuffer) -> bool {
    let Some((ip_at, is_ipv4)) = find_ip(frame) else { return false };
    let at = ip_at + 1;
    let shift = if is_ipv4 { 0 } else { 4 };
    let Some(&old) = frame.get(at) else { return false };
    if !matches!(old >> shift & EXPERIENCED, 1 | 2) {
        return false;
    }
    if is_ipv4 && frame.len() < ip_at + 12 {
        return false;
    }
    let new = old | EXPERIENCED << shift;
    frame[at] = new;
    if is_ipv4 {
        correct_checksum(frame, ip_at, new - old);
    }
    true
}

/// Offset of the IP header, and whether it is IPv4.
fn find_ip(frame: &[u8]) -> Option<(usize, bool)> {
    let mut at = ADDRESSES;
    for _ in 0..=TAGS {
        match frame.get(at..at + 2)? {
            [0x81, 0x00] | [0x88, 0xa8] => at += TAG,
            [0x08, 0x00] => return Some((at + 2, true)),
            [0x86, 0xdd] => return Some((at + 2, false)),
            _ => return None,
        }
    }
    None
}

/// Updates the header checksum after a 16-bit word has grown by `more` (RFC 1624, equation 3).
fn correct_checksum(frame: &mut [u8], ip_at: usize, more: u8) {
    let Some(field) = frame.get_mut(ip_at + 10..ip_at + 12) else { return };
    let old = u16::from_be_bytes([field[0], field[1]]);
    let sum = u32::from(!old) + u32::from(more);
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    field.copy_from_slice(&folded.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{
        BthOpcode, DEFAULT_PARTITION_KEY, Extension, FrameWriter, HeaderTemplate, Network, PacketHeader,
        Route, ServiceHeader, VlanTag, parse,
    };
    use bareverbs_prm::ids::{MacAddress, Qpn};
    use bareverbs_prm::psn::Psn;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn frame(network: Network, traffic_class: u8, vlan: Option<VlanTag>) -> FrameBuffer {
        let route = Route {
            source_mac: MacAddress([2, 0, 0, 0, 0, 1]),
            destination_mac: MacAddress([2, 0, 0, 0, 0, 2]),
            vlan,
            network,
            traffic_class,
            hop_limit: 64,
            flow_label: 5,
            udp_source_port: 0xc123,
        };
        let template = HeaderTemplate::new(&route, Qpn::from_low_bits(0x40), DEFAULT_PARTITION_KEY);
        let header = PacketHeader {
            opcode: BthOpcode::SendOnly,
            psn: Psn::new(7),
            solicited: false,
            ack_request: true,
            service_header: ServiceHeader::None,
            extension: Extension::None,
        };
        let mut frame = FrameBuffer::new();
        let mut writer = FrameWriter::begin(&mut frame, &template, &header, 5).unwrap();
        writer.payload_mut().copy_from_slice(b"hello");
        writer.finish();
        frame
    }

    const FOUR: Network =
        Network::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
    const SIX: Network = Network::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
    const TAGGED: Option<VlanTag> = Some(VlanTag { id: 7, priority: 3, drop_eligible: false });

    /// The parser verifies the IPv4 header checksum and the invariant CRC.
    #[test]
    fn a_marked_frame_is_one_that_its_receiver_takes() {
        for (network, vlan) in [(FOUR, None), (FOUR, TAGGED), (SIX, None), (SIX, TAGGED)] {
            for class in 0..=u8::MAX {
                let mut marked = frame(network, class, vlan);
                let before = marked.clone();
                let understands = matches!(class & 3, 1 | 2);
                assert_eq!(mark_congestion(&mut marked), understands, "{class:#x}");
                if !understands {
                    assert!(marked == before && marked.packet().is_some(), "it was not touched");
                    continue;
                }
                let packet =
                    parse(&marked).unwrap_or_else(|error| panic!("{network:?} {class:#x}: {error:?}"));
                assert_eq!(packet.route.traffic_class, class | 3);
                assert_eq!(
                    (packet.route.flow_label, packet.payload),
                    (before.packet().unwrap().route.flow_label, &b"hello"[..])
                );
            }
        }
    }

    #[test]
    fn frames_that_are_cut_off_or_no_ip_are_left_alone() {
        let whole = frame(FOUR, 2, TAGGED);
        for length in 0..30 {
            let mut cut = FrameBuffer::from(whole[..length].to_vec());
            assert!(!mark_congestion(&mut cut), "{length} bytes");
            assert_eq!(cut[..], whole[..length]);
        }
        let mut control = FrameBuffer::from(
            [&[1, 0x80, 0xc2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 8][..], &[0xff; 46]].concat(),
        );
        assert!(!mark_congestion(&mut control));
    }
}
