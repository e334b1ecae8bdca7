//! The functions of one card in real time: devices that have threads of their own, and the DMA engine that copies between their memories.
//!
//! **What this is.** [`Card::join`] gives a device's runner its [`CardPort`]. Functions exchange messages (ADR 0028): a function announces
//! to the others what it shares; a copy is requested from the owner of its source, which checks and reads, and then from the owner of its
//! destination, which checks and writes. So no thread ever reaches the memory of another function.
//!
//! **What it may not do.** It has no delay of its own. A function accepts at most [`COPIES`] copies under way and
//! [`ROOM`] messages; a sender with more has to wait. A function that is gone owns no memory: copies that name it fail.

use bareverbs_prm::ids::VhcaId;
use bareverbs_sim::nic::{CardNotice, DmaEnd, DmaRefused, DmaRequest, HostMemory};
use bareverbs_sim::run::Device;
use core::fmt;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What wakes a thread that waits.
pub type Waker = Box<dyn FnMut() + Send>;

/// Copies of a function that are under way at a time, of at most 2 MiB each.
const COPIES: usize = 16;
/// Messages that wait for a function before its peers keep theirs.
const ROOM: usize = 256;
/// Bytes that a function moves in one turn, the last copy not counted.
const TURN: u64 = 1 << 20;

/// A card; see the module. Clones are the same card.
///
/// ```
/// use bareverbs_prm::ids::VhcaId;
/// use bareverbs_serve::real_time::Card;
///
/// let card = Card::default();
/// let host = card.join(VhcaId::from_low_bits(1), Box::new(|| ()));
/// assert!(host.is_some() && card.join(VhcaId::from_low_bits(1), Box::new(|| ())).is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Card(Arc<Mutex<Functions>>);

type Functions = BTreeMap<VhcaId, Function>;

/// A function as the others see it.
struct Function {
    inbox: VecDeque<CardMessage>,
    waker: Waker,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function").field("inbox", &self.inbox.len()).finish_non_exhaustive()
    }
}

/// What functions of a card say to each other. `ticket` numbers the copies of `asker`.
#[derive(Debug)]
enum CardMessage {
    Notice(CardNotice),
    Read { asker: VhcaId, ticket: u64, from: DmaEnd },
    Bytes { ticket: u64, bytes: Result<Vec<u8>, DmaRefused> },
    Write { asker: VhcaId, ticket: u64, to: DmaEnd, bytes: Vec<u8> },
    Written { ticket: u64, result: Result<(), DmaRefused> },
}

impl CardMessage {
    /// The answer of a function that is gone.
    fn unanswered(self, owner: VhcaId) -> Option<(VhcaId, Self)> {
        let gone = DmaRefused::NoFunction(owner);
        match self {
            Self::Read { asker, ticket, .. } => Some((asker, Self::Bytes { ticket, bytes: Err(gone) })),
            Self::Write { asker, ticket, .. } => Some((asker, Self::Written { ticket, result: Err(gone) })),
            Self::Notice(_) | Self::Bytes { .. } | Self::Written { .. } => None,
        }
    }
}

impl Card {
    /// Makes a device the function of this number. `waker` is called when others have something for it. `None` if the number is taken.
    pub fn join(&self, id: VhcaId, waker: Waker) -> Option<CardPort> {
        let mut functions = self.lock();
        if functions.contains_key(&id) {
            return None;
        }
        functions.insert(id, Function { inbox: VecDeque::new(), waker });
        let card = self.clone();
        Some(CardPort { card, id, copies: BTreeMap::new(), next: 0 })
    }

    /// The message queues stay consistent if another thread panics.
    fn lock(&self) -> MutexGuard<'_, Functions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to a function; returns the message if there is no such function.
    fn put(&self, to: VhcaId, message: CardMessage) -> Result<(), CardMessage> {
        match self.lock().get_mut(&to) {
            None => Err(message),
            Some(function) => {
                function.inbox.push_back(message);
                (function.waker)();
                Ok(())
            }
        }
    }
}

/// A device's place on a card. Dropping it takes the function off the card.
#[derive(Debug)]
pub struct CardPort {
    card: Card,
    id: VhcaId,
    copies: BTreeMap<u64, DmaRequest>,
    next: u64,
}

impl CardPort {
    /// Does what others ask of this function and what it asks of them, up to a turn of it; tells whether there was anything.
    pub(super) fn serve<M: HostMemory, D: Device>(&mut self, function: &mut DmaSide<'_, M, D>) -> bool {
        let (mut busy, mut moved) = (false, 0);
        while moved < TURN
            && let Some(message) = self.take()
        {
            moved += self.handle(function, message);
            busy = true;
        }
        if function.device.has_card_output() {
            busy |= self.tell(&mut self.card.lock(), function.device);
            busy |= self.begin(function);
        }
        busy
    }

    /// Has the device do what may change what it shares. Whoever hears of that from its host asks the card only afterwards, and finds the
    /// notice there.
    pub(super) fn changing<D: Device>(&self, device: &mut D, change: impl FnOnce(&mut D)) {
        let mut functions = self.card.lock();
        change(device);
        self.tell(&mut functions, device);
    }

    fn take(&self) -> Option<CardMessage> {
        self.card.lock().get_mut(&self.id)?.inbox.pop_front()
    }

    /// Tells the others what this function shares, if all of them have room. What is kept meanwhile is the latest state.
    fn tell<D: Device>(&self, functions: &mut Functions, device: &mut D) -> bool {
        let mut told = false;
        while functions.iter().all(|(id, other)| *id == self.id || other.inbox.len() < ROOM) {
            let Some(notice) = device.poll_card_notice() else { break };
            for (_, other) in functions.iter_mut().filter(|(id, _)| **id != self.id) {
                other.inbox.push_back(CardMessage::Notice(notice));
                (other.waker)();
            }
            told = true;
        }
        told
    }

    /// Begins copies that the device asks for.
    fn begin<M: HostMemory, D: Device>(&mut self, function: &mut DmaSide<'_, M, D>) -> bool {
        let (mut begun, mut moved) = (false, 0);
        while self.copies.len() < COPIES
            && moved < TURN
            && let Some(request) = function.device.poll_dma()
        {
            begun = true;
            moved += request.length();
            let (ticket, from) = (self.next, request.copy().source);
            self.next += 1;
            self.copies.insert(ticket, request);
            match from.owner() {
                None => {
                    let bytes = function.read(&from);
                    self.go_on(function, ticket, bytes);
                }
                Some(owner) => self.ask(function, owner, CardMessage::Read { asker: self.id, ticket, from }),
            }
        }
        begun
    }

    /// Asks the owner of an end; one that is not there has refused.
    fn ask<M: HostMemory, D: Device>(
        &mut self,
        function: &mut DmaSide<'_, M, D>,
        owner: VhcaId,
        message: CardMessage,
    ) {
        if let Err(message) = self.card.put(owner, message)
            && let Some((_, answer)) = message.unanswered(owner)
        {
            self.handle(function, answer);
        }
    }

    /// Does what a message says; gives the bytes that were moved.
    fn handle<M: HostMemory, D: Device>(
        &mut self,
        function: &mut DmaSide<'_, M, D>,
        message: CardMessage,
    ) -> u64 {
        match message {
            CardMessage::Notice(notice) => function.device.handle_card_notice(&notice),
            CardMessage::Read { asker, ticket, from } => {
                // Who asked may be gone.
                let _ = self.card.put(asker, CardMessage::Bytes { ticket, bytes: function.read(&from) });
                return from.length();
            }
            CardMessage::Write { asker, ticket, to, bytes } => {
                let _ = self
                    .card
                    .put(asker, CardMessage::Written { ticket, result: function.write(&to, &bytes) });
                return to.length();
            }
            CardMessage::Bytes { ticket, bytes } => {
                let moved = bytes.as_ref().map_or(0, Vec::len) as u64;
                self.go_on(function, ticket, bytes);
                return moved;
            }
            CardMessage::Written { ticket, result } => self.end(function, ticket, result),
        }
        0
    }

    /// The bytes of a copy have been read, or not.
    fn go_on<M: HostMemory, D: Device>(
        &mut self,
        function: &mut DmaSide<'_, M, D>,
        ticket: u64,
        bytes: Result<Vec<u8>, DmaRefused>,
    ) {
        // Only this function numbers its copies, and each message about one is answered once: by the function that it went
        // to, or by the card when that function has gone. So the copy is there.
        let Some(to) = self.copies.get(&ticket).map(|request| request.copy().destination) else { return };
        match (bytes, to.owner()) {
            (Err(refused), _) => self.end(function, ticket, Err(refused)),
            (Ok(bytes), None) => {
                let result = function.write(&to, &bytes);
                self.end(function, ticket, result);
            }
            (Ok(bytes), Some(owner)) => {
                self.ask(function, owner, CardMessage::Write { asker: self.id, ticket, to, bytes });
            }
        }
    }

    fn end<M: HostMemory, D: Device>(
        &mut self,
        function: &mut DmaSide<'_, M, D>,
        ticket: u64,
        result: Result<(), DmaRefused>,
    ) {
        if let Some(request) = self.copies.remove(&ticket) {
            function.device.handle_dma_end(function.now, function.memory, &request, result);
        }
    }
}

impl Drop for CardPort {
    /// Those who wait for this function are answered.
    fn drop(&mut self) {
        let left = self.card.lock().remove(&self.id);
        for message in left.into_iter().flat_map(|function| function.inbox) {
            if let Some((asker, answer)) = message.unanswered(self.id) {
                let _ = self.card.put(asker, answer);
            }
        }
    }
}

/// A device and its memory, as copies need them.
pub(super) struct DmaSide<'a, M, D> {
    pub(super) device: &'a mut D,
    pub(super) memory: &'a mut M,
    pub(super) now: bareverbs_prm::time::Time,
}

impl<M: HostMemory, D: Device> DmaSide<'_, M, D> {
    fn read(&mut self, from: &DmaEnd) -> Result<Vec<u8>, DmaRefused> {
        let mut bytes = vec![0; usize::try_from(from.length()).unwrap_or(usize::MAX)];
        self.device.read_dma(self.memory, from, &mut bytes)?;
        Ok(bytes)
    }

    fn write(&mut self, to: &DmaEnd, bytes: &[u8]) -> Result<(), DmaRefused> {
        self.device.write_dma(self.memory, to, bytes)
    }
}
