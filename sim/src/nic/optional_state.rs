//! Optional parts that most devices lack, behind one pointer of the [`Bus`](super::bus::Bus).

use super::card::CardState;
use super::extension::RpcEngine;
use super::observer::Observer;

/// The optional parts of a device.
#[derive(Default)]
pub(crate) struct OptionalState {
    /// Its state in the card, if the device is one of several functions.
    pub(crate) card: Option<Box<CardState>>,
    /// The observer of its events.
    pub(crate) observer: Option<Box<Observer>>,
    /// The engine for StRoM's op-codes. It is only used if [`strom`](super::NicConfig::strom) is set.
    pub(crate) engine: Option<Box<dyn RpcEngine>>,
}
