//! Workers that judge rows side by side.
//!
//! Each worker has an [`Installation`] of its own, so the networks, hosts and files of two workers never meet.
//! TCP ports are the machine's: rows get theirs from [`crate::installation::free_port`], which gives none twice.

use super::entry;
use crate::guest::table::{Entry, Verdict};
use crate::installation::Installation;
use anyhow::Result;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

/// More workers than this have not been tried.
const MOST_WORKERS: usize = 4;

/// Judges rows at a place and reports each.
type JobWork<'a, P> = dyn FnOnce(&P, &mut dyn FnMut(Entry)) -> Result<()> + Send + 'a;

/// Rows that a worker judges one after the other at its place. `G` says what they belong to.
pub struct Job<'a, G, P = Installation> {
    group: G,
    name: String,
    judge: Box<JobWork<'a, P>>,
}

impl<'a, G: Copy, P> Job<'a, G, P> {
    /// A job of one row.
    pub fn row(group: G, name: String, judge: impl FnOnce(&P) -> Result<Verdict> + Send + 'a) -> Self {
        let row = name.clone();
        Self::rows(group, name, move |place, add| {
            add(entry(row, || judge(place)));
            Ok(())
        })
    }

    /// A job of several rows. If `judge` fails, that is a failed row with the name of the job.
    pub fn rows(
        group: G,
        name: String,
        judge: impl FnOnce(&P, &mut dyn FnMut(Entry)) -> Result<()> + Send + 'a,
    ) -> Self {
        Self { group, name, judge: Box::new(judge) }
    }

    /// What its rows belong to.
    pub const fn group(&self) -> G {
        self.group
    }

    fn run(self, place: &P, add: &mut dyn FnMut(Entry)) {
        if let Err(error) = (self.judge)(place, add) {
            add(entry(self.name, || Err(error)));
        }
    }
}

/// Number of workers that suits this machine: one more than it has processors, because programs often wait.
pub fn default_count() -> usize {
    thread::available_parallelism().map_or(1, |processors| processors.get() + 1).min(MOST_WORKERS)
}

/// Runs all jobs, each by the worker that is free first, and gives every row to `add` in the order in which
/// the rows end.
///
/// # Errors
/// A file of the installation is missing or cannot be copied.
pub fn run<G: Copy + Send>(jobs: Vec<Job<'_, G>>, workers: usize, add: impl FnMut(G, Entry)) -> Result<()> {
    let installations = (0..workers.min(jobs.len())).map(|_| Installation::new());
    let installations = installations.collect::<Result<Vec<_>>>()?;
    run_at(&installations, jobs, add);
    Ok(())
}

/// Runs all jobs by one worker for each place.
fn run_at<G: Copy + Send, P: Sync>(places: &[P], jobs: Vec<Job<'_, G, P>>, mut add: impl FnMut(G, Entry)) {
    let jobs = Mutex::new(jobs.into_iter());
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (sender, rows) = mpsc::channel();
    thread::scope(|scope| {
        for place in places {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some(job) = next() {
                    let group = job.group;
                    // The receiver only goes away when the whole judge does.
                    job.run(place, &mut |row| drop(sender.send((group, row))));
                }
            });
        }
        drop(sender);
        rows.into_iter().for_each(|(group, row)| add(group, row));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Barrier;

    #[test]
    fn every_row_is_judged_once_and_reported_in_its_group() {
        let job = |number: usize| {
            Job::row(number % 3, number.to_string(), move |place: &usize| {
                Ok(Verdict::Pass(format!("{number} at {place}")))
            })
        };
        let mut seen: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        run_at(&[0, 1, 2, 3], (0..200).map(job).collect(), |group, row| {
            assert!(seen.entry(group).or_default().insert(row.columns.concat()), "{row:?} came twice");
        });
        let group = |group| {
            (0..200).filter(move |number| number % 3 == group).map(|number: usize| number.to_string())
        };
        assert_eq!(seen, (0..3).map(|number| (number, group(number).collect())).collect());
    }

    #[test]
    fn workers_work_side_by_side_each_at_its_own_place() {
        // Neither job ends before the other has begun.
        let both = &Barrier::new(2);
        let job = |name: &str| {
            Job::row((), name.into(), move |place: &&str| {
                both.wait();
                Ok(Verdict::Pass((*place).into()))
            })
        };
        let mut places = BTreeSet::new();
        run_at(&["here", "there"], vec![job("one"), job("two")], |(), row| {
            places.insert(row.verdict.to_string());
        });
        assert_eq!(places, ["pass: here", "pass: there"].map(String::from).into());
    }

    #[test]
    fn a_job_that_fails_is_a_failed_row_after_those_that_it_had() {
        let job = Job::rows((), "all of them".into(), |&(): &(), add: &mut dyn FnMut(Entry)| {
            add(entry("first".into(), || Ok(Verdict::Pass(String::new()))));
            anyhow::bail!("the rest is missing")
        });
        let mut rows = Vec::new();
        run_at(&[()], vec![job], |(), row| rows.push((row.columns.concat(), row.verdict.to_string())));
        let expected = [("first", "pass"), ("all of them", "FAIL: the rest is missing")];
        assert_eq!(rows, expected.map(|(name, verdict)| (name.to_owned(), verdict.to_owned())));
    }
}
