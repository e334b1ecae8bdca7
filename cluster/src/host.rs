//! What a task knows of its host: devices, clock, disk, and a board to find its peers.

use crate::executor::TimerId;
use crate::failure::EndedRound;
use crate::state::{Port, State};
use bareverbs_core::device::OpenError;
use bareverbs_core::{Device, DeviceConfig, GidEntry};
use bareverbs_futures::{Dispatcher, DispatcherConfig, DispatcherError, InterruptSource};
use bareverbs_hal_sim::SimHal;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use core::cell::RefCell;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::rc::Rc;

/// A device of a host, as every object of the driver holds it.
pub type Handle = Rc<Device<SimHal>>;

/// What a task comes to.
pub type TaskResult = Result<(), Box<dyn Error>>;

/// Between two looks of [`Host::until`].
const LOOK: Duration = Duration::from_micros(2);

/// A host, seen by its own tasks. Clones are the same host, of the same boot.
///
/// ```
/// use bareverbs_cluster::SimCluster;
/// use bareverbs_prm::time::Duration;
///
/// let cluster = SimCluster::new(1, 2);
/// cluster.boot(0, |host| async move {
///     host.sleep(Duration::from_micros(5)).await;
///     host.publish("address", b"here");
///     Ok(())
/// });
/// cluster.boot(1, |host| async move {
///     assert_eq!(host.lookup("address").await, b"here");
///     let silence = host.timeout(Duration::from_micros(10), host.lookup("nobody says this")).await;
///     assert!(silence.is_none());
///     Ok(())
/// });
/// cluster.run(Duration::from_secs(1)).unwrap();
/// ```
#[derive(Clone)]
pub struct Host {
    state: Rc<State>,
    index: usize,
    boot: u32,
}

impl Host {
    pub(crate) fn new(state: Rc<State>, index: usize, boot: u32) -> Self {
        Self { state, index, boot }
    }

    /// Keeps how a round ended, for who asks why a run failed.
    pub(crate) fn note_round(&self, topic: &str, error: &dyn Error) {
        let (host, at) = (self.index, self.state.world.now());
        let ended = EndedRound { host, topic: topic.to_owned(), at, error: error.to_string() };
        self.state.host(host, |state| state.last_round = Some(ended));
    }

    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How often it had booted before.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Hosts of the cluster, this one included.
    pub fn peers(&self) -> usize {
        self.state.hosts.borrow().len()
    }

    /// Brings up the device of port `port` and gives it its address, at entry 0 of its address table.
    ///
    /// # Errors
    /// The device did not open; once a boot, unless it was closed.
    pub fn open(&self, port: usize) -> Result<Handle, Box<dyn Error>> {
        let Port { node, .. } = self.state.port(self.index, port);
        let device: Result<_, OpenError> = Device::open(self.state.world.hal(node), DeviceConfig::default());
        let device = Rc::new(device?);
        device.set_gid(0, GidEntry::roce_v2(gid(self.index, port), mac(self.index, port)))?;
        Ok(device)
    }

    /// A dispatcher for `device`, and a task that runs it.
    ///
    /// # Errors
    /// It could not be made.
    pub fn dispatcher(&self, device: &Handle) -> Result<Dispatcher<Handle>, DispatcherError> {
        let dispatcher = Dispatcher::new(device.clone(), DispatcherConfig::default())?;
        let running = dispatcher.clone().run(self.interrupt(device, 0));
        self.spawn(async move {
            // What broke is the error of every operation too, and those know what to do about it.
            running.await;
            Ok(())
        });
        Ok(dispatcher)
    }

    /// Interrupts of `vector` of a device, for a dispatcher of one's own.
    pub fn interrupt(&self, device: &Handle, vector: u16) -> HostInterrupt {
        let (state, hal, host) = (self.state.clone(), device.hal().clone(), self.index);
        let alarms = state.host(host, |host| host.alarms);
        HostInterrupt { state, hal, vector, host, alarms }
    }

    /// Starts another task of this host. It ends with the host; the run does not wait for it.
    pub fn spawn(&self, task: impl Future<Output = TaskResult> + 'static) {
        self.state.executor.spawn(self.index, false, Box::pin(task));
    }

    /// The time that its clock shows, which may be wrong.
    pub fn now(&self) -> Time {
        let now = self.state.world.now();
        self.state.host(self.index, |host| host.clock.show(now))
    }

    /// Waits until its clock has gone on by `span`.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Waits until its clock shows `time`.
    pub fn sleep_until(&self, time: Time) -> Sleep {
        Sleep { host: self.clone(), until: time, timer: None }
    }

    /// The outcome of `work`, unless `span` passes first: then nothing, and `work` is dropped.
    pub async fn timeout<F: Future>(&self, span: Duration, work: F) -> Option<F::Output> {
        let (mut work, mut sleep) = (Box::pin(work), self.sleep(span));
        poll_fn(move |cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|()| None),
        })
        .await
    }

    /// Waits until `holds`, for what other tasks of this host change. It looks every 2 µs of the host's clock.
    ///
    /// # Errors
    /// It did not hold for `limit`.
    pub async fn until(&self, limit: Duration, holds: impl Fn() -> bool) -> Result<(), String> {
        let end = self.now() + limit;
        while !holds() {
            if self.now() >= end {
                return Err(format!("host {} waited {limit} for a change that did not come", self.index));
            }
            self.sleep(LOOK).await;
        }
        Ok(())
    }

    /// What survives a crash.
    pub fn disk(&self) -> Disk {
        Disk::new(self.state.host(self.index, |host| host.disk.clone()))
    }

    /// Writes on the board that all hosts see: endpoints and keys, before there is a connection. It is no network: no fault hits it.
    pub fn publish(&self, key: &str, value: &[u8]) {
        let mut board = self.state.board.borrow_mut();
        board.entries.insert(key.to_owned(), value.to_owned());
        let readers = core::mem::take(&mut board.readers);
        drop(board);
        readers.into_iter().for_each(core::task::Waker::wake);
    }

    /// What stands on the board under `key`, if anything.
    pub fn try_lookup(&self, key: &str) -> Option<Vec<u8>> {
        self.state.board.borrow().entries.get(key).cloned()
    }

    /// What stands on the board under `key`, as soon as somebody has written it.
    pub async fn lookup(&self, key: &str) -> Vec<u8> {
        self.lookup_where(key, |_| true).await
    }

    /// As [`Self::lookup`], but waits for a value that is `wanted`.
    pub async fn lookup_where(&self, key: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        poll_fn(|cx| match self.try_lookup(key).filter(|value| wanted(value)) {
            Some(value) => Poll::Ready(value),
            None => {
                self.state.board.borrow_mut().readers.push(cx.waker().clone());
                Poll::Pending
            }
        })
        .await
    }
}

/// Files of a host by name: what is written is there after a crash.
#[derive(Debug, Clone)]
pub struct Disk(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl Disk {
    pub(crate) fn new(files: Rc<RefCell<BTreeMap<String, Vec<u8>>>>) -> Self {
        Self(files)
    }

    /// Writes a file, all of it or nothing.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        self.0.borrow_mut().insert(name.to_owned(), bytes.to_owned());
    }

    /// Writes behind what a file has, all of it or nothing. A file that does not exist begins empty.
    pub fn append(&self, name: &str, bytes: &[u8]) {
        self.0.borrow_mut().entry(name.to_owned()).or_default().extend(bytes);
    }

    /// Writes into a file at byte `offset`, all of it or nothing. What is before that and was not written is 0.
    pub fn write_at(&self, name: &str, offset: usize, bytes: &[u8]) {
        let (mut files, end) = (self.0.borrow_mut(), offset + bytes.len());
        let file = files.entry(name.to_owned()).or_default();
        file.resize(file.len().max(end), 0);
        file[offset..end].copy_from_slice(bytes);
    }

    /// Bytes of a file; 0 if it does not exist.
    pub fn len(&self, name: &str) -> usize {
        self.0.borrow().get(name).map_or(0, Vec::len)
    }

    /// Reads a file, if it exists.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.0.borrow().get(name).cloned()
    }
}

/// Waits for the clock of a host; see [`Host::sleep`].
#[must_use = "a future does nothing until it is polled"]
pub struct Sleep {
    host: Host,
    until: Time,
    timer: Option<TimerId>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = self.timer.take() {
            self.host.state.executor.cancel(timer);
        }
        if self.host.now() >= self.until {
            return Poll::Ready(());
        }
        let (state, until) = (self.host.state.clone(), self.until);
        let now = state.world.now();
        // The clock may be set meanwhile; then this looks again.
        let due = state.host(self.host.index, |host| host.clock.world_time(until, now));
        state.world.with(|world| world.wake_at(due));
        self.timer = Some(state.executor.wake_at(due, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.host.state.executor.cancel(timer);
        }
    }
}

/// Interrupts of one vector of a device.
pub struct HostInterrupt {
    state: Rc<State>,
    hal: SimHal,
    vector: u16,
    host: usize,
    alarms: u32,
}

impl InterruptSource for HostInterrupt {
    fn poll_interrupt(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let alarms = self.state.host(self.host, |host| host.alarms);
        let is_alarmed = core::mem::replace(&mut self.alarms, alarms) != alarms;
        if self.hal.take_interrupts(self.vector) > 0 || is_alarmed {
            return Poll::Ready(Ok(()));
        }
        self.state.executor.await_interrupt(self.hal.node(), self.vector, cx.waker().clone());
        Poll::Pending
    }
}

/// The Ethernet address of a port.
pub(crate) const fn mac(host: usize, port: usize) -> MacAddress {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    MacAddress([2, 0, 0, port as u8, high, low])
}

/// The address of a port: 10.PORT.HOST, the first host with number 1.
const fn gid(host: usize, port: usize) -> Gid {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    Gid::from_ipv4([10, port as u8, high, low])
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("index", &self.index).field("boot", &self.boot).finish_non_exhaustive()
    }
}
