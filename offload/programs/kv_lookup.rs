//! The lookup in the remote hash table, as a program in Rust: what `kv_lookup.c` does, and
//! `offload/src/kernels/kv_lookup.rs`, step by step.
#![no_std]

mod bareverbs;

use bareverbs::*;

const MOVED: u64 = 1;
const LINE_SIZE: u32 = 64;
const SLOTS: usize = 3;
const MAX_KEY: u64 = 64;
const MAX_VALUE: u64 = 65536;
const MAX_OBJECT: u32 = 65648;
const PARAMETERS_FIXED: u64 = 24;
const OBJECT_HEADER: u64 = 24;
const OBJECT_TAIL: u64 = 16;

/// Words of the state: the first line of the chain, and the line behind the one that is looked at.
const HEAD: usize = 0;
const NEXT: usize = 1;
const CANDIDATES: usize = 2;
const EXPECTS_OBJECT: usize = CANDIDATES + SLOTS;
const BUCKETS: usize = EXPECTS_OBJECT + 1;
/// The number of the chain.
const CHAIN: usize = BUCKETS + 1;

#[inline(always)]
fn fetch_line(context: &mut Context, offset: u64) -> u64 {
    if offset % u64::from(LINE_SIZE) != 0 {
        return context.done(STATUS_OUT_OF_BOUNDS);
    }
    context.state()[EXPECTS_OBJECT] = 0;
    context.fetch(offset, LINE_SIZE)
}

/// Begins with the first line of the chain of the hash, among lines that begin at the offset.
#[inline(always)]
fn fetch_head(context: &mut Context, lines: u64, buckets: u64) -> u64 {
    let hash = context.parameters().be64(0);
    let low = (hash & 0xffff_ffff) * buckets;
    let bucket = ((hash >> 32) * buckets + (low >> 32)) >> 32;
    let head = lines.wrapping_add(bucket * u64::from(LINE_SIZE));
    let state = context.state();
    (state[HEAD], state[BUCKETS]) = (head, buckets);
    state[CHAIN] = (buckets + bucket) & 0xffff_ffff;
    if head < lines {
        return context.done(STATUS_OUT_OF_BOUNDS);
    }
    fetch_line(context, head)
}

/// What was read was being changed: begins again with the first line.
#[inline(always)]
fn again(context: &mut Context, otherwise: u32) -> u64 {
    context.state()[EXPECTS_OBJECT] = 0;
    context.status = otherwise;
    let head = context.state()[HEAD];
    context.fetch(head, LINE_SIZE);
    REFETCH
}

#[inline(always)]
fn advance(context: &mut Context) -> u64 {
    for slot in CANDIDATES..CANDIDATES + SLOTS {
        let candidate = core::mem::take(&mut context.state()[slot]);
        if candidate == 0 {
            continue;
        }
        let size = (candidate & 0xffff) as u32 * 16;
        if size > MAX_OBJECT {
            return context.done(STATUS_OUT_OF_BOUNDS);
        }
        context.state()[EXPECTS_OBJECT] = 1;
        return context.fetch(candidate >> 16, size);
    }
    match context.state()[NEXT] {
        0 => context.done(STATUS_NOT_FOUND),
        next => fetch_line(context, next),
    }
}

#[inline(always)]
fn start(context: &mut Context) -> u64 {
    let parameters = context.parameters();
    let Some(key) = u64::from(context.parameters_length).checked_sub(PARAMETERS_FIXED) else {
        return context.done(STATUS_BAD_PARAMETERS);
    };
    let buckets = u64::from(parameters.be32(16));
    if parameters.be16(20) != key || parameters.be16(22) != 0 || key == 0 || key > MAX_KEY || buckets == 0 {
        return context.done(STATUS_BAD_PARAMETERS);
    }
    fetch_head(context, parameters.be64(8), buckets)
}

#[inline(always)]
fn take_line(context: &mut Context) -> u64 {
    let line = context.window();
    let hash = context.parameters().be64(0);
    if line.be32(56) & 1 != 0 {
        return again(context, STATUS_BUSY);
    }
    if crc32c(line, 60) != line.be32(60) ^ context.state()[CHAIN] as u32 {
        return again(context, STATUS_INCONSISTENT);
    }
    let next = line.be64(48);
    context.state()[NEXT] = next;
    if next & MOVED != 0 {
        let buckets = context.state()[BUCKETS];
        if buckets >> 31 != 0 {
            return context.done(STATUS_OUT_OF_BOUNDS);
        }
        return fetch_head(context, next - MOVED, buckets * 2);
    }
    for slot in 0..SLOTS {
        let at = 16 * slot as u64;
        context.state()[CANDIDATES + slot] = if line.be64(at) == hash { line.be64(at + 8) } else { 0 };
    }
    advance(context)
}

#[inline(always)]
fn take_object(context: &mut Context) -> u64 {
    let (object, parameters) = (context.window(), context.parameters());
    let window = u64::from(context.window_length);
    if window < OBJECT_HEADER {
        return again(context, STATUS_INCONSISTENT);
    }
    let (key, value) = (object.be16(8), u64::from(object.be32(12)));
    if key == 0 || key > MAX_KEY || value > MAX_VALUE {
        return again(context, STATUS_INCONSISTENT);
    }
    let tail = (OBJECT_HEADER + key + value + 7) & !7;
    if tail + OBJECT_TAIL > window
        || object.be64(tail + 8) != object.be64(16)
        || crc64(object, tail) != object.be64(tail)
        || object.be64(0) != parameters.be64(0)
    {
        return again(context, STATUS_INCONSISTENT);
    }
    if key + PARAMETERS_FIXED != u64::from(context.parameters_length)
        || !key_eq(object.from(OBJECT_HEADER), parameters.from(PARAMETERS_FIXED), key)
    {
        return advance(context);
    }
    context.offset = OBJECT_HEADER + key;
    context.length = value as u32;
    context.version = object.be64(16);
    EMIT
}

#[unsafe(no_mangle)]
pub extern "C" fn step(context: &mut Context) -> u64 {
    if context.event == EVENT_START {
        start(context)
    } else if context.state()[EXPECTS_OBJECT] != 0 {
        take_object(context)
    } else {
        take_line(context)
    }
}
