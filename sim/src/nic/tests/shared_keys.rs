//! Keys between functions of one card: what a user's alias gives, and what the owner checks when the bytes
//! move. `card` has the same with commands and work requests.

use super::*;

const PD: Pdn = Pdn::from_low_bits(7);
const WHO: Accessor =
    Accessor { pd: PD, qpn: Qpn::from_low_bits(0x40), privileged: false, reserved_lkey: false };
const OWNER: VhcaId = VhcaId::from_low_bits(3);
const START: u64 = 0x1000;

/// One page of host memory at 0x8000. Everything else faults.
struct Page([u8; 0x1000]);

impl Page {
    fn slice(&mut self, iova: u64, length: usize, write: bool) -> Result<&mut [u8], DmaFault> {
        let fault = DmaFault { iova, length, write };
        let at = iova.checked_sub(0x8000).ok_or(fault)? as usize;
        self.0.get_mut(at..at + length).ok_or(fault)
    }
}

impl HostMemory for Page {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        buffer.copy_from_slice(self.slice(iova, buffer.len(), false)?);
        Ok(())
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.slice(iova, bytes.len(), true)?.copy_from_slice(bytes);
        Ok(())
    }
}

/// The table of an owner with one key of two pages, of which only the first is memory.
fn owner(edit: impl Fn(&mut MkeyContext)) -> (MkeyTable, Mkey, SharedKey) {
    let mut context = MkeyContext::new();
    context.set_access_mode_1_0(1).set_pd(Pdn::from_low_bits(9)).set_qpn(Qpn::from_low_bits(ANY_QP));
    context.set_mkey_7_0(0x21).set_lr(true).set_lw(true).set_log_page_size(12);
    context.set_start_addr(START).set_length(0x2000);
    edit(&mut context);
    let mut table = MkeyTable::new();
    let index = table.create(context, vec![0x8000, 0x9000], 10).unwrap();
    let name = table.shared_name(OWNER, index).unwrap();
    (table, Mkey::new(index << 8 | 0x21), name)
}

/// The end of a copy that a user of `target` asks for.
fn foreign(target: SharedKey, address: u64, length: u64) -> DmaEnd {
    let mut user = MkeyTable::new();
    let alias = user.create_alias(PD, target, 10).unwrap();
    user.check_dma(WHO, Mkey::new(alias << 8), Access::LocalRead, address, length).unwrap()
}

#[test]
fn a_shared_name_is_of_a_key_and_of_no_alias() {
    let (table, key, name) = owner(|_| ());
    assert_eq!((name.owner, name.index), (OWNER, key.index().value()));
    assert_eq!(table.shared_name(OWNER, name.index + 1), None);
    assert_eq!(table.alias(name.index), None);
    let mut user = MkeyTable::new();
    let alias = user.create_alias(PD, name, 1).unwrap();
    assert_eq!(user.alias(alias), Some(name));
    assert_eq!(user.shared_name(VhcaId::from_low_bits(4), alias), None, "aliases do not chain");
    assert_eq!(user.create_alias(PD, name, 1), None, "they count as keys");
    assert_eq!(user.alias(alias + 1), None);
}

/// An alias is for a copy only, local, and for queue pairs of its domain.
#[test]
fn an_alias_has_a_domain_and_no_memory() {
    let (_, _, name) = owner(|_| ());
    let mut user = MkeyTable::new();
    let alias = Mkey::new(user.create_alias(PD, name, 10).unwrap() << 8);
    let ask = |who, access| user.check_dma(who, alias, access, 0xdead, 0x10).map(|end| end.owner());
    assert_eq!(ask(WHO, Access::LocalRead), Ok(Some(OWNER)));
    assert_eq!(ask(WHO, Access::LocalWrite), Ok(Some(OWNER)));
    assert_eq!(ask(WHO, Access::RemoteRead), Err(KeyFault::Right));
    let stranger = Accessor { pd: Pdn::from_low_bits(8), ..WHO };
    assert_eq!(ask(stranger, Access::LocalRead), Err(KeyFault::Domain));
    assert_eq!(user.check(&WHO, alias, Access::LocalRead, 0, 1), Err(KeyFault::Range));
    assert_eq!(
        user.check_dma(WHO, Mkey::new(alias.value() + 1), Access::LocalRead, 0, 1),
        Err(KeyFault::Unknown)
    );
    assert!(!user.get(alias.index().value()).unwrap().is_indirect());
    let mut indirect = MkeyContext::new();
    indirect.set_access_mode_1_0(2); // keys and lengths (KLM)
    let index = user.create(indirect, Vec::new(), 10).unwrap();
    assert!(user.get(index).unwrap().is_indirect());
}

/// A key of the function itself is checked whole before the copy begins.
#[test]
fn an_own_end_is_checked_at_once() {
    let (table, key, _) = owner(|_| ());
    let who = Accessor { pd: Pdn::from_low_bits(9), ..WHO };
    let end = table.check_dma(who, key, Access::LocalWrite, START + 2, 4).unwrap();
    assert_eq!((end.owner(), end.length()), (None, 4));
    let mut memory = Page([0; 0x1000]);
    table.write_end(&mut memory, &end, b"copy").unwrap();
    assert_eq!(memory.0[..8], *b"\0\0copy\0\0");
    let mut back = [0; 4];
    table.read_end(&mut memory, &end, &mut back).unwrap();
    assert_eq!(&back, b"copy");
    assert_eq!(table.check_dma(who, key, Access::LocalWrite, START, 0x2001), Err(KeyFault::Range));
    assert_eq!(table.check_dma(WHO, key, Access::LocalWrite, START, 1), Err(KeyFault::Domain));
}

/// The user's protection domain means nothing to the owner, which checks range and rights.
#[test]
fn the_owner_checks_range_and_rights_when_the_bytes_move() {
    let (table, _, name) = owner(|_| ());
    let mut memory = Page([0; 0x1000]);
    let end = foreign(name, START + 2, 4);
    assert_eq!((end.owner(), end.length()), (Some(OWNER), 4));
    table.write_end(&mut memory, &end, b"copy").unwrap();
    let mut back = [0; 4];
    table.read_end(&mut memory, &end, &mut back).unwrap();
    assert_eq!((&back, &memory.0[..8]), (b"copy", &b"\0\0copy\0\0"[..]));
    let mut read = |end: &DmaEnd| table.read_end(&mut memory, end, &mut [0; 4]);
    assert_eq!(read(&foreign(name, START + 0x1fff, 4)), Err(DmaRefused::Key));
    let fault = DmaFault { iova: 0x9000, length: 4, write: false };
    assert_eq!(read(&foreign(name, START + 0x1000, 4)), Err(DmaRefused::Memory(fault)));
}

#[test]
fn a_copy_needs_the_local_right_of_its_direction() {
    let both = |edit: fn(&mut MkeyContext)| {
        let (table, _, name) = owner(edit);
        let (end, mut memory) = (foreign(name, START, 4), Page([0; 0x1000]));
        (table.read_end(&mut memory, &end, &mut [0; 4]), table.write_end(&mut memory, &end, &[1; 4]))
    };
    let read_only = both(|context| {
        context.set_lw(false);
    });
    assert_eq!(read_only, (Ok(()), Err(DmaRefused::Key)));
    let write_only = both(|context| {
        context.set_lr(false);
    });
    assert_eq!(write_only, (Err(DmaRefused::Key), Ok(())));
}

/// The owner took the key back, or made another key under its number.
#[test]
fn a_name_is_of_one_key_and_not_of_its_number() {
    let (mut table, key, name) = owner(|context| {
        context.set_en_rinval(true);
    });
    let mut memory = Page([0; 0x1000]);
    let stale = SharedKey { generation: name.generation + 1, ..name };
    let mut read =
        |table: &MkeyTable, name| table.read_end(&mut memory, &foreign(name, START, 4), &mut [0; 4]);
    assert_eq!(read(&table, name), Ok(()));
    assert_eq!(read(&table, stale), Err(DmaRefused::Key));
    let owner = Accessor { pd: Pdn::from_low_bits(9), ..WHO };
    table.invalidate(owner, key).unwrap();
    assert_eq!(read(&table, name), Err(DmaRefused::Key));
    table.destroy(name.index);
    assert_eq!(read(&table, name), Err(DmaRefused::Key));
}

#[test]
fn a_refusal_says_why() {
    let fault = DmaFault { iova: 0x9000, length: 4, write: true };
    assert_eq!(DmaRefused::from(fault).to_string(), "DMA write of 4 bytes at 0x9000: not mapped");
    assert!(DmaRefused::Key.to_string().contains("does not cover the range"));
    assert!(DmaRefused::NoFunction(OWNER).to_string().starts_with("no function of the card has VHCA id "));
}
