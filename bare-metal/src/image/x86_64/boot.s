# Entry by PVH (the note names it): 32-bit protected mode, flat segments, paging and interrupts off. Leaves in 64-bit mode
# with memory mapped one to one, a stack, and every exception leading to `handle_exception`.

    .section .note.pvh, "a", @note
    .balign 4
    .long 4, 4, 18                  # length of the name, of the value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .long pvh_start

    .section .text.boot, "ax"
    .code32
    .global pvh_start
pvh_start:
    cli
    mov $boot_stack_top, %esp
    mov %cr4, %eax
    or $0x620, %eax                 # physical address extension; SSE state and exceptions
    mov %eax, %cr4
    mov $page_map_level_4, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx           # EFER: long mode
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    and $0xfffffffb, %eax           # no emulation of the FPU
    or $0x80000002, %eax            # paging; monitor coprocessor
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $8, $long_mode

    .code64
long_mode:
    xor %eax, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    mov %eax, %fs
    mov %eax, %gs
    mov $boot_stack_top, %rsp
    call fill_interrupt_table
    lidt interrupt_table_pointer(%rip)
    xor %ebp, %ebp
    call enter
    ud2

# Writes 32 gates, 16 bytes each, that lead to the stubs below, 16 bytes each.
fill_interrupt_table:
    lea interrupt_table(%rip), %rdi
    lea exception_stubs(%rip), %rax
    mov $32, %ecx
1:  mov %ax, (%rdi)                 # offset 15:0
    movw $8, 2(%rdi)                # code segment
    movw $0x8e00, 4(%rdi)           # present, interrupt gate
    mov %rax, %rdx
    shr $16, %rdx
    mov %dx, 6(%rdi)                # offset 31:16
    shr $16, %rdx
    mov %edx, 8(%rdi)               # offset 63:32
    movl $0, 12(%rdi)
    add $16, %rdi
    add $16, %rax
    dec %ecx
    jnz 1b
    ret

# The vectors with an error code are 8, 10 to 14, 17, 21, 29 and 30; the others push a zero in its place.
    .balign 16
exception_stubs:
    .set vector, 0
    .rept 32
    .balign 16
    .if (vector == 8) || ((vector >= 10) && (vector <= 14)) || (vector == 17) || (vector == 21) || (vector == 29) || (vector == 30)
    .else
    push $0
    .endif
    push $vector
    jmp exception_common
    .set vector, vector + 1
    .endr

exception_common:
    pop %rdi                        # vector
    mov 8(%rsp), %rsi               # instruction
    mov %cr2, %rdx
    and $-16, %rsp
    call handle_exception
    ud2

    .section .rodata.boot, "a"
    .balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff        # code, 64 bits
    .quad 0x00cf92000000ffff        # data
gdt_pointer:
    .word 23
    .long gdt
    .long 0
interrupt_table_pointer:
    .word 32 * 16 - 1
    .quad interrupt_table

    .section .data.boot, "aw"
    .balign 4096
    .global page_map_level_4
page_map_level_4:
    .quad low_gigabytes + 3
    .fill 511, 8, 0
low_gigabytes:                      # the first 512 GiB, one page of 1 GiB each: writable, large
    .set gigabyte, 0
    .rept 512
    .quad (gigabyte << 30) + 0x83
    .set gigabyte, gigabyte + 1
    .endr

    .section .bss.boot, "aw", @nobits
    .balign 4096
    .global spare_directory
spare_directory:                    # for a BAR beyond the first 512 GiB
    .skip 4096
interrupt_table:
    .skip 32 * 16
    .balign 16
    .skip 262144
boot_stack_top:
