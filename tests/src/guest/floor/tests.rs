use super::super::table::Entry;
use super::*;
use std::time::Duration;

const WHOLE: Scope = Scope { whole: true, excuses: &["Soft-RoCE stopped"] };

fn pass() -> Verdict {
    Verdict::Pass("64 bytes compared".into())
}

fn skip(reason: &str) -> Verdict {
    Verdict::Skip(reason.into())
}

fn fail() -> Verdict {
    Verdict::Fail("other bytes".into())
}

fn report(rows: &[(&str, Verdict)]) -> Report {
    let mut report = Report::new(&["case"]);
    for (name, verdict) in rows {
        let columns = name.split(' ').map(str::to_owned).collect();
        report.add(Entry { columns, verdict: verdict.clone(), elapsed: Duration::ZERO });
    }
    report
}

fn floor() -> Floor {
    Floor::record(&report(&[("ping", pass()), ("odp read", skip("ODP is not supported"))]), None).0
}

fn compare(rows: &[(&str, Verdict)]) -> FloorCheck {
    floor().compare(&report(rows), WHOLE)
}

#[test]
fn the_run_that_was_recorded_is_as_expected() {
    let comparison = compare(&[("odp read", skip("ODP is not supported")), ("ping", pass())]);
    assert_eq!(comparison, FloorCheck { as_expected: 2, ..FloorCheck::default() });
    assert!(comparison.is_success());
}

#[test]
fn results_below_the_list_are_failures() {
    let odp = ("odp read", skip("ODP is not supported"));
    for (what, rows) in [
        ("a pass that became a skip", vec![("ping", skip("Operation not supported (95)")), odp.clone()]),
        ("a pass that became a failure", vec![("ping", fail()), odp.clone()]),
        ("a row that is missing", vec![odp.clone()]),
        ("a skip for another reason", vec![("ping", pass()), ("odp read", skip("No IB devices found"))]),
        ("a skip that became a failure", vec![("ping", pass()), ("odp read", fail())]),
        ("a skip that nobody wrote down", vec![("ping", pass()), odp.clone(), ("atomics", skip("no"))]),
        ("a failure that nobody wrote down", vec![("ping", pass()), odp, ("atomics", fail())]),
        ("nothing at all", vec![]),
    ] {
        let comparison = compare(&rows);
        assert!(!comparison.is_success() && !comparison.worse.is_empty(), "{what}: {comparison}");
        assert!(comparison.to_string().contains("BELOW THE LIST"), "{what}");
    }
}

#[test]
fn results_beyond_the_list_are_reported_without_failing() {
    let comparison = compare(&[("ping", pass()), ("odp read", pass()), ("atomics", pass())]);
    assert_eq!(comparison.better, ["odp read", "atomics"]);
    assert!(comparison.is_success());
    assert!(comparison.to_string().contains("--record raises it"));
}

#[test]
fn a_part_of_the_rows_lacks_none() {
    let part = Scope { whole: false, ..WHOLE };
    assert!(floor().compare(&report(&[("ping", pass())]), part).is_success());
    assert!(!floor().compare(&report(&[("ping", skip("late"))]), part).is_success());
}

#[test]
fn a_row_that_is_asked_twice_has_to_pass_twice() {
    let twice = [("ping", pass()), ("reboot", pass()), ("ping", pass())];
    let (floor, _) = Floor::record(&report(&twice), None);
    assert!(floor.compare(&report(&twice), WHOLE).is_success());
    let once = floor.compare(&report(&twice[..2]), WHOLE);
    assert_eq!(once.worse, ["ping (2): passed when the list was recorded, and was not asked"]);
    let second_skipped = [("ping", pass()), ("reboot", pass()), ("ping", skip("late"))];
    assert!(!floor.compare(&report(&second_skipped), WHOLE).is_success());
}

#[test]
fn a_judge_that_could_not_judge_is_excused_a_few_times() {
    let names: Vec<String> = (0..=EXCUSED_AT_MOST).map(|number| format!("row {number}")).collect();
    let rows =
        |verdict: Verdict| names.iter().map(|name| (name.as_str(), verdict.clone())).collect::<Vec<_>>();
    let (floor, _) = Floor::record(&report(&rows(pass())), None);
    let mut seen = rows(skip("Soft-RoCE stopped inside a message of 65 packets"));
    assert!(!floor.compare(&report(&seen), WHOLE).is_success(), "too many to be chance");
    seen[0].1 = pass();
    let comparison = floor.compare(&report(&seen), WHOLE);
    assert_eq!((comparison.excused.len(), comparison.is_success()), (EXCUSED_AT_MOST, true));
    seen[1].1 = skip("Soft-RoCE is missing");
    assert!(!floor.compare(&report(&seen), WHOLE).is_success(), "another reason");
}

#[test]
fn a_recording_keeps_what_was_expected_of_a_row_that_failed() {
    let run = report(&[("ping", fail()), ("odp read", pass()), ("new", fail())]);
    let (raised, failed) = Floor::record(&run, Some(&floor()));
    assert_eq!(raised.rows, [("ping".into(), Expected::Pass), ("odp read".into(), Expected::Pass)]);
    assert_eq!(failed, ["ping", "new"]);
}

#[test]
fn a_list_reads_back_as_it_was_written() {
    let rows = [("with \"quotes\", and commas", skip("reason, \"quoted\"\nin two lines")), ("plain", pass())];
    let (floor, failed) = Floor::record(&report(&rows), None);
    assert_eq!((Floor::parse(&floor.to_csv().unwrap()).unwrap(), failed.len()), (floor, 0));
}

#[test]
fn malformed_lists_of_results_are_refused() {
    for text in [
        "",
        "row,verdict\nping,pass\n",
        "row,verdict,reason\nping,fail,\n",
        "row,verdict,reason\nping,skip,\n",
        "row,verdict,reason\nping,pass,why\n",
        "row,verdict,reason\nping,pass,\nping,pass,\n",
        "row,verdict,reason\nping\n",
    ] {
        assert!(Floor::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_lost_list_of_results_is_an_error_and_an_unrecorded_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let floors = Floors::in_directory(directory.path());
    assert_eq!(floors.read("mlx5-ib").unwrap(), None);
    floors.write("mlx5-ib", &floor()).unwrap();
    floors.write("mlx5-ib", &floor()).unwrap();
    assert_eq!(floors.read("mlx5-ib").unwrap(), Some(floor()));
    assert_eq!(floors.read("rxe").unwrap(), None);
    std::fs::remove_file(floors.path("mlx5-ib")).unwrap();
    assert!(floors.read("mlx5-ib").is_err_and(|error| error.to_string().contains("is gone")));
}

#[test]
fn the_lists_of_this_tree_can_be_read() {
    let floors = Floors::of_this_tree();
    for name in floors.recorded().unwrap() {
        assert!(floors.read(&name).unwrap().is_some_and(|floor| !floor.rows.is_empty()), "{name}");
    }
}
