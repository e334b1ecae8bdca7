//! Checks the rig itself, so that a fault of the rig is not taken for one of the NIC: frames of the guest
//! must reach this process, and Soft-RoCE must be able to talk to itself.

use super::super::interrupt;
use super::super::machine::Machine;
use super::super::table::{Entry, Verdict};
use super::cases::{Family, row};
use super::guest_side::{GUEST_MAC, GuestDevice};
use anyhow::{Context, Result};
use bareverbs_serve::real_time::{FrameIo, UnixDatagramIo};
use std::time::{Duration, Instant};

const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
/// An address that nobody has: the guest asks for it by ARP.
const NOBODY: &str = "10.7.0.99";

/// Runs both checks.
pub fn check(machine: &mut Machine, guest: &GuestDevice) -> Result<Vec<Entry>> {
    Ok(vec![
        timed("wire", || see_arp(machine))?,
        timed("ibv_rc_pingpong with itself", || pingpong_with_itself(machine, guest))?,
    ])
}

fn timed(name: &str, work: impl FnOnce() -> Result<Verdict>) -> Result<Entry> {
    let start = Instant::now();
    let verdict = work()?;
    Ok(Entry { columns: row(&format!("rig: {name}")), verdict, elapsed: start.elapsed() })
}

/// The guest resolves an address; its ARP request must arrive from the wire with the guest's MAC address.
fn see_arp(machine: &mut Machine) -> Result<Verdict> {
    let (own, peer) = machine.wire_sockets(0);
    let mut wire = UnixDatagramIo::bind(&own, &peer)?;
    let job = machine.control.start(&format!("ping -c 1 -W 1 {NOBODY}"), Duration::from_secs(20))?;
    let found = wait_for_arp(&mut wire, Duration::from_secs(10))?;
    machine.control.wait(&job)?;
    Ok(match found {
        Some(frames) => Verdict::Pass(format!("an ARP request among {frames} frames")),
        None => Verdict::Fail("no frame of the guest reached this process".into()),
    })
}

fn wait_for_arp(wire: &mut UnixDatagramIo, limit: Duration) -> Result<Option<u32>> {
    let (deadline, mut frame, mut frames) = (Instant::now() + limit, Vec::new(), 0);
    while Instant::now() < deadline {
        interrupt::check()?;
        while wire.receive(&mut frame)? {
            frames += 1;
            if frame.get(6..12) == Some(&GUEST_MAC.0) && frame.get(12..14) == Some(&ETHERTYPE_ARP) {
                return Ok(Some(frames));
            }
        }
        wire.wait(Duration::from_millis(20))?;
    }
    Ok(None)
}

fn pingpong_with_itself(machine: &mut Machine, guest: &GuestDevice) -> Result<Verdict> {
    let index = guest.gid_index(Family::Ipv4).context("an IPv4 address")?;
    let program = format!("ibv_rc_pingpong -d {} -g {index} -s 65536 -n 20", guest.name);
    let command = format!(
        "{program} > /tmp/server 2>&1 & server=$!
         for i in $(seq 50); do grep -q 'local address' /tmp/server && break; sleep 0.1; done
         {program} 127.0.0.1 && wait $server; status=$?; cat /tmp/server; exit $status"
    );
    let outcome = machine.control.run(&command, Duration::from_secs(60))?;
    let last = outcome.output.lines().rfind(|line| line.contains("iters")).context("no result").ok();
    Ok(match (outcome.is_success(), last) {
        (true, Some(line)) => Verdict::Pass(line.trim().to_owned()),
        _ => Verdict::Fail(outcome.output.trim().to_owned()),
    })
}
