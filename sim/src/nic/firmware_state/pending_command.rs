//! A command in progress: what has been read of it so far. It may have many blocks, which are read over
//! several turns.

use bareverbs_prm::command::entry::{CommandHeaderIn, CommandQueueEntry};
use bareverbs_prm::command::mkey::CreateMkeyIn;
use bareverbs_prm::command::pages::ManagePagesIn;
use bareverbs_prm::command::umem::CreateUmemIn;
use bareverbs_prm::ids::Eqn;
use bareverbs_prm::numbering::CommandOpcode;
use zerocopy::FromBytes;

const _: () = assert!(
    CreateMkeyIn::SIZE == CreateMkeyIn::KLM_PAS_MTT_OFFSET
        && CreateUmemIn::SIZE == CreateUmemIn::MTT_OFFSET
        && ManagePagesIn::SIZE == ManagePagesIn::PAS_OFFSET,
    "a list begins where the layout of its command ends"
);

/// A position in a chain of mailbox blocks.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::nic) struct MailboxChain {
    /// Address of the next block; zero after the last.
    pub(in crate::nic) next: u64,
    /// Its number.
    pub(in crate::nic) number: u32,
}

/// A command that was taken from its slot and has not run yet.
#[derive(Debug)]
pub(in crate::nic) struct PendingCommand {
    pub(in crate::nic) slot: u32,
    /// Address of its entry.
    pub(in crate::nic) address: u64,
    pub(in crate::nic) entry: CommandQueueEntry,
    /// The event queue that is notified of its end.
    pub(in crate::nic) notified: Option<Eqn>,
    pub(in crate::nic) input: CommandInput,
    /// Addresses of the blocks that the output may need.
    pub(in crate::nic) output: Vec<u64>,
    /// The position in the chain that is being read.
    pub(in crate::nic) chain: MailboxChain,
}

impl PendingCommand {
    pub(in crate::nic) fn new(
        slot: u32,
        address: u64,
        entry: CommandQueueEntry,
        notified: Option<Eqn>,
    ) -> Self {
        let (input, output, chain) = (CommandInput::default(), Vec::new(), MailboxChain::default());
        Self { slot, address, entry, notified, input, output, chain }
    }
}

/// The input of a command. Commands with lists of many thousand addresses store the list as words from the
/// start, so running such a command does not have to convert it again.
#[derive(Debug, Default)]
pub(in crate::nic) struct CommandInput {
    /// The bytes before the list, or all bytes.
    pub(in crate::nic) bytes: Vec<u8>,
    /// The list.
    pub(in crate::nic) list: Vec<u64>,
    /// Where the list starts.
    list_at: usize,
    length: usize,
}

impl CommandInput {
    /// Starts with the bytes in the entry itself.
    pub(in crate::nic) fn new(inline: &[u8]) -> Self {
        let opcode = CommandHeaderIn::read_from_prefix(inline).map(|(header, _)| header.opcode());
        let list_at = match opcode {
            Ok(CommandOpcode::CreateMkey) => CreateMkeyIn::KLM_PAS_MTT_OFFSET,
            Ok(CommandOpcode::CreateUmem) => CreateUmemIn::MTT_OFFSET,
            Ok(CommandOpcode::ManagePages) => ManagePagesIn::PAS_OFFSET,
            _ => usize::MAX,
        };
        let mut input = Self { list_at, ..Self::default() };
        input.push(inline);
        input
    }

    pub(in crate::nic) const fn len(&self) -> usize {
        self.length
    }

    pub(in crate::nic) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends the next bytes. All pieces but the last consist of whole words, and lists start at a whole
    /// word.
    pub(in crate::nic) fn push(&mut self, bytes: &[u8]) {
        let (head, list) = bytes.split_at(self.list_at.saturating_sub(self.length).min(bytes.len()));
        self.length += bytes.len();
        self.bytes.extend_from_slice(head);
        let words = list.chunks_exact(8);
        self.list.extend(words.map(|word| word.try_into().map_or(0, u64::from_be_bytes)));
    }
}
