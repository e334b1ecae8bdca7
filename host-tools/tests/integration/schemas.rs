//! The tools' JSON output matches `docs/schemas`.

use crate::support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::dpu_service::{DpuService, program};
use support::{Hosts, bareverbs, free_port, output_of};

fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas")
}

/// Schema of a timeline, whose objects name none: the format is not ours.
const TIMELINE: &str = "trace-event-format";

/// The schema of an object, by the name in the object.
fn schema(object: &Value) -> Value {
    schema_named(object["schema"].as_str().expect("an object says which schema it has"))
}

fn schema_named(name: &str) -> Value {
    let path = schemas().join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a schema is JSON")
}

fn parsed(words: &str, output: &std::process::Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}: {said}"))
}

fn printed(directory: &Path, words: &str) -> Value {
    let arguments: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    parsed(words, &output_of(directory, &arguments))
}

fn faults(object: &Value) -> Vec<String> {
    faults_by(&schema(object), object)
}

fn faults_by(schema: &Value, object: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).expect("a good schema");
    validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Names of schemas that objects were checked against.
#[derive(Default)]
struct Checked(BTreeSet<String>);

impl Checked {
    fn check(&mut self, words: &str, object: &Value) {
        assert_eq!(faults(object), Vec::<String>::new(), "{words}");
        self.0.insert(object["schema"].as_str().expect("a name").to_owned());
    }
}

/// A machine with one ConnectX-5 bound to mlx5_core, as far as sysfs shows it.
fn plant_function(root: &Path) {
    let function = root.join("sys/bus/pci/devices/0000:3b:00.0");
    let driver = root.join("sys/bus/pci/drivers/mlx5_core");
    for directory in [&function, &driver] {
        fs::create_dir_all(directory).expect("a directory");
    }
    let own =
        [("vendor", "0x15b3"), ("device", "0x1017"), ("class", "0x020000"), ("driver_override", "(null)")];
    for (name, text) in own {
        fs::write(function.join(name), text).expect("a file");
    }
    for file in [driver.join("unbind"), root.join("sys/bus/pci/drivers_probe")] {
        fs::write(file, "").expect("a file");
    }
    symlink(driver, function.join("driver")).expect("a link");
}

/// Every schema in docs/schemas is used by an object that a tool printed here.
#[test]
fn every_tool_prints_what_its_schema_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    plant_function(&here.join("root"));
    fs::write(here.join("memory"), [0; 64]).expect("a file");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../offload/programs/sum_list.o");
    fs::copy(program, here.join("sum.o")).expect("a file");
    fs::write(here.join("bad.bin"), [0xff; 8]).expect("a file");
    let mut checked = Checked::default();
    fs::write(here.join("rows.csv"), "key,value\na,1\nb,2\nc,3\n").expect("a file");
    let words = ["demo", "--data", "rows.csv", "--loss", "0.01", "--capture", "run.pcapng", "--records"];
    let demo = output_of(here, &words);
    assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    for words in [
        "devinfo",
        "devinfo --device sim:ib",
        "devinfo --diff sim sim:ib",
        "gids",
        "gids --device sim:ib",
        "gids --address 10.0.0.1/24@7 --address 2001:db8::1/64 --peer 10.0.0.9",
        "demo --data rows.csv",
        "demo --data rows.csv --swaps 3 --loss 0.01",
        "demo --data rows.csv --loss 0.01 --preset bf3-arm",
        "perf write bw -n 20",
        "perf write bw -a -b -n 20",
        "perf write bw -D 1 -f 0 -s 1000000 --rate_limit 100",
        "perf read lat -a -n 20",
        "perf send lat -c UD",
        "perf atomic bw -n 20 -A CMP_AND_SWAP",
        "perf send lat -c XRC -n 20",
        "perf send lat -U -n 20 --use-srq",
        "perf write lat --write_with_imm -n 20",
        "doctor",
        "doctor --device sim --address 10.0.0.1/24@7 --peer 10.0.0.9",
        "doctor --device sim:ib",
        "monitor --once",
        "monitor --once --loss 0.01",
        "monitor --once --device sim:ib",
        "explain",
        "explain 12",
        "report run.pcapng --trace run.json",
        "link-type --settings card",
        "link-type eth --settings card",
        "link-type --device 3b:00.0 --root root --port 2",
        "link-type ib --device 3b:00.0 --root root",
        "vfio --root root list",
        "vfio --root root check 3b:00.0",
        "vfio --root root unbind 3b:00.0",
        "kernel check sum.o",
        "kernel check bad.bin",
        "kernel disassemble sum.o",
        "kernel run sum.o --memory memory --parameters 4000000000000000",
        "kernel run sum.o --memory memory",
        "offload-figures",
        "advise",
        "advise --preset strom-10g --hops 3 --size 64,65536 --load 0,0.95 --retries 0.1",
        "advise-check --quick",
    ] {
        checked.check(words, &printed(here, words));
    }
    check_timeline(&mut checked, &here.join("run.json"));
    check_pings(&mut checked);
    check_service(&mut checked);
    let unseen = fs::read_dir(schemas()).expect("docs/schemas").filter_map(|file| {
        let name = file.expect("a file").file_name().into_string().expect("text");
        let name = name.strip_suffix(".json").expect("JSON").to_owned();
        (!checked.0.contains(&name)).then_some(name)
    });
    assert_eq!(unseen.collect::<Vec<_>>(), [""; 0], "schemas of output that no test printed");
}

/// Checks every event in the timeline of a run with lookups, kernels and lost frames, which has events of
/// each phase in the schema.
fn check_timeline(checked: &mut Checked, path: &Path) {
    let timeline: Value = serde_json::from_slice(&fs::read(path).expect("a timeline")).expect("JSON");
    let schema = schema_named(TIMELINE);
    assert_eq!(faults_by(&schema, &timeline), Vec::<String>::new());
    let events = timeline["traceEvents"].as_array().expect("events");
    let written: BTreeSet<&str> = events.iter().filter_map(|event| event["ph"].as_str()).collect();
    let known = schema["$defs"]["event"]["properties"]["ph"]["enum"].as_array().expect("phases");
    assert_eq!(written, known.iter().filter_map(Value::as_str).collect(), "of {} events", events.len());
    for (phase, member, value) in [
        ("B", "name", Value::Null),
        ("E", "ts", Value::from(-1)),
        ("X", "dur", Value::from("1 ms")),
        ("C", "args", serde_json::json!({"value": "many"})),
        ("f", "id", Value::Null),
        ("s", "id", Value::from("10.0.0.1/10.0.0.2/7")),
        ("M", "name", Value::from("process_colour")),
        ("X", "colour", Value::from("red")),
        ("X", "ph", Value::from("Z")),
    ] {
        let mut event = events.iter().find(|event| event["ph"] == phase).expect(phase).clone();
        event[member] = value;
        let bad = serde_json::json!({"traceEvents": [event]});
        assert!(!faults_by(&schema, &bad).is_empty(), "{bad}");
    }
    checked.0.insert(TIMELINE.to_owned());
}

fn check_pings(checked: &mut Checked) {
    let (hosts, port) = (Hosts::new(), free_port());
    let common = ["ping", "-p", &port, "--peer-timeout", "30"];
    for faults in ["loss=0", "out:1=drop,out:3=duplicate", "loss=1"] {
        let words = ["-n", "5", "-i", "1", "-W", "100", "--json", "--faults", faults, "a"];
        let [asked, _] = hosts.both(&[&common[..], &["--server"]].concat(), &[&common[..], &words].concat());
        checked.check(faults, &parsed(faults, &asked));
    }
}

fn check_service(checked: &mut Checked) {
    let service = DpuService::start(&[]);
    let lookup = program("kv_lookup.o");
    for words in [
        &["dpu", "get", "key-1", "absent"][..],
        &["kernel", "deploy", &lookup, "--opcode", "LOOKUP"],
        &["kernel", "list"],
        &["kernel", "call", "LOOKUP", "--parameters", "00"],
        &["kernel", "call", "AGGREGAT"],
        &["kernel", "remove", "LOOKUP"],
    ] {
        let output = service.run("owner", &[words, &["--json"]].concat());
        checked.check(words[1], &parsed(words[1], &output));
    }
}

#[test]
fn a_schema_refuses_what_is_missing_unknown_or_of_another_kind() {
    let good = printed(Path::new("."), "perf read lat -n 20");
    for (path, value) in [
        ("/perf/clock", Value::from("fast")),
        ("/perf/results/0/latency_us/stdev", Value::Null),
        ("/perf/local/0/gid", Value::from("10.0.0.1")),
        ("/perf/options", Value::from(3)),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(path).expect(path) = value;
        assert!(!faults(&bad).is_empty(), "{path}");
    }
    let mut bad = good;
    bad["perf"]["more"] = Value::Null;
    assert!(!faults(&bad).is_empty(), "an unknown name");
}

#[test]
fn a_reader_that_has_gone_is_no_fault() {
    let mut child = bareverbs(Path::new("."), &["devinfo", "-v"]).spawn().expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
