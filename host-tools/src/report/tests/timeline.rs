//! Parses timelines by the rules of the format, as Perfetto's viewers import them, and follows every work
//! request through one.

use super::*;
use crate::demo::data::Header;
use crate::demo::{self, DemoArguments};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::numbering::{CqeOpcode, WqeOpcode};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::{DeviceEvent, FrameOrigin, FrameWork, WorkName};
use bareverbs_sim::run::RecordText;
use std::collections::BTreeMap;

/// A slice that a step of an arrow is bound to.
#[derive(Debug, Clone)]
struct Bound {
    phase: String,
    nanos: u64,
    track: String,
    name: String,
    origin: String,
}

/// The contents of a timeline after import.
#[derive(Debug, Default)]
struct Imported {
    /// Slices of each track, by `process/track`.
    slices: BTreeMap<String, Vec<String>>,
    /// Steps of each arrow, by name and id.
    flows: BTreeMap<(String, String), Vec<Bound>>,
    counters: usize,
}

/// A slice that is open while a thread is read.
#[derive(Debug, Clone)]
struct Open {
    begin: u64,
    /// Set for complete events.
    end: Option<u64>,
    name: String,
    origin: String,
}

fn nanos(value: &Value) -> u64 {
    let micros = value.as_f64().unwrap_or_else(|| panic!("{value} is not a time"));
    assert!(micros >= 0.0 && micros.is_finite());
    (micros * 1000.0).round() as u64
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string")).to_owned()
}

/// Names of processes and threads.
fn names(events: &[Value]) -> BTreeMap<(u64, u64), String> {
    let named = |what: &'static str| events.iter().filter(move |event| event["name"] == what);
    let id = |event: &Value, key: &str| event[key].as_u64().expect("a number");
    let processes: BTreeMap<u64, String> =
        named("process_name").map(|event| (id(event, "pid"), text(&event["args"]["name"]))).collect();
    named("thread_name")
        .map(|event| {
            let (pid, tid) = (id(event, "pid"), id(event, "tid"));
            ((pid, tid), format!("{}/{}", processes[&pid], text(&event["args"]["name"])))
        })
        .collect()
}

impl Imported {
    /// Imports a timeline. Events are sorted by time, and those at the same time keep the order of the file.
    /// A slice lies inside the previous one on its thread or begins after its end. A step of an arrow binds
    /// to the slice that encloses it.
    fn new(trace: &Value) -> Self {
        let events = trace["traceEvents"].as_array().expect("events");
        let names = names(events);
        let mut threads: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
        let mut imported = Self::default();
        for event in events {
            let id = |key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{event}"));
            match event["ph"].as_str() {
                Some("M") => assert!(event["args"].is_object(), "{event}"),
                Some("C") => imported.counters += usize::from(event["args"]["value"].is_u64()),
                Some("B" | "E" | "X" | "s" | "t" | "f") => {
                    threads.entry((id("pid"), id("tid"))).or_default().push(event);
                }
                other => panic!("{other:?}: {event}"),
            }
        }
        for (thread, mut events) in threads {
            events.sort_by_key(|event| nanos(&event["ts"]));
            imported.thread(&names[&thread], &events);
        }
        for ((name, id), steps) in &mut imported.flows {
            steps.sort_by_key(|step| step.nanos);
            let phases: String = steps.iter().map(|step| step.phase.as_str()).collect();
            let well = phases.starts_with('s') && !phases[1..].contains('s');
            assert!(
                name == "answer" || well && !phases[..phases.len() - 1].contains('f'),
                "{name} {id}: {phases}"
            );
        }
        imported
    }

    fn thread(&mut self, track: &str, events: &[&Value]) {
        let mut open: Vec<Open> = Vec::new();
        for event in events {
            let at = nanos(&event["ts"]);
            while open.last().is_some_and(|slice| slice.end.is_some_and(|end| end <= at)) {
                open.pop();
            }
            match event["ph"].as_str().unwrap_or_default() {
                "E" => {
                    let slice = open.pop().unwrap_or_else(|| panic!("{track}: nothing to end: {event}"));
                    assert!(slice.end.is_none() && slice.begin < at, "{track}: {event}");
                }
                phase @ ("B" | "X") => {
                    let end = (phase == "X").then(|| at + nanos(&event["dur"]));
                    assert!(open.is_empty(), "{track}: {event} overlaps {open:?}");
                    assert!(end.is_none_or(|end| end > at), "{track}: {event}");
                    let origin = event["args"]["origin"].as_str().unwrap_or_default().to_owned();
                    let name = text(&event["name"]);
                    self.slices.entry(track.to_owned()).or_default().push(name.clone());
                    open.push(Open { begin: at, end, name, origin });
                }
                phase => {
                    let slice = open.last().unwrap_or_else(|| panic!("{track}: {event} binds to nothing"));
                    assert_eq!((slice.begin, &event["bp"]), (at, &"e".into()), "{track}: {event}");
                    let key = (text(&event["name"]), text(&event["id"]));
                    let (name, origin) = (slice.name.clone(), slice.origin.clone());
                    let bound = Bound { phase: phase.into(), nanos: at, track: track.into(), name, origin };
                    self.flows.entry(key).or_default().push(bound);
                }
            }
        }
        assert!(open.iter().all(|slice| slice.end.is_some()), "{track}: {open:?} has no end");
    }

    /// The arrows of work requests.
    fn works(&self) -> impl Iterator<Item = &Vec<Bound>> {
        self.flows.iter().filter(|((name, _), _)| name == "work request").map(|(_, steps)| steps)
    }

    fn tracks_with(&self, part: &str) -> usize {
        self.slices.keys().filter(|track| track.contains(part)).count()
    }
}

/// `s` at the doorbell, then the work request, then its frames, then `f` at the CQE.
fn assert_complete(steps: &[Bound]) {
    let [doorbell, work, frames @ .., entry] = steps else { panic!("{steps:#?}") };
    assert!(doorbell.phase == "s" && doorbell.track.contains("/driver"), "{doorbell:?}");
    assert!(doorbell.name.starts_with("doorbell qp"), "{doorbell:?}");
    assert!(work.track.contains("/NIC: work of qp") && work.name.starts_with("wqe "), "{work:?}");
    assert!(!frames.is_empty());
    for frame in frames {
        assert!(frame.phase == "t" && frame.track.contains("/wire"), "{frame:?}");
        assert!(frame.origin.contains(&format!(" {} ", work.name)), "{frame:?} does not belong to {work:?}");
    }
    assert!(entry.phase == "f" && entry.track.contains("/NIC: entries of cq"), "{entry:?}");
    let index = work.name.split(' ').nth(1).expect("an index");
    assert!(entry.name.contains(&format!(" wqe {index} REQ ")), "{entry:?} does not complete {work:?}");
}

#[test]
fn every_work_request_of_a_lossless_run_goes_from_doorbell_over_frames_to_completion() {
    let captured = Captured::recorded(TrafficConfig::default(), steps(20));
    let (.., trace) = captured.report(true);
    let imported = Imported::new(&trace);
    assert_eq!(imported.works().count(), 20);
    for steps in imported.works() {
        assert_complete(steps);
        assert_eq!(steps.len(), 3 + 4, "a message of four packets");
    }
    for part in
        ["host1/driver", "host1/NIC: work of qp", "host1/wire", "host2/NIC: packets that came", "host2/wire"]
    {
        assert!(imported.tracks_with(part) > 0, "{part}: {:?}", imported.slices.keys());
    }
    assert!(imported.counters >= 40, "the depth rises and falls with each work request");
    let frames = imported.slices.iter().filter(|(track, _)| track.contains("/wire"));
    assert_eq!(frames.map(|(_, slices)| slices.len() as u64).sum::<u64>(), captured.frames);
}

#[test]
fn a_retransmitted_frame_is_linked_to_its_work_request() {
    let config = TrafficConfig { loss: 0.1, ..TrafficConfig::default() };
    let captured = Captured::recorded(config, steps(40));
    let (json, _, html, trace) = captured.report(true);
    let imported = Imported::new(&trace);
    let mut again = 0_u64;
    for steps in imported.works() {
        assert_complete(steps);
        for frame in steps.iter().filter(|frame| frame.origin.contains("(retransmission: ")) {
            again += 1;
            let psn =
                frame.origin.split(" psn ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a PSN");
            let first =
                |step: &&Bound| step.origin.contains(&format!(" psn {psn} ")) && !step.origin.contains('(');
            assert!(steps.iter().any(|step| first(&step)), "{frame:?} was not sent before: {steps:#?}");
        }
    }
    // If the acknowledgement of a work request overtook one of its frames, that frame has its own arrow.
    for (_, late) in imported.flows.iter().filter(|((name, _), _)| name == "frame") {
        let [work, frame] = &late[..] else { panic!("{late:#?}") };
        assert!(frame.origin.contains(&format!(" {} ", work.name)), "{frame:?} does not belong to {work:?}");
        again += u64::from(frame.origin.contains("(retransmission: "));
    }
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let causes = report["report"]["sent_again_by_cause"].as_object().expect("causes").clone();
    let counted: u64 = causes.values().filter_map(Value::as_u64).sum();
    assert!(again > 0 && counted == again, "{again} {causes:?}");
    for part in ["Packets sent again, by what the device says why", "Work requests under way"] {
        assert!(html.contains(part), "{part}");
    }
}

/// A datagram completes when its frame has left, and is then still in flight.
#[test]
fn a_frame_after_the_completion_is_linked_to_its_work_request() {
    let captured = Captured::new(TrafficConfig::default(), steps(1));
    let (qpn, work) = (Qpn::from_low_bits(0x41), WorkName { index: 7, opcode: WqeOpcode::Send });
    let mut timeline = trace::Timeline::begin(Vec::new()).expect("begun");
    let at = |nanos, event| {
        Item::Record(frames::Record { nanos, interface: 0, what: Ok(RecordText::Device(event)) })
    };
    let cqn = bareverbs_prm::ids::Cqn::from_low_bits(0x81);
    let done = DeviceEvent::CompletionWritten { cqn, qpn, wqe: 7, opcode: CqeOpcode::Requester, syndrome: 0 };
    for event in
        [DeviceEvent::SendDoorbell { qpn, posted: 8 }, DeviceEvent::WqeFetched { qpn, work, bytes: 64 }, done]
    {
        timeline.take(&at(1000, event)).expect("taken");
    }
    let built = Some(Time::ZERO + Duration::from_nanos(1000));
    let origin = FrameOrigin { qpn, work: FrameWork::Wqe(work), psn: None, again: None, built };
    let mut sent = false;
    captured.each(|item| {
        let frame = frame_of(item);
        if !core::mem::replace(&mut sent, true) {
            let late = frames::Frame {
                nanos: 3000,
                interface: 0,
                origin: Some(origin),
                packet: frame.packet,
                note: None,
                bytes: frame.bytes,
            };
            timeline.take(&Item::Frame(late)).expect("taken");
        }
    });
    let bytes = timeline.finish_into(&["host".to_owned()]).expect("finished");
    let imported = Imported::new(&serde_json::from_slice(&bytes).expect("JSON"));
    let works: Vec<_> = imported.works().collect();
    let phases = |steps: &[Bound]| steps.iter().map(|step| step.phase.clone()).collect::<String>();
    assert_eq!(works.iter().map(|steps| phases(steps)).collect::<Vec<_>>(), ["stf"]);
    let late = imported.flows.iter().find(|((name, _), _)| name == "frame").expect("an arrow to the frame").1;
    assert!(late[0].name.starts_with("wqe 7 ") && late[1].track == "host/wire", "{late:?}");
}

/// For each process that had the device, from opening it to the end of the recording.
#[test]
fn a_program_has_a_track_with_its_name_and_the_number_of_its_process() {
    let mut timeline = trace::Timeline::begin(Vec::new()).expect("begun");
    let at = |nanos, interface, what| Item::Record(frames::Record { nanos, interface, what: Ok(what) });
    let rings =
        |qpn| RecordText::Device(DeviceEvent::SendDoorbell { qpn: Qpn::from_low_bits(qpn), posted: 1 });
    for item in [
        at(1000, 0, RecordText::Program { pid: 4711, name: "ib_write_bw" }),
        at(1500, 1, RecordText::Program { pid: 4712, name: "ucx perftest" }),
        at(2000, 0, rings(7)),
        at(9000, 1, rings(8)),
    ] {
        timeline.take(&item).expect("taken");
    }
    let bytes = timeline.finish_into(&["a 4711".to_owned(), "a 4712".to_owned()]).expect("finished");
    let imported = Imported::new(&serde_json::from_slice(&bytes).expect("JSON"));
    let programs: Vec<_> =
        imported.slices.iter().filter(|(track, _)| track.contains("/program: process")).collect();
    let expected =
        [("a 4711/program: process 4711", "ib_write_bw"), ("a 4712/program: process 4712", "ucx perftest")];
    let expected: Vec<_> =
        expected.map(|(track, name)| (track.to_owned(), vec![name.to_owned()])).into_iter().collect();
    assert_eq!(programs, expected.iter().map(|(track, names)| (track, names)).collect::<Vec<_>>());
}

/// The demo's lookups show at the host, the kernels in the NIC and on the DPU.
#[test]
fn a_recording_of_the_demo_has_its_lookups_and_kernels() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("data.csv"), "a,1\nb,2\nc,3\n").expect("written");
    let arguments = DemoArguments {
        data: Some(path("data.csv")),
        header: Header::default(),
        seed: 1,
        loss: 0.0,
        capture: Some(path("run.pcapng")),
        records: true,
        preset: "strom-10g".into(),
        json: false,
        swaps: 0,
        changes: 0,
    };
    demo::execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}"));
    let arguments = ReportArguments {
        capture: path("run.pcapng"),
        html: None,
        trace: Some(path("run.json")),
        json: true,
    };
    let (json, good) = execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}"));
    let trace = File::open(path("run.json")).expect("a timeline");
    let imported = Imported::new(&serde_json::from_reader(BufReader::new(trace)).expect("JSON"));
    let count = |track: &str, name: &str| {
        let slices = imported.slices.get(track).map_or(&[][..], Vec::as_slice);
        slices.iter().filter(|slice| slice.contains(name)).count()
    };
    // Three rows and a key that is absent.
    for way in ["kernel-dpu", "kernel-nic", "read", "program"] {
        assert_eq!(
            count("client/host", &format!("lookup: {way}")),
            4,
            "{:?}",
            imported.slices.get("client/host")
        );
    }
    assert_eq!(count("dpu/host", "kernel: lookup"), 8, "the kernel and the program");
    assert_eq!(count("server/kernel", "kernel 0x"), 4, "{:?}", imported.slices.keys());
    assert!(count("server/kernel: reads of host memory", "kernel-read") >= 4);
    let report: Value = serde_json::from_str(&json).expect("JSON");
    let device = &report["report"]["device"];
    assert!(good && device["kernel_calls"] == 4 && device["records_lost"] == 0, "{device}");
    assert_eq!(report["report"]["interfaces"], serde_json::json!(["client", "server", "dpu", "switch"]));
}
