//! The wire of a served device, polled together with the socket that wakes its thread.

use crate::fabric::{self, FabricPort};
use crate::real_time::{FrameIo, OutsideIo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Wakes the device's thread from any thread.
#[derive(Debug)]
pub(super) struct WakeSocket(UnixStream);

impl WakeSocket {
    /// Wakes the thread. A full socket will wake it anyway; a closed one has no reader.
    pub(super) fn wake(&mut self) {
        let _ = self.0.write(&[1]);
    }

    /// The same, for somebody else who has something for the device.
    pub(super) fn waker(&self) -> io::Result<fabric::Waker> {
        Ok(fabric::socket_waker(self.0.try_clone()?))
    }
}

/// What a port is connected to.
#[derive(Debug)]
pub(super) enum Frames {
    /// Nothing.
    Nowhere,
    /// Something outside.
    Outside(Box<dyn OutsideIo>),
    /// A switch in this process.
    Fabric(FabricPort),
}

/// The port's connection, and the reading end of the wake socket.
#[derive(Debug)]
pub(super) struct Wire {
    frames: Frames,
    woken: UnixStream,
    /// Frames that left an unconnected device, or one whose wire has no far end.
    pub(super) lost: u64,
}

impl Wire {
    /// `join` receives the waker to call when frames have arrived.
    pub(super) fn new(
        join: impl FnOnce(fabric::Waker) -> io::Result<Frames>,
    ) -> io::Result<(Self, WakeSocket)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let frames = join(fabric::socket_waker(theirs.try_clone()?))?;
        Ok((Self { frames, woken: ours, lost: 0 }, WakeSocket(theirs)))
    }

    /// Waits for a frame or a wakeup; forever without a limit.
    pub(super) fn rest(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut sources = vec![PollFd::new(&self.woken, PollFlags::IN)];
        if let Frames::Outside(frames) = &self.frames {
            sources.push(PollFd::from_borrowed_fd(frames.as_fd(), PollFlags::IN));
        }
        match poll(&mut sources, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(sources);
        let mut read = [0; 64];
        while self.woken.read(&mut read).is_ok_and(|count| count == read.len()) {}
        Ok(())
    }
}

impl FrameIo for Wire {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match &mut self.frames {
            Frames::Nowhere => {
                self.lost += 1;
                Ok(true)
            }
            Frames::Outside(frames) => fabric::is_sent(frames.send(frame), &mut self.lost),
            Frames::Fabric(port) => port.send(frame),
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        match &mut self.frames {
            Frames::Nowhere => Ok(false),
            Frames::Outside(frames) => frames.receive(frame).or_else(|error| {
                // A device outlives its wire.
                tracing::warn!("the wire is broken: {error}; the port has no wire from now on");
                self.frames = Frames::Nowhere;
                Ok(false)
            }),
            Frames::Fabric(port) => port.receive(frame),
        }
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.rest(Some(limit))
    }

    fn set_link_up(&mut self, up: bool) {
        match &mut self.frames {
            Frames::Nowhere => {}
            Frames::Outside(frames) => frames.set_link_up(up),
            Frames::Fabric(port) => port.set_link_up(up),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real_time::Outside;
    use bareverbs_sim::nic::LinkLayer;

    #[test]
    fn a_frame_for_a_wire_without_a_far_end_is_lost_and_counted() {
        let directory = tempfile::tempdir().expect("a directory");
        let outside = Outside::datagram(directory.path().join("near"), directory.path().join("far"));
        let (mut wire, _waker) =
            Wire::new(|_| Ok(Frames::Outside(outside.open(LinkLayer::Ethernet)?))).expect("a wire");
        assert!(wire.send(&[0; 60]).expect("like a cable without a far end"));
        assert_eq!(wire.lost, 1);
    }
}
