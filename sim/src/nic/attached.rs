//! What most devices do not have, behind one pointer of the [`Bus`](super::bus::Bus).

use super::card::CardSeat;
use super::observer::Observer;

/// What is attached to a device.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    /// What it is of its card, if it is one of several functions.
    pub(crate) card: Option<Box<CardSeat>>,
    /// Who wants to know what happens.
    pub(crate) observer: Option<Box<Observer>>,
}
