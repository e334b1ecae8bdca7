//! Bytes that perftest's programs move between two hosts. Neither program checks what it
//! receives, so both keep their buffers in files, which are compared here.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, free_port, is_installed};
use anyhow::{Context, Result, ensure};
use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Bytes of a file: both halves of the largest buffer, of 8 MiB each.
const ROOM: u64 = 16 << 20;
/// A half has at least one page (`cycle_buffer`).
const SHORTEST_HALF: usize = 4096;
/// Faults on the wire, in the rows that have any.
const FAULTS: &str = "loss=0.01,reorder=0.05,duplicate=0.02";

/// perftest rounds the buffer of receives up to cache lines, but not the addresses that it gives to the peer.
const CACHE_LINE: usize = 64;

/// Where the bytes of a test arrive: whose buffer, and which half. They come from the other half of the
/// peer's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// In the second half of the server's, at the address that it gave to the client: WRITEs.
    AtServer,
    /// In the second half of the server's, where its receives are: messages.
    InReceives,
    /// In the first half of the client's: READs.
    AtClient,
}

/// A test of perftest whose bytes are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadCase {
    /// The program and its options, for both ends.
    command: &'static str,
    arrival: Arrival,
    /// Bytes of a message, which determine the halves.
    size: usize,
    has_faults: bool,
}

const fn case(command: &'static str, arrival: Arrival, size: usize, has_faults: bool) -> PayloadCase {
    PayloadCase { command, arrival, size, has_faults }
}

const MIB: usize = 1 << 20;

/// The tests: the longest messages, sizes that are not a multiple of a packet, and wires that lose, duplicate and
/// reorder. `ib_write_lat` is missing because it zeroes its buffers.
pub const CASES: [PayloadCase; 13] = [
    case("ib_write_bw -s 8388608", Arrival::AtServer, 8 * MIB, false),
    case("ib_write_bw -s 8388608 -c UC", Arrival::AtServer, 8 * MIB, false),
    case("ib_send_bw -s 8388608", Arrival::InReceives, 8 * MIB, false),
    case("ib_send_lat -s 8388608", Arrival::InReceives, 8 * MIB, false),
    case("ib_read_bw -s 8388608", Arrival::AtClient, 8 * MIB, false),
    case("ib_read_lat -s 8388608", Arrival::AtClient, 8 * MIB, false),
    case("ib_write_bw -s 1000001", Arrival::AtServer, 1_000_001, false),
    case("ib_send_bw -e -s 4097", Arrival::InReceives, 4097, false),
    case("ib_read_bw -e -s 4095", Arrival::AtClient, 4095, false),
    case("ib_write_bw -s 1048576", Arrival::AtServer, MIB, true),
    case("ib_send_bw -s 1048576", Arrival::InReceives, MIB, true),
    case("ib_read_bw -s 1048576", Arrival::AtClient, MIB, true),
    case("ib_send_bw -e -R -s 65536", Arrival::InReceives, 65_536, true),
];

impl fmt::Display for PayloadCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = if self.has_faults { format!(", {FAULTS}") } else { String::new() };
        write!(f, "a / b: {}{faults}, bytes compared", self.command)
    }
}

impl PayloadCase {
    /// Runs both ends and compares their files.
    pub fn judge(&self, installation: &Installation) -> Result<Verdict> {
        let name = self.command.split(' ').next().unwrap_or_default();
        if !is_installed(name) {
            return Ok(Verdict::Skip(format!("{name} is not installed (Debian: apt-get install perftest)")));
        }
        let port = free_port()?;
        let directory = installation.own_directory(&format!("payload-{port}"))?;
        let [server, client] = ["a", "b"].map(|host| directory.join(host));
        make(&server)?;
        make(&client)?;
        let program = |host: &str, file: &Path, peer: &str| {
            let command = format!("{} -F -n 5 -p {port} --mmap {} {peer}", self.command, file.display());
            HostedProgram {
                host: host.into(),
                command: command.split_whitespace().map(str::to_owned).collect(),
            }
        };
        let faults = if self.has_faults { &["--faults", FAULTS][..] } else { &[] };
        let options: Vec<String> = faults.iter().map(|&word| word.to_owned()).collect();
        let mut first = installation.start(&program("a", &server, ""), &options)?;
        first.wait_for_port(installation, port)?;
        let second = installation.start(&program("b", &client, "a"), &options)?;
        for ended in [second.finish()?, first.finish()?] {
            ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
        }
        self.compare(&server, &client)?;
        Ok(Verdict::Pass(format!("{} bytes", self.size)))
    }

    /// Where the second half of a buffer begins.
    fn half(&self) -> u64 {
        let half = self.size.max(SHORTEST_HALF);
        match self.arrival {
            Arrival::InReceives => half.next_multiple_of(CACHE_LINE) as u64,
            Arrival::AtServer | Arrival::AtClient => half as u64,
        }
    }

    /// The bytes that arrived must equal those at their source.
    fn compare(&self, server: &Path, client: &Path) -> Result<()> {
        let half = self.half();
        let (arrived, given) = match self.arrival {
            Arrival::AtServer | Arrival::InReceives => {
                (read(server, half, self.size)?, read(client, 0, self.size)?)
            }
            Arrival::AtClient => (read(client, 0, self.size)?, read(server, half, self.size)?),
        };
        let distinct = given.iter().collect::<std::collections::BTreeSet<_>>().len();
        ensure!(distinct > 100, "what was to be sent has {distinct} different bytes and proves nothing");
        let wrong = arrived.iter().zip(&given).position(|(arrived, given)| arrived != given);
        ensure!(wrong.is_none(), "the first of {} bytes that differs is byte {wrong:?}", self.size);
        Ok(())
    }
}

/// Creates a file for a buffer that the programs may write.
fn make(path: &Path) -> Result<()> {
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(ROOM)?;
    Ok(file.set_permissions(PermissionsExt::from_mode(0o666))?)
}

fn read(path: &Path, at: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    File::open(path)?.read_exact_at(&mut bytes, at).with_context(|| path.display().to_string())?;
    Ok(bytes)
}
