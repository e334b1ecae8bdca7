//! Judges from outside: tshark and scapy examine captures that the simulator wrote.
//!
//! If a judge is not installed, the test prints `SKIPPED: …`, and fails with `BAREVERBS_REQUIRE_JUDGES=1` (as
//! in CI).

use bareverbs_sim::nic::FrameOrigin;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Exit status of a judge that cannot run.
const SKIPPED: i32 = 77;

/// Protocols that tshark guesses in any payload; it takes a SEND of a few bytes for "malformed RPC over
/// RDMA".
const UPPER_LAYERS: [&str; 7] = ["smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "sdp"];

/// Reports that a judge could not run.
///
/// # Panics
/// If `BAREVERBS_REQUIRE_JUDGES=1`.
pub fn skip(reason: &str) {
    println!("SKIPPED: {reason}");
    let required = std::env::var("BAREVERBS_REQUIRE_JUDGES").is_ok_and(|value| value == "1");
    assert!(!required, "a required judge cannot run: {reason}");
}

/// A path for a capture, in cargo's directory for the temporary files of integration tests.
pub fn capture_path(directory: &str, name: &str) -> PathBuf {
    Path::new(directory).join(format!("{name}.pcapng"))
}

/// Writes frames to a capture, a microsecond apart, with a third-party writer.
pub fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let file = std::fs::File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut writer = PcapNgWriter::new(file).expect("a section header");
    let interface =
        InterfaceDescriptionBlock { linktype: pcap_file::DataLink::ETHERNET, snaplen: 0, options: vec![] };
    writer.write_pcapng_block(interface).expect("an interface");
    for (number, frame) in frames.iter().enumerate() {
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_micros(number as u64),
            original_len: frame.len() as u32,
            data: Cow::Borrowed(frame),
            options: vec![],
        };
        writer.write_pcapng_block(block).expect("a packet");
    }
}

/// The given fields according to tshark, one row per frame; `None` if tshark is not installed.
pub fn tshark_fields(capture: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new("tshark");
    command.args([
        "-n",
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "aggregator=;",
        "-o",
        "ip.check_checksum:TRUE",
    ]);
    for protocol in UPPER_LAYERS {
        command.args(["--disable-protocol", protocol]);
    }
    for field in fields {
        command.args(["-e", field]);
    }
    let Ok(output) = command.arg("-r").arg(capture).output() else {
        skip("tshark is not installed");
        return None;
    };
    assert!(output.status.success(), "tshark refused {}: {}", capture.display(), errors(&output));
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

/// The UDP checksum of RoCEv2 is zero, over IPv6 too (RoCEv2 A17.3.2.4), and tshark mentions that.
const ZERO_CHECKSUM: &str = "Illegal checksum value (0)";

/// tshark takes a payload for IP over InfiniBand if it begins like an EtherType followed by zeros, which
/// random data and padding sometimes do. Its complaints about that are not about the headers.
const GUESSED_PAYLOAD: &str = ":infiniband:ethertype";

/// The RoCE version that all frames of a capture must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// EtherType 0x8915.
    One,
    /// UDP.
    Two,
}

impl Version {
    /// Its name, and its entry in tshark's list of protocols.
    const fn as_tshark_says(self) -> (&'static str, &'static str) {
        match self {
            Self::One => ("RoCE version 1", ":ethertype:infiniband"),
            Self::Two => ("RoCEv2", ":udp:infiniband"),
        }
    }
}

/// Checks that tshark sees `frames` frames, all RoCE of this version, none malformed and none with a
/// complaint.
pub fn tshark_accepts(version: Version, capture: &Path, frames: usize) {
    let (name, protocols) = version.as_tshark_says();
    let fields = ["frame.number", "frame.protocols", "_ws.malformed", "_ws.expert.message"];
    let Some(rows) = tshark_fields(capture, &fields) else { return };
    for row in &rows {
        assert!(row[1].contains(protocols), "frame {} is not {name} to tshark: {}", row[0], row[1]);
        if row[1].contains(GUESSED_PAYLOAD) {
            continue;
        }
        assert!(row[2].is_empty(), "frame {} is malformed to tshark", row[0]);
        // Comments in the capture say which frames a fault of the simulator hit, and whose each frame is.
        let is_comment =
            |message: &str| message.starts_with("fault: ") || FrameOrigin::parse(message).is_ok();
        let is_known =
            |message: &&str| message.is_empty() || is_comment(message) || *message == ZERO_CHECKSUM;
        let complaint = row[3].split(';').find(|message| !is_known(message));
        assert_eq!(complaint, None, "tshark complains about frame {}", row[0]);
    }
    println!("tshark: {} frames dissected as {name}, none malformed", rows.len());
    assert_eq!(rows.len(), frames, "tshark counts a different number of frames than were captured");
}

/// Checks that there are `frames` frames, all of this version, and that the Python judge
/// (`tests/judges/icrc_scapy.py`) computes the same ICRC for each.
pub fn python_agrees_on_every_icrc(version: Version, capture: &Path, frames: usize) {
    let Some(output) = icrc_judge(version, capture, frames) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    assert!(output.status.success(), "the ICRC judge disagrees: {said}{}", errors(&output));
}

/// Runs the ICRC judge; `None` if it cannot run.
pub fn icrc_judge(version: Version, capture: &Path, frames: usize) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("judges/icrc_scapy.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(capture).args(["--frames", &frames.to_string()]);
    if version == Version::One {
        command.arg("--version-1");
    }
    match command.output() {
        Ok(output) if output.status.code() == Some(SKIPPED) => {
            skip("scapy is not installed");
            None
        }
        Ok(output) => Some(output),
        Err(_) => {
            skip("python3 is not installed");
            None
        }
    }
}

fn errors(output: &Output) -> Cow<'_, str> {
    String::from_utf8_lossy(&output.stderr)
}
