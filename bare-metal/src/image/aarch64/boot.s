// Entry of an ELF image on QEMU's machine "virt": exception level 1, MMU off. Leaves with memory mapped one to one,
// caches on, a stack, floating point allowed, and every exception leading to `handle_exception`.

    .section .text.boot, "ax"
    .global start
start:
    mrs x9, mpidr_el1
    tst x9, #0xff
    b.ne park                       // the other processors sleep
    adrp x9, boot_stack_top
    add x9, x9, :lo12:boot_stack_top
    mov sp, x9
    adrp x9, exception_vectors
    add x9, x9, :lo12:exception_vectors
    msr vbar_el1, x9
    mov x9, #(3 << 20)              // floating point and vectors
    msr cpacr_el1, x9
    ldr x9, =0xff04                 // memory attributes: 0 device (nGnRE), 1 normal, write back
    msr mair_el1, x9
    ldr x9, =0x280803519            // 39 bits, 4 KiB, walks cached and inner shareable, no upper half, 40 bits physical
    msr tcr_el1, x9
    adrp x9, gigabytes
    msr ttbr0_el1, x9
    isb
    tlbi vmalle1
    dsb ish
    isb
    mrs x9, sctlr_el1
    ldr x10, =0x1005                // MMU, data cache, instruction cache
    orr x9, x9, x10
    msr sctlr_el1, x9
    isb
    bl enter
park:
    wfe
    b park

    .balign 2048
exception_vectors:
    .rept 16
    .balign 128
    mrs x0, esr_el1
    mrs x1, elr_el1
    mrs x2, far_el1
    adrp x9, boot_stack_top
    add x9, x9, :lo12:boot_stack_top
    mov sp, x9
    b handle_exception
    .endr

    .section .data.boot, "aw"
    .balign 4096
gigabytes:                          // 512 blocks of 1 GiB
    .quad 0x0000000000000401        // devices below 1 GiB
    .set gigabyte, 1
    .rept 255                       // memory: normal, inner shareable
    .quad (gigabyte << 30) + 0x705
    .set gigabyte, gigabyte + 1
    .endr
    .rept 256                       // devices from 256 GiB on, never executed
    .quad (gigabyte << 30) + 0x0060000000000401
    .set gigabyte, gigabyte + 1
    .endr

    .section .bss.boot, "aw", @nobits
    .balign 16
    .skip 262144
boot_stack_top:
