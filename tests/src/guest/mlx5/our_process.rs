//! A process on our driver at the guest's switch: programs of the guest on `mlx5_ib` on one side, on the
//! other side their counterparts on our driver, which are those of the judge of the wire.

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

/// The programs of every run, each with its role in the guest: the role in which we can compare the bytes.
const QUICK: &[(Program, Role)] = &[
    (Program::RcPingpong, Role::Server),
    (Program::RcPingpong, Role::Client),
    (Program::UcPingpong, Role::Server),
    (Program::UdPingpong, Role::Client),
    (Program::WriteBandwidth, Role::Client),
    (Program::ReadBandwidth, Role::Server),
    (Program::SendBandwidth, Role::Client),
];
/// The programs that a long run plays in both roles.
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
/// The programs that a long run plays over a wire that loses frames.
const OVER_FAULTS: &[Program] =
    &[Program::RcPingpong, Program::WriteBandwidth, Program::ReadBandwidth, Program::SendBandwidth];
/// Path MTU: the largest that fits an Ethernet port with its default MTU.
const MTU: u32 = 1024;
/// Bytes of a message: several full packets and a short one.
const SIZE: u32 = 4097;
/// Bytes of a message over a wire that loses frames: enough packets that faults hit some of them.
const LONG_SIZE: u32 = 65_536;

/// All cases of a device, in order.
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

/// The name of a case in this judge's table.
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
    /// Plays the wanted cases.
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
