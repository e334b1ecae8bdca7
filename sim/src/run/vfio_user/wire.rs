//! The wire of a served device, and the bell by which its thread is woken: both are waited for at once.

use crate::run::real_time::{FrameIo, UnixDatagramIo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Wakes the device's thread; can be rung from another one.
#[derive(Debug)]
pub(super) struct Bell(UnixStream);

impl Bell {
    /// Rings. A bell that rings already, or that nobody hears any more, is left alone.
    pub(super) fn ring(&mut self) {
        let _ = self.0.write(&[1]);
    }
}

/// The wire, if there is one, and the other end of the bell.
#[derive(Debug)]
pub(super) struct Wire {
    frames: Option<UnixDatagramIo>,
    bell: UnixStream,
    /// Frames that left a device without a wire, or while nobody was at its other end.
    pub(super) lost: u64,
}

impl Wire {
    pub(super) fn new(frames: Option<UnixDatagramIo>) -> io::Result<(Self, Bell)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        Ok((Self { frames, bell: ours, lost: 0 }, Bell(theirs)))
    }

    /// Waits for a frame or the bell; without a limit for ever.
    pub(super) fn rest(&mut self, limit: Option<Duration>) -> io::Result<()> {
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut sources = vec![PollFd::new(&self.bell, PollFlags::IN)];
        sources.extend(self.frames.iter().map(|frames| PollFd::new(frames, PollFlags::IN)));
        match poll(&mut sources, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        drop(sources);
        let mut rung = [0; 64];
        while self.bell.read(&mut rung).is_ok_and(|count| count == rung.len()) {}
        Ok(())
    }
}

impl FrameIo for Wire {
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let Some(frames) = &mut self.frames else {
            self.lost += 1;
            return Ok(true);
        };
        match frames.send(frame) {
            // Nobody at the other end: the frame is lost, as in a cable that ends nowhere.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                self.lost += 1;
                Ok(true)
            }
            sent => sent,
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        self.frames.as_mut().map_or(Ok(false), |frames| frames.receive(frame))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        self.rest(Some(limit))
    }
}
