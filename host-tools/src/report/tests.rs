use super::*;
use crate::traffic::{Traffic, TrafficConfig};
use std::collections::BTreeSet;
use std::io::{Cursor, Write};
use tempfile::TempDir;

mod origins;
mod timeline;

/// A capture of simulated traffic in its own directory.
struct Captured {
    directory: TempDir,
    frames: u64,
}

impl Captured {
    fn new(config: TrafficConfig, run: impl FnOnce(&mut Traffic)) -> Self {
        Self::begin(config, Traffic::start_capture, run)
    }

    /// A capture with devices' actions.
    fn recorded(config: TrafficConfig, run: impl FnOnce(&mut Traffic)) -> Self {
        Self::begin(config, Traffic::start_recording, run)
    }

    fn begin(
        config: TrafficConfig,
        start: impl FnOnce(&Traffic, Box<dyn Write>),
        run: impl FnOnce(&mut Traffic),
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut traffic = Traffic::start(config).expect("two hosts");
        let file = File::create(directory.path().join("run.pcapng")).expect("a file");
        start(&traffic, Box::new(BufWriter::new(file)));
        run(&mut traffic);
        let frames = traffic.finish_capture().expect("written");
        Self { directory, frames }
    }

    /// Passes every item of the capture to `see`.
    fn each(&self, mut see: impl FnMut(&Item<'_>)) {
        let file = BufReader::new(File::open(self.path("run.pcapng")).expect("a capture"));
        let seen = frames::read(file, |item| {
            see(item);
            Ok(())
        });
        seen.expect("a capture");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The report as text or JSON, whether all is well, the page, and the timeline.
    fn report(&self, json: bool) -> (String, bool, String, Value) {
        let arguments = ReportArguments {
            capture: self.path("run.pcapng"),
            html: Some(self.path("run.html")),
            trace: Some(self.path("run.json")),
            json,
        };
        let (text, good) = execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}"));
        let html = std::fs::read_to_string(self.path("run.html")).expect("a page");
        let trace = File::open(self.path("run.json")).expect("a timeline");
        (text, good, html, serde_json::from_reader(BufReader::new(trace)).expect("JSON"))
    }
}

fn frame_of<'a, 'b>(item: &'a Item<'b>) -> &'a frames::Frame<'b> {
    match item {
        Item::Frame(frame) => frame,
        Item::Record(record) => panic!("{:?} in a capture of frames", record.what),
    }
}

fn steps(count: usize) -> impl FnOnce(&mut Traffic) {
    move |traffic| (0..count).for_each(|_| traffic.step().expect("a message"))
}

#[test]
fn a_report_of_a_run_without_failures() {
    let captured = Captured::new(TrafficConfig::default(), steps(20));
    let (text, good, html, trace) = captured.report(true);
    assert!(good);
    let object: Value = serde_json::from_str(&text).expect("JSON");
    let report = &object["report"];
    assert_eq!(
        (&object["schema"], &report["frames"]),
        (&"bareverbs.report.v1".into(), &captured.frames.into())
    );
    let flows = report["flows"].as_array().expect("flows");
    assert!(flows.iter().all(|flow| flow["sent_again"] == 0 && flow["from"] == "10.0.0.1"), "{flows:?}");
    assert!(report["latency_ns"]["count"].as_u64().is_some_and(|count| count >= 20), "{report}");
    assert!(html.contains("No connection failed.") && html.contains("Latency of requests"), "{html}");
    let events = trace["traceEvents"].as_array().expect("events");
    let slices = events.iter().filter(|event| event["ph"] == "X" && event["cat"] == "wire").count();
    assert_eq!(slices as u64, captured.frames);
    let ids = |phase: &str| -> BTreeSet<String> {
        events.iter().filter(|event| event["ph"] == phase).map(|event| event["id"].to_string()).collect()
    };
    assert!(!ids("f").is_empty() && ids("f").is_subset(&ids("s")), "an answer without a request");
}

#[test]
fn frames_that_were_lost_and_sent_again_are_counted() {
    let config = TrafficConfig { loss: 0.1, ..TrafficConfig::default() };
    let captured = Captured::new(config, steps(40));
    let (text, _, html, _) = captured.report(true);
    let object: Value = serde_json::from_str(&text).expect("JSON");
    let flows = object["report"]["flows"].as_array().expect("flows").clone();
    let sum = |name: &str| flows.iter().filter_map(|flow| flow[name].as_u64()).sum::<u64>();
    assert!(sum("lost") > 0 && sum("sent_again") > 0, "{flows:?}");
    assert!(html.contains("PSN sequence error"), "{html}");
}

#[test]
fn a_connection_that_failed_is_shown_with_its_cause() {
    let captured = Captured::new(TrafficConfig::default(), |traffic| {
        steps(3)(traffic);
        traffic.trespass().expect("refused");
    });
    let (text, good, html, _) = captured.report(false);
    assert!(!good);
    assert!(text.contains("a connection failed: from 10.0.0.1 to queue pair "), "{text}");
    assert!(text.ends_with("remote access error; bareverbs explain IBV_WC_REM_ACCESS_ERR"), "{text}");
    for part in [
        "A connection that failed",
        "NAK: remote access error PSN",
        "class=\"bad\"",
        "Compare: rkey and address",
    ] {
        assert!(html.contains(part), "{part}:\n{html}");
    }
}

/// Nothing is loaded from outside, and no script runs.
#[test]
fn the_page_has_no_outside_parts() {
    let captured = Captured::new(TrafficConfig::default(), steps(5));
    let (_, _, html, _) = captured.report(false);
    let plain = html.replace("http://www.w3.org/2000/svg", "");
    for part in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!plain.contains(part), "{part}");
    }
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</body></html>\n"));
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert_eq!(
        html.matches("<svg class=\"plot\"").count(),
        html.matches("<svg").count(),
        "a plot of fixed width"
    );
}

/// Memory does not grow with the capture: the axis keeps its number of steps, and what it counted.
/// The last message is a WRITE that is refused, so that SENDs alone were acknowledged.
#[test]
fn latency_has_a_column_for_each_kind_of_request_that_was_acknowledged() {
    let captured = Captured::new(TrafficConfig::default(), steps(20));
    let html = captured.report(false).2;
    assert!(html.contains("<th>SEND (80)</th>"), "20 messages of four packets: {html}");
    assert!(
        !html.contains("RDMA WRITE (") && !html.contains("Latency of SEND"),
        "one kind needs one histogram"
    );
}

#[test]
fn marks_of_a_switch_are_shown_over_time() {
    let config = TrafficConfig { marked_from: Some(2048), ..TrafficConfig::default() };
    let html = Captured::new(config, steps(20)).report(false).2;
    assert!(html.contains("<h2>Congestion</h2>") && html.contains("congestion notifications"), "{html}");
    let without = Captured::new(TrafficConfig::default(), steps(5)).report(false).2;
    assert!(!without.contains("<h2>Congestion</h2>"), "{without}");
}

#[test]
fn a_long_capture_has_coarser_steps() {
    let captured = Captured::new(TrafficConfig::default(), steps(50));
    let bytes = std::fs::read(captured.path("run.pcapng")).expect("a capture");
    let mut tally = CaptureTally::new().expect("a histogram");
    let before = tally.step_nanos;
    let mut take = |item: &Item<'_>| {
        tally.take(frame_of(item));
        Ok(())
    };
    frames::read(Cursor::new(&bytes), &mut take).expect("frames");
    let mut far = |item: &Item<'_>| {
        let frame = frame_of(item);
        let nanos = frame.nanos + 3_600_000_000_000;
        tally.take(&frames::Frame { nanos, note: frame.note, packet: frame.packet, ..*frame });
        Ok(())
    };
    frames::read(Cursor::new(&bytes), &mut far).expect("frames");
    assert!(tally.step_nanos > before);
    assert_eq!(tally.steps.iter().map(|step| step.frames).sum::<u64>(), tally.frames);
}

#[test]
fn files_that_are_not_captures_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let whole = Captured::new(TrafficConfig::default(), steps(3));
    let bytes = std::fs::read(whole.path("run.pcapng")).expect("a capture");
    let (path, missing) = (directory.path().join("bad"), directory.path().join("missing"));
    let refused = |content: &[u8]| {
        File::create(&path).and_then(|mut file| file.write_all(content)).expect("written");
        let arguments = ReportArguments { capture: path.clone(), html: None, trace: None, json: false };
        match execute(&arguments) {
            Err(Failure::Input(error)) => format!("{error:#}"),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(b"").contains("it is not a pcapng file"));
    assert!(refused(b"not a capture at all").contains("it is not a pcapng file"));
    assert!(refused(&bytes[..bytes.len() - 7]).contains("after "), "a file that ends in a block");
    let arguments = ReportArguments { capture: missing, html: None, trace: None, json: false };
    assert!(matches!(execute(&arguments), Err(Failure::Input(_))));
    let nowhere = directory.path().join("no/such/page.html");
    let arguments =
        ReportArguments { capture: whole.path("run.pcapng"), html: Some(nowhere), trace: None, json: false };
    let Err(Failure::Input(error)) = execute(&arguments) else { panic!("written") };
    assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
}
