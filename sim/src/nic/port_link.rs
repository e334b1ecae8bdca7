//! Whether frames can pass a port: its cable, its administrative state, and a receive buffer that may be
//! full.

use crate::wire::management::values::PhysicalState;

/// What the far end of a cable sees of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkHistory {
    /// Whether frames pass: the cable is plugged in, and software has enabled the port.
    pub is_up: bool,
    /// How often the link went down so far.
    pub drops: u64,
    /// How often a reset of the device made a link that was up train again. The SM then has to configure the port again, but
    /// no switch counts that as a link that went down.
    pub trainings: u64,
}

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PortLink {
    is_plugged: bool,
    is_wanted: bool,
    is_metered: bool,
    /// The link is up and accepts everything at once. Checked for every frame.
    takes_at_once: bool,
}

impl PortLink {
    /// A port with a cable attached.
    pub(crate) const fn new(is_wanted: bool, is_metered: bool) -> Self {
        Self { is_plugged: true, is_wanted, is_metered, takes_at_once: is_wanted && !is_metered }
    }

    /// Whether frames pass.
    pub(crate) const fn is_up(&self) -> bool {
        self.is_plugged && self.is_wanted
    }

    /// Physical state of an InfiniBand port.
    pub(crate) const fn physical_state(&self) -> PhysicalState {
        match (self.is_wanted, self.is_plugged) {
            (true, true) => PhysicalState::LinkUp,
            (true, false) => PhysicalState::Polling,
            (false, _) => PhysicalState::Disabled,
        }
    }

    /// Whether frames pass and no receive buffer can fill up.
    #[inline]
    pub(crate) const fn takes_at_once(&self) -> bool {
        self.takes_at_once
    }

    /// Whether a cable is attached and its other end is up.
    pub(crate) const fn is_plugged(&self) -> bool {
        self.is_plugged
    }

    /// Whether software has enabled the port.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    pub(crate) const fn set_plugged(&mut self, is_plugged: bool) {
        self.is_plugged = is_plugged;
        self.takes_at_once = self.is_up() && !self.is_metered;
    }

    pub(crate) const fn set_wanted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
        self.takes_at_once = self.is_up() && !self.is_metered;
    }
}
