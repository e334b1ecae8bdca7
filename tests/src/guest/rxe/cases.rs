//! What Soft-RoCE is asked: program, role, size, path MTU and family of addresses.

use super::super::exchange::Role;
use core::fmt;

/// An unmodified program of Debian in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `ibv_rc_pingpong`: SEND both ways. What it receives it sends back, so that all bytes can be compared.
    RcPingpong,
    /// `ib_write_bw`: RDMA WRITE.
    WriteBandwidth,
    /// `ib_send_bw`: SEND one way.
    SendBandwidth,
    /// `ib_read_lat`: RDMA READ.
    ReadLatency,
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
            Self::WriteBandwidth => "ib_write_bw",
            Self::SendBandwidth => "ib_send_bw",
            Self::ReadLatency => "ib_read_lat",
            Self::FetchAdd => "ib_atomic_lat -A FETCH_AND_ADD",
            Self::CompareSwap => "ib_atomic_lat -A CMP_AND_SWAP",
        }
    }

    /// Whether the size of its messages is not for the caller to choose.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.command())
    }
}

/// Family of the addresses in the GIDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4-mapped GIDs: RoCEv2 over IPv4.
    Ipv4,
    /// IPv6 GIDs.
    Ipv6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

/// One question.
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
        ]
    }
}

/// Headings of [`Case::columns`].
pub const HEADINGS: [&str; 5] = ["program in the guest", "its role", "bytes", "path MTU", "GID"];

/// Every path MTU of IBTA.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Sizes around what matters: one packet, a full packet and one byte more, many packets, the largest.
const SIZES: [u32; 6] = [2, 1023, 4096, 4097, 65_536, 1 << 20];
const ROLES: [Role; 2] = [Role::Server, Role::Client];
const FAMILIES: [Family; 2] = [Family::Ipv4, Family::Ipv6];
const PERFTESTS: [Program; 3] = [Program::WriteBandwidth, Program::SendBandwidth, Program::ReadLatency];

/// All questions, in the order they are put.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in [Program::RcPingpong].into_iter().chain(PERFTESTS) {
        cases.extend(sizes_and_mtus(program));
    }
    for program in [Program::FetchAdd, Program::CompareSwap] {
        for (role, family) in pairs(&ROLES, &FAMILIES) {
            cases.push(Case { program, role, size: 8, mtu: 1024, family, iterations: 20 });
        }
    }
    cases
}

/// Every size with both roles and families, the path MTUs taken in turn so that each meets every size, role and family
/// somewhere; `ibv_rc_pingpong` gets the whole product of sizes and path MTUs.
fn sizes_and_mtus(program: Program) -> Vec<Case> {
    let mut cases = Vec::new();
    for (row, size) in SIZES.into_iter().enumerate() {
        for (column, (role, family)) in pairs(&ROLES, &FAMILIES).into_iter().enumerate() {
            let mtus = MTUS.into_iter().cycle().skip(row + column);
            let count = if program == Program::RcPingpong { MTUS.len() } else { 2 };
            // Two steps of two and of five reach every one of the five.
            for mtu in mtus.step_by(2).take(count) {
                cases.push(Case { program, role, size, mtu, family, iterations: iterations(program, size) });
            }
        }
    }
    cases
}

/// Few messages: emulation is slow, and what is asked is whether the bytes are right. perftest takes no less than five.
const fn iterations(program: Program, size: u32) -> u32 {
    match program {
        Program::RcPingpong if size > 65_536 => 2,
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
        let cases = all();
        for program in [Program::RcPingpong].into_iter().chain(PERFTESTS) {
            let mine: Vec<_> = cases.iter().filter(|case| case.program == program).collect();
            assert!(SIZES.iter().all(|size| mine.iter().any(|case| case.size == *size)));
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
        assert!(cases.len() < 300, "{} cases take too long", cases.len());
    }
}
