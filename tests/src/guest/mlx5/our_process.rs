//! A process on our driver at the guest's switch: programs of the guest on `mlx5_ib` on one side, their counterparts on the
//! driver on the other, as the judge of the wire has them.

use super::super::interrupt;
use super::super::machine::Machine;
use super::super::rxe::bout::Bout;
use super::super::rxe::cases::{Case, Family, Program, Service, Wire};
use super::super::rxe::guest_side::GuestDevice;
use super::super::rxe::our_side::Nic;
use super::super::table::{Entry, Report};
use anyhow::Result;
use bareverbs_perftest::Role;
use bareverbs_sim::nic::LinkLayer;
use std::path::Path;

/// What every run asks, by program and role of the program in the guest: in the roles in which we see the bytes.
const QUICK: &[(Program, Role)] = &[
    (Program::RcPingpong, Role::Server),
    (Program::RcPingpong, Role::Client),
    (Program::UcPingpong, Role::Server),
    (Program::UdPingpong, Role::Client),
    (Program::WriteBandwidth, Role::Client),
    (Program::ReadBandwidth, Role::Server),
    (Program::SendBandwidth, Role::Client),
];
/// What a long run asks in both roles.
const ALL: &[Program] = &[
    Program::RcPingpong,
    Program::UcPingpong,
    Program::UdPingpong,
    Program::WriteBandwidth,
    Program::WriteImmediate,
    Program::ReadBandwidth,
    Program::ReadLatency,
    Program::SendBandwidth,
    Program::FetchAdd,
    Program::CompareSwap,
    Program::UcSendBandwidth,
    Program::UcWriteBandwidth,
    Program::UcSendLatency,
    Program::UdSendBandwidth,
    Program::UdSendLatency,
];
/// What a long run asks over a wire that loses frames.
const OVER_FAULTS: &[Program] =
    &[Program::RcPingpong, Program::WriteBandwidth, Program::ReadBandwidth, Program::SendBandwidth];
/// Bytes of a packet: what fits an Ethernet port as it is after a boot.
const MTU: u32 = 1024;
/// Bytes of a message: some packets and a piece.
const SIZE: u32 = 4097;
/// Bytes of a message over a wire that loses frames: enough packets for some to be hit.
const LONG_SIZE: u32 = 65_536;

/// All questions to a device, in order.
pub fn cases(link: LinkLayer, long: bool) -> Vec<Case> {
    let families: &[Family] = match link {
        LinkLayer::InfiniBand => &[Family::Lid],
        LinkLayer::Ethernet => &[Family::Ipv4, Family::Ipv6],
    };
    let chosen = if long { both_roles(ALL) } else { QUICK.to_vec() };
    let clean = chosen.into_iter().map(|(program, role)| (program, role, Wire::Clean));
    let faulty = if long { both_roles(OVER_FAULTS) } else { Vec::new() };
    let all = clean.chain(faulty.into_iter().map(|(program, role)| (program, role, Wire::Faulty)));
    let case = |((program, role, wire), family): ((Program, Role, Wire), &Family)| Case {
        program,
        role,
        size: size(program, wire),
        mtu: MTU,
        family: *family,
        wire,
        iterations: 10,
    };
    all.zip(families.iter().cycle()).map(case).collect()
}

fn both_roles(programs: &[Program]) -> Vec<(Program, Role)> {
    programs.iter().flat_map(|program| [(*program, Role::Server), (*program, Role::Client)]).collect()
}

fn size(program: Program, wire: Wire) -> u32 {
    match (program.service(), wire) {
        _ if program.is_atomic() => 8,
        (Service::Ud, _) => MTU,
        (_, Wire::Clean) => SIZE,
        (_, Wire::Faulty) => LONG_SIZE,
    }
}

/// What a case is called in the table of this judge.
fn name(case: &Case) -> String {
    format!("our driver and the guest's {}", case.columns().join(" "))
}

/// Our NIC and the guest's device.
#[derive(Debug)]
pub struct Sides {
    /// Ours.
    pub nic: Nic,
    /// The guest's.
    pub guest: GuestDevice,
}

impl Sides {
    /// Plays those of the cases that are wanted.
    pub fn play(
        &self,
        machine: &mut Machine,
        cases: &[Case],
        output: &Path,
        wanted: &dyn Fn(&str) -> bool,
        report: &mut Report,
    ) -> Result<()> {
        for case in cases.iter().filter(|case| wanted(&name(case))) {
            interrupt::check()?;
            let bout = Bout { machine, nic: &self.nic, guest: &self.guest, output };
            report.add(Entry { columns: vec![name(case)], ..bout.ask(case) });
        }
        Ok(())
    }
}

/// Whether any of the cases is wanted.
pub fn any(cases: &[Case], wanted: &dyn Fn(&str) -> bool) -> bool {
    cases.iter().any(|case| wanted(&name(case)))
}
