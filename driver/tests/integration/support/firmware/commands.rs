//! A handler a command: what it does to the books, and what it answers.

use super::super::memory::Memory;
use super::{Firmware, Pair, Pool, Ring};
use bareverbs_prm::command::cq::{CreateCqIn, ModifyCqIn};
use bareverbs_prm::command::entry::CommandHeaderIn;
use bareverbs_prm::command::eq::CreateEqIn;
use bareverbs_prm::command::mkey::CreateMkeyIn;
use bareverbs_prm::command::qp::CreateQpIn;
use bareverbs_prm::command::srq::{CreateRmpIn, RmpContext};
use bareverbs_prm::context::{CompletionQueueContext, EventQueueContext, MkeyContext, QueuePairContext};
use bareverbs_prm::cqe::CompletionEntry;
use bareverbs_prm::numbering::{CommandOpcode as Op, CommandStatus, CqeOpcode};
use std::collections::BTreeSet;
use zerocopy::{FromBytes, IntoBytes};

/// Status and bytes behind the header.
pub(super) type CommandResult = Result<Vec<u8>, CommandStatus>;

pub(super) fn done() -> CommandResult {
    Ok(Vec::new())
}

fn number(n: u32) -> CommandResult {
    Ok(n.to_be_bytes().to_vec())
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_be_bytes(b.try_into().unwrap()))
}

pub(super) fn part<T: FromBytes>(input: &[u8], at: usize) -> Result<T, CommandStatus> {
    let rest = input.get(at..).ok_or(CommandStatus::BadInputLength)?;
    T::read_from_prefix(rest).map(|(value, _)| value).map_err(|_| CommandStatus::BadInputLength)
}

fn addresses(input: &[u8], at: usize) -> Vec<u64> {
    input
        .get(at..)
        .unwrap_or(&[])
        .chunks_exact(8)
        .map(|b| u64::from_be_bytes(b.try_into().unwrap()))
        .collect()
}

impl Firmware {
    fn new_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }

    pub(super) fn execute(&mut self, input: &[u8], memory: &Memory) -> CommandResult {
        let header = part::<CommandHeaderIn>(input, 0)?;
        let argument = be32(input, 8);
        match header.opcode() {
            Op::EnableHca => self.enable(),
            Op::DisableHca => self.disable(),
            Op::InitHca => self.initialise(),
            Op::TeardownHca => self.tear_down(),
            Op::QueryIssi => self.issi(),
            Op::QueryPages => self.query_pages(header.op_mod()),
            Op::ManagePages => self.manage_pages(header.op_mod(), input, memory),
            Op::QueryHcaCap => self.capability(header.op_mod()),
            Op::SetHcaCap => self.set_capability(header.op_mod(), input),
            Op::AccessReg => Ok(access(argument)),
            Op::AllocUar => {
                self.uars.insert(0x10);
                number(0x10)
            }
            Op::DeallocUar => remove(&mut self.uars, argument),
            Op::CreateEq => self.create_event_queue(input),
            Op::DestroyEq => {
                self.event_queues.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
            }
            Op::AllocPd => {
                let n = self.new_number();
                self.domains.insert(n);
                number(n)
            }
            Op::DeallocPd => self.free_domain(argument),
            Op::CreateMkey => self.create_key(input),
            Op::DestroyMkey => self.keys.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex),
            Op::CreateCq => self.create_completion_queue(input),
            Op::ModifyCq => self.modify_completion_queue(header.op_mod(), input, memory),
            Op::DestroyCq => self.free_completion_queue(argument),
            Op::CreateRmp => self.create_pool(input),
            Op::DestroyRmp => self.free_pool(argument),
            Op::CreateQp => self.create_pair(input),
            Op::DestroyQp => self.pairs.remove(&argument).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex),
            Op::QueryQp => self.query_pair(argument),
            Op::QueryVportState => Ok(vec![0, 0, 0, 0, 0, 0, 0, 0x11]),
            Op::QueryNicVportContext => Ok(nic_context()),
            Op::ModifyNicVportContext => {
                self.roce_enabled = be32(input, 256) & 1 != 0;
                done()
            }
            Op::SetRoceAddress => {
                self.addresses.insert((argument >> 16) as u16, input[16..48].try_into().unwrap());
                done()
            }
            Op::SetIssi | Op::Nop => done(),
            opcode => self.modify_pair(opcode, input),
        }
    }

    fn enable(&mut self) -> CommandResult {
        match std::mem::replace(&mut self.enabled, true) {
            true => Err(CommandStatus::BadSystemState),
            false => done(),
        }
    }

    fn disable(&mut self) -> CommandResult {
        match !self.initialised && std::mem::replace(&mut self.enabled, false) {
            true => done(),
            false => Err(CommandStatus::BadSystemState),
        }
    }

    fn initialise(&mut self) -> CommandResult {
        match self.enabled && self.pages.len() as i32 >= self.boot_pages.max(0) + self.init_pages.max(0) {
            true => self.initialised = true,
            false => return Err(CommandStatus::NoResources),
        }
        done()
    }

    fn tear_down(&mut self) -> CommandResult {
        if !std::mem::replace(&mut self.initialised, false) {
            return Err(CommandStatus::BadSystemState);
        }
        self.uars.clear();
        self.event_queues.clear();
        self.domains.clear();
        self.keys.clear();
        self.completion_queues.clear();
        self.pairs.clear();
        self.pools.clear();
        done()
    }

    fn issi(&self) -> CommandResult {
        let mut out = vec![0; 104];
        out[100..104].copy_from_slice(&self.supported_issi.to_be_bytes());
        Ok(out)
    }

    fn query_pages(&self, stage: u16) -> CommandResult {
        let count = if stage == 1 { self.boot_pages } else { self.init_pages };
        let mut out = vec![0; 8];
        out[4..].copy_from_slice(&count.to_be_bytes());
        Ok(out)
    }

    fn manage_pages(&mut self, mode: u16, input: &[u8], memory: &Memory) -> CommandResult {
        let count = be32(input, 12) as usize;
        match mode {
            0 => self.refused_pages += 1,
            1 => {
                let list = addresses(input, 16);
                assert_eq!(list.len(), count);
                for page in list {
                    assert!(memory.is_mapped(page, 4096), "page {page:#x} is not mapped");
                    assert!(self.pages.insert(page), "page {page:#x} was given before");
                }
            }
            _ => {
                let list: Vec<u64> = self.pages.iter().copied().take(count).collect();
                let mut out = vec![0; 8];
                out[..4].copy_from_slice(&(list.len() as u32).to_be_bytes());
                for page in list {
                    self.pages.remove(&page);
                    out.extend_from_slice(&page.to_be_bytes());
                }
                return Ok(out);
            }
        }
        done()
    }

    fn create_event_queue(&mut self, input: &[u8]) -> CommandResult {
        let context = part::<EventQueueContext>(input, 16)?;
        let base = *addresses(input, CreateEqIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        let eqn = self.event_queues.last_key_value().map_or(1, |(last, _)| last + 1);
        self.event_queues.insert(eqn, Ring::new(base, context.log_eq_size()));
        number(eqn)
    }

    fn free_domain(&mut self, domain: u32) -> CommandResult {
        let used = self.keys.values().any(|key| key.pd().value() == domain)
            || self.pairs.values().any(|pair| pair.context.pd().value() == domain);
        match used {
            true => Err(CommandStatus::BadResourceState),
            false => remove(&mut self.domains, domain),
        }
    }

    fn create_key(&mut self, input: &[u8]) -> CommandResult {
        let context = part::<MkeyContext>(input, 16)?;
        if !self.domains.contains(&context.pd().value()) {
            return Err(CommandStatus::BadParameter);
        }
        let n = self.new_number();
        self.keys.insert(n, context);
        self.key_lists.insert(n, addresses(input, CreateMkeyIn::KLM_PAS_MTT_OFFSET));
        number(n)
    }

    fn create_completion_queue(&mut self, input: &[u8]) -> CommandResult {
        let context = part::<CompletionQueueContext>(input, 16)?;
        let base = *addresses(input, CreateCqIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        let wide = context.cqe_sz() != 0;
        self.completion_queues.insert(n, Ring { wide, ..Ring::new(base, context.log_cq_size()) });
        number(n)
    }

    /// With the modifier that resizes, ends the old ring with an entry of its own and goes on in the new one.
    fn modify_completion_queue(&mut self, op_mod: u16, input: &[u8], memory: &Memory) -> CommandResult {
        let cqn = be32(input, 8);
        if !self.completion_queues.contains_key(&cqn) {
            return Err(CommandStatus::BadIndex);
        }
        if op_mod == 1 {
            let context = part::<CompletionQueueContext>(input, 16)?;
            let base =
                *addresses(input, ModifyCqIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
            if !self.omits_resize_entry {
                let mut end = CompletionEntry::new();
                self.complete(memory, cqn, *end.set_opcode(CqeOpcode::ResizeCq));
            }
            let ring = self.completion_queues.get_mut(&cqn).ok_or(CommandStatus::BadIndex)?;
            (ring.base, ring.log_size) = (base, context.log_cq_size());
        }
        done()
    }

    fn free_completion_queue(&mut self, queue: u32) -> CommandResult {
        let used =
            |pair: &Pair| pair.context.cqn_snd().value() == queue || pair.context.cqn_rcv().value() == queue;
        if self.pairs.values().any(used) {
            return Err(CommandStatus::BadResourceState);
        }
        self.completion_queues.remove(&queue).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
    }

    fn create_pool(&mut self, input: &[u8]) -> CommandResult {
        let context = part::<RmpContext>(input, 32)?;
        let base = *addresses(input, CreateRmpIn::SIZE).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        self.pools.insert(n, Pool { context, base });
        number(n)
    }

    fn free_pool(&mut self, pool: u32) -> CommandResult {
        if self.pairs.values().any(|pair| pair.context.srqn_rmpn_xrqn() == pool) {
            return Err(CommandStatus::BadResourceState);
        }
        self.pools.remove(&pool).map(|_| Vec::new()).ok_or(CommandStatus::BadIndex)
    }

    fn create_pair(&mut self, input: &[u8]) -> CommandResult {
        let context = part::<QueuePairContext>(input, 24)?;
        let base = *addresses(input, CreateQpIn::PAS_OFFSET).first().ok_or(CommandStatus::BadInputLength)?;
        let n = self.new_number();
        self.pairs.insert(n, Pair { context, base, modified: Vec::new() });
        number(n)
    }

    fn query_pair(&self, number: u32) -> CommandResult {
        let pair = self.pairs.get(&number).ok_or(CommandStatus::BadIndex)?;
        let mut context = pair.context;
        if let Some((_, _, rtr)) = pair.modified.iter().rfind(|(opcode, ..)| *opcode == Op::InitToRtrQp) {
            context.set_remote_qpn(rtr.remote_qpn());
        }
        Ok([&[0; 16], context.as_bytes()].concat())
    }

    fn modify_pair(&mut self, opcode: Op, input: &[u8]) -> CommandResult {
        use bareverbs_prm::numbering::QpState;
        let state = match opcode {
            Op::ResetToInitQp | Op::InitToInitQp => QpState::Init,
            Op::InitToRtrQp => QpState::Rtr,
            Op::RtrToRtsQp | Op::RtsToRtsQp | Op::SqdToRtsQp => QpState::Rts,
            Op::ToErrorQp => QpState::Error,
            Op::ToResetQp => QpState::Reset,
            _ => return Err(CommandStatus::BadOpcode),
        };
        let pair = self.pairs.get_mut(&be32(input, 8)).ok_or(CommandStatus::BadIndex)?;
        pair.context.set_state(state);
        if input.len() > 16 {
            pair.modified.push((opcode, be32(input, 16), part(input, 24)?));
        }
        done()
    }
}

fn remove(set: &mut BTreeSet<u32>, number: u32) -> CommandResult {
    if set.remove(&number) { done() } else { Err(CommandStatus::BadIndex) }
}

fn access(register: u32) -> Vec<u8> {
    let mut out = vec![0; 24];
    if register == 0x5003 {
        out[12..14].copy_from_slice(&9000u16.to_be_bytes());
        out[20..22].copy_from_slice(&4200u16.to_be_bytes());
    }
    out
}

fn nic_context() -> Vec<u8> {
    let mut out = vec![0; 8 + 256];
    out[8 + 61 * 4 + 2..8 + 62 * 4 + 4].copy_from_slice(&[2, 0, 0, 0, 0xaa, 7]);
    out
}
