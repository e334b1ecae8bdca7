//! How a switch hands the subnet to another SM, and takes it over again.

use super::administration::Administration;
use super::agent::ManagerState;
use super::manager::CAPABILITY_CHANGE;
use super::mastership::{OtherManager, Succession};
use super::{Managing, Subnet};
use crate::wire::LocalRoute;
use crate::wire::management::attributes::Notice;
use crate::wire::management::{CLASS_VERSION, SubnetPacket, attribute, status};
use bareverbs_prm::time::Time;

impl Subnet {
    /// The SM's state, if the SM is the master.
    pub(super) fn master(&mut self) -> Option<&mut Managing> {
        self.managing.as_deref_mut().filter(|managing| managing.mastership.is_master())
    }

    /// Handles Set(SMInfo) from another SM. The response shows the resulting state.
    pub(super) fn answer_manager(
        &mut self,
        now: Time,
        ingress: u8,
        mut request: SubnetPacket,
        local: &LocalRoute,
    ) -> bool {
        let Some(managing) = self.managing.as_deref_mut() else { return false };
        if !request.arrive(ingress) {
            return false;
        }
        let other = request.read().map(|info| OtherManager { info, route: request.way_back() });
        let done = match other {
            Some(_) if request.class_version() != CLASS_VERSION => Err(status::BAD_VERSION),
            Some(other) => managing.mastership.handle_set(now, request.attribute().1, other),
            None => Err(status::INVALID),
        };
        if done.is_ok() {
            request.write(&managing.state().info);
        }
        request.answer(done.err().unwrap_or(status::OK));
        self.send_back(ingress, &request, local);
        self.succeed(now, done.unwrap_or(Succession::Stay));
        true
    }

    /// Represses a late trap 144. OpenSM announces itself to the initial master with trap 144, and may take over the
    /// subnet before the trap arrives. The master still answers with TrapRepress (a driver may consume that, as mlx5_ib
    /// does), and nothing else remains to be done.
    pub(super) fn take_late_trap(&mut self, ingress: u8, trap: &SubnetPacket, local: &LocalRoute) -> bool {
        let notice = trap.read::<Notice>().filter(|_| trap.attribute().0 == attribute::NOTICE);
        let is_manager =
            notice.is_some_and(|notice| notice.is_generic() && notice.trap() == CAPABILITY_CHANGE);
        let is_heard = is_manager && self.managing.is_some();
        if is_heard {
            self.repress(ingress, trap, local);
        }
        is_heard
    }

    /// Polls the master if another SM holds that role, and takes over if it no longer responds.
    pub(super) fn watch_master(&mut self, now: Time) {
        let Some(managing) = self.managing.as_deref_mut() else { return };
        let succession = managing.mastership.handle_timeout(now);
        self.succeed(now, succession);
    }

    pub(super) fn succeed(&mut self, now: Time, succession: Succession) {
        match succession {
            Succession::Stay => {}
            Succession::Yield => self.yield_subnet(),
            Succession::TakeOver => self.take_over(now),
        }
    }

    /// Drops the SA's state. Clients register again with the new master.
    fn yield_subnet(&mut self) {
        let Some(managing) = self.managing.as_deref_mut() else { return };
        managing.begin_anew();
        self.agent.obey_another();
    }

    /// Rediscovers all ports as if just plugged in, but they keep their LIDs, and active ports stay active. The unicast
    /// tables remain until the new ones are known, so data keeps flowing. Ports have to rejoin their groups.
    fn take_over(&mut self, now: Time) {
        let Some(managing) = self.managing.as_deref_mut() else { return };
        managing.begin_anew();
        self.tables.clear_groups();
        for port in self.agent.obey_own(managing.manager.partitions()) {
            managing.manager.handle_link(now, port, true);
        }
        self.follow_manager(now);
    }
}

impl Managing {
    /// The SM's state as the agent of its node reports it.
    pub(super) fn state(&self) -> ManagerState {
        let activity = self.manager.transactions() as u32;
        ManagerState { info: self.mastership.info(activity), is_master: self.mastership.is_master() }
    }

    fn begin_anew(&mut self) {
        self.administration = Administration::new(self.sm_key, self.manager.partitions().ip_keys());
        self.manager = self.manager.successor();
        self.groups.clear();
    }
}
