//! QUERY_CONG_STATISTICS, QUERY_CONG_STATUS.

use super::call::Call;
use crate::nic::Nic;
use crate::nic::ethernet::traffic::PRIORITIES;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::congestion::{
    NOTIFICATION_POINT, QueryCongStatisticsIn, QueryCongStatisticsOut, QueryCongStatusIn, QueryCongStatusOut,
    REACTION_POINT,
};

/// No flow is ever slowed down here, so there is none to report.
pub(super) fn query_statistics(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryCongStatisticsIn,
    output: &mut QueryCongStatisticsOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let counters = nic.congestion_counters(input.clear());
    let halves = |value: u64| ((value >> 32) as u32, value as u32);
    let (high, low) = halves(counters.marked);
    output.set_np_ecn_marked_roce_packets_high(high).set_np_ecn_marked_roce_packets_low(low);
    let (high, low) = halves(counters.sent);
    output.set_np_cnp_sent_high(high).set_np_cnp_sent_low(low);
    let (high, low) = halves(counters.handled);
    output.set_rp_cnp_handled_high(high).set_rp_cnp_handled_low(low);
    let (high, low) = halves(counters.ignored);
    output.set_rp_cnp_ignored_high(high).set_rp_cnp_ignored_low(low);
    let nanos = call.now.as_nanos();
    let (high, low) = halves(nanos);
    output.set_time_stamp_high(high).set_time_stamp_low(low);
    Ok(())
}

/// One switch controls all priorities. On Ethernet, marked packets are always answered; InfiniBand has a
/// different kind of mark.
pub(super) fn query_status(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryCongStatusIn,
    output: &mut QueryCongStatusOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    if usize::from(input.priority()) >= PRIORITIES {
        return Err(syndrome::CONGESTION_PRIORITY);
    }
    output.set_enable(match input.cong_protocol() {
        REACTION_POINT => nic.shared.port.marks_as_capable(),
        NOTIFICATION_POINT => !nic.shared.port.is_infiniband(),
        _ => return Err(syndrome::CONGESTION_PROTOCOL),
    });
    Ok(())
}
