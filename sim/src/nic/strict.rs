//! Strict mode: every bit that a layout does not declare must be zero.

use bareverbs_prm::field::LayoutInfo;
use core::ops::Range;

/// Whether all bits of `bytes` that `layout` does not declare are zero, outside the bytes that are `open`.
pub(crate) fn is_clear(layout: &LayoutInfo, bytes: &[u8], open: Range<usize>) -> bool {
    let mut rest = bytes[..bytes.len().min(layout.dwords * 4)].to_vec();
    clear_declared(layout, 0, &mut rest);
    let end = open.end.min(rest.len());
    if let Some(bytes) = rest.get_mut(open.start..end) {
        bytes.fill(0);
    }
    rest.iter().all(|&byte| byte == 0)
}

/// Clears the bits of every declared field. Nested layouts are walked, so their reserved bits stay.
fn clear_declared(layout: &LayoutInfo, start: u32, rest: &mut [u8]) {
    for field in layout.fields {
        let first = start + field.bit_offset;
        match field.part {
            Some(part) => clear_declared(part, first, rest),
            None => (first..first + field.bit_width).for_each(|bit| clear_bit(rest, bit)),
        }
    }
}

fn clear_bit(rest: &mut [u8], bit: u32) {
    if let Some(byte) = rest.get_mut(bit as usize / 8) {
        *byte &= !(0x80 >> (bit % 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_prm::command::eq::CreateEqIn;
    use bareverbs_prm::field::Layout;
    use zerocopy::IntoBytes;

    #[test]
    fn strict_mode_checks_undeclared_bits_only() {
        let mut input = CreateEqIn::new();
        input.set_op_mod(0xffff).set_event_bitmask([0xff; 32]);
        input.eq_context_entry_mut().set_log_eq_size(31).set_intr(0xfff);
        assert!(is_clear(&CreateEqIn::INFO, input.as_bytes(), 0..0));
        input.as_mut_bytes()[0x10 + 0x14] = 0x80;
        assert!(!is_clear(&CreateEqIn::INFO, input.as_bytes(), 0..0), "above eqc.intr");
        assert!(is_clear(&CreateEqIn::INFO, input.as_bytes(), 0x20..0x30));
    }
}
