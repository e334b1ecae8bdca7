//! The executor. Other tasks, timers of the world and device interrupts wake tasks; woken tasks run in first-in,
//! first-out order.

use bareverbs_prm::time::Time;
use bareverbs_sim::run::NodeId;
use core::cell::{Cell, RefCell};
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

/// A boxed task.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>>>>;

/// Identifies a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(u64);

/// Identifies a timer. The number distinguishes timers with the same deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerId {
    due: Time,
    number: u64,
}

/// All tasks of a cluster, their timers and interrupt waiters.
#[derive(Default)]
pub(crate) struct Executor {
    tasks: RefCell<BTreeMap<TaskId, Task>>,
    started: Cell<u64>,
    ready: Arc<Ready>,
    timers: RefCell<BTreeMap<TimerId, Waker>>,
    timer_number: Cell<u64>,
    interrupts: RefCell<BTreeMap<(NodeId, u16), Waker>>,
}

struct Task {
    host: usize,
    /// Whether a run waits for this task to end.
    required: bool,
    /// `None` while the task is being polled.
    future: Option<TaskFuture>,
    waker: Arc<TaskWaker>,
}

/// Queue of woken tasks. `Waker` must be `Send`, hence the mutex, although a cluster is single-threaded.
#[derive(Debug, Default)]
struct Ready(Mutex<VecDeque<TaskId>>);

#[derive(Debug)]
struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.id);
        }
    }
}

/// A task that has ended, with its result.
pub(crate) struct Ended {
    pub(crate) host: usize,
    pub(crate) result: Result<(), Box<dyn Error>>,
}

impl Executor {
    /// Spawns a task. It is first polled when the cluster runs.
    pub(crate) fn spawn(&self, host: usize, required: bool, future: TaskFuture) {
        let id = TaskId(self.started.get());
        self.started.set(id.0 + 1);
        let waker = Arc::new(TaskWaker { id, queued: AtomicBool::new(false), ready: self.ready.clone() });
        waker.wake_by_ref();
        self.tasks.borrow_mut().insert(id, Task { host, required, future: Some(future), waker });
    }

    /// Removes and returns a host's tasks. Dropping them runs their destructors.
    pub(crate) fn take_tasks_of(&self, host: usize) -> Vec<TaskFuture> {
        let mut tasks = self.tasks.borrow_mut();
        let ids: Vec<_> = tasks.iter().filter(|(_, task)| task.host == host).map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| tasks.remove(id)?.future).collect()
    }

    /// Hosts whose required tasks are still running.
    pub(crate) fn unfinished(&self) -> Vec<usize> {
        let tasks = self.tasks.borrow();
        let mut hosts: Vec<_> = tasks.values().filter(|task| task.required).map(|task| task.host).collect();
        hosts.dedup();
        hosts
    }

    /// Dequeues the next woken task, with its host.
    pub(crate) fn next_ready(&self) -> Option<(TaskId, usize)> {
        loop {
            let id = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
            if let Some(task) = self.tasks.borrow().get(&id) {
                task.waker.queued.store(false, Ordering::Release);
                return Some((id, task.host));
            }
        }
    }

    /// Wakes a task that was set aside during a pause.
    pub(crate) fn wake(&self, id: TaskId) {
        if let Some(task) = self.tasks.borrow().get(&id) {
            task.waker.wake_by_ref();
        }
    }

    /// Wakes all tasks of a host after an event that raises no interrupt.
    pub(crate) fn wake_host(&self, host: usize) {
        for task in self.tasks.borrow().values().filter(|task| task.host == host) {
            task.waker.wake_by_ref();
        }
    }

    /// Polls a task. The poll may crash the host and thereby remove the task.
    pub(crate) fn poll(&self, id: TaskId) -> Option<Ended> {
        let (mut future, waker, host) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.get_mut(&id)?;
            (task.future.take()?, Waker::from(task.waker.clone()), task.host)
        };
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        match polled {
            Poll::Ready(result) => {
                self.tasks.borrow_mut().remove(&id);
                Some(Ended { host, result })
            }
            Poll::Pending => {
                let mut tasks = self.tasks.borrow_mut();
                if let Some(task) = tasks.get_mut(&id) {
                    task.future = Some(future);
                    return None;
                }
                drop(tasks);
                drop(future);
                None
            }
        }
    }

    /// Wakes `waker` at `due`. Pass the result to [`Self::cancel`].
    pub(crate) fn wake_at(&self, due: Time, waker: Waker) -> TimerId {
        let timer = TimerId { due, number: self.timer_number.get() };
        self.timer_number.set(timer.number + 1);
        self.timers.borrow_mut().insert(timer, waker);
        timer
    }

    pub(crate) fn cancel(&self, timer: TimerId) {
        self.timers.borrow_mut().remove(&timer);
    }

    /// Wakes the tasks whose timers have expired or whose interrupts have fired. `has_fired` tells whether a node
    /// raised a vector.
    pub(crate) fn wake_due(&self, now: Time, has_fired: impl Fn(NodeId, u16) -> bool) {
        loop {
            let mut timers = self.timers.borrow_mut();
            match timers.first_entry() {
                Some(first) if first.key().due <= now => first.remove().wake(),
                _ => break,
            }
        }
        let fired: Vec<_> = {
            let interrupts = self.interrupts.borrow();
            interrupts.keys().filter(|(node, vector)| has_fired(*node, *vector)).copied().collect()
        };
        for key in fired {
            if let Some(waker) = self.interrupts.borrow_mut().remove(&key) {
                waker.wake();
            }
        }
    }

    /// Wakes `waker` when `node` raises `vector`.
    pub(crate) fn await_interrupt(&self, node: NodeId, vector: u16, waker: Waker) {
        self.interrupts.borrow_mut().insert((node, vector), waker);
    }
}
