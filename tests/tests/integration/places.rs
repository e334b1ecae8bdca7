//! The same list of conversations in process and over vfio-user; over real VFIO it runs in the Linux guest (`guest -- vfio`).

use bareverbs_core::hal::Either;
use bareverbs_hal::memory::ArenaConfig;
use bareverbs_hal_sim::{MemoryConfig, SimHal};
use bareverbs_prm::ids::MacAddress;
use bareverbs_serve::real_time::Outside;
use bareverbs_serve::vfio_user::{Attachment, Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use bareverbs_tests::places::{
    ConversationLine, ConversationOutcome, InProcess, OverVfioUser, Place, Workload, run,
};

fn run_all<P: Place>(mut place: P, workload: Workload) -> Vec<ConversationLine> {
    let mut lines = Vec::new();
    let good = run(&mut place, &workload, |line| lines.push(line.clone()));
    let shown: Vec<String> = lines.iter().map(ToString::to_string).collect();
    assert!(good, "{}", shown.join("\n"));
    lines
}

fn count(lines: &[ConversationLine], wanted: fn(&ConversationOutcome) -> bool) -> usize {
    lines.iter().filter(|line| wanted(&line.outcome)).count()
}

#[test]
fn in_process() {
    let lines = run_all(InProcess::new(1, MemoryConfig::default()), Workload::default());
    assert_eq!(count(&lines, |outcome| matches!(outcome, ConversationOutcome::Pass(_))), lines.len());
    assert_eq!(lines.len(), 22, "{lines:?}");
}

#[test]
fn in_process_with_unforgiving_memory() {
    run_all(InProcess::new(2, MemoryConfig::unforgiving()), Workload { operations: 50, rounds: 1, seed: 2 });
}

/// Devices of which each is in one of two places: the first here is in the left one, the second in the right one.
struct OneOfTwo(InProcess);

/// The place of such a device, whichever it is.
fn place_of(hal: &Either<SimHal, SimHal>) -> &SimHal {
    match hal {
        Either::Left(hal) | Either::Right(hal) => hal,
    }
}

impl Place for OneOfTwo {
    type Hal = Either<SimHal, SimHal>;

    fn open(&mut self, end: usize) -> anyhow::Result<Self::Hal> {
        let hal = self.0.open(end)?;
        Ok(if end == 0 { Either::Left(hal) } else { Either::Right(hal) })
    }

    fn interrupts(hal: &Self::Hal) -> u64 {
        InProcess::interrupts(place_of(hal))
    }

    fn no_user_memory(&self) -> Option<&'static str> {
        self.0.no_user_memory()
    }

    fn memory_used(hal: &Self::Hal) -> u64 {
        InProcess::memory_used(place_of(hal))
    }

    fn describe(hal: &Self::Hal) -> String {
        InProcess::describe(place_of(hal))
    }
}

/// Unforgiving memory would show a barrier that gets lost on the way.
#[test]
fn in_one_of_two_places() {
    let place = OneOfTwo(InProcess::new(2, MemoryConfig::unforgiving()));
    let lines = run_all(place, Workload { operations: 50, rounds: 1, seed: 2 });
    assert_eq!(count(&lines, |outcome| matches!(outcome, ConversationOutcome::Pass(_))), lines.len());
}

/// Two servers, each a thread with a device, joined by a wire of datagrams.
#[test]
fn over_vfio_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (number, own, peer) in [(1, "wire.a", "wire.b"), (2, "wire.b", "wire.a")] {
        let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 1, number]));
        let config = ServerConfig {
            attachment: Attachment::Wire(Outside::datagram(path(own), path(peer))),
            ..ServerConfig::new(nic)
        };
        let mut server = Server::bind(&path(&format!("nic{number}")), config).unwrap();
        std::thread::spawn(move || while server.serve().is_ok() {});
    }
    let memory = ArenaConfig { segment: 8 << 20, ..ArenaConfig::default() };
    let place = OverVfioUser { sockets: [path("nic1"), path("nic2")], memory };
    let lines = run_all(place, Workload { operations: 1000, ..Workload::default() });
    assert_eq!(
        count(&lines, |outcome| matches!(outcome, ConversationOutcome::Skip(_))),
        2,
        "memory of the application, twice"
    );
}

#[test]
fn a_line_is_read_as_it_was_written() {
    for outcome in [
        ConversationOutcome::Pass("4: 5".into()),
        ConversationOutcome::Fail("no".into()),
        ConversationOutcome::Skip("why".into()),
    ] {
        let line = ConversationLine { name: "round 1, read".into(), outcome };
        assert_eq!(ConversationLine::parse(&line.to_string()), Some(line));
    }
    assert_eq!(ConversationLine::parse("something else: 1"), None);
}
