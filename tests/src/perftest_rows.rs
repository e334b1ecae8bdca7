//! The rows of figures that perftest and `bareverbs perf` print, and whether the rows of both ends of a test
//! agree.

use anyhow::{Context, Result, bail, ensure};

/// How far the medians of the two ends may differ. Both are of the same messages; a busy machine disturbs
/// some of the times, but not half of them if there are enough.
const MEDIAN_FACTOR: f64 = 2.0;
const MEDIAN_OF: f64 = 50.0;
/// Columns of the longest time, the median and the mean in a latency row.
const LONGEST: usize = 3;
const MEDIAN: usize = 4;
const MEAN: usize = 5;
/// Messages of the two ends alternate, so their total times differ by one message at most. perftest leaves
/// its two longest times out, each of which may span two messages of the other end, and its count has three
/// more messages than times.
const LEFT_OUT: f64 = 8.0;
/// Number of sizes with `-a`: the powers of two from 2 on.
const ALL_SIZES: u32 = 23;
/// Columns of a bandwidth row: size, iterations, peak, average, message rate.
const BANDWIDTH_COLUMNS: usize = 5;
/// Bytes per microsecond, which is MB/s, below which an average may print as 0.00.
const SMALLEST_AVERAGE: f64 = 0.006;
/// Columns of a latency row: size, iterations, shortest, longest, median, mean, deviation, two percentiles.
const LATENCY_COLUMNS: usize = 9;

/// What perftest says if it found no relation between the processor's cycles and the time of day. It samples both 200
/// times, and one pause of its process at the wrong moment is enough.
const UNCALIBRATED: &str = "Correlation coefficient r^2";

/// Whether a program's times mean anything. perftest prints zeros, or infinite times, if it could not calibrate its clock.
fn is_calibrated(said: &str) -> bool {
    !said.contains(UNCALIBRATED)
}

/// What a row has to add to its verdict if [`agree`] compared no times: nobody shall take them for compared.
pub fn clock_note(said: &str) -> &'static str {
    if is_calibrated(said) {
        ""
    } else {
        "; perftest could not calibrate its clock, so no times were compared"
    }
}

/// The rows of numbers in a program's output.
fn rows(said: &str) -> Vec<Vec<f64>> {
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    let is_row = |row: &Vec<f64>| [BANDWIDTH_COLUMNS, LATENCY_COLUMNS].contains(&row.len());
    said.lines().filter_map(numbers).filter(is_row).collect()
}

/// Whether a program has printed `count` rows.
pub fn has_rows(said: &str, count: usize) -> bool {
    rows(said).len() >= count
}

/// Compares what the two ends of a test printed. A server that only offers its memory prints what its client
/// told it, and only for the last size: its row must equal the client's. In a latency test with READ it
/// prints nothing. If perftest could not calibrate its clock, only sizes and numbers of messages are compared; see [`clock_note`].
pub fn agree(server: &str, client: &str) -> Result<()> {
    let (told, measured) = (rows(server), rows(client));
    ensure!(!measured.is_empty(), "the client printed no row");
    if told.is_empty() {
        let is_fetching = measured.iter().all(|row| row.len() == LATENCY_COLUMNS);
        ensure!(is_fetching, "the server printed no row");
        return Ok(());
    }
    let skipped =
        measured.len().checked_sub(told.len()).context("the server printed more rows than the client")?;
    let has_times = is_calibrated(server) && is_calibrated(client);
    for (told, measured) in told.iter().zip(&measured[skipped..]) {
        let compared = if has_times { compare(told, measured) } else { same_messages(told, measured) };
        compared.with_context(|| format!("server {told:?}, client {measured:?}"))?;
    }
    Ok(())
}

fn same_messages(told: &[f64], measured: &[f64]) -> Result<()> {
    ensure!(told.len() == measured.len(), "one is of bandwidth and the other of latency");
    ensure!(told[..2] == measured[..2], "size and number of messages differ");
    Ok(())
}

fn compare(told: &[f64], measured: &[f64]) -> Result<()> {
    same_messages(told, measured)?;
    if told.len() == LATENCY_COLUMNS {
        same_time(told, measured).context("the times of all messages together")?;
        if told[1] < MEDIAN_OF {
            return Ok(());
        }
        return within(told[MEDIAN], measured[MEDIAN], MEDIAN_FACTOR).context("the medians");
    }
    // The receiver of messages measures no peak. It measures for itself, and if its process was late it found
    // many messages at once. The average of small messages may round to 0.00 MB/s.
    let has_average = told[3] > 0.0 || told[0] * told[4] < SMALLEST_AVERAGE;
    let is_receiver = told[2] == 0.0 && told[4] > 0.0 && has_average;
    match told == measured {
        true => Ok(()),
        false if is_receiver => within(told[4], measured[4], f64::MAX).context("the message rates"),
        false => bail!("the server has to show what the client told it"),
    }
}

/// Whether both ends measured the time of the same messages. This holds however busy the machine is; the
/// longest pause limits how exact it is.
fn same_time(one: &[f64], other: &[f64]) -> Result<()> {
    let all = |row: &[f64]| row[MEAN] * row[1];
    let slack = LEFT_OUT * one[LONGEST].max(other[LONGEST]);
    ensure!(all(one) > 0.0 && all(other) > 0.0, "no time has passed");
    let apart = (all(one) - all(other)).abs();
    ensure!(apart <= slack, "they are {apart:.2} apart, and {slack:.2} is the most that their longest allow");
    Ok(())
}

/// Checks that a program with `-a` printed a row for every size; with datagrams the last size is the path
/// MTU.
pub fn has_all_sizes(said: &str, datagrams: bool) -> Result<()> {
    let sizes: Vec<f64> = rows(said).iter().map(|row| row[0]).collect();
    let wanted: Vec<f64> = (1..=ALL_SIZES).map(|log| f64::from(1_u32 << log)).collect();
    let is_complete =
        if datagrams { !sizes.is_empty() && wanted.starts_with(&sizes) } else { sizes == wanted };
    ensure!(is_complete, "the sizes are {sizes:?}");
    Ok(())
}

fn within(one: f64, other: f64, factor: f64) -> Result<()> {
    ensure!(one > 0.0 && other > 0.0, "no time has passed");
    ensure!(one.max(other) / one.min(other) <= factor, "they are more than {factor} times apart");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = " #bytes\n 2 10 3.00 2.00 1.00\n 65536      1000             2799.50            292.38 \t\t   0.004678\n";

    #[test]
    fn a_server_shows_the_last_row_of_its_client() {
        assert!(agree(" 65536 1000 2799.50 292.38 0.004678\n", CLIENT).is_ok());
        for wrong in [
            " 65536 1000 2799.50 292.39 0.004678",
            " 65536 999 2799.50 292.38 0.004678",
            " 2 10 3.00 2.00 1.00",
            "----",
        ] {
            assert!(agree(wrong, CLIENT).is_err(), "{wrong}");
        }
        assert!(agree(CLIENT, "nothing").is_err());
    }

    #[test]
    fn a_receiver_measures_for_itself() {
        assert!(agree(" 65536 1000 0.00 300.01 0.0048", CLIENT).is_ok());
        assert!(agree(" 65536 1000 0.00 0.00 0.0048", CLIENT).is_err());
        assert!(agree(" 2 20 0.00 35.20 18.452803", " 2 20 0.00 0.00 0.002048").is_ok());
        assert!(agree(" 2 20 0.00 0.00 0.002048", " 2 20 0.00 35.20 18.452803").is_ok());
        assert!(agree(" 65536 999 0.00 300.01 0.0048", CLIENT).is_err());
    }

    #[test]
    fn times_of_an_end_without_a_clock_are_not_compared() {
        let sick = "Correlation coefficient r^2: 0.885371 < 0.9\n";
        let ours = " 2 50 20.94 8585.30 56.45 180.08 731.41 5967.87 8585.30";
        let theirs = |count: u32| format!("{sick} 2 {count} inf inf inf inf -nan inf inf\n");
        assert!(agree(&theirs(50), ours).is_ok() && agree(ours, &theirs(50)).is_ok());
        assert!(agree(&theirs(49), ours).is_err());
        assert!(agree(&theirs(50).replace(sick, ""), ours).is_err(), "infinite without a reason");
        assert!(
            agree(" 65536 1000 2799.50 292.38 0.004678", &format!("{sick} 65536 1000 0.00 0.00 0.0")).is_ok()
        );
        assert!(agree(sick, ours).is_ok(), "the server of a READ prints no row");
        assert!(agree(sick, CLIENT).is_err());
        assert!(clock_note(ours).is_empty() && clock_note(sick).contains("no times were compared"));
    }

    #[test]
    fn every_size_has_to_be_there() {
        let said = |logs: &[u32]| -> String {
            logs.iter().map(|log| format!(" {} 5 1.00 1.00 1.00\n", 1_u32 << log)).collect()
        };
        let all: Vec<u32> = (1..=23).collect();
        assert!(has_all_sizes(&said(&all), false).is_ok());
        assert!(has_all_sizes(&said(&all[..22]), false).is_err());
        assert!(has_all_sizes(&said(&all[1..]), false).is_err());
        assert!(has_all_sizes(&said(&all[..10]), true).is_ok());
        assert!(has_all_sizes("", true).is_err());
    }

    #[test]
    fn medians_of_the_same_messages_are_alike() {
        let row = |median: f64| format!(" 2 500 20.94 8585.30 {median} 180.08 731.41 5967.87 8585.30");
        assert!(agree(&row(56.45), &row(60.75)).is_ok());
        assert!(agree(&row(56.45), &row(160.75)).is_err());
        let few = |mean: f64, longest: f64| format!(" 2 20 20.94 {longest} 50.00 {mean} 1.00 60.00 60.00");
        assert!(agree(&few(60.0, 100.0), &few(80.0, 500.0)).is_ok());
        assert!(agree(&few(60.0, 100.0), &few(120.0, 130.0)).is_err(), "not half of a round trip");
        assert!(agree(&few(0.0, 100.0), &few(1.0, 100.0)).is_err());
        assert!(agree("", &row(56.45)).is_ok(), "the server of a READ prints no row");
        assert!(agree(&row(56.45), CLIENT).is_err());
    }
}
