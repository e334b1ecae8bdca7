use super::*;
use serde_json::Value;

fn parse(words: &[&str]) -> Result<PerfArguments, clap::Error> {
    crate::test_arguments::parse(words)
}

fn json(words: &str) -> (Value, bool) {
    let words: Vec<&str> = words.split_whitespace().chain(["--json"]).collect();
    let arguments = parse(&words).unwrap_or_else(|error| panic!("{error}"));
    let (text, good) = execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}"));
    let mut object: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(object["schema"], "bareverbs.perf.v1");
    (object["perf"].take(), good)
}

fn refusal(words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    match parse(&words) {
        Err(error) => error.to_string(),
        Ok(arguments) => match execute(&arguments) {
            Err(Failure::Input(error)) => format!("{error:#}"),
            other => panic!("{words:?} was not refused: {other:?}"),
        },
    }
}

#[test]
fn every_test_moves_its_data_and_says_whose_time_it_measured() {
    for words in [
        "write bw -n 50",
        "write lat -n 50",
        "read bw -n 50",
        "read lat -n 50",
        "send bw -n 50",
        "send lat -n 50",
        "atomic bw -n 70",
        "atomic lat -n 50",
        "atomic bw -n 50 -A CMP_AND_SWAP",
        "write bw -c UC -n 50 -s 5000",
        "write lat -c UC -n 50 -s 300",
        "send bw -c UC -n 50 -s 100",
        "send bw -c UD -n 600 -s 100",
        "send lat -c UD -n 50",
        "write bw -b -q 3 -l 5 -n 50 -s 64",
        "send bw -b -e -n 50",
        "send bw -e -l 5 -n 50",
        "read bw -b -n 50 -m 1024",
        "write lat -a -n 5",
        "send bw -a -n 5",
        "write bw -c XRC -n 50 -q 2",
        "read bw -c XRC -b -n 50 -q 3 -s 5000",
        "send bw -c XRC -n 700 -q 2 -s 100",
        "send bw -c XRC -b -e -l 5 -n 50",
        "atomic lat -c XRC -n 50",
        "write lat -c XRC -n 50",
        "send lat -c XRC -a -n 5",
        "send bw --use-srq -q 3 -r 5 -n 50 -s 100",
        "send bw --use-srq -b -q 2 -n 700 -l 5",
        "send bw --use_srq -a -n 5",
        "send lat --use-srq -n 50",
        "send bw --use-srq -c XRC -n 50",
        "write bw --write_with_imm -q 2 -n 700 -s 100",
        "write bw --write_with_imm -b -e -n 50",
        "write bw --write-with-imm -a -n 5",
        "write bw --write_with_imm -c UC -n 50",
        "write bw --write_with_imm -c XRC -n 50 -I 64 -s 64",
        "write lat --write_with_imm -e -n 50",
        "write lat --write_with_imm -a -n 5",
        "send bw --send_with_imm --use-srq -q 2 -n 50",
        "send lat --send_with_imm -c UD -n 50",
        "write bw -D 1 -f 0 -s 1048576 --rate_limit 1000",
        "write bw -D 0.01 -s 1048576 --rate_limit 1000",
        "write lat --latency_gap 5 -n 20",
        "read lat --latency_gap 5 -n 20",
        "send lat -c UD --latency_gap 5 -n 20",
        "write bw --mr_per_qp -q 3 -n 50 -s 5000",
        "read bw --mr_per_qp -b -q 2 -n 50",
        "send bw --mr_per_qp -c UD -q 3 -n 50 -s 100",
        "send lat --mr_per_qp -c XRC -n 20",
        "atomic bw --mr-per-qp -q 2 -n 70",
        "write bw --perform_warm_up -b -n 50 -t 60",
        "atomic bw --perform_warm_up -n 70",
        "read bw --perform-warm-up -l 10 -n 20",
        "send bw --recv_post_list 8 -q 2 -n 800 -s 64",
        "send bw --recv-post-list 5 -b -c UD -n 800 -r 500 -s 64",
        "write bw --write_with_imm --recv_post_list 10 -n 1000 -r 500",
        "send bw -e -X 0 -n 20 --wait_destroy 0 --ipv6",
        "write bw -F -z -i 1 -T 8 --cqe_poll 16 --force_link Ethernet --no-lock -n 20",
    ] {
        let (perf, good) = json(words);
        assert!(good, "{words}");
        assert_eq!(
            (perf["clock"].as_str(), perf["data"]["wrong_bytes"].as_u64()),
            (Some("sim"), Some(0)),
            "{words}"
        );
        assert!(perf["data"]["compared_bytes"].as_u64() > Some(7), "{words}: {}", perf["data"]);
        for row in perf["results"].as_array().expect("rows") {
            let rate = &row["bandwidth"]["average_bytes_per_s"];
            let value = rate.as_f64().or(row["latency_us"]["min"].as_f64());
            assert!(value > Some(0.0), "{words}: {row}");
        }
    }
}

#[test]
fn all_sizes_are_those_of_perftest() {
    let sizes = |words: &str| -> Vec<u64> {
        let (perf, _) = json(words);
        perf["results"]
            .as_array()
            .expect("rows")
            .iter()
            .filter_map(|row| row["size_bytes"].as_u64())
            .collect()
    };
    assert_eq!(sizes("read bw -a -n 5"), (1..=23).map(|log| 1 << log).collect::<Vec<u64>>());
    assert_eq!(sizes("send bw -c UD -a -n 5 -m 512"), (1..=9).map(|log| 1 << log).collect::<Vec<u64>>());
    assert_eq!(sizes("atomic bw -a -n 5"), [8]);
}

/// Simulated time does not depend on how long the ends sleep.
#[test]
fn a_latency_gap_is_not_part_of_the_measured_latency() {
    let mean = |words: &str| json(words).0["results"][0]["latency_us"]["mean"].as_f64().expect("a time");
    let (brisk, rested) = (mean("read lat -n 20"), mean("read lat -n 20 --latency_gap 100"));
    assert!((brisk - rested).abs() < 0.1 * brisk, "{brisk} {rested}");
    // The other end pauses too, which looks like a longer path: half of its pause is in each latency.
    let (brisk, rested) = (mean("send lat -n 20"), mean("send lat -n 20 --latency_gap 100"));
    assert!((rested - brisk - 50.0).abs() < 0.1 * rested, "{brisk} {rested}");
}

#[test]
fn the_bytes_of_a_file_are_what_is_sent_and_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("payload");
    std::fs::write(&path, "0x01234567, 0x89abcdef, 0x0").expect("written");
    for test in ["write bw -n 50 -s 5000", "send lat -n 20 -s 64", "read bw -n 50 -b"] {
        let (perf, good) = json(&format!("{test} --payload_file_path {}", path.display()));
        assert!(good && perf["data"]["compared_bytes"].as_u64() > Some(64), "{test}: {}", perf["data"]);
    }
}

/// The ports are limited members of the partition at index 0, and full members of the one at index 1.
#[test]
fn a_server_that_looks_late_and_finds_all_messages_has_a_rate() {
    let words = ["send", "bw", "-n", "5", "-s", "64"];
    let plan = parse(&words).expect("arguments").plan().expect("a plan");
    let figures = pair::late_server(&plan).expect("a test");
    assert!(figures.iterations == 5 && figures.messages > 0.0 && figures.average > 0.0, "{figures:?}");
}

#[test]
fn traffic_with_a_p_key_index_stays_in_its_partition() {
    let reached = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        let plan = parse(&words).expect("arguments").plan().expect("a plan");
        pair::in_partitions(&plan, &[0x0001, 0x8002])
    };
    for test in ["write bw -n 20", "send bw -n 20 -c UD -s 64 --timeout 1", "read lat -n 20"] {
        let outcome = reached(&format!("{test} --pkey_index 1")).expect("both are full members");
        assert!(outcome.data.is_some_and(|data| data.compared > 0 && data.wrong == 0), "{test}");
        let refused = reached(test).map(|outcome| outcome.rows);
        assert!(refused.is_err(), "{test}: two limited members talked: {refused:?}");
    }
    let Err(Failure::Input(error)) = reached("write bw --pkey_index 2") else {
        panic!("an empty entry was taken")
    };
    assert!(format!("{error:#}").contains("is empty"), "{error:#}");
    let Err(Failure::Input(error)) = reached("write bw --pkey_index 999") else {
        panic!("there is no such entry")
    };
    assert!(format!("{error:#}").contains("has no such P_Key"), "{error:#}");
}

#[test]
fn counters_that_were_asked_for_are_shown_by_name() {
    let shown = text("write bw -n 50 -W hw_counters/rx_write_requests,packet_seq_err");
    assert!(shown.contains("\n rx_write_requests: 50\n packet_seq_err  : 0\n"), "{shown}");
}

#[test]
fn a_rate_limit_is_kept() {
    let (perf, _) = json("write bw -s 4096 -n 5000 --rate_limit 10 --rate_units g --burst_size 4");
    let rate = perf["results"][0]["bandwidth"]["average_bytes_per_s"].as_f64().expect("a rate") * 8.0;
    assert!((rate - 10e9).abs() < 0.1e9, "{rate}");
}

#[test]
fn a_limit_that_is_missed_is_exit_status_1_each_by_itself() {
    assert!(json("write bw -n 50 -w 100 -y 0.0001").1);
    assert!(!json("write bw -n 50 -w 100000000").1);
    assert!(!json("write bw -n 50 -y 1000").1, "-y alone too");
}

#[test]
fn impossible_options_are_refused_with_the_reason() {
    for (words, reason) in [
        ("write bw -c UD", "a datagram is a SEND"),
        ("read lat -c UC", "no RDMA READ"),
        ("send bw -c DC", "no dynamically connected transport"),
        ("send bw -c IB", "possible values"),
        ("write bw -R", "is not connected to another process"),
        ("send bw -c UD -R", "is not connected to another process"),
        ("send bw -c UC -R", "RC and UD queue pairs"),
        ("write lat -b", "-b is for bandwidth tests"),
        ("write lat -q 2", "-q is for"),
        ("write bw -n 100 -l 7", "not a multiple of -l 7"),
        ("write bw -n 4", "4 is not in 5..="),
        ("write bw -l 10 -Q 3", "not a multiple of -Q 3"),
        ("write bw -D 4 -f 2", "nothing would count"),
        ("atomic bw -s 16", "8 bytes"),
        ("read bw -I 100", "no inline data"),
        ("write lat -e", "no completion"),
        ("write bw -m 1500", "not a path MTU"),
        ("write bw -x 9", "no GID index 9"),
        ("write bw --rate_limit -3", "unexpected argument"),
        ("write bw --rate_limit nan", "not a rate"),
        ("write bw somebody", "--host NAME"),
        ("write bw --device sim:ib", "serve --link ib"),
        ("write bw --device vfio-user:nic --host a", "wire of its own"),
        ("write bw --host a/b", "letters"),
        ("write bw --peer-mac 01:00:00:00:00:01", "multicast address"),
        ("write bw --peer-mac 02:00:00:00:00", "not a MAC address"),
        ("copy bw", "possible values"),
        ("write bw --run_infinitely", "--duration"),
        ("write bw --run_infinitely -D 1", "their time is virtual"),
        ("write lat --run_infinitely -D 1", "--run_infinitely is for bandwidth tests"),
        ("send bw --run_infinitely -D 1 -b", "only one end can send"),
        ("write bw --run_infinitely -D 1 -f 0", "cannot be used with"),
        ("write bw --log_dci_streams 3", "--log_dci_streams of perftest is not supported"),
        ("write bw --mmap_offset 3", "DMA memory of this process"),
        ("send lat -C", "-C: "),
        ("send bw -C", "-C is for latency tests"),
        ("send lat --cpu_util -D 1", "their time is virtual"),
        ("write bw --cpu_util", "--duration"),
        ("write bw --reversed", "none waits for the other"),
        ("write bw --reversed -R", "leave out one of them"),
        ("write bw --latency_gap 5", "is for latency tests"),
        ("write lat --latency_gap 5000000 --timeout 5", "must be shorter than --timeout"),
        ("send bw --perform_warm_up", "take no receives"),
        ("write bw --recv_post_list 4", "take receives"),
        ("send bw --recv_post_list 4 --use-srq", "one by one"),
        ("send bw --recv_post_list 5", "not a multiple of that"),
        ("send bw --recv_post_list 4 -n 1002", "the last list would be shorter"),
        ("write bw -X 3", "--events"),
        ("write bw --pkey_index 1", "has one P_Key"),
        ("write bw --dlid 3", "has no LIDs"),
        ("write bw --ipv6 -x 1", "cannot be used with"),
        ("write bw --bind_source_ip 10.9.9.9", "no GID of the port is the address 10.9.9.9"),
        ("write bw --pin_cores 1-0", "the first is after the last"),
        ("write bw --payload_file_path /no/such/file", "reading the payload"),
        ("atomic bw --payload_file_path /dev/null", "it has no words"),
        ("write bw -W packet_seq_errr", "not a queue pair counter"),
        ("send bw -H", "they are for `lat`"),
        ("send lat -U -D 3", "cannot be used with"),
        ("send lat -H -n 2000000", "at most 1000000 latencies"),
        ("send lat --output bandwidth", "`lat` tests have latency"),
        ("send bw --output latency", "bandwidth and message_rate"),
        ("write bw --use-srq", "where messages are received"),
        ("send bw -c UD --use-srq", "nothing would tell"),
        ("send bw --use-srq -q 9 -r 8", "some would have none"),
        ("read bw --write_with_imm", "is for `perf write`"),
        ("write bw --send_with_imm", "is for `perf send`"),
        ("write bw --unsolicited_write", "only SRD"),
        ("read bw --use-cuda 0", "accelerator memory"),
        ("write bw -i 2", "--ib-port 2 of perftest: a device has one port here"),
        ("send lat --ib_port two", "a PCI function of its own"),
    ] {
        let said = refusal(words);
        assert!(said.contains(reason), "{words}: {said}");
    }
}

#[test]
fn a_duration_is_between_a_millisecond_and_a_day_and_may_be_a_fraction() {
    for (words, reason) in [
        ("write bw -D 0.5 -f 1", "nothing would count"),
        ("write bw -D 0", "0 is not in 0.001 to 86400 seconds"),
        ("write bw -D 86401", "86401 is not in 0.001 to 86400 seconds"),
        ("write bw -D nan", "nan is not in 0.001 to 86400 seconds"),
        ("write bw -D soon", "soon is not a number of seconds"),
    ] {
        let said = refusal(words);
        assert!(said.contains(reason), "{words}: {said}");
    }
}

fn text(words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let arguments = parse(&words).unwrap_or_else(|error| panic!("{error}"));
    execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}")).0
}

fn near(is: f64, wanted: f64) {
    assert!((is / wanted - 1.0).abs() < 1e-5, "{is} instead of {wanted}");
}

#[test]
fn latencies_are_listed_as_perftest_lists_them() {
    let shown = text("send lat -n 8 -s 64 -U -H");
    let lists: Vec<Vec<f64>> = shown
        .split("#, usec\n")
        .skip(1)
        .map(|list| {
            let numbered =
                |(number, line): (usize, &str)| line.strip_prefix(&format!("{number}, "))?.parse().ok();
            (1..).zip(list.lines()).map_while(numbered).collect()
        })
        .collect();
    let [unsorted, sorted] = &lists[..] else { panic!("{shown}") };
    let mut by_length = unsorted.clone();
    by_length.sort_by(f64::total_cmp);
    assert_eq!((unsorted.len(), &by_length), (7, sorted));
    assert_eq!(
        shown.matches("t_typical[usec]").count(),
        2,
        "the heading precedes the lists, and again the row"
    );
    let (perf, _) = json("send lat -n 8 -s 64 -H");
    let row = &perf["results"][0];
    let samples = row["samples_us"].as_array().expect("all of them");
    assert_eq!(samples.len(), 7);
    for (sample, listed) in samples.iter().zip(unsorted) {
        near(*listed, sample.as_f64().expect("a time"));
    }
    near(sorted[6], row["latency_us"]["max"].as_f64().expect("a time"));
    assert!(json("send lat -n 8").0["results"][0].get("samples_us").is_none());
}

#[test]
fn each_direction_is_shown_by_itself_too() {
    let shown = text("write bw -b -n 50 -s 4096 --report-both --report_gbits");
    let averages: Vec<f64> = shown
        .lines()
        .filter_map(|line| line.strip_prefix(" 4096 "))
        .filter_map(|row| row.split_whitespace().nth(2)?.parse().ok())
        .collect();
    let [both, own, peers] = averages[..] else { panic!("{shown}") };
    assert!(own > 0.0 && peers > 0.0 && (both - own - peers).abs() < 0.02, "{shown}");
    assert!(shown.contains("\n Local results: \n") && shown.contains("\n Remote results: \n"), "{shown}");
    assert!(refusal("write bw --report-both").contains("--bidirectional"));
}

#[test]
fn json_goes_to_a_file_beside_the_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.json");
    let words = format!("write bw -a -n 5 --out_json --out_json_file {}", path.display());
    assert!(text(&words).contains("BW average"));
    let object: Value = serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    assert_eq!(object["schema"], "bareverbs.perf.v1");
    assert_eq!(object["perf"]["results"].as_array().map(Vec::len), Some(23), "a result for each size");
    let words = ["write", "bw", "-n", "5", "--out_json_file", "/no/such/directory/x.json"];
    let said = execute(&parse(&words).expect("good")).expect_err("nowhere to write");
    assert!(format!("{said:?}").contains("cannot write /no/such/directory/x.json"));
}

#[test]
fn the_only_number_is_that_of_the_columns() {
    let number = |words: &str| -> f64 { text(words).parse().expect("a number and nothing else") };
    let (perf, _) = json("write bw -n 50 -s 4096");
    let wanted = |name: &str| perf["results"][0]["bandwidth"][name].as_f64().expect("a rate");
    near(number("write bw -n 50 -s 4096 --output bandwidth"), wanted("average_bytes_per_s") / 1_048_576.0);
    near(
        number("write bw -n 50 -s 4096 --output=bandwidth --report_gbits"),
        wanted("average_bytes_per_s") * 8.0 / 1e9,
    );
    near(number("write bw -n 50 -s 4096 --output message_rate"), wanted("messages_per_s") / 1e6);
    let (perf, _) = json("read lat -n 50");
    let mean = perf["results"][0]["latency_us"]["mean"].as_f64().expect("a time");
    near(number("read lat -n 50 --output latency"), mean);
    assert_eq!(text("read lat -a -n 5 --output latency").lines().count(), 23);
}

#[test]
fn the_banner_says_where_messages_are_received() {
    for (words, srq) in
        [("send bw -n 5", "OFF"), ("send bw -n 5 --use-srq", "ON"), ("send bw -n 5 -c XRC", "ON")]
    {
        assert!(text(words).contains(&format!("Using SRQ      : {srq}\n")), "{words}");
    }
}

#[test]
fn the_drawing_is_an_svg_with_a_line_for_each_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("out.svg");
    let path = path.to_str().expect("a name");
    json(&format!("read lat -a -n 5 --plot {path}"));
    let svg = std::fs::read_to_string(path).expect("a drawing");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg:.200}");
    assert!(svg.matches("<polyline").count() >= 23 && svg.contains("8388608 bytes") && svg.contains("90 %"));
    let points = svg.split("points=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
    let lines: Vec<usize> = points.map(|points| points.split_whitespace().count()).collect();
    assert!(lines.iter().all(|points| *points >= 2), "a line of one point is not seen: {lines:?}");
    json(&format!("write bw -a -n 5 --plot {path}"));
    assert!(std::fs::read_to_string(path).expect("a drawing").contains("MiB/s"));
    let words = ["write", "bw", "-n", "5", "--plot", "/no/such/directory/x.svg"];
    let said = execute(&parse(&words).expect("good")).expect_err("nowhere to write");
    assert!(format!("{said:?}").contains("cannot write /no/such/directory/x.svg"));
}
