//! State of a cluster, shared between the outer handle and the handles of the hosts.

use crate::clock::HostClock;
use crate::executor::{Executor, TaskFuture, TaskId};
use crate::failure::EndedRound;
use bareverbs_hal_sim::SimWorld;
use bareverbs_sim::run::{LinkId, NodeId, SwitchId};
use core::cell::RefCell;
use core::task::Waker;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Creates the task of a host at every boot. Arguments: the state, the host's index, the number of earlier boots.
pub(crate) type Boot = Rc<dyn Fn(Rc<State>, usize, u32) -> TaskFuture>;

/// All state of a cluster.
pub(crate) struct State {
    pub(crate) world: SimWorld,
    pub(crate) seed: u64,
    pub(crate) executor: Executor,
    pub(crate) hosts: RefCell<Vec<HostState>>,
    pub(crate) board: RefCell<Board>,
}

/// Bulletin board on which hosts exchange endpoints before they connect. Not a network: lossless and instantaneous.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    pub(crate) readers: Vec<Waker>,
}

/// State of one host.
#[derive(Default)]
pub(crate) struct HostState {
    pub(crate) ports: Vec<Port>,
    pub(crate) clock: HostClock,
    pub(crate) is_up: bool,
    pub(crate) is_paused: bool,
    /// Tasks that were woken while the host was paused.
    pub(crate) set_aside: Vec<TaskId>,
    /// Number of device events that raised no interrupt.
    pub(crate) alarms: u32,
    pub(crate) boots: u32,
    pub(crate) tasks: Vec<(Boot, bool)>,
    pub(crate) disk: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    /// How the last round of a station ended.
    pub(crate) last_round: Option<EndedRound>,
}

/// A port of a host: a NIC function with its own physical port, and its cable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) node: NodeId,
    pub(crate) link: LinkId,
    pub(crate) switch: SwitchId,
}

impl State {
    /// Calls `work` with the state of a host.
    ///
    /// # Panics
    /// There is no such host: a bug in the test.
    pub(crate) fn host<R>(&self, index: usize, work: impl FnOnce(&mut HostState) -> R) -> R {
        let mut hosts = self.hosts.borrow_mut();
        let count = hosts.len();
        match hosts.get_mut(index) {
            Some(host) => work(host),
            None => panic!("there is no host {index}: the cluster has {count}, numbered from 0"),
        }
    }

    /// The port of a host.
    ///
    /// # Panics
    /// There is no such host or port: a bug in the test.
    pub(crate) fn port(&self, host: usize, port: usize) -> Port {
        self.host(host, |state| match state.ports.get(port) {
            Some(port) => *port,
            None => panic!("host {host} has no port {port}: it has {}, numbered from 0", state.ports.len()),
        })
    }
}
