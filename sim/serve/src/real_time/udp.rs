//! Frames over UDP: one frame a datagram, as QEMU's `-netdev dgram` with sockets of IP sends and takes them.

use super::descriptor::{Buffer, is_later, wait_for};
use super::{FrameIo, Tally};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Bytes of datagrams that may wait for us: nothing holds a sender back, and what finds no room is lost.
const RECEIVE_BUFFER: usize = 8 << 20;

/// One end of a wire: a socket of our own, which takes datagrams of the other side's alone.
#[derive(Debug)]
pub struct UdpIo {
    socket: UdpSocket,
    peer: SocketAddr,
    buffer: Buffer,
    lost: Tally,
}

impl UdpIo {
    /// Listens at `own` and sends to `peer`, where nobody need be yet.
    pub fn bind(own: SocketAddr, peer: SocketAddr) -> io::Result<Self> {
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot make a wire from UDP {own} to {peer}: {error}"))
        };
        let socket = UdpSocket::bind(own).map_err(explain)?;
        socket.connect(peer).map_err(explain)?;
        socket.set_nonblocking(true)?;
        // The kernel gives as much as it gives to everybody (net.core.rmem_max), and says nothing of the rest.
        rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        Ok(Self { socket, peer, buffer: Buffer::default(), lost: Tally::default() })
    }
}

/// Whether nobody is there at the moment, which a cable that ends nowhere does not tell.
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
    /// While nobody is at the other side frames are lost and counted.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self.socket.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_later(&error) => Ok(false),
            Err(error) if is_nobody(&error) => {
                if let Some(lost) = self.lost.add() {
                    tracing::warn!(
                        "nobody is at the other end of the wire, UDP {}: {error}; frames lost so far: {lost}",
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
            // What came back of a datagram that was sent before.
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
    fn an_address_that_is_taken_is_named() {
        let own = free();
        let _taken = UdpSocket::bind(own).expect("free");
        let refusal = UdpIo::bind(own, free()).expect_err("taken").to_string();
        assert!(refusal.contains(&own.to_string()), "{refusal}");
    }
}
