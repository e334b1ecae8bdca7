//! The parts of a queue pair that do not depend on its state: rings, numbers, and the commands that change
//! its state.

use super::attributes::QueuePairAttributes;
use super::error::ModifyError;
use super::receive::ReceiveQueue;
use super::send::SendQueue;
use super::service::LOG_LARGEST_PACKET;
use super::status::QueuePairStatus;
use super::transitions::{Column, Transition, TransitionError, check};

use crate::command::{CommandError, Request};
use crate::device::ledgers::Share;
use crate::device::{DestroyCommand, DeviceRef, DmaOf};
use crate::dma::Rings;
use crate::ledger::shared::detach;
use bareverbs_prm::command::entry::CommandHeaderOut;
use bareverbs_prm::command::qp::{
    InitToInitQpIn, QueryQpIn, QueryQpOut, ResetToInitQpIn, ToErrorQpIn, extension_mask,
};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Cqn, Pdn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, PathMigration, PathMtu, QpState, ServiceType};
use bareverbs_prm::psn::Psn;

/// `log_ack_req_freq`: request an ACK at least every 2^8 packets, as Linux does.
const LOG_ACK_REQUEST: u8 = 8;
/// log2 of the bytes of a management datagram (IBTA v1.4 §13.4.2).
const LOG_MANAGEMENT_DATAGRAM: u8 = 8;

/// What the builder passes on.
pub(crate) struct QueuePairParts<D: DeviceRef> {
    pub(crate) rings: Rings<DmaOf<D>>,
    pub(crate) share: Share,
    pub(crate) qpn: Qpn,
    pub(crate) service: ServiceType,
    /// Its column in the table of transitions.
    pub(crate) column: Column,
    pub(crate) state: QpState,
    pub(crate) domain: Pdn,
    pub(crate) queues: [Cqn; 2],
    pub(crate) psn: Psn,
    /// Its counter set; 0 for none.
    pub(crate) counter_set: u8,
    /// Index of its P_Key.
    pub(crate) pkey_index: u16,
    pub(crate) blue_flame: Option<u8>,
    /// Whether it receives from a shared receive queue.
    pub(crate) shared: bool,
    pub(crate) send: SendQueue,
    pub(crate) receive: ReceiveQueue,
}

/// A queue pair in any state.
pub(crate) struct Core<D: DeviceRef> {
    pub(crate) device: D,
    pub(crate) parts: QueuePairParts<D>,
}

impl<D: DeviceRef> Core<D> {
    pub(crate) fn new(device: D, parts: QueuePairParts<D>) -> Self {
        Self { device, parts }
    }

    /// RESET to INIT.
    pub(crate) fn initialise(&mut self, initial: &QueuePairAttributes) -> Result<(), CommandError> {
        match self.modify(QpState::Init, initial) {
            Ok(()) => Ok(()),
            Err(ModifyError::Command(error) | ModifyError::State { error, .. }) => Err(error),
            Err(ModifyError::Transition(_) | ModifyError::Draining { .. }) => {
                unreachable!("the table has RESET to INIT with these attributes")
            }
        }
    }

    /// Moves to the state `to`. Wrong attributes are refused before anything is sent.
    pub(crate) fn modify(
        &mut self,
        to: QpState,
        attributes: &QueuePairAttributes,
    ) -> Result<(), ModifyError> {
        let from = self.state_before(to)?;
        let transition =
            check(self.parts.column, from, to, attributes.given()).map_err(ModifyError::Transition)?;
        let done = match transition.command {
            CommandOpcode::ToErrorQp | CommandOpcode::ToResetQp => self.run(transition.command),
            _ => self.run_with(transition, attributes),
        };
        done.map_err(|error| self.blame(from, error))?;
        let begins_to_drain = transition.command == CommandOpcode::RtsToSqdQp;
        self.parts.state = if begins_to_drain { QpState::SqDraining } else { to };
        Ok(())
    }

    /// The state from which a transition starts. Only the device knows whether a send queue has finished
    /// draining.
    fn state_before(&mut self, to: QpState) -> Result<QpState, ModifyError> {
        if self.parts.state == QpState::SqDraining {
            self.query().map_err(ModifyError::Command)?;
        }
        match self.parts.state {
            QpState::SqDraining if matches!(to, QpState::Rts | QpState::SqDrained) => {
                Err(ModifyError::Draining { to })
            }
            QpState::SqDraining => Ok(QpState::SqDrained),
            state => Ok(state),
        }
    }

    /// Explains a refused transition. If the device refused because of the state, it has moved the queue pair
    /// itself: queries the actual state.
    fn blame(&mut self, believed: QpState, error: CommandError) -> ModifyError {
        if error.status() != Some(CommandStatus::BadQpState) {
            return ModifyError::Command(error);
        }
        match self.query() {
            Ok(status) if status.state != believed => {
                ModifyError::State { believed, actual: status.state, error }
            }
            _ => ModifyError::Command(error),
        }
    }

    /// Runs a command with a context. All of these commands have the layout of RST2INIT (PRM, modify queue
    /// pair commands).
    fn run_with(
        &self,
        transition: &Transition,
        attributes: &QueuePairAttributes,
    ) -> Result<(), CommandError> {
        let mut input = ResetToInitQpIn::new();
        let parts = &self.parts;
        input.set_opcode(transition.command).set_qpn(parts.qpn);
        input.set_opt_param_mask(
            attributes.optional_mask(transition.optional.of(self.parts.column), parts.service),
        );
        let [send, receive] = parts.queues;
        input
            .qpc_mut()
            .set_st(parts.service)
            .set_pm_state(PathMigration::Migrated)
            .set_pd(parts.domain)
            .set_cqn_snd(send)
            .set_cqn_rcv(receive)
            .set_counter_set_id(parts.counter_set)
            .set_log_ack_req_freq(LOG_ACK_REQUEST)
            .set_dbr_addr(parts.rings.memory().iova() + parts.send.record as u64 * 64);
        self.fill_message_limit(input.qpc_mut());
        attributes.fill(input.qpc_mut());
        self.device.device().call::<CommandHeaderOut>(&Request::new(&input)).map(|_| ())
    }

    /// Sets the longest message, and for datagrams the largest packet, which depends on the port and is not
    /// an attribute.
    fn fill_message_limit(&self, context: &mut QueuePairContext) {
        let limit = self.device.device().capabilities().log_max_message;
        match self.parts.service {
            ServiceType::Ud => {
                context.set_mtu(PathMtu::Mtu4096).set_log_msg_max(limit.min(LOG_LARGEST_PACKET))
            }
            // As in mlx5_ib: a management datagram is 256 bytes.
            ServiceType::Qp1 => context.set_mtu(PathMtu::Mtu256).set_log_msg_max(LOG_MANAGEMENT_DATAGRAM),
            _ => context.set_log_msg_max(limit),
        };
    }

    /// Enables memory-to-memory operations on a queue pair in INIT.
    pub(crate) fn enable_mmo(&self) -> Result<(), CommandError> {
        let mut input = InitToInitQpIn::new();
        input.set_opcode(CommandOpcode::InitToInitQp).set_qpn(self.parts.qpn);
        input.set_qpc_ext(true).set_opt_param_mask_95_32(extension_mask::MMO);
        input.qpc_data_ext_mut().set_mmo(true);
        self.device.device().call::<CommandHeaderOut>(&Request::new(&input)).map(|_| ())
    }

    /// Runs a command whose only argument is the queue pair number.
    fn run(&self, command: CommandOpcode) -> Result<(), CommandError> {
        let mut input = ToErrorQpIn::new();
        input.set_opcode(command).set_qpn(self.parts.qpn);
        self.device.device().call::<CommandHeaderOut>(&Request::new(&input)).map(|_| ())
    }

    pub(crate) fn query(&mut self) -> Result<QueuePairStatus, CommandError> {
        let mut input = QueryQpIn::new();
        input.set_opcode(CommandOpcode::QueryQp).set_qpn(self.parts.qpn);
        let output: QueryQpOut = self.device.device().call(&Request::new(&input))?;
        let context = output.qpc();
        self.parts.state = context.state();
        Ok(QueuePairStatus {
            state: context.state(),
            remote_qpn: context.remote_qpn(),
            next_send_psn: context.next_send_psn(),
            next_receive_psn: context.next_rcv_psn(),
            path_mtu: context.mtu(),
            hardware_send_counter: context.hw_sq_wqebb_counter(),
        })
    }

    /// Empties rings and ledgers after 2RST_QP. The completion queues have already been cleaned.
    pub(crate) fn restart(&mut self) {
        let (device, parts) = (&self.device, &mut self.parts);
        let ledgers = device.device().ledgers();
        parts.send.poster.restart(ledgers);
        parts.send.open_fast_paths();
        parts.receive.poster.restart(ledgers);
        parts.rings.record().store_be64::<0>(0);
    }
}

impl From<TransitionError> for ModifyError {
    fn from(error: TransitionError) -> Self {
        Self::Transition(error)
    }
}

impl<D: DeviceRef> Drop for Core<D> {
    /// Resets and destroys the queue pair, then frees its memory. Completions that are still in the queues
    /// are discarded when they are polled.
    #[doc(alias = "ibv_destroy_qp")]
    fn drop(&mut self) {
        if self.parts.state != QpState::Reset {
            self.run(CommandOpcode::ToResetQp).ok();
        }
        let (device, parts) = (self.device.device(), &mut self.parts);
        parts.send.poster.close(device.ledgers());
        parts.receive.poster.close(device.ledgers());
        if parts.shared {
            detach(device.ledgers(), parts.share.record);
        }
        device.ledgers().give_back(parts.share);
        let command = DestroyCommand::new(CommandOpcode::DestroyQp, parts.qpn.value());
        device.destroy(command, Some(parts.rings.take()));
        if let Some(register) = parts.blue_flame {
            device.blue_flame().give_back(register);
        }
    }
}
