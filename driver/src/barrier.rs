//! Native barriers per architecture, each named by what it orders.
//!
//! On x86, loads and stores to write-back memory are already ordered, so a compiler barrier between them is
//! enough; a store to write-combining registers needs `sfence`. On aarch64, device and normal memory need
//! `dmb` or `dsb` on the outer-shareable domain. Other architectures get the strongest fence of the language.

#[cfg(any(target_arch = "x86_64", not(target_arch = "aarch64")))]
use core::sync::atomic::{Ordering, compiler_fence};

/// Barriers, named by what they order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Earlier stores to DMA memory are seen by the device before later stores to DMA memory or registers.
    ToDevice,
    /// Later loads from DMA memory see at least what the device wrote before the entry whose owner bit was just read.
    FromDevice,
    /// Earlier stores to registers leave the processor now; write-combining buffers are flushed.
    FlushMmio,
}

/// Executes the native instruction of `kind`.
#[inline(always)]
pub fn native(kind: Barrier) {
    match kind {
        Barrier::ToDevice => to_device(),
        Barrier::FromDevice => from_device(),
        Barrier::FlushMmio => flush_mmio(),
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn to_device() {
    compiler_fence(Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn from_device() {
    compiler_fence(Ordering::SeqCst);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn flush_mmio() {
    // On targets without SSE registers (x86_64-unknown-none) the intrinsic would be a call; the instruction
    // needs no such registers.
    // SAFETY: every x86-64 processor has `sfence`, which changes neither registers nor memory.
    unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn to_device() {
    // SAFETY: a barrier changes neither registers nor memory.
    unsafe { core::arch::asm!("dmb oshst", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn from_device() {
    // SAFETY: a barrier changes neither registers nor memory.
    unsafe { core::arch::asm!("dmb oshld", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn flush_mmio() {
    // SAFETY: a barrier changes neither registers nor memory.
    unsafe { core::arch::asm!("dsb st", options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn to_device() {
    compiler_fence(Ordering::SeqCst);
    core::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn from_device() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn flush_mmio() {
    core::sync::atomic::fence(Ordering::SeqCst);
}
