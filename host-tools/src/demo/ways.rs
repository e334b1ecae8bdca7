//! The lookups: every key by every way, one at a time, so that a latency is that of a lookup and not of a
//! queue.

use super::data::Row;
use super::report::{Tally, WayReport};
use super::scene::Scene;
use super::way_name::WayName;
use anyhow::{Context as _, bail};
use bareverbs::offload::client::{Ended, LookupResult};
use bareverbs::offload::status::Status;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::time::Instant;

/// The cause if a reliable connection breaks although the network only loses frames.
const GAVE_UP: &str = "the connection broke, since all eight attempts to get one packet acknowledged were lost; \
                       that is to be expected with a high --loss: use a smaller one, or another --seed";

/// How many failures of one way are reported individually.
const COMPLAINTS: u64 = 5;

/// Keys that are not in the file: one for every ten rows, at least one and at most a thousand.
pub fn absent_keys(rows: &[Row]) -> Vec<Vec<u8>> {
    let present: BTreeSet<&[u8]> = rows.iter().map(|row| row.key.as_slice()).collect();
    let wanted = rows.len().div_ceil(10).min(1000);
    let candidates = (0_u64..).map(|n| format!("absent key {n}").into_bytes());
    candidates.filter(|key| !present.contains(key.as_slice())).take(wanted).collect()
}

/// Looks up all rows and all absent keys on all ways.
pub fn run_all(
    scene: &mut Scene,
    rows: &[Row],
    absent: &[Vec<u8>],
    swaps: u64,
) -> anyhow::Result<Vec<WayReport>> {
    let total = WayName::ALL.len() * (rows.len() + absent.len());
    let progress = progress_bar(total as u64);
    let reports = WayName::ALL.map(|way| {
        progress.set_message(way.text());
        if way == WayName::Program {
            scene.swap(swaps);
        }
        run_way(scene, way, rows, absent, &progress)
    });
    progress.finish_and_clear();
    let reports = reports.into_iter().collect::<anyhow::Result<_>>()?;
    look_up_until_done(scene, rows)?;
    Ok(reports)
}

/// Continues with unreported lookups until the requested number of program replacements and table changes is
/// done.
fn look_up_until_done(scene: &mut Scene, rows: &[Row]) -> anyhow::Result<()> {
    let mut rows = rows.iter().cycle();
    while scene.swaps_left() + scene.changes_left() > 0
        && let Some(row) = rows.next()
    {
        let found = scene.lookup(WayName::Program, &row.key)?;
        if found.result.ended != Ended::Found || !scene.had(row, &found.value) {
            bail!(
                "{} while program and table change: {:?}",
                lookup_text(WayName::Program, &row.key),
                found.result.ended
            );
        }
    }
    Ok(())
}

/// Drawn on standard error, and only if that is a terminal.
fn progress_bar(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos}/{len} {eta}");
    let bar = ProgressBar::new(total);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn run_way(
    scene: &mut Scene,
    way: WayName,
    rows: &[Row],
    absent: &[Vec<u8>],
    progress: &ProgressBar,
) -> anyhow::Result<WayReport> {
    let mut tally = Tally::new(way)?;
    let begin = Instant::now();
    for row in rows {
        let looked_up = scene.lookup(way, &row.key).with_context(|| lookup_text(way, &row.key))?;
        if looked_up.result.ended == Ended::Disconnected {
            bail!("{}: {GAVE_UP}", lookup_text(way, &row.key));
        }
        let verified = looked_up.result.ended == Ended::Found && scene.had(row, &looked_up.value);
        if !verified && tally.failures() < COMPLAINTS {
            progress.suspend(|| complain(way, &row.key, &looked_up.result));
        }
        tally.present(verified, looked_up.result.round_trips.into(), looked_up.nanos)?;
        progress.inc(1);
    }
    for key in absent {
        let looked_up = scene.lookup(way, key).with_context(|| lookup_text(way, key))?;
        tally.absent(looked_up.result.ended == Ended::Status(Status::NotFound));
        progress.inc(1);
    }
    Ok(tally.report((rows.len() + absent.len()) as u64, begin.elapsed()))
}

fn lookup_text(way: WayName, key: &[u8]) -> String {
    format!("looking up {:?} by {way}", String::from_utf8_lossy(key))
}

fn complain(way: WayName, key: &[u8], result: &LookupResult) {
    let reason = match result.ended {
        Ended::Found => "the value differs".to_owned(),
        Ended::Status(status) => status.to_string(),
        Ended::TimedOut => "no answer in time".to_owned(),
        Ended::Disconnected => "the connection broke".to_owned(),
    };
    eprintln!("{}: {reason}", lookup_text(way, key));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str) -> Row {
        Row { key: key.into(), value: vec![] }
    }

    #[test]
    fn absent_keys_are_not_in_the_file() {
        let rows: Vec<Row> = (0..21).map(|n| row(&format!("absent key {}", n * 2))).collect();
        let expected: Vec<Vec<u8>> = [1, 3, 5].map(|n| format!("absent key {n}").into_bytes()).to_vec();
        assert_eq!(absent_keys(&rows), expected);
        assert_eq!(absent_keys(&[row("x")]).len(), 1);
    }
}
