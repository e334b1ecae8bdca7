use super::*;
use crate::counters::Readings;
use crate::output::openmetrics::ScrapeTexts;
use crate::seat::HostArguments;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

fn readings(rows: &[(&str, u64)]) -> Readings {
    rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The sample two seconds after another.
fn second(before: &[(&str, u64)], after: &[(&str, u64)]) -> Sample {
    let mut sampler = Sampler::default();
    sampler.sample(at(1), readings(before));
    sampler.sample(at(3), readings(after))
}

#[test]
fn rates_are_a_second_and_only_what_rises_is_abnormal() {
    let sample = second(
        &[("out_of_sequence", 5), ("rx_bytes_phy", 100), ("packet_seq_err", 1)],
        &[("out_of_sequence", 5), ("rx_bytes_phy", 300), ("packet_seq_err", 4)],
    );
    let rates: Vec<Option<f64>> = sample.rows.iter().map(|row| row.rate).collect();
    assert_eq!(rates, [Some(0.0), Some(1.5), Some(100.0)]);
    let abnormal: Vec<&str> = sample.abnormal().map(|(row, _)| row.name.as_str()).collect();
    assert_eq!(abnormal, ["packet_seq_err"]);
}

#[test]
fn a_counter_of_32_bits_wraps_and_a_cleared_one_begins_anew() {
    let mut sampler = Sampler::default();
    sampler.sample(at(0), readings(&[("rx_write_requests", u64::from(u32::MAX))]));
    let sample = sampler.sample(at(1), readings(&[("rx_write_requests", 4)]));
    assert_eq!((sample.rows[0].rate, sample.rows[0].value), (Some(5.0), (1 << 32) + 4));
    let sample = second(&[("rx_bytes_phy", 1 << 40)], &[("rx_bytes_phy", 8)]);
    assert_eq!((sample.rows[0].rate, sample.rows[0].value), (Some(4.0), 8));
    let mut still = Sampler::default();
    still.sample(at(1), readings(&[("rx_bytes_phy", 1)]));
    assert_eq!(
        still.sample(at(1), readings(&[("rx_bytes_phy", 9)])).rows[0].rate,
        None,
        "no time has passed"
    );
}

/// Parses OpenMetrics 1.0 as strictly as the standard: line ends, contiguous families, metadata before
/// samples and only once, names, labels with their escapes, `_total` of counters, units as suffixes, one
/// sample for each set of labels, `# EOF` at the end.
fn parse(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let body = text.strip_suffix("# EOF\n").ok_or("no # EOF and line end at the end")?;
    let (mut families, mut samples) = (BTreeMap::<String, BTreeSet<&str>>::new(), BTreeMap::new());
    let mut current: Option<(String, &str)> = None;
    for line in body.split_terminator('\n') {
        if let Some(rest) = line.strip_prefix("# ") {
            let (what, rest) = rest.split_once(' ').ok_or(format!("{line}: no name"))?;
            let (name, value) = rest.split_once(' ').ok_or(format!("{line}: no value"))?;
            check_name(name)?;
            if current.as_ref().is_none_or(|(open, _)| open != name) {
                if families.contains_key(name) {
                    return Err(format!("{name} is in two pieces"));
                }
                current = Some((name.to_owned(), ""));
            }
            let seen = families.entry(name.to_owned()).or_default();
            if !seen.insert(what) || samples.keys().any(|key: &String| key.starts_with(&format!("{name}{{")))
            {
                return Err(format!("{line}: a second time, or after a sample"));
            }
            match what {
                "TYPE" if matches!(value, "counter" | "gauge") => current = Some((name.to_owned(), value)),
                "UNIT" if name.ends_with(&format!("_{value}")) => {}
                "HELP" => check_escapes(value)?,
                _ => return Err(format!("{line}: unknown metadata")),
            }
            continue;
        }
        let (family, kind) = current.as_ref().ok_or(format!("{line}: before any metadata"))?;
        let (metric, value) = line.rsplit_once(' ').ok_or(format!("{line}: no value"))?;
        let (name, labels) = metric.split_once('{').ok_or(format!("{line}: no labels"))?;
        let expected = if *kind == "counter" { format!("{family}_total") } else { family.clone() };
        if name != expected {
            return Err(format!("{line}: not of the family {family}"));
        }
        check_labels(labels.strip_suffix('}').ok_or(format!("{line}: no closing brace"))?)?;
        let number: f64 = value.parse().map_err(|_| format!("{line}: {value} is no number"))?;
        if *kind == "counter" && (number < 0.0 || number.is_nan()) {
            return Err(format!("{line}: a counter does not fall below zero"));
        }
        if samples.insert(metric.to_owned(), number).is_some() {
            return Err(format!("{line}: a second time"));
        }
    }
    Ok(samples)
}

fn check_name(name: &str) -> Result<(), String> {
    let good = name.bytes().enumerate().all(|(at, byte)| {
        byte.is_ascii_alphabetic() || byte == b'_' || byte == b':' || at > 0 && byte.is_ascii_digit()
    });
    if good && !name.is_empty() { Ok(()) } else { Err(format!("{name:?} is no name")) }
}

fn check_escapes(text: &str) -> Result<(), String> {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && !matches!(letters.next(), Some('\\' | '"' | 'n')) {
            return Err(format!("{text}: a backslash stands for nothing"));
        }
    }
    Ok(())
}

fn check_labels(labels: &str) -> Result<(), String> {
    for label in labels.split("\",") {
        let (name, value) = label.split_once("=\"").ok_or(format!("{labels}: no value"))?;
        check_name(name)?;
        check_escapes(value.strip_suffix('"').unwrap_or(value))?;
    }
    Ok(())
}

fn traffic_sample() -> Sample {
    let mut sample = None;
    struct Take<'a>(&'a mut Option<Sample>);
    impl Watch for Take<'_> {
        fn watch(self, reader: &mut dyn Reader) -> anyhow::Result<()> {
            *self.0 = Some(Sampler::default().sample(Duration::from_millis(1500), reader.read()?));
            Ok(())
        }
    }
    let device = "sim".parse().expect("a selector");
    source::open(&device, &HostArguments::none(), 0.1, Take(&mut sample))
        .unwrap_or_else(|failure| panic!("{failure:?}"));
    sample.expect("a sample")
}

#[test]
fn the_exposition_is_open_metrics() {
    let sample = traffic_sample();
    let text = openmetrics::exposition("vfio-user:/tmp/a \"quoted\" \\ path", &sample).openmetrics;
    let samples = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(samples.len(), sample.rows.len() + 1);
    let sent = samples.iter().find(|(name, _)| name.starts_with("bareverbs_tx_packets_phy_total{"));
    assert!(sent.is_some_and(|(_, value)| *value > 100.0), "{samples:?}");
    // The parser itself refuses invalid input.
    for (good, bad) in [
        ("# EOF\n", ""),
        ("_total{", "{"),
        ("# TYPE bareverbs_tx_packets_phy counter", "# TYPE bareverbs_tx_packets_phy bogus"),
        ("# UNIT bareverbs_sampled_seconds seconds", "# UNIT bareverbs_sampled_seconds metres"),
        ("\\\"quoted", "\\quoted"),
        (
            "# TYPE bareverbs_tx_packets_phy counter\n",
            "# TYPE bareverbs_tx_packets_phy counter\n# TYPE bareverbs_tx_packets_phy counter\n",
        ),
    ] {
        assert!(text.contains(good), "{good}");
        assert!(parse(&text.replacen(good, bad, 1)).is_err(), "{bad} instead of {good} was accepted");
    }
}

/// Runs the reference parser of Prometheus's own client if it is installed.
#[test]
fn the_reference_parser_takes_the_exposition() {
    let script = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                  print(sum(len(family.samples) for family in parse(sys.stdin.read())))";
    let mut python = std::process::Command::new("python3");
    let piped = std::process::Stdio::piped;
    let child = python.args(["-c", script]).stdin(piped()).stdout(piped()).stderr(piped()).spawn();
    let Ok(mut child) = child else {
        println!("SKIPPED: there is no python3");
        return;
    };
    let sample = traffic_sample();
    let text = openmetrics::exposition("sim", &sample).openmetrics;
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("python3 ends");
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("No module named") {
        println!("SKIPPED: python3 has no prometheus_client");
        return;
    }
    assert!(output.status.success(), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (sample.rows.len() + 1).to_string());
}

/// The classic format: help and type before each sample, under its full name, and nothing specific to
/// OpenMetrics.
#[test]
fn the_classic_exposition_has_help_and_type_of_every_sample() {
    let sample = traffic_sample();
    let ScrapeTexts { openmetrics, classic } = openmetrics::exposition("sim", &sample);
    assert!(!classic.contains("# EOF") && !classic.contains("# UNIT"), "{classic}");
    let (mut described, mut samples) = ("", 0);
    for lines in classic.lines().collect::<Vec<_>>().windows(2) {
        match *lines {
            [help, kind] if help.starts_with("# HELP ") => {
                let name = help.split(' ').nth(2).expect("a name");
                let counter = name.ends_with("_total");
                assert_eq!(kind, format!("# TYPE {name} {}", if counter { "counter" } else { "gauge" }));
                described = name;
            }
            [_, sample] if !sample.starts_with('#') => {
                assert_eq!(sample.split('{').next(), Some(described), "{sample}");
                samples += 1;
            }
            _ => {}
        }
    }
    assert_eq!(samples, sample.rows.len() + 1);
    let of = |text: &str| {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(of(&classic), of(&openmetrics), "both formats have the same samples");
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(address).expect("the exporter listens");
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    answer
}

/// One that waits for its clients however busy the machine is.
fn exporter() -> Exporter {
    let address = "127.0.0.1:0".parse().expect("an address");
    Exporter::bind_with(address, Duration::from_secs(60)).expect("a port")
}

#[test]
fn the_exporter_answers_and_survives_nonsense() {
    let exporter = exporter();
    let [openmetrics, classic] = ["a 1\n# EOF\n", "a 1\n"].map(str::to_owned);
    exporter.publish(ScrapeTexts { openmetrics, classic });
    for request in
        ["nonsense\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\0\0\r\n"]
    {
        assert!(ask(exporter.address(), request).starts_with("HTTP/1.1 4"), "{request:?}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(8192));
    let mut client = TcpStream::connect(exporter.address()).expect("the exporter listens");
    let _ = client.write_all(long.as_bytes());
    drop(client);
    for (accept, content_type, end) in [
        (
            "ACCEPT: application/openmetrics-text\r\n",
            "application/openmetrics-text; version=1.0.0",
            "a 1\n# EOF\n",
        ),
        (
            "Accept: text/html\r\nAccept: application/openmetrics-text\r\n",
            "application/openmetrics-text",
            "# EOF\n",
        ),
        ("Accept: */*\r\n", "text/plain; version=0.0.4", "\r\n\r\na 1\n"),
        ("", "text/plain; version=0.0.4", "\r\n\r\na 1\n"),
    ] {
        let answer = ask(exporter.address(), &format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}")), "{answer}");
        assert!(answer.ends_with(end), "{answer}");
    }
}

const OPEN_METRICS_REQUEST: &str =
    "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\n\r\n";

/// Scrapes during traffic: each is complete, and none waits for the device.
#[test]
fn scrapes_are_whole_while_samples_change() {
    let exporter = exporter();
    let address = exporter.address();
    let mut traffic = crate::traffic::Traffic::start(Default::default()).expect("two hosts");
    let mut sampler = Sampler::default();
    let scraper = std::thread::spawn(move || {
        (0..100)
            .map(|_| ask(address, OPEN_METRICS_REQUEST))
            .filter_map(|answer| answer.split_once("\r\n\r\n").map(|(_, text)| parse(text)))
            .collect::<Vec<_>>()
    });
    let mut count = 0;
    while !scraper.is_finished() {
        traffic.step().expect("a message");
        count += 1;
        let readings = crate::counters::port_counters(traffic.device()).expect("counters");
        exporter
            .publish(openmetrics::exposition("sim", &sampler.sample(Duration::from_millis(count), readings)));
    }
    let scrapes = scraper.join().expect("the scraper");
    assert_eq!(scrapes.len(), 100);
    scrapes.iter().for_each(|scrape| assert!(scrape.is_ok(), "{scrape:?}"));
}

#[test]
fn the_view_explains_counters_that_rise() {
    let sample = second(
        &[("out_of_sequence", 5), ("rx_bytes_phy", 0), ("cq_overflow", 0)],
        &[("out_of_sequence", 45), ("rx_bytes_phy", 2000), ("cq_overflow", 0)],
    );
    let mut terminal = Terminal::new(TestBackend::new(90, 20)).expect("a terminal");
    terminal.draw(|frame| screen::draw(frame, "sim:ethernet", &sample)).expect("drawn");
    let words: Vec<String> = terminal.backend().to_string().split_whitespace().map(str::to_owned).collect();
    let shown = words.join(" ");
    for part in [
        "sim:ethernet after 3 s",
        "out_of_sequence 45 20",
        "rx_bytes_phy 2000 1000",
        "packets from the peer are missing when later ones arrive",
        "q leaves; 1 counters are zero",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(!shown.contains("cq_overflow"), "{shown}");
    let mut narrow = Terminal::new(TestBackend::new(40, 20)).expect("a terminal");
    narrow.draw(|frame| screen::draw(frame, "sim:ethernet", &sample)).expect("drawn");
    let words: Vec<String> = narrow.backend().to_string().split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").contains("out_of_sequence 45 20"), "{words:?}");
    // A terminal that is too small is no reason to end.
    let mut tiny = Terminal::new(TestBackend::new(5, 2)).expect("a terminal");
    tiny.draw(|frame| screen::draw(frame, "sim", &sample)).expect("drawn");
}

#[test]
fn text_and_json_say_the_same() {
    let sample = second(&[("out_of_buffer", 1)], &[("out_of_buffer", 3)]);
    let text = sample.text("sim");
    assert!(
        text.contains("out_of_buffer: messages arrive when no receive is posted; post more receives"),
        "{text}"
    );
    let object = json_object("monitor", sample.json("sim")).expect("JSON");
    let object: serde_json::Value = serde_json::from_str(&object).expect("JSON");
    let row = &object["monitor"]["counters"]["out_of_buffer"];
    assert_eq!((&row["value"], &row["per_second"]), (&3.into(), &1.0.into()));
    assert_eq!(object["schema"], "bareverbs.monitor.v1");
}

#[test]
fn impossible_options_are_refused() {
    let parse = crate::test_arguments::parse::<MonitorArguments>;
    for words in [
        &["--interval", "0"][..],
        &["--samples", "0"],
        &["--once", "--openmetrics", "127.0.0.1:0"],
        &["--openmetrics", "localhost"],
        &["--loss", "1"],
        &["--loss", "NaN"],
    ] {
        assert!(parse(words).is_err(), "{words:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let Err(Failure::Input(error)) = run(&parse(&["--openmetrics", &address]).expect("arguments")) else {
        panic!("two servers listen on one port")
    };
    assert!(format!("{error:#}").starts_with("cannot listen at 127.0.0.1:"), "{error:#}");
    let Err(Failure::Input(error)) =
        run(&parse(&["--device", "sim:ib", "--once", "--loss", "0.1"]).expect("arguments"))
    else {
        panic!("InfiniBand lost frames")
    };
    assert!(error.to_string().contains("--device sim:ethernet"), "{error}");
}
