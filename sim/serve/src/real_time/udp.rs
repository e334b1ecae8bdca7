//! Frames over UDP, one per datagram, compatible with QEMU's `-netdev dgram` over IP.
//!
//! UDP has no flow control, and an RC connection retransmits everything after a lost frame. So a sender goes no faster
//! than a receiver with the same buffer size can take ([`Pacer`]).

use super::descriptor::{Buffer, is_later, wait_for};
use super::{FrameIo, Tally};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Receive buffer in bytes; datagrams that do not fit are lost.
const RECEIVE_BUFFER: usize = 8 << 20;
/// How long a receiver on a busy machine may be without a processor, while its buffer fills up.
const RECEIVER_PAUSE: Duration = Duration::from_millis(8);
/// Fraction of the buffer that may be filled at once, as a divisor.
const BURST: u64 = 4;
/// What the kernel charges for a datagram besides its bytes, which it rounds up to a power of two.
const DATAGRAM_COST: u64 = 768;

/// Limits the sender: how much of the peer's buffer it may fill.
#[derive(Debug)]
struct Pacer {
    /// Buffer size in bytes.
    capacity: u64,
    /// Bytes that may be filled now.
    room: u64,
    /// Time of the last update.
    since: Instant,
}

impl Pacer {
    fn new(capacity: u64) -> Self {
        Self { capacity, room: capacity / BURST, since: Instant::now() }
    }

    /// Whether a frame may be sent. If so, accounts for it.
    fn admit(&mut self, now: Instant, length: usize) -> bool {
        let passed = (now - self.since).min(RECEIVER_PAUSE).as_nanos() as u64;
        let drained = passed * self.capacity / RECEIVER_PAUSE.as_nanos() as u64;
        let room = (self.room + drained).min(self.capacity / BURST);
        let cost = (length as u64).next_power_of_two() + DATAGRAM_COST;
        // A buffer smaller than four frames takes one at a time.
        if room < cost && room < self.capacity / BURST {
            return false;
        }
        (self.room, self.since) = (room.saturating_sub(cost), now);
        true
    }
}

/// One end of a wire: a UDP socket that only accepts the peer's datagrams.
///
/// ```no_run
/// use bareverbs_serve::real_time::{FrameIo, UdpIo};
///
/// # fn main() -> std::io::Result<()> {
/// let mut wire = UdpIo::bind(([10, 0, 0, 1], 9000).into(), ([10, 0, 0, 2], 9000).into())?;
/// let sent = wire.send(&[0xff; 60])?;
/// assert!(sent, "a frame goes at once, whether or not somebody listens");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct UdpIo {
    socket: UdpSocket,
    peer: SocketAddr,
    buffer: Buffer,
    pacer: Pacer,
    lost: Tally,
}

impl UdpIo {
    /// Listens at `own` and sends to `peer`, which need not exist yet.
    pub fn bind(own: SocketAddr, peer: SocketAddr) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make a wire from UDP {own} to {peer}: {error}"))
        };
        let socket = UdpSocket::bind(own).map_err(explain)?;
        socket.connect(peer).map_err(explain)?;
        socket.set_nonblocking(true)?;
        // The kernel silently limits this to net.core.rmem_max.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        let capacity = rustix::net::sockopt::socket_recv_buffer_size(&socket)?;
        let pacer = Pacer::new(capacity as u64);
        Ok(Self { socket, peer, buffer: Buffer::default(), pacer, lost: Tally::default() })
    }
}

/// Whether nobody listens there at the moment, which an unconnected cable would not report either.
fn is_nobody(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
}

impl AsFd for UdpIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl FrameIo for UdpIo {
    /// While there is no peer, frames are lost and counted.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        if !self.pacer.admit(Instant::now(), frame.len()) {
            return Ok(false);
        }
        match self.socket.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_later(&error) => Ok(false),
            Err(error) if is_nobody(&error) => {
                if let Some(lost) = self.lost.add() {
                    tracing::warn!(
                        "no process listens at the other end of the wire, UDP {}: {error}; frames lost so far: {lost}",
                        self.peer
                    );
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let socket = &self.socket;
        match self.buffer.take(frame, |buffer| socket.recv(buffer)) {
            // An ICMP error for an earlier datagram.
            Err(error) if is_nobody(&error) => Ok(false),
            received => received,
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        wait_for(self.as_fd(), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn free() -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.local_addr().expect("bound")
    }

    #[test]
    fn frames_pass_both_ways_and_are_lost_while_nobody_is_there() {
        let (left, right) = (free(), free());
        let mut a = UdpIo::bind(left, right).expect("an end");
        let mut frame = Vec::new();
        for _ in 0..3 {
            assert!(a.send(&[1; 60]).expect("lost"));
        }
        assert!(!a.receive(&mut frame).expect("nothing"));
        assert!(a.lost.count() > 0, "the kernel tells of what came back");
        let mut b = UdpIo::bind(right, left).expect("the other end");
        for (from, to) in [(true, 7), (false, 8)] {
            let bytes = vec![to; 4200];
            let (sender, receiver) = if from { (&mut a, &mut b) } else { (&mut b, &mut a) };
            assert!(sender.send(&bytes).expect("sent"));
            receiver.wait(Duration::from_secs(5)).expect("a socket");
            assert!(receiver.receive(&mut frame).expect("a frame"));
            assert_eq!(frame, bytes);
        }
    }

    #[test]
    fn a_sender_fills_a_buffer_in_no_less_than_a_pause_of_its_receiver() {
        let mut pacer = Pacer::new(400_000);
        let start = pacer.since;
        let mut admitted = |micros| {
            let now = start + Duration::from_micros(micros);
            (0..1000).filter(|_| pacer.admit(now, 4096)).count() as u64 * (4096 + DATAGRAM_COST)
        };
        let at_once = admitted(0);
        assert!((90_000..=100_000).contains(&at_once), "{at_once}");
        assert_eq!(admitted(0), 0);
        let later: u64 = (1..=80).map(|step| admitted(step * 100)).sum();
        assert!((380_000..=400_000).contains(&later), "{later}");
        assert!(admitted(1_000_000) <= 100_000, "a long silence saves up no more");
        assert!(Pacer::new(100).admit(start, 4096), "one frame, whatever the buffer");
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let own = free();
        let _taken = UdpSocket::bind(own).expect("free");
        let refusal = UdpIo::bind(own, free()).expect_err("taken").to_string();
        assert!(refusal.contains(&own.to_string()), "{refusal}");
    }
}
