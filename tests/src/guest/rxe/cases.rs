//! The cases of Soft-RoCE: program, role, size, path MTU and address family.

use bareverbs_perftest::Role;
use core::fmt;

/// Transport service of the queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        })
    }
}

/// An unmodified program of Debian in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `ibv_rc_pingpong`: SEND both ways. It sends back what it receives, so that all bytes can be compared.
    RcPingpong,
    /// `ibv_uc_pingpong`: the same over an unreliable connection.
    UcPingpong,
    /// `ibv_ud_pingpong`: the same by datagrams.
    UdPingpong,
    /// `ib_send_bw -c UC`: SEND one way over an unreliable connection.
    UcSendBandwidth,
    /// `ib_send_bw -c UD`: datagrams one way.
    UdSendBandwidth,
    /// `ib_write_bw -c UC`: RDMA WRITE over an unreliable connection.
    UcWriteBandwidth,
    /// `ib_write_lat -c UC`: RDMA WRITE there and back; both ends poll memory for the message.
    UcWriteLatency,
    /// `ib_send_lat -c UC`: SEND there and back over an unreliable connection.
    UcSendLatency,
    /// `ib_send_lat -c UD`: datagrams there and back.
    UdSendLatency,
    /// `ib_write_bw`: RDMA WRITE.
    WriteBandwidth,
    /// `ib_write_bw --write_with_imm`: RDMA WRITE with immediate.
    WriteImmediate,
    /// `ib_send_bw`: SEND one way.
    SendBandwidth,
    /// `ib_read_lat`: RDMA READ, one at a time.
    ReadLatency,
    /// `ib_read_bw`: RDMA READ, many at a time.
    ReadBandwidth,
    /// `ib_atomic_lat`: fetch and add.
    FetchAdd,
    /// `ib_atomic_lat -A CMP_AND_SWAP`: compare and swap.
    CompareSwap,
}

impl Program {
    /// Its command line.
    pub const fn command(self) -> &'static str {
        match self {
            Self::RcPingpong => "ibv_rc_pingpong",
            Self::UcPingpong => "ibv_uc_pingpong",
            Self::UdPingpong => "ibv_ud_pingpong",
            Self::UcSendBandwidth => "ib_send_bw -c UC",
            Self::UdSendBandwidth => "ib_send_bw -c UD",
            Self::UcWriteBandwidth => "ib_write_bw -c UC",
            Self::UcWriteLatency => "ib_write_lat -c UC",
            Self::UcSendLatency => "ib_send_lat -c UC",
            Self::UdSendLatency => "ib_send_lat -c UD",
            Self::WriteBandwidth => "ib_write_bw",
            Self::WriteImmediate => "ib_write_bw --write_with_imm",
            Self::SendBandwidth => "ib_send_bw",
            Self::ReadLatency => "ib_read_lat",
            Self::ReadBandwidth => "ib_read_bw",
            Self::FetchAdd => "ib_atomic_lat -A FETCH_AND_ADD",
            Self::CompareSwap => "ib_atomic_lat -A CMP_AND_SWAP",
        }
    }

    /// The service of its queue pairs.
    pub const fn service(self) -> Service {
        match self {
            Self::UcPingpong
            | Self::UcSendBandwidth
            | Self::UcWriteBandwidth
            | Self::UcWriteLatency
            | Self::UcSendLatency => Service::Uc,
            Self::UdPingpong | Self::UdSendBandwidth | Self::UdSendLatency => Service::Ud,
            _ => Service::Rc,
        }
    }

    /// Whether it is one of rdma-core's pingpongs, and not of perftest.
    pub const fn is_pingpong(self) -> bool {
        matches!(self, Self::RcPingpong | Self::UcPingpong | Self::UdPingpong)
    }

    /// Whether the size of its messages is fixed.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())
    }
}

/// How the ends address each other: the family of the addresses in the GIDs, or no GIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4-mapped GIDs: RoCEv2 over IPv4.
    Ipv4,
    /// IPv6 GIDs.
    Ipv6,
    /// LIDs of an InfiniBand subnet, without global route header.
    Lid,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Lid => "LID",
        })
    }
}

/// What the wire does to frames, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Nothing.
    Clean,
    /// Loses, duplicates and reorders one frame in a hundred each.
    Faulty,
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Faulty => "faulty",
        })
    }
}

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Program in the guest.
    pub program: Program,
    /// Whether the program in the guest listens or connects.
    pub role: Role,
    /// Bytes of a message.
    pub size: u32,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// Family of the GIDs.
    pub family: Family,
    /// What the wire does.
    pub wire: Wire,
    /// Messages of the program.
    pub iterations: u32,
}

impl Case {
    /// As columns of a table; see [`HEADINGS`].
    pub fn columns(&self) -> Vec<String> {
        vec![
            self.program.to_string(),
            self.role.to_string(),
            self.size.to_string(),
            self.mtu.to_string(),
            self.family.to_string(),
            self.wire.to_string(),
        ]
    }
}

/// Headings of [`Case::columns`].
pub const HEADINGS: [&str; 6] = ["program in the guest", "its role", "bytes", "path MTU", "address", "wire"];

/// Columns of a row that is not a case.
pub fn row(name: &str) -> Vec<String> {
    let mut columns = vec![String::new(); HEADINGS.len()];
    if let Some(first) = columns.first_mut() {
        first.push_str(name);
    }
    columns
}

/// Every path MTU of IBTA.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Sizes at the boundaries: one packet, a full packet and one byte more, many packets, the largest.
const SIZES: [u32; 6] = [2, 1023, 4096, 4097, 65_536, 1 << 20];
/// The largest size of [`quick`]: 64 packets or more, in a quarter of the time.
const QUICK_LARGEST: u32 = 1 << 18;
/// Sizes of so many packets that faults hit some.
const LARGE_SIZES: [u32; 2] = [65_536, 1 << 20];
const ROLES: [Role; 2] = [Role::Server, Role::Client];
const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
const SIZED: [Program; 5] = [
    Program::RcPingpong,
    Program::SendBandwidth,
    Program::ReadLatency,
    Program::WriteBandwidth,
    Program::WriteImmediate,
];
/// Programs over unreliable services. They end only if nothing is lost; the exception is datagrams one way,
/// where we count.
const UNRELIABLE: [Program; 8] = [
    Program::UcPingpong,
    Program::UdPingpong,
    Program::UcSendBandwidth,
    Program::UdSendBandwidth,
    Program::UcWriteBandwidth,
    Program::UcWriteLatency,
    Program::UcSendLatency,
    Program::UdSendLatency,
];
/// Sizes of datagrams on a faulty wire: small enough that each comes from its own place in the buffer, which
/// shows their order.
const FAULTY_DATAGRAMS: [u32; 2] = [256, 1023];
/// Sizes that fit a packet.
const DATAGRAM_SIZES: [u32; 4] = [2, 256, 1023, 4096];
const ATOMICS: [Program; 2] = [Program::FetchAdd, Program::CompareSwap];

/// All cases, in the order in which they run.
pub fn all() -> Vec<Case> {
    let mut cases = faulty();
    for (program, (role, family)) in pairs(&ATOMICS, &pairs(&ROLES, &FAMILIES)) {
        cases.push(Case { program, role, size: 8, mtu: 1024, family, wire: Wire::Clean, iterations: 20 });
    }
    cases.extend(SIZED.into_iter().flat_map(sizes_and_mtus));
    cases.extend(UNRELIABLE.into_iter().flat_map(unreliable));
    cases
}

/// A reliable program gets one path MTU for each size, and each role the other family, and the largest messages are
/// shorter; the rest is as in [`all`].
pub fn quick() -> Vec<Case> {
    let mut cases = all();
    cases.retain(|case| case.wire == Wire::Faulty || !SIZED.contains(&case.program));
    for program in SIZED {
        for (row, (size, mtu)) in SIZES.into_iter().zip(MTUS.into_iter().cycle()).enumerate() {
            for (column, role) in ROLES.into_iter().enumerate() {
                let family = FAMILIES[(row + column) % FAMILIES.len()];
                let iterations = iterations(program, size);
                cases.push(Case { program, role, size, mtu, family, wire: Wire::Clean, iterations });
            }
        }
    }
    cases.iter_mut().for_each(|case| case.size = case.size.min(QUICK_LARGEST));
    cases
}

/// Every size that the program takes; path MTUs, roles and families alternate.
fn unreliable(program: Program) -> Vec<Case> {
    let mut cases = Vec::new();
    let sizes: &[u32] = if program.service() == Service::Ud { &DATAGRAM_SIZES } else { &SIZES };
    let turns = MTUS.into_iter().cycle().zip(pairs(&FAMILIES, &ROLES).into_iter().cycle());
    for (round, (size, (turn, (family, role)))) in sizes.iter().cycle().zip(turns).enumerate() {
        if round == 2 * sizes.len() {
            break;
        }
        let size = *size;
        // A datagram fits in one packet.
        let mtu = if program.service() == Service::Ud { size.max(turn).next_power_of_two() } else { turn };
        // A size has one role in the first round and the other in the second.
        let role = if round < sizes.len() { role } else { role.peer() };
        let iterations = iterations(program, size);
        cases.push(Case { program, role, size, mtu, family, wire: Wire::Clean, iterations });
    }
    cases
}

/// Every size with both roles and families. The path MTUs alternate so that each occurs with every size, role
/// and family somewhere.
fn sizes_and_mtus(program: Program) -> Vec<Case> {
    let mut cases = Vec::new();
    for (row, size) in SIZES.into_iter().enumerate() {
        for (column, (role, family)) in pairs(&ROLES, &FAMILIES).into_iter().enumerate() {
            for mtu in MTUS.into_iter().cycle().skip(row + column).step_by(2).take(mtus_each(program)) {
                let iterations = iterations(program, size);
                cases.push(Case { program, role, size, mtu, family, wire: Wire::Clean, iterations });
            }
        }
    }
    cases
}

/// How many path MTUs each size, role and family gets. `ib_write_bw` sleeps for a second in each run.
const fn mtus_each(program: Program) -> usize {
    match program {
        Program::RcPingpong => 3,
        Program::WriteBandwidth | Program::WriteImmediate => 1,
        _ => 2,
    }
}

/// Every program with both roles on a faulty wire; path MTUs and families alternate.
fn faulty() -> Vec<Case> {
    let mut cases = Vec::new();
    let turns = MTUS.into_iter().cycle().zip(FAMILIES.into_iter().cycle());
    let sized = pairs(&SIZED, &pairs(&ROLES, &LARGE_SIZES));
    for ((program, (role, size)), (turn, family)) in sized.into_iter().zip(turns) {
        let mtu = if reads_much(program, role, size) { 4096 } else { turn };
        let iterations = iterations(program, size);
        cases.push(Case { program, role, size, mtu, family, wire: Wire::Faulty, iterations });
    }
    for ((program, role), family) in pairs(&ATOMICS, &ROLES).into_iter().zip(FAMILIES.into_iter().cycle()) {
        cases.push(Case { program, role, size: 8, mtu: 1024, family, wire: Wire::Faulty, iterations: 200 });
    }
    let datagrams = pairs(&ROLES, &FAULTY_DATAGRAMS);
    for ((role, size), family) in
        datagrams.into_iter().zip([Family::Ipv4, Family::Ipv6, Family::Ipv6, Family::Ipv4])
    {
        let program = Program::UdSendBandwidth;
        cases.push(Case { program, role, size, mtu: 1024, family, wire: Wire::Faulty, iterations: 300 });
    }
    cases
}

/// Whether the guest reads a message of many packets. Soft-RoCE drops everything after a lost response before
/// it asks again, so every loss costs the rest of the message; with thousands of packets that takes minutes.
fn reads_much(program: Program, role: Role, size: u32) -> bool {
    program == Program::ReadLatency && role == Role::Client && size > 65_536
}

/// Few messages: emulation is slow, and the question is only whether the bytes are right. perftest accepts no
/// fewer than five.
const fn iterations(program: Program, size: u32) -> u32 {
    match program {
        Program::RcPingpong | Program::UcPingpong if size > 65_536 => 2,
        Program::RcPingpong if size < 4096 => 10,
        _ => 5,
    }
}

fn pairs<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|a| second.iter().map(|b| (*a, *b))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_meets_every_size_mtu_role_and_family() {
        meets_all(&all(), SIZES);
        meets_all(&quick(), SIZES.map(|size| size.min(QUICK_LARGEST)));
        assert!(4 * quick().len() < 3 * all().len(), "{} quick cases are too many", quick().len());
    }

    fn meets_all(cases: &[Case], sizes: [u32; 6]) {
        for program in SIZED {
            let clean = |case: &&Case| case.program == program && case.wire == Wire::Clean;
            let mine: Vec<_> = cases.iter().filter(clean).collect();
            assert!(sizes.iter().all(|size| mine.iter().any(|case| case.size == *size)));
            for mtu in MTUS {
                assert!(
                    ROLES.iter().all(|role| mine.iter().any(|case| (case.mtu, case.role) == (mtu, *role)))
                );
                assert!(
                    FAMILIES
                        .iter()
                        .all(|family| mine.iter().any(|case| (case.mtu, case.family) == (mtu, *family)))
                );
            }
        }
        for (program, (role, family)) in pairs(&UNRELIABLE, &pairs(&ROLES, &FAMILIES)) {
            let meets = |case: &&Case| (case.program, case.role) == (program, role);
            assert!(
                cases.iter().filter(meets).any(|case| case.family == family),
                "{program} {role} {family}"
            );
            let long = cases.iter().filter(meets).filter(|case| case.size > case.mtu).count();
            assert!((program.service() == Service::Ud) == (long == 0), "{program} {role}");
        }
        let datagrams = pairs(&[Program::UdSendBandwidth], &ROLES);
        let reliable = pairs(&SIZED, &ROLES).into_iter().chain(pairs(&ATOMICS, &ROLES));
        for (program, role) in reliable.chain(datagrams) {
            let faulty = |case: &Case| (case.program, case.role, case.wire) == (program, role, Wire::Faulty);
            assert!(cases.iter().any(faulty), "{program} {role}");
        }
        assert!(cases.len() < 340, "{} cases take too long", cases.len());
    }
}
