//! Transport domains and transport interface sends (TIS).

use super::super::call::Call;
use crate::nic::Nic;
use crate::nic::syndrome::{self, Refusal};
use bareverbs_prm::command::ethernet_send::{
    AllocTransportDomainIn, AllocTransportDomainOut, CreateTisIn, CreateTisOut, DeallocTransportDomainIn,
    DeallocTransportDomainOut, DestroyTisIn, DestroyTisOut, ModifyTisIn, ModifyTisOut, QueryTisIn,
    QueryTisOut, TisContext,
};
use bareverbs_prm::ids::{Tisn, TransportDomain};

pub(super) fn alloc(
    nic: &mut Nic,
    call: &mut Call<'_>,
    _: &AllocTransportDomainIn,
    output: &mut AllocTransportDomainOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let limit = 1 << nic.firmware.capabilities.general.log_max_transport_domain();
    let domains = &mut nic.ethernet.transport_domains;
    let number = domains.next_number(limit).ok_or(syndrome::TRANSPORT_DOMAIN_LIMIT)?;
    domains.insert(number, ());
    output.set_transport_domain(TransportDomain::from_low_bits(number));
    Ok(())
}

pub(super) fn dealloc(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DeallocTransportDomainIn,
    _: &mut DeallocTransportDomainOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let domain = input.transport_domain();
    check_domain(nic, domain)?;
    let ethernet = &mut nic.ethernet;
    let used = ethernet.send_interfaces.iter().any(|(_, tis)| tis.transport_domain() == domain)
        || ethernet.receive_interfaces.iter().any(|(_, tir)| tir.transport_domain() == domain);
    if used {
        return Err(syndrome::TRANSPORT_DOMAIN_BUSY);
    }
    ethernet.transport_domains.remove(domain.value());
    Ok(())
}

/// The domain must exist.
pub(super) fn check_domain(nic: &Nic, domain: TransportDomain) -> Result<(), Refusal> {
    let known = nic.ethernet.transport_domains.get(domain.value());
    known.copied().ok_or(syndrome::TRANSPORT_DOMAIN_UNKNOWN)
}

/// Refuses bonding, TLS and InfiniBand underlays.
fn check_tis(context: &TisContext) -> Result<(), Refusal> {
    let bonds = context.strict_lag_tx_port_affinity() || context.lag_tx_port_affinity() > 1;
    if bonds || context.tls_en() || context.underlay_qpn() != 0 {
        return Err(syndrome::TIS_FEATURE);
    }
    Ok(())
}

pub(super) fn create_tis(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &CreateTisIn,
    output: &mut CreateTisOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_tis(input.ctx())?;
    check_domain(nic, input.ctx().transport_domain())?;
    let limit = 1 << nic.firmware.capabilities.general.log_max_tis();
    let interfaces = &mut nic.ethernet.send_interfaces;
    let number = interfaces.next_number(limit).ok_or(syndrome::TIS_LIMIT)?;
    interfaces.insert(number, *input.ctx());
    output.set_tisn(Tisn::from_low_bits(number));
    Ok(())
}

/// Sets the priority. It is only stored, because there is one queue to the wire.
pub(super) fn modify_tis(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &ModifyTisIn,
    _: &mut ModifyTisOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    check_tis(input.ctx())?;
    let known = nic.ethernet.send_interfaces.get_mut(input.tisn().value());
    let context = known.ok_or(syndrome::TIS_UNKNOWN)?;
    if input.bitmask_prio() {
        context.set_prio(input.ctx().prio());
    }
    Ok(())
}

pub(super) fn destroy_tis(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &DestroyTisIn,
    _: &mut DestroyTisOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let uses = |tis: Tisn| tis == input.tisn();
    if nic.ethernet.send_queues.iter().any(|(_, q)| q.context.tis_lst_sz() > 0 && uses(q.context.tis_num_0()))
    {
        return Err(syndrome::TIS_BUSY);
    }
    nic.ethernet.send_interfaces.remove(input.tisn().value()).map(drop).ok_or(syndrome::TIS_UNKNOWN)
}

pub(super) fn query_tis(
    nic: &mut Nic,
    call: &mut Call<'_>,
    input: &QueryTisIn,
    output: &mut QueryTisOut,
) -> Result<(), Refusal> {
    call.expect_no_op_mod()?;
    let context = nic.ethernet.send_interfaces.get(input.tisn().value()).ok_or(syndrome::TIS_UNKNOWN)?;
    output.tis_context_mut().clone_from(context);
    Ok(())
}
