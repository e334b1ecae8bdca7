//! The exchange of rdma-core's `ibv_*_pingpong`: one line of hexadecimal text each way and a word at the end.
//!
//! Client to server `LID:QPN:PSN:GID` and a zero byte, 4, 6, 6 and 32 digits; the server moves its queue pair to RTS
//! and answers in the same form; the client says `done`, moves its own queue pair and begins.

use anyhow::{Context, Result};
use bareverbs_perftest::line::{Line, Listener, WaitHook};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of the line with its zero byte.
pub const LENGTH: usize = 52;
const DONE: &[u8; 5] = b"done\0";

/// One end of the connection, as the other end learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingpongDestination {
    /// Its queue pair.
    pub qpn: Qpn,
    /// First PSN it sends.
    pub psn: Psn,
    /// Its address; zero if packets are to have no global route header.
    pub gid: Gid,
    /// Its LID; zero on Ethernet.
    pub lid: u16,
}

impl PingpongDestination {
    /// The line that is sent.
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut text = format!("{:04x}:{:06x}:{:06x}:", self.lid, self.qpn.value(), self.psn.value());
        for byte in self.gid.0 {
            text.push_str(&format!("{byte:02x}"));
        }
        let mut line = [0; LENGTH];
        for (to, from) in line.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        line
    }

    /// Parses the line that was received.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(line).ok()?.trim_end_matches('\0');
        let mut parts = text.split(':');
        let lid = u16::from_str_radix(parts.next()?, 16).ok()?;
        let qpn = Qpn::new(u32::from_str_radix(parts.next()?, 16).ok()?)?;
        let psn = u32::from_str_radix(parts.next()?, 16).ok().filter(|psn| *psn < 1 << 24)?;
        let gid = parse_gid(parts.next()?)?;
        parts.next().is_none().then_some(Self { qpn, psn: Psn::new(psn), gid, lid })
    }
}

fn parse_gid(text: &str) -> Option<Gid> {
    let is_whole = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_whole.then(|| u128::from_str_radix(text, 16))?;
    number.ok().map(|number| Gid(number.to_be_bytes()))
}

/// Runs the whole exchange as the client of a program that listens at `address`. Afterwards the caller moves
/// its queue pair to RTS and sends first.
pub fn as_client(
    address: SocketAddr,
    own: PingpongDestination,
    limit: Duration,
    meanwhile: &mut WaitHook<'_>,
) -> Result<PingpongDestination> {
    let mut line = Line::connect(address, &own.encode(), limit, meanwhile)?;
    let peer = parse(&line.receive::<LENGTH>(meanwhile)?)?;
    line.send(DONE)?;
    Ok(peer)
}

/// Runs the whole exchange as the server. `connect` moves the queue pair to RTS before the client learns of
/// it.
pub fn as_server(
    listener: &Listener,
    own: PingpongDestination,
    limit: Duration,
    connect: &mut dyn FnMut(PingpongDestination) -> Result<()>,
    meanwhile: &mut WaitHook<'_>,
) -> Result<()> {
    let mut line = listener.accept(limit, meanwhile)?;
    connect(parse(&line.receive::<LENGTH>(meanwhile)?)?)?;
    line.send(&own.encode())?;
    line.receive::<5>(meanwhile)?;
    Ok(())
}

fn parse(line: &[u8; LENGTH]) -> Result<PingpongDestination> {
    PingpongDestination::parse(line)
        .with_context(|| format!("the guest says {:?}", String::from_utf8_lossy(line)))
}

#[cfg(test)]
mod tests {
    use super::{LENGTH, Listener, PingpongDestination, as_client, as_server};
    use bareverbs_prm::ids::{Gid, Qpn};
    use bareverbs_prm::psn::Psn;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    #[test]
    fn reads_what_the_program_prints() {
        let line = b"01fe:000011:a3f01c:00000000000000000000ffff0a000001\0";
        let destination = PingpongDestination::parse(line).expect("a line");
        assert_eq!((destination.lid, destination.qpn.value()), (0x1fe, 0x11));
        assert_eq!(destination.psn, Psn::new(0xa3f01c));
        assert_eq!(destination.gid.0[10..], [0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(destination.encode(), *line);
    }

    fn destination(qpn: u32) -> PingpongDestination {
        PingpongDestination {
            qpn: Qpn::from_low_bits(qpn),
            psn: Psn::new(qpn * 3),
            gid: Gid::from_ipv4([10, 0, 0, 1]),
            lid: 3,
        }
    }

    #[test]
    fn client_and_server_learn_of_each_other() {
        let listener = Listener::bind().expect("a port");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
        let limit = Duration::from_secs(10);
        let mut met = None;
        let peer = std::thread::scope(|scope| {
            let client = scope.spawn(move || as_client(address, destination(1), limit, &mut rest));
            let mut connect = |peer| {
                met = Some(peer);
                Ok(())
            };
            as_server(&listener, destination(2), limit, &mut connect, &mut rest).expect("the server's part");
            client.join().expect("no panic")
        });
        assert_eq!((peer.expect("the client's part"), met), (destination(2), Some(destination(1))));
    }

    fn rest() -> anyhow::Result<()> {
        std::thread::yield_now();
        Ok(())
    }

    proptest! {
        #[test]
        fn encoded_values_are_parsed(qpn in 0u32..1 << 24, psn in 0u32..1 << 24, gid: [u8; 16], lid: u16) {
            let qpn = Qpn::new(qpn).expect("24 bits");
            let destination = PingpongDestination { qpn, psn: Psn::new(psn), gid: Gid(gid), lid };
            prop_assert_eq!(PingpongDestination::parse(&destination.encode()), Some(destination));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_parsed(line: [u8; 32], tail in ".{0,20}") {
            let mut bytes = line.to_vec();
            bytes.extend(tail.bytes());
            bytes.truncate(LENGTH);
            let _ = PingpongDestination::parse(&bytes);
        }
    }
}
