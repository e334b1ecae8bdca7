//! Two functions of one card, driven by hand: shared memory keys, aliases, and DMA work requests with all
//! their errors.

use super::host::CommandResult;
use super::verbs::{Node, Sge, data};
use crate::nic::card::{CardNotice, DmaRequest};
use crate::nic::{CardFunction, DmaRefused, NicConfig, syndrome, wqe};
use bareverbs_prm::command::caps::{GeneralCapabilities, GeneralCapabilities2};
use bareverbs_prm::command::general_object::{
    AliasOut, AllowOtherVhcaAccessIn, CreateAliasIn, GeneralObjectIn, OBJECT_TYPE_MKEY,
};
use bareverbs_prm::command::mkey::{CreateMkeyIn, CreateMkeyOut, DestroyMkeyIn, DestroyMkeyOut};
use bareverbs_prm::command::pd::{DeallocPdIn, DeallocPdOut};
use bareverbs_prm::command::qp::{InitToInitQpIn, extension_mask};
use bareverbs_prm::context::MkeyContext;
use bareverbs_prm::ids::{Mkey, MkeyIndex, Qpn, VhcaId};
use bareverbs_prm::numbering::{
    CapabilityType, CommandOpcode, CommandStatus, CqeOpcode, CqeSyndrome, MkeyAccessMode, QpState,
    ServiceType, WqeOpcode,
};
use bareverbs_prm::wqe::{DataSegment, MmoMetadataSegment, fence_mode, mmo};
use zerocopy::{FromBytes, IntoBytes};

const HOST: VhcaId = VhcaId::from_low_bits(2);
const ARM: VhcaId = VhcaId::from_low_bits(7);
const ACCESS: [u8; 32] = *b"thirty-two bytes nobody guesses.";
/// Offset in the region of each side where the bytes of a test are.
const AT: u64 = 0x100;

fn function(vhca_id: VhcaId) -> NicConfig {
    NicConfig { card: Some(CardFunction::bluefield3(vhca_id)), ..NicConfig::default() }
}

/// A host and its card's Arm cores.
struct Card {
    host: Node,
    arm: Node,
}

impl Card {
    fn new() -> Self {
        Self { host: Node::new(1, function(HOST)), arm: Node::new(2, function(ARM)) }
    }

    /// A card on which the host shares its region, and the alias that the Arm side created for it.
    fn sharing() -> (Self, Mkey) {
        let mut card = Self::new();
        card.arm.enable_mmo();
        let index = card.host.mr.key.index();
        allow(&mut card.host, index.value()).unwrap();
        card.carry_notices();
        let alias = card.alias(|_| {}).unwrap();
        (card, alias)
    }

    fn carry_notices(&mut self) {
        let (host, arm) = (&mut self.host.host.nic, &mut self.arm.host.nic);
        while let Some(notice) = host.poll_card_notice() {
            arm.handle_card_notice(&notice);
        }
        while let Some(notice) = arm.poll_card_notice() {
            host.handle_card_notice(&notice);
        }
    }

    /// Creates an alias of the host's region on the Arm side.
    fn alias(&mut self, edit: impl Fn(&mut CreateAliasIn)) -> Result<Mkey, (CommandStatus, u32)> {
        let index = self.host.mr.key.index().value();
        let mut input = CreateAliasIn::new();
        input.header_mut().set_obj_type(OBJECT_TYPE_MKEY).set_alias_object(true);
        let alias = input.alias_mut();
        alias.set_vhca_id_to_be_accessed(HOST).set_object_id_to_be_accessed(index).set_access_key(ACCESS);
        alias.set_metadata_1(self.arm.pd.value());
        edit(&mut input);
        let output: CommandResult<AliasOut> = run(&mut self.arm, CommandOpcode::CreateGeneralObject, input);
        let (output, _) = output?;
        assert_eq!(output.alias().status(), 0);
        Ok(Mkey::from_parts(MkeyIndex::from_low_bits(output.header().obj_id()), 0))
    }

    fn query(&mut self, alias: Mkey) -> AliasOut {
        let mut input = GeneralObjectIn::new();
        input.set_obj_type(OBJECT_TYPE_MKEY).set_obj_id(alias.index().value());
        run(&mut self.arm, CommandOpcode::QueryGeneralObject, input).unwrap().0
    }

    /// Executes a copy like the card's engine.
    fn end(&mut self, request: &DmaRequest) {
        let copy = *request.copy();
        let mut bytes = vec![0; request.length() as usize];
        let read = self.owner(copy.source.owner()).read(&copy.source, &mut bytes);
        let result =
            read.and_then(|()| self.owner(copy.destination.owner()).write(&copy.destination, &bytes));
        let (now, arm) = (self.arm.host.now, &mut self.arm.host);
        arm.nic.handle_dma_end(now, &mut arm.memory, request, result);
    }

    fn end_all(&mut self) -> usize {
        self.carry_notices();
        (0..)
            .take_while(|_| self.arm.host.nic.poll_dma().is_some_and(|request| self.finish(&request)))
            .count()
    }

    fn finish(&mut self, request: &DmaRequest) -> bool {
        self.end(request);
        true
    }

    fn owner(&mut self, id: Option<VhcaId>) -> &mut Node {
        if id == Some(HOST) { &mut self.host } else { &mut self.arm }
    }

    /// Part of the host's region, through its alias.
    fn theirs(&self, alias: Mkey, length: u32) -> Sge {
        Sge { key: alias, ..self.host.mr.sge(AT, length) }
    }

    fn ours(&self, length: u32) -> Sge {
        self.arm.mr.sge(AT, length)
    }

    fn fill(&mut self) {
        let bytes: Vec<u8> = (0..=255).cycle().take(0x1000).collect();
        let at = self.host.mr.iova + AT;
        self.host.host.memory.put(at, &bytes);
    }

    #[track_caller]
    fn expect_failure(&mut self, fault: &wqe::WorkFault) {
        let entry = self.arm.expect();
        assert_eq!(entry.opcode(), CqeOpcode::RequesterError);
        let error = bareverbs_prm::cqe::ErrorEntry::read_from_bytes(entry.as_bytes()).unwrap();
        assert_eq!((error.syndrome(), error.vendor_syndrome()), (fault.syndrome, fault.vendor));
    }
}

impl Node {
    fn read(&mut self, end: &crate::nic::DmaEnd, bytes: &mut [u8]) -> Result<(), DmaRefused> {
        self.host.nic.read_dma(&mut self.host.memory, end, bytes)
    }

    fn write(&mut self, end: &crate::nic::DmaEnd, bytes: &[u8]) -> Result<(), DmaRefused> {
        self.host.nic.write_dma(&mut self.host.memory, end, bytes)
    }

    /// Connects the queue pair to itself and enables memory-to-memory operations on the way.
    fn enable_mmo(&mut self) {
        let (remote, qpn) = ((self.qp.qpn, self.gid, self.mac), self.qp.qpn);
        self.modify(CommandOpcode::ResetToInitQp, |c| super::verbs::init(c, |_| {})).unwrap();
        run::<_, [u8; 16]>(self, CommandOpcode::InitToInitQp, mmo_on(qpn)).unwrap();
        self.modify(CommandOpcode::InitToRtrQp, |c| super::verbs::rtr(c, remote, |_| {})).unwrap();
        self.modify(CommandOpcode::RtrToRtsQp, |c| super::verbs::rts(c, |_| {})).unwrap();
    }

    fn write_copy(&mut self, from: Sge, to: Sge, fence: u8) {
        let segments = copy_segments(self, from, to);
        let edit = |control: &mut bareverbs_prm::wqe::ControlSegment| {
            control.set_opmod(mmo::DMA).set_fence_mode(fence);
        };
        self.write_wqe(WqeOpcode::Mmo, edit, &segments);
    }

    fn copy(&mut self, from: Sge, to: Sge) {
        self.write_copy(from, to, fence_mode::NONE);
        self.ring();
    }
}

fn mmo_on(qpn: Qpn) -> InitToInitQpIn {
    let mut input = InitToInitQpIn::new();
    input.set_qpn(qpn).set_qpc_ext(true).set_opt_param_mask_95_32(extension_mask::MMO);
    input.qpc_data_ext_mut().set_mmo(true);
    input
}

/// Metadata, source, destination. The metadata names the end of the region as the device's memory.
fn copy_segments(node: &Node, from: Sge, to: Sge) -> Vec<u8> {
    let mut metadata = MmoMetadataSegment::new();
    metadata.set_local_key(node.mr.key).set_local_address(node.mr.va + super::verbs::MR_SIZE - 64);
    let segment = |sge: Sge| {
        let mut segment = DataSegment::new();
        segment.set_byte_count(sge.length).set_lkey(sge.key).set_address(sge.address);
        segment
    };
    [metadata.as_bytes(), segment(from).as_bytes(), segment(to).as_bytes()].concat()
}

fn run<I, O>(node: &mut Node, opcode: CommandOpcode, input: I) -> CommandResult<O>
where
    I: IntoBytes + zerocopy::Immutable,
    O: FromBytes + zerocopy::FromZeros + IntoBytes,
{
    // The second half of the header is either the type of a general object or op_mod 0.
    let op_mod = u16::from_be_bytes(input.as_bytes()[6..8].try_into().unwrap());
    node.host.run(opcode, op_mod, input)
}

fn allow(node: &mut Node, index: u32) -> Result<(), (CommandStatus, u32)> {
    let mut input = AllowOtherVhcaAccessIn::new();
    input.set_object_type_to_be_accessed(OBJECT_TYPE_MKEY).set_object_id_to_be_accessed(index);
    input.set_access_key(ACCESS);
    run::<_, [u8; 16]>(node, CommandOpcode::AllowOtherVhcaAccess, input).map(|_| ())
}

fn create_key(node: &mut Node, mode: MkeyAccessMode, length64: bool) -> Result<u32, (CommandStatus, u32)> {
    let mut input = CreateMkeyIn::new();
    let context: &mut MkeyContext = input.memory_key_mkey_entry_mut();
    context.set_pd(node.pd).set_qpn(Qpn::from_low_bits(0xff_ffff)).set_lr(true).set_lw(true);
    context.set_access_mode_1_0(mode.raw() & 3).set_access_mode_4_2(mode.raw() >> 2);
    context.set_length64(length64).set_length(if length64 { 0 } else { 4096 });
    context.set_translations_octword_size(4);
    let output: CommandResult<CreateMkeyOut> = node.host.run(CommandOpcode::CreateMkey, 0, input);
    Ok(output?.0.mkey_index().value())
}

fn destroy_key(node: &mut Node, index: MkeyIndex) {
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(index);
    node.host.run::<_, DestroyMkeyOut>(CommandOpcode::DestroyMkey, 0, input).unwrap();
}

#[test]
fn a_copy_reads_and_writes_memory_of_the_other_function() {
    let (mut card, alias) = Card::sharing();
    card.fill();
    let (theirs, ours) = (card.theirs(alias, 1000), card.ours(1000));
    card.arm.copy(theirs, ours);
    card.arm.expect_none();
    assert_eq!(card.end_all(), 1);
    let entry = card.arm.expect();
    assert_eq!((entry.opcode(), entry.wqe_counter()), (CqeOpcode::Requester, 0));
    let expected = card.host.host.memory.slice(card.host.mr.iova + AT, 1000).to_vec();
    assert_eq!(card.arm.host.memory.slice(card.arm.mr.iova + AT, 1000), expected);

    let back = Sge { address: theirs.address + 0x2000, ..theirs };
    card.arm.copy(ours, back);
    assert_eq!(card.end_all(), 1);
    assert_eq!(card.arm.expect().opcode(), CqeOpcode::Requester);
    let at = card.host.mr.iova + AT + 0x2000;
    assert_eq!(card.host.host.memory.slice(at, 1000), expected);
    assert_eq!(card.host.host.memory.slice(at + 1000, 8), [0; 8], "nothing beyond the copy");
    assert_eq!(card.arm.host.nic.counters().dma_requests, 2);
    assert_eq!(card.arm.host.nic.counters().contradictions(), 0);
}

/// Copies between two places in the function's own memory, and between two in the other function's memory.
#[test]
fn a_copy_may_have_both_ends_on_one_side() {
    let (mut card, alias) = Card::sharing();
    card.fill();
    let from = card.theirs(alias, 64);
    card.arm.copy(from, Sge { address: from.address + 0x4000, ..from });
    let ours = card.ours(64);
    card.arm.copy(ours, Sge { address: ours.address + 0x4000, ..ours });
    assert_eq!(card.end_all(), 2);
    assert_eq!([(); 2].map(|()| card.arm.expect().opcode()), [CqeOpcode::Requester; 2]);
    let at = card.host.mr.iova + AT;
    let moved = card.host.host.memory.slice(at + 0x4000, 64);
    assert_eq!(moved, card.host.host.memory.slice(at, 64));
}

#[test]
fn an_alias_needs_the_right_access_key_and_number() {
    let (mut card, _) = Card::sharing();
    let refused = |refusal: syndrome::Refusal| Err((refusal.status, refusal.syndrome));
    let mut wrong = ACCESS;
    wrong[31] ^= 1;
    let unknown = VhcaId::from_low_bits(9);
    let target = refused(syndrome::ALIAS_TARGET);
    assert_eq!(card.alias(|c| _ = c.alias_mut().set_access_key(wrong)), refused(syndrome::ALIAS_ACCESS_KEY));
    assert_eq!(card.alias(|c| _ = c.alias_mut().set_vhca_id_to_be_accessed(unknown)), target);
    assert_eq!(card.alias(|c| _ = c.alias_mut().set_vhca_id_to_be_accessed(ARM)), target);
    assert_eq!(card.alias(|c| _ = c.alias_mut().set_object_id_to_be_accessed(0x7777)), target);
    assert_eq!(card.alias(|c| _ = c.alias_mut().set_metadata_1(0x123)), refused(syndrome::PD_UNKNOWN));
    let kind = refused(syndrome::GENERAL_OBJECT_TYPE);
    assert_eq!(card.alias(|c| _ = c.header_mut().set_obj_type(0xff15)), kind);
    assert_eq!(card.alias(|c| _ = c.header_mut().set_alias_object(false)), kind);
    assert_eq!(card.alias(|c| _ = c.header_mut().set_log_obj_range(1)), kind);
}

/// What an owner may not share: a key without bounds, an alias, and an indirect key on cards that do not
/// follow those. The syndrome is that of a ConnectX-7 (UCX pull request 10980).
#[test]
fn keys_that_may_not_be_shared_are_refused() {
    let (mut card, alias) = Card::sharing();
    let refused = Err((CommandStatus::BadParameter, 0x17_2df6));
    assert_eq!(allow(&mut card.arm, alias.index().value()), refused);
    let all = create_key(&mut card.host, MkeyAccessMode::Pa, true).unwrap();
    assert_eq!(allow(&mut card.host, all), refused);
    let list = create_key(&mut card.host, MkeyAccessMode::Klms, false).unwrap();
    assert_eq!(allow(&mut card.host, list), Ok(()));

    let function = CardFunction { shares_indirect_keys: false, ..CardFunction::bluefield3(HOST) };
    let mut connectx7 = Node::new(1, NicConfig { card: Some(function), ..NicConfig::default() });
    let list = create_key(&mut connectx7, MkeyAccessMode::Klms, false).unwrap();
    assert_eq!(allow(&mut connectx7, list), refused);
    let plain = connectx7.mr.key.index().value();
    assert_eq!(allow(&mut connectx7, plain), Ok(()));

    assert_eq!(
        allow(&mut card.host, 0x7777),
        Err((CommandStatus::BadResource, syndrome::MKEY_UNKNOWN.syndrome))
    );
}

/// A crossing key would expose all memory of another function without its consent.
#[test]
fn crossing_keys_are_refused() {
    let mut card = Card::new();
    let refused = create_key(&mut card.arm, MkeyAccessMode::Crossing, true);
    assert_eq!(refused, Err((syndrome::MKEY_MODE.status, syndrome::MKEY_MODE.syndrome)));
}

#[test]
fn a_key_that_is_destroyed_in_the_middle_fails_the_copy_and_flushes_the_rest() {
    let (mut card, alias) = Card::sharing();
    card.fill();
    let (theirs, ours) = (card.theirs(alias, 64), card.ours(64));
    card.arm.copy(theirs, ours);
    card.arm.copy(theirs, ours);
    let first = card.arm.host.nic.poll_dma().unwrap();
    let index = card.host.mr.key.index();
    destroy_key(&mut card.host, index);
    card.carry_notices();
    card.end(&first);
    card.expect_failure(&wqe::DMA_ACCESS);
    card.expect_failure(&wqe::FLUSHED);
    assert_eq!(card.arm.state(), QpState::Error);
    assert_eq!(card.arm.host.memory.slice(card.arm.mr.iova + AT, 64), [0; 64], "nothing was copied");
    assert_ne!(card.query(alias).alias().status(), 0);
    card.alias(|_| {}).unwrap_err();
    assert_eq!(card.end_all(), 1, "the second copy's work request is gone");
    assert_eq!(card.arm.host.nic.counters().dma_forgotten, 1);
    card.arm.expect_none();
}

#[test]
fn a_host_that_resets_in_the_middle_takes_everything_back() {
    let (mut card, alias) = Card::sharing();
    let (theirs, ours) = (card.theirs(alias, 64), card.ours(64));
    card.arm.copy(ours, theirs);
    let copy = card.arm.host.nic.poll_dma().unwrap();
    let now = card.host.host.now;
    card.host.host.nic.reset(now);
    card.carry_notices();
    card.end(&copy);
    card.expect_failure(&wqe::DMA_ACCESS);
    assert_ne!(card.query(alias).alias().status(), 0);
    card.alias(|_| {}).unwrap_err();
}

/// A new key at the index of a shared key is a different key.
#[test]
fn an_alias_does_not_follow_a_number_to_another_key() {
    let (mut card, alias) = Card::sharing();
    let index = card.host.mr.key.index();
    destroy_key(&mut card.host, index);
    let mut made = 0;
    while made != index.value() {
        made = create_key(&mut card.host, MkeyAccessMode::Pa, false).unwrap();
        destroy_key(&mut card.host, MkeyIndex::from_low_bits(made));
    }
    let mut again = create_key(&mut card.host, MkeyAccessMode::Pa, false).unwrap();
    while again != index.value() {
        destroy_key(&mut card.host, MkeyIndex::from_low_bits(again));
        again = create_key(&mut card.host, MkeyAccessMode::Pa, false).unwrap();
    }
    let (theirs, ours) = (Sge { address: 0, ..card.theirs(alias, 8) }, card.ours(8));
    card.arm.copy(theirs, ours);
    card.end_all();
    card.expect_failure(&wqe::DMA_ACCESS);
}

/// The owner's rights and range apply, whatever the user's work request asks for.
#[test]
fn the_owner_checks_range_and_right() {
    let (mut card, alias) = Card::sharing();
    let ours = card.ours(64);
    let behind = Sge { address: card.host.mr.va + super::verbs::MR_SIZE - 63, key: alias, length: 64 };
    card.arm.copy(behind, ours);
    card.end_all();
    card.expect_failure(&wqe::DMA_ACCESS);

    let mut card = Card::new();
    card.arm.enable_mmo();
    card.host.mr =
        super::verbs::create_mr(&mut card.host.host, card.host.pd, [true, false, true, false, false]);
    let index = card.host.mr.key.index().value();
    allow(&mut card.host, index).unwrap();
    card.carry_notices();
    let alias = card.alias(|_| {}).unwrap();
    let (theirs, ours) = (card.theirs(alias, 64), card.ours(64));
    card.arm.copy(theirs, ours);
    card.end_all();
    assert_eq!(card.arm.expect().opcode(), CqeOpcode::Requester, "it may still be read");
    card.arm.copy(ours, theirs);
    card.end_all();
    card.expect_failure(&wqe::DMA_ACCESS);
}

/// Copies may end in any order, but completions follow the order of the queue.
#[test]
fn completions_keep_the_order_of_the_queue() {
    let (mut card, alias) = Card::sharing();
    let (theirs, ours) = (card.theirs(alias, 8), card.ours(8));
    card.arm.copy(theirs, ours);
    card.arm.post(WqeOpcode::Nop, &[]);
    card.arm.copy(theirs, ours);
    let first = card.arm.host.nic.poll_dma().unwrap();
    let second = card.arm.host.nic.poll_dma().unwrap();
    card.end(&second);
    card.arm.expect_none();
    card.end(&first);
    assert_eq!([(); 3].map(|()| card.arm.expect().wqe_counter()), [0, 1, 2]);
}

#[test]
fn a_fenced_copy_waits_for_those_before_it() {
    let (mut card, alias) = Card::sharing();
    let (theirs, ours) = (card.theirs(alias, 8), card.ours(8));
    card.arm.write_copy(theirs, ours, fence_mode::NONE);
    card.arm.write_copy(ours, theirs, fence_mode::FENCE);
    card.arm.ring();
    let first = card.arm.host.nic.poll_dma().unwrap();
    assert_eq!(card.arm.host.nic.poll_dma(), None);
    card.end(&first);
    assert_eq!(card.end_all(), 1);
    assert_eq!([(); 2].map(|()| card.arm.expect().wqe_counter()), [0, 1]);
}

/// A queue pair is reset while a copy is in progress: the copy neither completes nor disturbs later ones.
#[test]
fn a_queue_pair_that_is_reset_in_the_middle_forgets_its_copies() {
    let (mut card, alias) = Card::sharing();
    let (theirs, ours) = (card.theirs(alias, 8), card.ours(8));
    card.arm.copy(theirs, ours);
    let copy = card.arm.host.nic.poll_dma().unwrap();
    card.arm.short(CommandOpcode::ToResetQp).unwrap();
    card.end(&copy);
    card.arm.expect_none();
    assert_eq!(card.arm.host.nic.counters().dma_forgotten, 1);
    card.arm.qp.posted = 0;
    card.arm.enable_mmo();
    card.arm.copy(theirs, ours);
    assert_eq!(card.end_all(), 1);
    assert_eq!(card.arm.expect().opcode(), CqeOpcode::Requester);
}

#[test]
fn malformed_copies_are_refused() {
    type Edit = fn(&mut Vec<u8>);
    let cases: [(&str, Edit, wqe::WorkFault); 6] = [
        ("metadata with control bits", |s| s[3] = 1, wqe::OPMOD),
        ("a key of the device's memory that is none", |s| s[4] = 0x55, wqe::DATA_KEY),
        ("lengths that differ", |s| s[19] = 9, wqe::DMA_RANGES),
        ("an unknown source", |s| s[20] = 0x55, wqe::DATA_KEY),
        ("no destination", |s| s.truncate(32), wqe::SEGMENTS),
        ("a segment too many", |s| s.extend([0; 16]), wqe::SEGMENTS),
    ];
    for (what, edit, fault) in cases {
        let (mut card, alias) = Card::sharing();
        let mut segments = copy_segments(&card.arm, card.theirs(alias, 8), card.ours(8));
        edit(&mut segments);
        card.arm.write_wqe(WqeOpcode::Mmo, |c| _ = c.set_opmod(mmo::DMA), &segments);
        card.arm.ring();
        println!("{what}");
        card.expect_failure(&fault);
        assert_eq!(card.arm.host.nic.poll_dma(), None);
    }
}

#[test]
fn a_copy_has_two_mebibytes_at_most_and_no_other_operation() {
    let (mut card, alias) = Card::sharing();
    let (theirs, ours) = (card.theirs(alias, (2 << 20) + 1), card.ours((2 << 20) + 1));
    card.arm.copy(theirs, ours);
    card.expect_failure(&wqe::MESSAGE);

    let (mut card, alias) = Card::sharing();
    let segments = copy_segments(&card.arm, card.theirs(alias, 8), card.ours(8));
    card.arm.write_wqe(WqeOpcode::Mmo, |c| _ = c.set_opmod(2), &segments);
    card.arm.ring();
    card.expect_failure(&wqe::OPMOD);
}

/// In this model, messages cannot use an alias, and no peer can access one.
#[test]
fn an_alias_serves_copies_only() {
    let (mut card, alias) = Card::sharing();
    let theirs = card.theirs(alias, 8);
    card.arm.post(WqeOpcode::Send, &data(theirs));
    let mut frame = crate::wire::FrameBuffer::new();
    let (now, arm) = (card.arm.host.now, &mut card.arm.host);
    assert!(arm.nic.poll_transmit(now, &mut arm.memory, &mut frame).is_none());
    card.expect_failure(&wqe::DATA_KEY);
}

#[test]
fn a_queue_pair_copies_only_after_its_extension_said_so() {
    let (mut card, alias) = Card::sharing();
    card.arm.short(CommandOpcode::ToResetQp).unwrap();
    card.arm.qp.posted = 0;
    let itself = (card.arm.qp.qpn, card.arm.gid, card.arm.mac);
    card.arm.connect(itself, |_| {});
    let (theirs, ours) = (card.theirs(alias, 8), card.ours(8));
    card.arm.copy(theirs, ours);
    let mut frame = crate::wire::FrameBuffer::new();
    let (now, arm) = (card.arm.host.now, &mut card.arm.host);
    arm.nic.poll_transmit(now, &mut arm.memory, &mut frame);
    card.expect_failure(&wqe::OPCODE);
}

#[test]
fn memory_to_memory_operations_need_a_card_and_a_reliable_connection() {
    let refused = Err((syndrome::QP_MMO.status, syndrome::QP_MMO.syndrome));
    let enable = |node: &mut Node| {
        let qpn = node.qp.qpn;
        node.modify(CommandOpcode::ResetToInitQp, |c| super::verbs::init(c, |_| {})).unwrap();
        run::<_, [u8; 16]>(node, CommandOpcode::InitToInitQp, mmo_on(qpn)).map(|_| ())
    };
    assert_eq!(enable(&mut Node::new(1, NicConfig::default())), refused);
    let mut node = Node::new(1, function(ARM));
    node.qp = super::verbs::create_qp(&mut node.host, node.uar, node.pd, node.cq.cqn, |c| {
        c.set_st(ServiceType::Uc);
    })
    .unwrap();
    assert_eq!(enable(&mut node), refused);
    let mut node = Node::new(1, function(ARM));
    let mut input = mmo_on(node.qp.qpn);
    input.set_opt_param_mask_95_32(1 << 7);
    node.modify(CommandOpcode::ResetToInitQp, |c| super::verbs::init(c, |_| {})).unwrap();
    let unknown: CommandResult<[u8; 16]> = run(&mut node, CommandOpcode::InitToInitQp, input);
    assert_eq!(unknown.unwrap_err().1, syndrome::QP_OPTIONAL_PARAMETER.syndrome);
}

#[test]
fn an_alias_is_an_object_of_its_own() {
    let (mut card, alias) = Card::sharing();
    let shown = card.query(alias);
    let shown = (shown.alias().vhca_id_to_be_accessed(), shown.alias().access_key());
    assert_eq!(shown, (HOST, [0; 32]), "the secret is not shown");
    let mut input = DestroyMkeyIn::new();
    input.set_mkey_index(alias.index());
    let as_key: CommandResult<DestroyMkeyOut> = card.arm.host.run(CommandOpcode::DestroyMkey, 0, input);
    assert_eq!(as_key.unwrap_err().1, syndrome::MKEY_UNKNOWN.syndrome);
    let mut input = DeallocPdIn::new();
    input.set_pd(card.arm.pd);
    let busy: CommandResult<DeallocPdOut> = card.arm.host.run(CommandOpcode::DeallocPd, 0, input);
    assert_eq!(busy.unwrap_err().1, syndrome::PD_BUSY.syndrome);
    let mut input = GeneralObjectIn::new();
    input.set_obj_type(OBJECT_TYPE_MKEY).set_obj_id(alias.index().value());
    let destroy = |card: &mut Card| -> CommandResult<[u8; 16]> {
        run(&mut card.arm, CommandOpcode::DestroyGeneralObject, input)
    };
    destroy(&mut card).unwrap();
    assert_eq!(destroy(&mut card).unwrap_err().1, syndrome::ALIAS_UNKNOWN.syndrome);
}

#[test]
fn a_device_alone_has_neither_commands_nor_capabilities() {
    let mut alone = Node::new(1, NicConfig::default());
    assert_eq!(allow(&mut alone, 0x10).unwrap_err().0, CommandStatus::BadOpcode);
    let pages = |config: NicConfig| {
        let page = |kind| crate::nic::Nic::new(config).firmware.capabilities.page(kind, true).unwrap();
        let general = GeneralCapabilities::read_from_bytes(&page(CapabilityType::General)).unwrap();
        let more = GeneralCapabilities2::read_from_bytes(&page(CapabilityType::General2)).unwrap();
        (
            (general.dma_mmo_qp(), general.log_dma_mmo_max_size(), general.vhca_id().value()),
            (more.allowed_object_for_other_vhca_access(), more.cross_vhca_object_to_object_supported()),
        )
    };
    assert_eq!(pages(NicConfig::default()), ((false, 0, 0), (0, 0)));
    assert_eq!(pages(function(ARM)), ((true, 21, 7), (0x4, 0x100)));
}

/// Other functions learn the latest state, however often it changed before they fetched it.
#[test]
fn notices_tell_the_latest_state() {
    let mut node = Node::new(1, function(HOST));
    let index = node.mr.key.index();
    allow(&mut node, index.value()).unwrap();
    allow(&mut node, index.value()).unwrap();
    let notice = node.host.nic.poll_card_notice();
    assert!(matches!(notice, Some(CardNotice::Shared { .. })), "{notice:?}");
    assert!(!format!("{notice:?}").contains("116"), "the key is a secret");
    assert_eq!(node.host.nic.poll_card_notice(), None);
    allow(&mut node, index.value()).unwrap();
    destroy_key(&mut node, index);
    let gone = CardNotice::Withdrawn { owner: HOST, index: index.value() };
    assert_eq!(node.host.nic.poll_card_notice(), Some(gone));
    assert!(!node.host.nic.has_card_output());
    let syndrome = CqeSyndrome::LocalProtection;
    assert_eq!(wqe::DMA_ACCESS.syndrome, syndrome);
}
