//! Meets callers over TCP, each in a thread of its own, so that a slow one keeps neither the device nor the next caller waiting.
//!
//! A connection lives as long as the caller keeps its TCP connection open; the thread tells the service's when it ends, and the other way round.

use super::offer::{Aim, CallerAim, PURPOSE};
use super::tenant::{CONNECTIONS, Tenant, Tenants};
use anyhow::{Context as _, Result};
use bareverbs_exchange::{ExchangeCause, IncomingCall, Introduction, Listener, ProvenCall, Session};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a caller may take for each step until it is connected.
const STEP: Duration = Duration::from_secs(5);
/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Callers at a time: those that are connected, and as many that are not yet.
const CALLERS: usize = 2 * CONNECTIONS;

/// What a caller's thread asks of the service's.
#[derive(Debug)]
pub(super) enum CallerRequest {
    /// A tenant wants a connection.
    Join(Box<JoinRequest>),
    /// The connection of this number is not needed any more.
    Leave { number: u64 },
}

/// What a tenant wants, and who waits for the answer.
#[derive(Debug)]
pub(super) struct JoinRequest {
    /// As it was when the caller proved its key.
    pub(super) tenant: Tenant,
    pub(super) wish: Aim,
    pub(super) from: String,
    pub(super) peer: Introduction,
    pub(super) answer: SyncSender<Result<Joined, String>>,
}

/// A connection that the service has made.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) number: u64,
    pub(super) introduction: Introduction,
    /// Why the service ends it, when it does.
    pub(super) farewell: Receiver<String>,
}

/// What all threads share.
#[derive(Debug)]
pub(super) struct ListenerState {
    pub(super) tenants: Tenants,
    /// Whether nobody is let in any more.
    pub(super) closing: AtomicBool,
    callers: AtomicUsize,
}

impl ListenerState {
    pub(super) const fn new(tenants: Tenants) -> Self {
        Self { tenants, closing: AtomicBool::new(false), callers: AtomicUsize::new(0) }
    }

    /// Callers that have not hung up.
    pub(super) fn callers(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }
}

/// Listens, and takes calls from a thread of its own until the process ends. Gives the address, and where requests arrive.
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
    loop {
        let call = match listener.call(Duration::from_secs(60)) {
            Ok(call) => call,
            Err(error) if matches!(error.cause, ExchangeCause::TimedOut { .. }) => continue,
            Err(error) => {
                tracing::warn!("a call could not be taken: {error}");
                thread::sleep(LOOK);
                continue;
            }
        };
        if state.callers.fetch_add(1, Ordering::Relaxed) >= CALLERS {
            state.callers.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(from = call.address(), "refused: {CALLERS} callers are the most");
            // Nobody waits for its farewell: that would be one more caller to wait for.
            drop(call);
            continue;
        }
        let (shared, requests) = (state.clone(), requests.clone());
        let attend = move || {
            attend(call, &shared, &requests);
            shared.callers.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = thread::Builder::new().name("dpu caller".into()).spawn(attend) {
            state.callers.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("a call could not be answered: {error}");
        }
    }
}

/// The whole of one call.
fn attend(call: IncomingCall, state: &ListenerState, requests: &Sender<CallerRequest>) {
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
        (Ok(call), Some(tenant)) => connect(call, tenant, requests),
        (Ok(call), None) => call.refuse("nobody of this name is known here"),
        (Err(error), _) => tracing::warn!(from, "refused: {}", error.cause),
    }
}

/// What callers are told when the service ends.
pub(super) const SHUTTING_DOWN: &str = "the service is being shut down: call again when it is back";

fn connect(call: ProvenCall, known: Tenant, requests: &Sender<CallerRequest>) {
    let (tenant, from) = (call.name().to_owned(), call.address().to_owned());
    match join(&call, known, requests) {
        Ok(joined) => {
            let Joined { number, introduction, farewell } = joined;
            if let Err(error) = keep(call, &introduction, &farewell) {
                tracing::warn!(tenant, from, "the connection was not made: {error:#}");
            }
            // A service that has ended needs to be told nothing.
            let _ = requests.send(CallerRequest::Leave { number });
        }
        Err(reason) => {
            tracing::warn!(tenant, from, "refused: {reason}");
            call.refuse(&reason);
        }
    }
}

/// Has the service make a connection; or the reason why there is none.
fn join(call: &ProvenCall, tenant: Tenant, requests: &Sender<CallerRequest>) -> Result<Joined, String> {
    let wish = CallerAim::from_data(&call.peer().data).map_err(|error| format!("{error:#}"))?.wish;
    let (answer, answered) = sync_channel(1);
    let (from, peer) = (call.address().to_owned(), call.peer().clone());
    let asked =
        requests.send(CallerRequest::Join(Box::new(JoinRequest { tenant, wish, from, peer, answer })));
    asked.map_err(|_| SHUTTING_DOWN.to_owned())?;
    match answered.recv_timeout(STEP) {
        Ok(joined) => joined,
        Err(RecvTimeoutError::Timeout) => Err(format!("the service did not answer in {STEP:?}: call again")),
        Err(RecvTimeoutError::Disconnected) => Err(SHUTTING_DOWN.to_owned()),
    }
}

/// Answers the call, and waits until one end has had enough.
fn keep(call: ProvenCall, own: &Introduction, farewell: &Receiver<String>) -> Result<()> {
    let mut session: Session = call.answer(own, STEP)?;
    session.ready(STEP)?;
    loop {
        if let Ok(reason) = farewell.try_recv() {
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
