//! A task's view of its host: devices, clock, disk, and a bulletin board for finding peers.

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

/// A shared handle of a host's device; the driver's objects hold one.
pub type Handle = Rc<Device<SimHal>>;

/// Result of a task.
pub type TaskResult = Result<(), Box<dyn Error>>;

/// Polling interval of [`Host::until`].
const LOOK: Duration = Duration::from_micros(2);

/// A host as its own tasks see it. Clones refer to the same host and the same boot.
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

    /// Records how a round ended, for the report of a failed run.
    pub(crate) fn note_round(&self, topic: &str, error: &dyn Error) {
        let (host, at) = (self.index, self.state.world.now());
        let ended = EndedRound { host, topic: topic.to_owned(), at, error: error.to_string() };
        self.state.host(host, |state| state.last_round = Some(ended));
    }

    /// Index of this host, from 0.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of earlier boots.
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Number of hosts in the cluster, this one included.
    pub fn peers(&self) -> usize {
        self.state.hosts.borrow().len()
    }

    /// Opens the device of port `port` and sets its address at GID index 0.
    ///
    /// # Errors
    /// The device did not open. It can be open only once per boot, unless it was closed in between.
    pub fn open(&self, port: usize) -> Result<Handle, Box<dyn Error>> {
        let Port { node, .. } = self.state.port(self.index, port);
        let device: Result<_, OpenError> = Device::open(self.state.world.hal(node), DeviceConfig::default());
        let device = Rc::new(device?);
        device.set_gid(0, GidEntry::roce_v2(gid(self.index, port), mac(self.index, port)))?;
        Ok(device)
    }

    /// Creates a dispatcher for `device` and spawns a task that runs it.
    ///
    /// # Errors
    /// The dispatcher could not be created.
    pub fn dispatcher(&self, device: &Handle) -> Result<Dispatcher<Handle>, DispatcherError> {
        let dispatcher = Dispatcher::new(device.clone(), DispatcherConfig::default())?;
        let running = dispatcher.clone().run(self.interrupt(device, 0));
        self.spawn(async move {
            // Every pending operation gets the same error, and its task handles it.
            running.await;
            Ok(())
        });
        Ok(dispatcher)
    }

    /// The interrupts of one vector of a device, for a dispatcher that the caller runs.
    pub fn interrupt(&self, device: &Handle, vector: u16) -> HostInterrupt {
        let (state, hal, host) = (self.state.clone(), device.hal().clone(), self.index);
        let alarms = state.host(host, |host| host.alarms);
        HostInterrupt { state, hal, vector, host, alarms }
    }

    /// Spawns another task on this host. It dies with the host, and the run does not wait for it.
    pub fn spawn(&self, task: impl Future<Output = TaskResult> + 'static) {
        self.state.executor.spawn(self.index, false, Box::pin(task));
    }

    /// Time on this host's clock, which may be wrong.
    pub fn now(&self) -> Time {
        let now = self.state.world.now();
        self.state.host(self.index, |host| host.clock.show(now))
    }

    /// Sleeps for `span` on this host's clock.
    pub fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_until(self.now() + span)
    }

    /// Sleeps until this host's clock shows `time`.
    pub fn sleep_until(&self, time: Time) -> Sleep {
        Sleep { host: self.clone(), until: time, timer: None }
    }

    /// Runs `work` for at most `span`. Returns `None` and drops `work` when the time is up.
    pub async fn timeout<F: Future>(&self, span: Duration, work: F) -> Option<F::Output> {
        let (mut work, mut sleep) = (Box::pin(work), self.sleep(span));
        poll_fn(move |cx| match work.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Pin::new(&mut sleep).poll(cx).map(|()| None),
        })
        .await
    }

    /// Waits for a condition that other tasks of this host bring about. Polls `holds` every 2 µs of this host's clock.
    ///
    /// # Errors
    /// The condition did not become true within `limit`.
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

    /// This host's disk, which survives a crash.
    pub fn disk(&self) -> Disk {
        Disk::new(self.state.host(self.index, |host| host.disk.clone()))
    }

    /// Posts to the bulletin board that all hosts see: endpoints and keys, before there is a connection. The board is
    /// not a network, so faults do not affect it.
    pub fn publish(&self, key: &str, value: &[u8]) {
        let mut board = self.state.board.borrow_mut();
        board.entries.insert(key.to_owned(), value.to_owned());
        let readers = core::mem::take(&mut board.readers);
        drop(board);
        readers.into_iter().for_each(core::task::Waker::wake);
    }

    /// Looks up `key` on the bulletin board without waiting.
    pub fn try_lookup(&self, key: &str) -> Option<Vec<u8>> {
        self.state.board.borrow().entries.get(key).cloned()
    }

    /// Waits until the bulletin board has an entry for `key`, and returns it.
    pub async fn lookup(&self, key: &str) -> Vec<u8> {
        self.lookup_where(key, |_| true).await
    }

    /// Like [`Self::lookup`], but waits until the value satisfies `wanted`.
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

/// The files of a host, by name. Written data survives a crash.
#[derive(Debug, Clone)]
pub struct Disk(Rc<RefCell<BTreeMap<String, Vec<u8>>>>);

impl Disk {
    pub(crate) fn new(files: Rc<RefCell<BTreeMap<String, Vec<u8>>>>) -> Self {
        Self(files)
    }

    /// Writes a file atomically.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        self.0.borrow_mut().insert(name.to_owned(), bytes.to_owned());
    }

    /// Appends to a file atomically. Creates the file if it does not exist.
    pub fn append(&self, name: &str, bytes: &[u8]) {
        self.0.borrow_mut().entry(name.to_owned()).or_default().extend(bytes);
    }

    /// Writes at byte `offset` of a file atomically. Fills a gap before it with zeros.
    pub fn write_at(&self, name: &str, offset: usize, bytes: &[u8]) {
        let (mut files, end) = (self.0.borrow_mut(), offset + bytes.len());
        let file = files.entry(name.to_owned()).or_default();
        file.resize(file.len().max(end), 0);
        file[offset..end].copy_from_slice(bytes);
    }

    /// Length of a file in bytes; 0 if it does not exist.
    pub fn len(&self, name: &str) -> usize {
        self.0.borrow().get(name).map_or(0, Vec::len)
    }

    /// Reads a file; `None` if it does not exist.
    pub fn read(&self, name: &str) -> Option<Vec<u8>> {
        self.0.borrow().get(name).cloned()
    }
}

/// A sleep on the host's clock; see [`Host::sleep`].
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
        // The clock may be adjusted before that, so check it again on wakeup.
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

/// Interrupts of one vector of a device, as an interrupt source.
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

/// MAC address of a port.
pub(crate) const fn mac(host: usize, port: usize) -> MacAddress {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    MacAddress([2, 0, 0, port as u8, high, low])
}

/// IPv4-mapped GID of a port: 10.PORT.HOST, where hosts count from 1.
const fn gid(host: usize, port: usize) -> Gid {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    Gid::from_ipv4([10, port as u8, high, low])
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("index", &self.index).field("boot", &self.boot).finish_non_exhaustive()
    }
}
