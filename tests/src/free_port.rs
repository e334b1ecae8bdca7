//! A TCP port for a program that a test starts. Tests of other crates include this file by its path.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which Linux takes ports by itself.
const PORTS: Range<u32> = 10_000..32_000;
/// How far apart two processes with neighbouring numbers begin.
const EACH_PROCESS: u32 = 64;

/// A TCP port that nobody uses, and that this process has not been given before. It is outside the range from which Linux takes ports
/// by itself, and each process begins elsewhere, so that nobody else gets the port before it is used. `None` if all are in use.
pub fn free_port() -> Option<u16> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    let mut tried = (0..count).map(|_| {
        let number =
            std::process::id().wrapping_mul(EACH_PROCESS).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        (PORTS.start + number % count) as u16
    });
    tried.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}
