//! What the tools print as JSON is as `docs/schemas` says.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The schema of an object, by the name that the object gives.
fn schema(object: &Value) -> Value {
    let name = object["schema"].as_str().expect("an object says which schema it has");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a schema is JSON")
}

fn printed(words: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    let output = command.args(words.split(' ')).arg("--json").output().expect("the program");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{words}: {error}"))
}

fn faults(object: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema(object)).expect("a good schema");
    validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn every_tool_prints_what_its_schema_says() {
    for words in [
        "devinfo",
        "devinfo --device sim:ib",
        "devinfo --diff sim sim:ib",
        "gids",
        "gids --device sim:ib",
        "gids --address 10.0.0.1/24@7 --address 2001:db8::1/64 --peer 10.0.0.9",
        "perf write bw -n 20",
        "perf write bw -a -b -n 20",
        "perf write bw -D 1 -f 0 -s 1000000",
        "perf read lat -a -n 20",
        "perf send lat -c UD",
        "perf atomic bw -n 20 -A CMP_AND_SWAP",
    ] {
        let object = printed(words);
        assert_eq!(faults(&object), Vec::<String>::new(), "{words}");
    }
}

#[test]
fn a_schema_refuses_what_is_missing_unknown_or_of_another_kind() {
    let good = printed("perf read lat -n 20");
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    let mut child = command
        .args(["devinfo", "-v"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
