//! The rows of figures that perftest and `bareverbs perf` print, and whether those of both ends of a test agree.

use anyhow::{Context, Result, bail, ensure};

/// Medians of one test at both ends are those of the same messages. The machine may be busy, but not half of all times.
const MEDIAN_FACTOR: f64 = 2.0;
/// Where the median is in a row of latency.
const MEDIAN: usize = 4;
/// Numbers of a row of bandwidth: size, iterations, peak, average, message rate.
const BANDWIDTH_COLUMNS: usize = 5;
/// Numbers of a row of latency: size, iterations, shortest, longest, median, mean, deviation, two percentiles.
const LATENCY_COLUMNS: usize = 9;

/// The rows of numbers in what a program said.
fn rows(said: &str) -> Vec<Vec<f64>> {
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    let is_row = |row: &Vec<f64>| [BANDWIDTH_COLUMNS, LATENCY_COLUMNS].contains(&row.len());
    said.lines().filter_map(numbers).filter(is_row).collect()
}

/// Compares what the ends of a test printed. A server that only gives its memory prints what its client told it, the last size
/// alone: its row has to be the client's. Of a test of latency by reading it prints nothing.
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
    for (told, measured) in told.iter().zip(&measured[skipped..]) {
        compare(told, measured).with_context(|| format!("server {told:?}, client {measured:?}"))?;
    }
    Ok(())
}

fn compare(told: &[f64], measured: &[f64]) -> Result<()> {
    ensure!(told.len() == measured.len(), "one is of bandwidth and the other of latency");
    ensure!(told[..2] == measured[..2], "size and number of messages differ");
    if told.len() == LATENCY_COLUMNS {
        return within(told[MEDIAN], measured[MEDIAN], MEDIAN_FACTOR).context("the medians");
    }
    // The receiver of messages looks for no peak. It measures for itself, and if its process was late it found many at once.
    match told[2] == 0.0 && measured[2] > 0.0 {
        true => within(told[3], measured[3], f64::MAX).context("the averages"),
        false if told == measured => Ok(()),
        false => bail!("the server has to show what the client told it"),
    }
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
        assert!(agree(" 65536 999 0.00 300.01 0.0048", CLIENT).is_err());
    }

    #[test]
    fn medians_of_the_same_messages_are_alike() {
        let row = |median: f64| format!(" 2 500 20.94 8585.30 {median} 180.08 731.41 5967.87 8585.30");
        assert!(agree(&row(56.45), &row(60.75)).is_ok());
        assert!(agree(&row(56.45), &row(160.75)).is_err());
        assert!(agree("", &row(56.45)).is_ok(), "the server of a READ");
        assert!(agree(&row(56.45), CLIENT).is_err());
    }
}
