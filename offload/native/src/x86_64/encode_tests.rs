//! Each encoder against the bytes that LLVM's assembler makes of the same instruction (`llvm-mc --show-encoding`).

use super::*;

/// An instruction in Intel's syntax, its bytes, and what writes it.
type Row = (&'static str, &'static [u8], fn(&mut Code));

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("add rdi, rsi", &[0x48, 0x01, 0xf7], |c| alu(c, Alu::Add, true, RDI, RSI)),
    ("add edi, r15d", &[0x44, 0x01, 0xff], |c| alu(c, Alu::Add, false, RDI, Reg(15))),
    ("or r8, rcx", &[0x49, 0x09, 0xc8], |c| alu(c, Alu::Or, true, Reg(8), RCX)),
    ("and r12d, r9d", &[0x45, 0x21, 0xcc], |c| alu(c, Alu::And, false, Reg(12), Reg(9))),
    ("sub rsi, r10", &[0x4c, 0x29, 0xd6], |c| alu(c, Alu::Sub, true, RSI, Reg(10))),
    ("xor r11, rdi", &[0x49, 0x31, 0xfb], |c| alu(c, Alu::Xor, true, Reg(11), RDI)),
    ("cmp rax, rdx", &[0x48, 0x39, 0xd0], |c| alu(c, Alu::Cmp, true, RAX, RDX)),
    ("add r13, 127", &[0x49, 0x83, 0xc5, 0x7f], |c| alu_constant(c, Alu::Add, true, Reg(13), 127)),
    ("add r13, 128", &[0x49, 0x81, 0xc5, 0x80, 0x00, 0x00, 0x00], |c| alu_constant(c, Alu::Add, true, Reg(13), 128)),
    ("sub ebx, 7", &[0x83, 0xeb, 0x07], |c| alu_constant(c, Alu::Sub, false, RBX, 7)),
    ("and rdi, -129", &[0x48, 0x81, 0xe7, 0x7f, 0xff, 0xff, 0xff], |c| alu_constant(c, Alu::And, true, RDI, -129)),
    ("or esi, -128", &[0x83, 0xce, 0x80], |c| alu_constant(c, Alu::Or, false, RSI, -128)),
    ("xor r14d, 305419896", &[0x41, 0x81, 0xf6, 0x78, 0x56, 0x34, 0x12], |c| alu_constant(c, Alu::Xor, false, Reg(14), 305419896)),
    ("cmp rdi, -1", &[0x48, 0x83, 0xff, 0xff], |c| alu_constant(c, Alu::Cmp, true, RDI, -1)),
    ("cmp r9d, 300", &[0x41, 0x81, 0xf9, 0x2c, 0x01, 0x00, 0x00], |c| alu_constant(c, Alu::Cmp, false, Reg(9), 300)),
    ("cmp rcx, qword ptr [rbp + rdx + 40]", &[0x48, 0x3b, 0x4c, 0x15, 0x28], |c| compare_with_memory(c, RCX, at_sum(RBP, RDX, 40))),
    ("test rdi, r9", &[0x4c, 0x85, 0xcf], |c| test(c, true, RDI, Reg(9))),
    ("test ecx, ecx", &[0x85, 0xc9], |c| test(c, false, RCX, RCX)),
    ("test r8, -2", &[0x49, 0xf7, 0xc0, 0xfe, 0xff, 0xff, 0xff], |c| test_constant(c, true, Reg(8), -2)),
    ("test esi, 255", &[0xf7, 0xc6, 0xff, 0x00, 0x00, 0x00], |c| test_constant(c, false, RSI, 255)),
    ("mov rbp, rdi", &[0x48, 0x89, 0xfd], |c| copy(c, true, RBP, RDI)),
    ("mov eax, eax", &[0x89, 0xc0], |c| copy(c, false, RAX, RAX)),
    ("mov r15d, r8d", &[0x45, 0x89, 0xc7], |c| copy(c, false, Reg(15), Reg(8))),
    ("xor r9d, r9d", &[0x45, 0x31, 0xc9], |c| constant(c, true, Reg(9), 0)),
    ("mov r9d, 5", &[0x41, 0xb9, 0x05, 0x00, 0x00, 0x00], |c| constant(c, true, Reg(9), 5)),
    ("mov edi, -5", &[0xbf, 0xfb, 0xff, 0xff, 0xff], |c| constant(c, false, RDI, -5)),
    ("mov rdi, -5", &[0x48, 0xc7, 0xc7, 0xfb, 0xff, 0xff, 0xff], |c| constant(c, true, RDI, -5)),
    ("mov r10, -2147483648", &[0x49, 0xc7, 0xc2, 0x00, 0x00, 0x00, 0x80], |c| wide_constant(c, Reg(10), (-2147483648_i64) as u64)),
    ("movabs r10, 1311768467463790320", &[0x49, 0xba, 0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12], |c| wide_constant(c, Reg(10), 1311768467463790320)),
    ("movabs rax, 4294967296", &[0x48, 0xb8, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00], |c| wide_constant(c, RAX, 1 << 32)),
    ("imul rdi, r12", &[0x49, 0x0f, 0xaf, 0xfc], |c| multiply(c, true, RDI, Reg(12))),
    ("imul r13d, esi", &[0x44, 0x0f, 0xaf, 0xee], |c| multiply(c, false, Reg(13), RSI)),
    ("imul r8, r8, 1000", &[0x4d, 0x69, 0xc0, 0xe8, 0x03, 0x00, 0x00], |c| multiply_constant(c, true, Reg(8), 1000)),
    ("imul edi, edi, -1000", &[0x69, 0xff, 0x18, 0xfc, 0xff, 0xff], |c| multiply_constant(c, false, RDI, -1000)),
    ("div rcx", &[0x48, 0xf7, 0xf1], |c| divide(c, true, RCX)),
    ("div ecx", &[0xf7, 0xf1], |c| divide(c, false, RCX)),
    ("neg r14", &[0x49, 0xf7, 0xde], |c| negate(c, true, Reg(14))),
    ("neg edi", &[0xf7, 0xdf], |c| negate(c, false, RDI)),
    ("shl r8, cl", &[0x49, 0xd3, 0xe0], |c| shift(c, Shift::Left, true, Reg(8))),
    ("shr edi, cl", &[0xd3, 0xef], |c| shift(c, Shift::Right, false, RDI)),
    ("sar r15, cl", &[0x49, 0xd3, 0xff], |c| shift(c, Shift::Arithmetic, true, Reg(15))),
    ("shl edx, 5", &[0xc1, 0xe2, 0x05], |c| shift_constant(c, Shift::Left, false, RDX, 5)),
    ("shr rdx, 32", &[0x48, 0xc1, 0xea, 0x20], |c| shift_constant(c, Shift::Right, true, RDX, 32)),
    ("sar r9d, 31", &[0x41, 0xc1, 0xf9, 0x1f], |c| shift_constant(c, Shift::Arithmetic, false, Reg(9), 31)),
    ("bswap r11", &[0x49, 0x0f, 0xcb], |c| swap_bytes(c, true, Reg(11))),
    ("bswap edi", &[0x0f, 0xcf], |c| swap_bytes(c, false, RDI)),
    ("rol r12w, 8", &[0x66, 0x41, 0xc1, 0xc4, 0x08], |c| swap_low_bytes(c, Reg(12))),
    ("rol si, 8", &[0x66, 0xc1, 0xc6, 0x08], |c| swap_low_bytes(c, RSI)),
    ("movzx edi, di", &[0x0f, 0xb7, 0xff], |c| low_16(c, RDI)),
    ("movzx r13d, r13w", &[0x45, 0x0f, 0xb7, 0xed], |c| low_16(c, Reg(13))),
    ("lea rax, [r12 + 8]", &[0x49, 0x8d, 0x44, 0x24, 0x08], |c| address(c, RAX, at(Reg(12), 8))),
    ("lea rax, [r13]", &[0x49, 0x8d, 0x45, 0x00], |c| address(c, RAX, at(Reg(13), 0))),
    ("lea rax, [rdi - 32768]", &[0x48, 0x8d, 0x87, 0x00, 0x80, 0xff, 0xff], |c| address(c, RAX, at(RDI, -32768))),
    ("lea rcx, [rax + 4]", &[0x48, 0x8d, 0x48, 0x04], |c| address(c, RCX, at(RAX, 4))),
    ("movzx edi, byte ptr [rdx + rax]", &[0x0f, 0xb6, 0x3c, 0x02], |c| load(c, 1, RDI, at_sum(RDX, RAX, 0))),
    ("movzx r14d, word ptr [rdx + rax]", &[0x44, 0x0f, 0xb7, 0x34, 0x02], |c| load(c, 2, Reg(14), at_sum(RDX, RAX, 0))),
    ("mov r8d, dword ptr [rdx + rax]", &[0x44, 0x8b, 0x04, 0x02], |c| load(c, 4, Reg(8), at_sum(RDX, RAX, 0))),
    ("mov rsi, qword ptr [rdx + rax]", &[0x48, 0x8b, 0x34, 0x02], |c| load(c, 8, RSI, at_sum(RDX, RAX, 0))),
    ("mov rdx, qword ptr [rbp + rdx]", &[0x48, 0x8b, 0x54, 0x15, 0x00], |c| load(c, 8, RDX, at_sum(RBP, RDX, 0))),
    ("mov rcx, qword ptr [rbp]", &[0x48, 0x8b, 0x4d, 0x00], |c| load(c, 8, RCX, at(RBP, 0))),
    ("movzx edi, byte ptr [rax - 200]", &[0x0f, 0xb6, 0xb8, 0x38, 0xff, 0xff, 0xff], |c| load(c, 1, RDI, at(RAX, -200))),
    ("mov byte ptr [rdx + rax], sil", &[0x40, 0x88, 0x34, 0x02], |c| store(c, 1, at_sum(RDX, RAX, 0), RSI)),
    ("mov byte ptr [rax - 1], cl", &[0x88, 0x48, 0xff], |c| store(c, 1, at(RAX, -1), RCX)),
    ("mov byte ptr [rdx + rax], r9b", &[0x44, 0x88, 0x0c, 0x02], |c| store(c, 1, at_sum(RDX, RAX, 0), Reg(9))),
    ("mov word ptr [rdx + rax], r8w", &[0x66, 0x44, 0x89, 0x04, 0x02], |c| store(c, 2, at_sum(RDX, RAX, 0), Reg(8))),
    ("mov word ptr [rdx + rax], di", &[0x66, 0x89, 0x3c, 0x02], |c| store(c, 2, at_sum(RDX, RAX, 0), RDI)),
    ("mov dword ptr [rax - 16], r10d", &[0x44, 0x89, 0x50, 0xf0], |c| store(c, 4, at(RAX, -16), Reg(10))),
    ("mov qword ptr [rdx + rax], rdi", &[0x48, 0x89, 0x3c, 0x02], |c| store(c, 8, at_sum(RDX, RAX, 0), RDI)),
    ("mov qword ptr [rcx + 72], r15", &[0x4c, 0x89, 0x79, 0x48], |c| store(c, 8, at(RCX, 72), Reg(15))),
    ("mov byte ptr [rdx + rax], 255", &[0xc6, 0x04, 0x02, 0xff], |c| store_constant(c, 1, at_sum(RDX, RAX, 0), -1)),
    ("mov word ptr [rdx + rax], 4660", &[0x66, 0xc7, 0x04, 0x02, 0x34, 0x12], |c| store_constant(c, 2, at_sum(RDX, RAX, 0), 0x1234)),
    ("mov dword ptr [rax - 4], 305419896", &[0xc7, 0x40, 0xfc, 0x78, 0x56, 0x34, 0x12], |c| store_constant(c, 4, at(RAX, -4), 305419896)),
    ("mov qword ptr [rdx + rax], -7", &[0x48, 0xc7, 0x04, 0x02, 0xf9, 0xff, 0xff, 0xff], |c| store_constant(c, 8, at_sum(RDX, RAX, 0), -7)),
    ("jmp rax", &[0xff, 0xe0], |c| jump_to(c, RAX)),
    ("push rbx", &[0x53], |c| push(c, RBX)),
    ("push r12", &[0x41, 0x54], |c| push(c, Reg(12))),
    ("pop rbp", &[0x5d], |c| pop(c, RBP)),
    ("pop r15", &[0x41, 0x5f], |c| pop(c, Reg(15))),
    ("ret", &[0xc3], |c| ret(c)),
];

#[test]
fn instructions_are_those_of_an_assembler() {
    for (text, bytes, write) in ROWS {
        let mut code = Code::new();
        write(&mut code);
        assert_eq!(code.finish().expect("no jumps"), *bytes, "{text}");
    }
}

/// A jump over `between` bytes, forward or back.
fn jump_over(between: usize, back: bool, write: fn(&mut Code, Label)) -> Vec<u8> {
    let mut code = Code::new();
    let label = code.label();
    if back {
        code.bind(label);
        code.put(&vec![0x90; between]);
        write(&mut code, label);
    } else {
        write(&mut code, label);
        code.put(&vec![0x90; between]);
        code.bind(label);
    }
    let code = code.finish().expect("near");
    if back { code[between..].to_vec() } else { code[..code.len() - between].to_vec() }
}

/// The distance counts from the end of the jump.
#[test]
fn jumps_have_their_distance() {
    let always: fn(&mut Code, Label) = jump;
    assert_eq!(jump_over(3, false, always), [0xe9, 3, 0, 0, 0]);
    assert_eq!(jump_over(3, true, always), [0xe9, 0xf8, 0xff, 0xff, 0xff]);
    assert_eq!(jump_over(300, false, |c, to| jump_if(c, If::Below, to)), [0x0f, 0x82, 0x2c, 1, 0, 0]);
    assert_eq!(jump_over(0, true, |c, to| jump_if(c, If::Greater, to)), [0x0f, 0x8f, 0xfa, 0xff, 0xff, 0xff]);
}
