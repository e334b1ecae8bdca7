//! What a cluster is made of; shared by the handle outside and those of the hosts inside.

use crate::clock::HostClock;
use crate::executor::{Executor, TaskFuture, TaskId};
use crate::failure::EndedRound;
use bareverbs_hal_sim::SimWorld;
use bareverbs_sim::run::{LinkId, NodeId, SwitchId};
use core::cell::RefCell;
use core::task::Waker;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Makes the task of a host, at every boot; of which host, and how often it had booted before.
pub(crate) type Boot = Rc<dyn Fn(Rc<State>, usize, u32) -> TaskFuture>;

/// Everything of a cluster.
pub(crate) struct State {
    pub(crate) world: SimWorld,
    pub(crate) seed: u64,
    pub(crate) executor: Executor,
    pub(crate) hosts: RefCell<Vec<HostState>>,
    pub(crate) board: RefCell<Board>,
}

/// What hosts tell each other before they are connected. It is no network: it loses nothing and takes no time.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) entries: BTreeMap<String, Vec<u8>>,
    pub(crate) readers: Vec<Waker>,
}

/// One host.
#[derive(Default)]
pub(crate) struct HostState {
    pub(crate) ports: Vec<Port>,
    pub(crate) clock: HostClock,
    pub(crate) is_up: bool,
    pub(crate) is_paused: bool,
    /// Tasks that were woken during a pause.
    pub(crate) set_aside: Vec<TaskId>,
    /// How often something happened to its devices that no interrupt tells.
    pub(crate) alarms: u32,
    pub(crate) boots: u32,
    pub(crate) tasks: Vec<(Boot, bool)>,
    pub(crate) disk: Rc<RefCell<BTreeMap<String, Vec<u8>>>>,
    /// How the last round of a station ended.
    pub(crate) last_round: Option<EndedRound>,
}

/// A port of a host: a function with a port of its own, and its cable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) node: NodeId,
    pub(crate) link: LinkId,
    pub(crate) switch: SwitchId,
}

impl State {
    /// Does something with a host.
    ///
    /// # Panics
    /// There is no such host, which is a mistake of the test.
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
    /// There is no such host or port, which is a mistake of the test.
    pub(crate) fn port(&self, host: usize, port: usize) -> Port {
        self.host(host, |state| match state.ports.get(port) {
            Some(port) => *port,
            None => panic!("host {host} has no port {port}: it has {}, numbered from 0", state.ports.len()),
        })
    }
}
