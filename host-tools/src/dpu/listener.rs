//! Accepts callers over TCP, each in its own thread, so that a slow one delays neither the device nor the
//! next caller.
//!
//! A connection lives as long as the caller keeps its TCP connection open. Whichever end finishes first, the
//! caller's thread and the service's thread tell each other.

use super::offer::{ConnectionRequest, PURPOSE};
use super::tenant::{CONNECTIONS, Tenant, Tenants};
use crate::place::KernelRoutes;
use anyhow::{Context as _, Result, bail};
use bareverbs_exchange::{
    CallEnd, ExchangeCause, IncomingCall, Introduction, Listener, ProvenCall, Session, SessionSecret,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a caller may take for each step until it is connected.
const STEP: Duration = Duration::from_secs(5);
/// How often a thread checks whether it has to end.
const LOOK: Duration = Duration::from_millis(50);
/// Callers at a time that have proven their key: one for each connection, and as many that are about to be
/// refused.
const KNOWN: usize = 2 * CONNECTIONS;
/// Callers at a time that have not. A further one replaces the oldest of them, so that silent callers cannot
/// keep a tenant out.
const STRANGERS: usize = 16;

/// Requests of a caller's thread to the service's thread.
#[derive(Debug)]
pub(super) enum CallerRequest {
    /// A tenant wants a connection.
    Join(Box<JoinRequest>),
    /// The host of this connection has shared its table; `access` is the secret of its session.
    Shared { number: u64, access: SessionSecret, answer: SyncSender<Result<(), String>> },
    /// The connection with this number is not needed any more.
    Leave { number: u64 },
}

/// A tenant's request, and the channel for the answer.
#[derive(Debug)]
pub(super) struct JoinRequest {
    /// The tenant's settings when the caller proved its key.
    pub(super) tenant: Tenant,
    pub(super) requested: ConnectionRequest,
    pub(super) from: String,
    pub(super) peer: Introduction,
    pub(super) answer: SyncSender<Result<Joined, String>>,
}

/// A connection that the service has made.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) number: u64,
    pub(super) introduction: Introduction,
    /// Why the service ends it, once it does.
    pub(super) farewell: Receiver<String>,
    /// Whether the caller is the host, which now shares its table.
    pub(super) shares: bool,
}

/// The state that all threads share.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub(super) tenants: Tenants,
    /// Whether new callers are refused.
    pub(super) closing: AtomicBool,
    /// Callers that have proven their key.
    known: AtomicUsize,
    /// Callers that have not, oldest first.
    strangers: Mutex<VecDeque<(u64, CallEnd)>>,
    /// The kernel's routes, if the kernel knows the peers' MAC addresses.
    routes: Option<KernelRoutes>,
}

impl ListenerState {
    pub(super) const fn new(tenants: Tenants, routes: Option<KernelRoutes>) -> Self {
        let (closing, known) = (AtomicBool::new(false), AtomicUsize::new(0));
        Self { tenants, closing, known, strangers: Mutex::new(VecDeque::new()), routes }
    }

    /// The introduction of a caller, with the MAC address to which packets for it have to go. A caller whom the kernel does not find keeps
    /// the address that it gave.
    fn routed(&self, mut peer: Introduction) -> Introduction {
        let Some(routes) = &self.routes else { return peer };
        match routes.mac_of(peer.endpoint.gid) {
            Ok(mac) => peer.endpoint.mac = mac,
            Err(error) => tracing::debug!("{error:#}"),
        }
        peer
    }

    /// Callers that have not hung up.
    pub(super) fn callers(&self) -> usize {
        self.known.load(Ordering::Relaxed) + self.strangers().len()
    }

    /// The list stays consistent if a caller's thread panics.
    fn strangers(&self) -> MutexGuard<'_, VecDeque<(u64, CallEnd)>> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stranger. If there are too many, the oldest is disconnected.
    fn arrive(&self, number: u64, ending: CallEnd) {
        let mut strangers = self.strangers();
        if strangers.len() >= STRANGERS
            && let Some((oldest, ending)) = strangers.pop_front()
        {
            tracing::warn!(
                oldest,
                "disconnected: at most {STRANGERS} callers may wait without having proven their key"
            );
            ending.end();
        }
        strangers.push_back((number, ending));
    }

    fn leave(&self, number: u64) {
        self.strangers().retain(|(stranger, _)| *stranger != number);
    }
}

/// Listens, and accepts calls in a separate thread until the process ends. Returns the address and the
/// channel of requests.
pub(super) fn listen(
    address: &str,
    state: &Arc<ListenerState>,
) -> Result<(SocketAddr, Receiver<CallerRequest>)> {
    let listener = Listener::bind(address)?;
    let own = listener.local_address().context("asking for the port")?;
    let (requests, arriving) = channel();
    let state = state.clone();
    let take = move || take_calls(&listener, &state, &requests);
    thread::Builder::new().name("dpu listener".into()).spawn(take).context("starting the listener")?;
    Ok((own, arriving))
}

fn take_calls(listener: &Listener, state: &Arc<ListenerState>, requests: &Sender<CallerRequest>) {
    for number in 0.. {
        let call = match listener.call(Duration::from_secs(60)) {
            Ok(call) => call,
            Err(error) if matches!(error.cause, ExchangeCause::TimedOut { .. }) => continue,
            Err(error) => {
                tracing::warn!("a call could not be taken: {error}");
                thread::sleep(LOOK);
                continue;
            }
        };
        match call.ending() {
            Ok(ending) => state.arrive(number, ending),
            Err(error) => {
                tracing::warn!(from = call.address(), "refused: {error}");
                continue;
            }
        }
        let (shared, requests) = (state.clone(), requests.clone());
        let attend = move || {
            attend(number, call, &shared, &requests);
            shared.leave(number);
        };
        if let Err(error) = thread::Builder::new().name("dpu caller".into()).spawn(attend) {
            state.leave(number);
            tracing::warn!("a call could not be answered: {error}");
        }
    }
}

/// Handles one call from beginning to end.
fn attend(number: u64, call: IncomingCall, state: &ListenerState, requests: &Sender<CallerRequest>) {
    let from = call.address().to_owned();
    if state.closing.load(Ordering::Relaxed) {
        call.refuse(SHUTTING_DOWN);
        return;
    }
    let mut known = None;
    let key_of = |name: &str| {
        known = state.tenants.find(name);
        known.as_ref().map(|tenant| tenant.key.clone())
    };
    match (call.prove(PURPOSE, key_of, STEP), known) {
        (Ok(call), Some(tenant)) => {
            let known = state.known.fetch_add(1, Ordering::Relaxed);
            state.leave(number);
            if known < KNOWN {
                connect(call, tenant, state, requests);
            } else {
                tracing::warn!(tenant = tenant.name, from, "refused: at most {KNOWN} callers are allowed");
                call.refuse("the service has too many callers: call again later");
            }
            state.known.fetch_sub(1, Ordering::Relaxed);
        }
        (Ok(call), None) => call.refuse("this name is not known here"),
        (Err(error), _) => tracing::warn!(from, "refused: {}", error.cause),
    }
}

/// The message to callers when the service ends.
pub(super) const SHUTTING_DOWN: &str = "the service is being shut down: call again when it is back";

fn connect(call: ProvenCall, known: Tenant, state: &ListenerState, requests: &Sender<CallerRequest>) {
    let (tenant, from) = (call.name().to_owned(), call.address().to_owned());
    match join(&call, known, state, requests) {
        Ok(joined) => {
            let number = joined.number;
            if let Err(error) = keep(call, &joined, requests) {
                tracing::warn!(tenant, from, "the connection failed: {error:#}");
            }
            // A service that has ended needs no message.
            let _ = requests.send(CallerRequest::Leave { number });
        }
        Err(reason) => {
            tracing::warn!(tenant, from, "refused: {reason}");
            call.refuse(&reason);
        }
    }
}

/// Asks the service for a connection; the error says why there is none.
fn join(
    call: &ProvenCall,
    tenant: Tenant,
    state: &ListenerState,
    requests: &Sender<CallerRequest>,
) -> Result<Joined, String> {
    let requested = ConnectionRequest::from_data(&call.peer().data).map_err(|error| format!("{error:#}"))?;
    let (answer, answered) = sync_channel(1);
    let (from, peer) = (call.address().to_owned(), state.routed(call.peer().clone()));
    let asked =
        requests.send(CallerRequest::Join(Box::new(JoinRequest { tenant, requested, from, peer, answer })));
    asked.map_err(|_| SHUTTING_DOWN.to_owned())?;
    await_answer(&answered)
}

fn await_answer<T>(answered: &Receiver<Result<T, String>>) -> Result<T, String> {
    match answered.recv_timeout(STEP) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => Err(format!("the service did not answer in {STEP:?}: call again")),
        Err(RecvTimeoutError::Disconnected) => Err(SHUTTING_DOWN.to_owned()),
    }
}

/// Lets the service use the memory that the host has shared.
fn take_table(session: &Session, number: u64, requests: &Sender<CallerRequest>) -> Result<(), String> {
    let access = session.secret().cloned().ok_or("the session has no secret")?;
    let (answer, answered) = sync_channel(1);
    let shared = requests.send(CallerRequest::Shared { number, access, answer });
    shared.map_err(|_| SHUTTING_DOWN.to_owned())?;
    await_answer(&answered)
}

/// Answers the call, and waits until either end finishes.
fn keep(call: ProvenCall, joined: &Joined, requests: &Sender<CallerRequest>) -> Result<()> {
    let mut session: Session = call.answer(&joined.introduction, STEP)?;
    session.ready(STEP)?;
    if joined.shares {
        if let Err(reason) = take_table(&session, joined.number, requests) {
            session.refuse(&reason);
            bail!("{reason}");
        }
        session.ready(STEP)?;
    }
    loop {
        if let Ok(reason) = joined.farewell.try_recv() {
            session.refuse(&reason);
            return Ok(());
        }
        match session.ended(LOOK) {
            None => {}
            Some(end) if matches!(end.cause, ExchangeCause::Closed { received: 0, .. }) => return Ok(()),
            Some(end) => return Err(end.into()),
        }
    }
}
