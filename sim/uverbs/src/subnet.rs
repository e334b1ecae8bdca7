//! The switch at the far end of an InfiniBand port's cable, as far as the port sees it: the subnet manager, which gives
//! the port its host's LID (IBTA v1.4 §14.4).
//!
//! **What this is.** All processes of a host have a port with the same LID. Each contains an SM of its own that knows
//! this LID, so packets on the management lane (VL 15) never leave the process.
//!
//! **What it may not do.** It carries no other packets; those go to the network.

use crate::commands::CommandQueue;
use crate::process::Process;
use alloc::vec::Vec;
use bareverbs_prm::time::Time;
use bareverbs_sim::net::{Egress, SubnetConfig, Switch};
use bareverbs_sim::wire::FrameBuffer;
use bareverbs_sim::wire::infiniband::{MANAGEMENT_LANE, virtual_lane};

/// An upper bound on the packets of both sides until a port is active.
const MOST_PACKETS: usize = 64;

/// The far end of an InfiniBand port's cable: the subnet manager, which gives the port its host's LID. It takes packets
/// on the management lane; all others go to the network.
#[derive(Debug)]
pub struct SubnetLink {
    switch: Switch,
    port: usize,
}

impl SubnetLink {
    /// A switch whose SM knows the LID of the port with this GUID.
    pub fn new(guid: u64, lid: u16) -> Self {
        let known_lids = [(guid, lid)].into();
        let mut switch = Switch::infiniband(SubnetConfig { known_lids, ..SubnetConfig::default() });
        let port = switch.add_port();
        Self { switch, port }
    }

    /// The cable was plugged in or pulled.
    pub fn handle_link(&mut self, now: Time, up: bool) {
        self.switch.handle_link(now, self.port, up);
    }

    /// Takes a packet from the device if it is on the management lane. Returns whether it did.
    pub fn takes(&mut self, now: Time, frame: &[u8]) -> bool {
        let is_management = virtual_lane(frame) == Some(MANAGEMENT_LANE);
        if is_management {
            self.switch.handle_frame(now, self.port, frame);
        }
        is_management
    }

    /// Runs what is due: request timeouts and sweeps.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.switch.handle_timeout(now);
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Time> {
        self.switch.poll_timeout()
    }

    /// The SM's next packet for the port.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        while let Some(egress) = self.switch.poll() {
            if let Egress::Own { frame, .. } = egress {
                return Some(frame);
            }
        }
        None
    }

    /// Passes the manager's packets to the device. Returns whether there were any.
    pub(crate) fn speak<P: Process>(
        &mut self,
        commands: &mut CommandQueue,
        now: Time,
        process: &mut P,
    ) -> bool {
        let mut has_spoken = false;
        while let Some(frame) = self.poll() {
            commands.with_device(process, |nic, memory| nic.handle_frame(now, memory, &frame));
            has_spoken = true;
        }
        has_spoken
    }

    /// Lets manager and device exchange packets until both are silent. During bring-up nothing else is on the
    /// port.
    pub(crate) fn bring_up<P: Process>(&mut self, commands: &mut CommandQueue, process: &mut P) {
        let (now, mut frame) = (process.now(), FrameBuffer::new());
        self.handle_link(now, true);
        for _ in 0..MOST_PACKETS {
            let said = self.speak(commands, now, process);
            let sent =
                commands.with_device(process, |nic, memory| nic.poll_transmit(now, memory, &mut frame));
            if sent.is_some() {
                self.takes(now, &frame);
            } else if !said {
                return;
            }
        }
    }
}
