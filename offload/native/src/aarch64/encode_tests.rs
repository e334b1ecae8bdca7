//! Each encoder against the bytes that LLVM's assembler makes of the same instruction (`llvm-mc --show-encoding`).

use super::*;

/// An instruction in Arm's syntax, its bytes, and what writes it.
type Row = (&'static str, &'static [u8], fn(&mut Words));

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("add x0, x1, x9", &[0x20, 0x00, 0x09, 0x8b], |c| alu(c, DataProcessing::Add, true, Register(0), Register(1), Register(9))),
    ("add w3, w3, w4", &[0x63, 0x00, 0x04, 0x0b], |c| alu(c, DataProcessing::Add, false, Register(3), Register(3), Register(4))),
    ("sub x12, x5, x13", &[0xac, 0x00, 0x0d, 0xcb], |c| alu(c, DataProcessing::Sub, true, Register(12), Register(5), Register(13))),
    ("neg w7, w7", &[0xe7, 0x03, 0x07, 0x4b], |c| alu(c, DataProcessing::Sub, false, Register(7), ZERO, Register(7))),
    ("cmp x1, x2", &[0x3f, 0x00, 0x02, 0xeb], |c| alu(c, DataProcessing::Subs, true, ZERO, Register(1), Register(2))),
    ("cmp w1, w2", &[0x3f, 0x00, 0x02, 0x6b], |c| alu(c, DataProcessing::Subs, false, ZERO, Register(1), Register(2))),
    ("and x1, x2, x3", &[0x41, 0x00, 0x03, 0x8a], |c| alu(c, DataProcessing::And, true, Register(1), Register(2), Register(3))),
    ("tst w8, w9", &[0x1f, 0x01, 0x09, 0x6a], |c| alu(c, DataProcessing::Ands, false, ZERO, Register(8), Register(9))),
    ("orr x4, x4, x14", &[0x84, 0x00, 0x0e, 0xaa], |c| alu(c, DataProcessing::Or, true, Register(4), Register(4), Register(14))),
    ("eor w6, w6, w14", &[0xc6, 0x00, 0x0e, 0x4a], |c| alu(c, DataProcessing::Xor, false, Register(6), Register(6), Register(14))),
    ("udiv x1, x1, x2", &[0x21, 0x08, 0xc2, 0x9a], |c| alu(c, DataProcessing::Divide, true, Register(1), Register(1), Register(2))),
    ("udiv w1, w1, w2", &[0x21, 0x08, 0xc2, 0x1a], |c| alu(c, DataProcessing::Divide, false, Register(1), Register(1), Register(2))),
    ("lsl x1, x1, x2", &[0x21, 0x20, 0xc2, 0x9a], |c| alu(c, DataProcessing::Left, true, Register(1), Register(1), Register(2))),
    ("lsr w1, w1, w2", &[0x21, 0x24, 0xc2, 0x1a], |c| alu(c, DataProcessing::Right, false, Register(1), Register(1), Register(2))),
    ("asr x9, x9, x8", &[0x29, 0x29, 0xc8, 0x9a], |c| alu(c, DataProcessing::Arithmetic, true, Register(9), Register(9), Register(8))),
    ("mul x1, x1, x2", &[0x21, 0x7c, 0x02, 0x9b], |c| alu(c, DataProcessing::Multiply, true, Register(1), Register(1), Register(2))),
    ("mul w1, w1, w2", &[0x21, 0x7c, 0x02, 0x1b], |c| alu(c, DataProcessing::Multiply, false, Register(1), Register(1), Register(2))),
    ("add x13, x11, x13, lsl #5", &[0x6d, 0x15, 0x0d, 0x8b], |c| add_shifted(c, Register(13), Register(11), Register(13), 5)),
    ("add x14, x12, #8", &[0x8e, 0x21, 0x00, 0x91], |c| alu_constant(c, DataProcessingConstant::Add, true, Register(14), Register(12), 8)),
    ("add w16, w16, #4095", &[0x10, 0xfe, 0x3f, 0x11], |c| alu_constant(c, DataProcessingConstant::Add, false, Register(16), Register(16), 4095)),
    ("sub x2, x2, #1", &[0x42, 0x04, 0x00, 0xd1], |c| alu_constant(c, DataProcessingConstant::Sub, true, Register(2), Register(2), 1)),
    ("subs w16, w16, #12", &[0x10, 0x32, 0x00, 0x71], |c| alu_constant(c, DataProcessingConstant::Subs, false, Register(16), Register(16), 12)),
    ("cmp x13, #7", &[0xbf, 0x1d, 0x00, 0xf1], |c| alu_constant(c, DataProcessingConstant::Subs, true, ZERO, Register(13), 7)),
    ("msub x3, x15, x4, x3", &[0xe3, 0x8d, 0x04, 0x9b], |c| multiply_subtract(c, true, Register(3), Register(15), Register(4), Register(3))),
    ("msub w3, w15, w4, w3", &[0xe3, 0x8d, 0x04, 0x1b], |c| multiply_subtract(c, false, Register(3), Register(15), Register(4), Register(3))),
    ("mov x11, x0", &[0xeb, 0x03, 0x00, 0xaa], |c| copy(c, true, Register(11), Register(0))),
    ("mov w3, w3", &[0xe3, 0x03, 0x03, 0x2a], |c| copy(c, false, Register(3), Register(3))),
    ("lsl x3, x3, #13", &[0x63, 0xc8, 0x73, 0xd3], |c| shift_constant(c, ShiftKind::Left, true, Register(3), 13)),
    ("lsl w3, w3, #31", &[0x63, 0x00, 0x01, 0x53], |c| shift_constant(c, ShiftKind::Left, false, Register(3), 31)),
    ("lsl x3, x3, #0", &[0x63, 0xfc, 0x40, 0xd3], |c| shift_constant(c, ShiftKind::Left, true, Register(3), 0)),
    ("lsr x3, x3, #63", &[0x63, 0xfc, 0x7f, 0xd3], |c| shift_constant(c, ShiftKind::Right, true, Register(3), 63)),
    ("lsr w3, w3, #5", &[0x63, 0x7c, 0x05, 0x53], |c| shift_constant(c, ShiftKind::Right, false, Register(3), 5)),
    ("asr x3, x3, #7", &[0x63, 0xfc, 0x47, 0x93], |c| shift_constant(c, ShiftKind::Arithmetic, true, Register(3), 7)),
    ("asr w3, w3, #7", &[0x63, 0x7c, 0x07, 0x13], |c| shift_constant(c, ShiftKind::Arithmetic, false, Register(3), 7)),
    ("lsr x13, x4, #32", &[0x8d, 0xfc, 0x60, 0xd3], |c| high_half(c, Register(13), Register(4))),
    ("uxth w5, w5", &[0xa5, 0x3c, 0x00, 0x53], |c| low_16(c, Register(5))),
    ("rev x5, x5", &[0xa5, 0x0c, 0xc0, 0xda], |c| swap_bytes(c, true, Register(5))),
    ("rev w5, w5", &[0xa5, 0x08, 0xc0, 0x5a], |c| swap_bytes(c, false, Register(5))),
    ("rev16 w5, w5", &[0xa5, 0x04, 0xc0, 0x5a], |c| swap_bytes_of_halves(c, Register(5))),
    ("ldrb w3, [x13, x12]", &[0xa3, 0x69, 0x6c, 0x38], |c| load_sum(c, 1, Register(3), Register(13), Register(12))),
    ("ldrh w3, [x13, x12]", &[0xa3, 0x69, 0x6c, 0x78], |c| load_sum(c, 2, Register(3), Register(13), Register(12))),
    ("ldr w3, [x13, x12]", &[0xa3, 0x69, 0x6c, 0xb8], |c| load_sum(c, 4, Register(3), Register(13), Register(12))),
    ("ldr x3, [x13, x12]", &[0xa3, 0x69, 0x6c, 0xf8], |c| load_sum(c, 8, Register(3), Register(13), Register(12))),
    ("strb w3, [x13, x12]", &[0xa3, 0x69, 0x2c, 0x38], |c| store_sum(c, 1, Register(3), Register(13), Register(12))),
    ("strh w3, [x13, x12]", &[0xa3, 0x69, 0x2c, 0x78], |c| store_sum(c, 2, Register(3), Register(13), Register(12))),
    ("str wzr, [x13, x12]", &[0xbf, 0x69, 0x2c, 0xb8], |c| store_sum(c, 4, ZERO, Register(13), Register(12))),
    ("str x3, [x13, x12]", &[0xa3, 0x69, 0x2c, 0xf8], |c| store_sum(c, 8, Register(3), Register(13), Register(12))),
    ("ldurb w3, [x10, #-256]", &[0x43, 0x01, 0x50, 0x38], |c| load_near(c, 1, Register(3), Register(10), -256)),
    ("ldurh w3, [x10, #-2]", &[0x43, 0xe1, 0x5f, 0x78], |c| load_near(c, 2, Register(3), Register(10), -2)),
    ("ldur w3, [x10, #-4]", &[0x43, 0xc1, 0x5f, 0xb8], |c| load_near(c, 4, Register(3), Register(10), -4)),
    ("ldur x3, [x10, #-16]", &[0x43, 0x01, 0x5f, 0xf8], |c| load_near(c, 8, Register(3), Register(10), -16)),
    ("sturb w3, [x10, #-1]", &[0x43, 0xf1, 0x1f, 0x38], |c| store_near(c, 1, Register(3), Register(10), -1)),
    ("sturh wzr, [x10, #-200]", &[0x5f, 0x81, 0x13, 0x78], |c| store_near(c, 2, ZERO, Register(10), -200)),
    ("stur w3, [x10, #-4]", &[0x43, 0xc1, 0x1f, 0xb8], |c| store_near(c, 4, Register(3), Register(10), -4)),
    ("stur x3, [x10, #-8]", &[0x43, 0x81, 0x1f, 0xf8], |c| store_near(c, 8, Register(3), Register(10), -8)),
    ("ldr x16, [x11, #8]", &[0x70, 0x05, 0x40, 0xf9], |c| load(c, Register(16), Register(11), 8)),
    ("ldr x13, [x11, #184]", &[0x6d, 0x5d, 0x40, 0xf9], |c| load(c, Register(13), Register(11), 184)),
    ("str x17, [x11, #16]", &[0x71, 0x09, 0x00, 0xf9], |c| store(c, Register(17), Register(11), 16)),
    ("ldp x8, x9, [x13, #64]", &[0xa8, 0x25, 0x44, 0xa9], |c| load_pair(c, [Register(8), Register(9)], Register(13), 64)),
    ("stp x0, x1, [x13]", &[0xa0, 0x05, 0x00, 0xa9], |c| store_pair(c, [Register(0), Register(1)], Register(13), 0)),
    ("br x17", &[0x20, 0x02, 0x1f, 0xd6], |c| jump_to(c, Register(17))),
    ("ret", &[0xc0, 0x03, 0x5f, 0xd6], |c| ret(c)),
    ("movz x14, #0", &[0x0e, 0x00, 0x80, 0xd2], |c| constant(c, Register(14), 0)),
    ("movz x14, #5", &[0xae, 0x00, 0x80, 0xd2], |c| constant(c, Register(14), 5)),
    ("movz x13, #3, lsl #32", &[0x6d, 0x00, 0xc0, 0xd2], |c| constant(c, Register(13), 3 << 32)),
    ("movz x14, #0x1234, lsl #48", &[0x8e, 0x46, 0xe2, 0xd2], |c| constant(c, Register(14), 0x1234 << 48)),
    ("movn x14, #0", &[0x0e, 0x00, 0x80, 0x92], |c| constant(c, Register(14), u64::MAX)),
    ("movn x14, #4", &[0x8e, 0x00, 0x80, 0x92], |c| constant(c, Register(14), -5_i64 as u64)),
    ("movn x14, #0xffff, lsl #48", &[0xee, 0xff, 0xff, 0x92], |c| constant(c, Register(14), u64::MAX >> 16)),
    ("movz x14, #0x5678; movk x14, #0x1234, lsl #16", &[0x0e, 0xcf, 0x8a, 0xd2, 0x8e, 0x46, 0xa2, 0xf2], |c| constant(c, Register(14), 0x1234_5678)),
    ("movz x14, #0x100; movk x14, #5, lsl #32", &[0x0e, 0x20, 0x80, 0xd2, 0xae, 0x00, 0xc0, 0xf2], |c| constant(c, Register(14), 5 << 32 | 0x100)),
    ("movn x14, #0xedcb, lsl #16; movk x14, #0x1, lsl #48", &[0x6e, 0xb9, 0xbd, 0x92, 0x2e, 0x00, 0xe0, 0xf2], |c| constant(c, Register(14), 0x0001_ffff_1234_ffff)),
    ("movz x14, #0x7890; movk x14, #0xf123, lsl #16; movk x14, #0xabcd, lsl #32; movk x14, #0x1234, lsl #48", &[0x0e, 0x12, 0x8f, 0xd2, 0x6e, 0x24, 0xbe, 0xf2, 0xae, 0x79, 0xd5, 0xf2, 0x8e, 0x46, 0xe2, 0xf2], |c| constant(c, Register(14), 0x1234_abcd_f123_7890)),
];

#[test]
fn instructions_are_those_of_an_assembler() {
    for (text, bytes, write) in ROWS {
        let mut code = Words::new();
        write(&mut code);
        assert_eq!(code.finish().expect("no jumps"), *bytes, "{text}");
    }
}

/// A branch over so many other instructions, forward or back.
fn branch_over(between: usize, back: bool, write: fn(&mut Words, Label)) -> Option<[u8; 4]> {
    let mut code = Words::new();
    let label = code.label();
    if back {
        code.bind(label);
    } else {
        write(&mut code, label);
    }
    code.put(&vec![0; 4 * between]);
    if back {
        write(&mut code, label);
    } else {
        code.bind(label);
    }
    let code = code.finish()?;
    if back { code.last_chunk().copied() } else { code.first_chunk().copied() }
}

/// `b . + 16`, `b . - 12`, `b.lo . + 16`, `b.gt . - 12`; 19 bits of words are a megabyte.
#[test]
fn branches_have_their_distance() {
    let always: fn(&mut Words, Label) = jump;
    assert_eq!(branch_over(3, false, always), Some([0x04, 0x00, 0x00, 0x14]));
    assert_eq!(branch_over(3, true, always), Some([0xfd, 0xff, 0xff, 0x17]));
    let below: fn(&mut Words, Label) = |c, to| jump_if(c, ConditionCode::Below, to);
    assert_eq!(branch_over(3, false, below), Some([0x83, 0x00, 0x00, 0x54]));
    assert_eq!(
        branch_over(3, true, |c, to| jump_if(c, ConditionCode::Greater, to)),
        Some([0xac, 0xff, 0xff, 0x54])
    );
    assert!(branch_over((1 << 18) - 2, false, below).is_some());
    assert_eq!(branch_over((1 << 18) - 1, false, below), None, "too far");
}
