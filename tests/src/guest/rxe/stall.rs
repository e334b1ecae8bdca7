//! Detects that Soft-RoCE has stopped inside a message.
//!
//! Its requester holds packets back while more than 64 are in flight (`RXE_INFLIGHT_SKBS_PER_QP_HIGH`), and
//! asks to be woken in a second step. If the last of them are acknowledged between the two steps, nobody
//! wakes it. On a reliable connection a timer does; an unreliable one has none. This happens to a guest that
//! loses its processors at the wrong moment, and it leaves nothing to judge. The evidence is the guest's own
//! count of packets and ours.

use super::super::machine::Machine;
use super::cases::{Case, Service, Wire};
use super::counterpart::NoCompletion;
use super::guest_side::{DEVICE, GuestDevice};
use super::our_side::Nic;
use anyhow::{Context, Error, Result};
use std::time::Duration;

/// Packets in flight above which it holds others back.
const UNDER_WAY: u64 = 64;
/// The beginning of the reason.
pub(super) const EXCUSE: &str = "Soft-RoCE stopped inside a message";
const SHORT: Duration = Duration::from_secs(30);

/// RoCE packets that the guest says it sent, and that arrived here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Packets {
    sent: u64,
    arrived: u64,
}

/// The counts before a case.
#[derive(Debug)]
pub struct StallDetector {
    before: Packets,
    /// Packets per message.
    of_message: u64,
}

impl StallDetector {
    /// Takes the counts before a case that can stall; `None` for all others.
    pub fn call(machine: &mut Machine, nic: &Nic, guest: &GuestDevice, case: &Case) -> Result<Option<Self>> {
        let of_message = u64::from(case.size.div_ceil(case.mtu));
        let concerned = guest.name == DEVICE
            && case.program.service() == Service::Uc
            && case.wire == Wire::Clean
            && of_message > UNDER_WAY;
        if !concerned {
            return Ok(None);
        }
        Ok(Some(Self { before: count(machine, nic)?, of_message }))
    }

    /// After a failed case: why it could not be judged, if that is so. Only a case that failed by waiting can
    /// be excused; any other failure is a verdict.
    pub fn explain(&self, machine: &mut Machine, nic: &Nic, error: &Error) -> Result<Option<String>> {
        if !waited_in_vain(error) {
            return Ok(None);
        }
        let now = count(machine, nic)?;
        let (sent, arrived) = (now.sent - self.before.sent, now.arrived - self.before.arrived);
        let of_message = self.of_message;
        Ok(is_stalled(Packets { sent, arrived }, of_message).then(|| {
            format!(
                "{EXCUSE} of {of_message} packets: all {sent} that it sent have arrived; it holds back \
                 what is more than {UNDER_WAY} under way, can miss that they are gone, and nothing wakes it"
            )
        }))
    }
}

fn waited_in_vain(error: &Error) -> bool {
    error.chain().any(|cause| cause.is::<NoCompletion>())
}

/// Whether nothing was lost on the way although the sender stopped inside a message.
const fn is_stalled(packets: Packets, of_message: u64) -> bool {
    packets.sent == packets.arrived && !packets.sent.is_multiple_of(of_message)
}

fn count(machine: &mut Machine, nic: &Nic) -> Result<Packets> {
    let command = format!("cat /sys/class/infiniband/{DEVICE}/ports/1/hw_counters/sent_pkts");
    let sent = machine.control.require(&command, SHORT)?;
    let sent = sent.trim().parse().with_context(|| format!("sent_pkts is {sent:?}"))?;
    Ok(Packets { sent, arrived: nic.roce_packets() })
}

#[cfg(test)]
mod tests {
    use super::{NoCompletion, Packets, is_stalled, waited_in_vain};
    use anyhow::anyhow;

    #[test]
    fn only_a_missing_completion_excuses_a_stalled_guest() {
        let waited = anyhow!(NoCompletion(vec![1])).context("counters").context("what the program said");
        assert!(waited_in_vain(&waited));
        assert!(!waited_in_vain(&anyhow!("other bytes").context("counters")));
    }

    #[test]
    fn only_an_unfinished_message_counts_as_stalled() {
        let seen = |sent, arrived| is_stalled(Packets { sent, arrived }, 4096);
        assert!(seen(65, 65) && seen(3 * 4096 + 1000, 3 * 4096 + 1000));
        assert!(!seen(65, 64), "one packet was lost on the wire");
        assert!(!seen(8192, 8192), "everything was sent, so the loss is on our side");
        assert!(!seen(0, 0));
    }
}
