//! The device's thread: owns the model, the client's memory and the wire, executes the socket thread's requests in
//! order, and does what is due in between.

use super::cable::CableEnd;
use super::memory::{ClientMemory, MapRequest};
use super::vectors::{VectorRequest, Vectors};
use super::wire::{WakeSocket, Wire};
use crate::real_time::{RealTime, Tally};
use bareverbs_sim::nic::{CommandRecord, Nic};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::time::Duration;

/// Capacity of the request queue. A client that writes faster than the device works waits for it.
pub(super) const QUEUE: usize = 4096;
/// Requests to execute before the device takes its turn.
const TURN: usize = 256;
/// Longest pause after a wire error before the next attempt.
const AFTER_ERROR: Duration = Duration::from_millis(10);

/// An existing region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    /// BAR0.
    Bar,
    /// PCI configuration space.
    Configuration,
}

/// Requests from the socket's thread to the device's.
#[derive(Debug)]
pub(super) enum Request {
    /// Answered with the bytes read.
    Read {
        region: Region,
        offset: u64,
        length: usize,
    },
    /// Posted: not answered, but done before later requests.
    Write {
        region: Region,
        offset: u64,
        bytes: Vec<u8>,
    },
    Map(MapRequest),
    Unmap {
        address: u64,
        size: u64,
    },
    UnmapAll,
    Vectors(VectorRequest),
    /// Resets the device. Mappings and vectors stay.
    Reset,
    /// The client is gone: discard its state.
    Forget,
}

/// Answers to all requests except writes.
pub(super) type Response = io::Result<Vec<u8>>;

/// The socket thread's end of the queue.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) requests: SyncSender<Request>,
    pub(super) responses: Receiver<Response>,
    pub(super) waker: WakeSocket,
    /// Set when the client is gone: its pending writes are then discarded.
    pub(super) is_leaving: Arc<AtomicBool>,
}

impl Link {
    /// Sends a request without an answer.
    pub(super) fn post(&mut self, request: Request) -> io::Result<()> {
        self.requests.send(request).map_err(|_| gone())?;
        self.waker.wake();
        Ok(())
    }

    /// Discards the client's state, without waiting for its pending requests.
    pub(super) fn forget(&mut self) -> Response {
        self.is_leaving.store(true, Ordering::Release);
        self.call(Request::Forget)
    }

    /// Sends a request and waits for its answer.
    pub(super) fn call(&mut self, request: Request) -> Response {
        self.post(request)?;
        self.responses.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the device's thread has ended")
}

/// The device thread's end.
pub(super) struct Engine {
    pub(super) runner: RealTime<ClientMemory, Nic, Wire>,
    pub(super) vectors: Vectors,
    pub(super) requests: Receiver<Request>,
    pub(super) responses: Sender<Response>,
    /// The same flag as [`Link::is_leaving`].
    pub(super) is_leaving: Arc<AtomicBool>,
    pub(super) cable: CableEnd,
    /// Counter of wire errors.
    pub(super) troubles: Tally,
}

impl Engine {
    /// Runs until the other end is gone.
    pub(super) fn run(mut self) {
        while let Some(left) = self.work_off() {
            if let Some(is_plugged) = self.cable.changed() {
                self.runner.set_link_up(is_plugged);
            }
            let busy = self.runner.step();
            self.tell();
            match busy {
                Ok(busy) if busy || left => {}
                Ok(_) => self.rest(),
                Err(error) => {
                    if let Some(times) = self.troubles.add() {
                        tracing::warn!("wire: {error} ({times} so far)");
                    }
                    std::thread::sleep(AFTER_ERROR);
                }
            }
        }
        self.finish();
    }

    /// Executes waiting requests, up to a turn. Returns whether more may be waiting; `None` if the other end is gone.
    fn work_off(&mut self) -> Option<bool> {
        self.runner.begin_turn();
        for _ in 0..TURN {
            if self.runner.is_spent() {
                return Some(true);
            }
            match self.requests.try_recv() {
                Ok(request) => self.handle(request),
                Err(TryRecvError::Empty) => return Some(false),
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(true)
    }

    fn handle(&mut self, request: Request) {
        let done = match request {
            Request::Write { .. } if self.is_leaving.load(Ordering::Acquire) => return,
            Request::Write { region, offset, bytes } => return self.write(region, offset, &bytes),
            Request::Read { region, offset, length } => Ok(self.read(region, offset, length)),
            Request::Map(map) => self.runner.memory_mut().map(map).map(|()| Vec::new()),
            Request::Unmap { address, size } => {
                self.runner.memory_mut().unmap(address, size).map(|()| Vec::new())
            }
            Request::UnmapAll => {
                self.runner.memory_mut().clear();
                Ok(Vec::new())
            }
            Request::Vectors(request) => self.vectors.apply(request).map(|()| Vec::new()),
            Request::Reset => {
                self.reset();
                Ok(Vec::new())
            }
            Request::Forget => {
                self.forget();
                Ok(Vec::new())
            }
        };
        // If the other thread has ended, nobody waits for the answer.
        let _ = self.responses.send(done);
    }

    fn reset(&mut self) {
        let now = self.runner.now();
        self.runner.device_mut().reset(now);
    }

    fn forget(&mut self) {
        self.reset();
        self.runner.memory_mut().clear();
        self.vectors.clear();
        while self.runner.poll_interrupt().is_some() {}
        self.is_leaving.store(false, Ordering::Release);
    }

    /// Reads in the region's units: 32-bit registers, or up to four bytes of configuration space.
    fn read(&mut self, region: Region, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = offset.wrapping_add(bytes.len() as u64);
            let word = match region {
                Region::Bar => self.runner.mmio_read(at & !3).to_be_bytes(),
                Region::Configuration => {
                    let at = u16::try_from(at & !3).unwrap_or(u16::MAX);
                    self.runner.device().handle_config_read(at, 4).to_le_bytes()
                }
            };
            let wanted = &word[(at & 3) as usize..];
            bytes.extend_from_slice(&wanted[..wanted.len().min(length - bytes.len())]);
        }
        bytes
    }

    fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) {
        match region {
            Region::Bar => self.runner.mmio_write(offset, bytes),
            Region::Configuration => {
                let now = self.runner.now();
                for (at, part) in (offset..).step_by(4).zip(bytes.chunks(4)) {
                    let mut word = [0; 4];
                    word[..part.len()].copy_from_slice(part);
                    let at = u16::try_from(at).unwrap_or(u16::MAX);
                    let (length, value) = (part.len() as u8, u32::from_le_bytes(word));
                    self.runner.device_mut().handle_config_write(now, at, length, value);
                }
            }
        }
        self.tell();
    }

    /// Sends interrupts and logs completed commands.
    fn tell(&mut self) {
        while let Some(record) = self.runner.device_mut().poll_command() {
            say(&record);
        }
        while let Some(vector) = self.runner.device_mut().poll_interrupt() {
            self.vectors.raise(vector);
        }
        while let Some(vector) = self.runner.poll_interrupt() {
            self.vectors.raise(vector);
        }
    }

    fn rest(&mut self) {
        let now = self.runner.now();
        let limit = self.runner.poll_timeout().map(|due| {
            let nanos = if due > now { (due - now).as_nanos() } else { 0 };
            Duration::from_nanos(nanos)
        });
        if let Err(error) = self.runner.io_mut().rest(limit) {
            tracing::warn!("waiting for the wire: {error}");
            std::thread::sleep(AFTER_ERROR);
        }
    }

    fn finish(&mut self) {
        if let Some(Err(error)) = self.runner.finish_capture() {
            tracing::warn!("{error}");
        }
    }
}

fn say(record: &CommandRecord) {
    if record.is_success() {
        tracing::info!("{record}");
    } else {
        tracing::warn!("{record}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfio_user::wire::{Frames, Wire};
    use bareverbs_sim::nic::NicConfig;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{channel, sync_channel};

    #[test]
    fn a_client_that_writes_faster_than_the_device_works_waits() {
        let (_wire, waker) = Wire::new(|_| Ok(Frames::Nowhere)).unwrap();
        let ((requests, incoming), (_outgoing, responses)) = (sync_channel(QUEUE), channel());
        let mut link = Link { requests, responses, waker, is_leaving: Arc::default() };
        let posted = Arc::new(AtomicUsize::new(0));
        let poster = std::thread::spawn({
            let posted = posted.clone();
            move || {
                for offset in 0..QUEUE as u64 + 100 {
                    let bytes = vec![0; 4];
                    link.post(Request::Write { region: Region::Bar, offset, bytes }).unwrap();
                    posted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        while posted.load(Ordering::SeqCst) < QUEUE {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(posted.load(Ordering::SeqCst), QUEUE, "nobody takes anything: the poster has to wait");
        assert_eq!(incoming.iter().count(), QUEUE + 100, "nothing is lost");
        poster.join().unwrap();
    }

    /// A client may leave behind thousands of requests, each worth a turn. The next client waits for none of them.
    #[test]
    fn requests_of_a_departed_client_are_discarded() {
        let (wire, _waker) = Wire::new(|_| Ok(Frames::Nowhere)).unwrap();
        let nic = NicConfig::default();
        let runner = RealTime::new(Nic::new(nic), ClientMemory::default(), wire);
        let (_requests, requests) = sync_channel(QUEUE);
        let (responses, answered) = channel();
        let (is_leaving, troubles) = (Arc::new(AtomicBool::new(false)), Tally::default());
        let mut engine = Engine {
            runner,
            vectors: Vectors::new(nic.vectors),
            requests,
            responses,
            is_leaving: is_leaving.clone(),
            cable: CableEnd::default(),
            troubles,
        };
        // Command register in configuration space: memory space and bus mastering.
        let write = || Request::Write { region: Region::Configuration, offset: 4, bytes: vec![6, 0, 0, 0] };
        let written = |engine: &mut Engine| engine.read(Region::Configuration, 4, 2) == [6, 0];
        engine.handle(write());
        assert!(written(&mut engine));
        engine.reset();
        is_leaving.store(true, Ordering::Release);
        engine.handle(write());
        assert!(!written(&mut engine), "the client is gone");
        engine.handle(Request::Forget);
        answered.recv().unwrap().unwrap();
        engine.handle(write());
        assert!(written(&mut engine), "the next client is another one");
    }
}
