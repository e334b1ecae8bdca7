//! The floor of a judge: a checked-in list of the verdict of each of its rows. No run may fall below it.
//!
//! `tests/judges/NAME.csv` says for every row of a judge that it passes, or that it is skipped and for which
//! reason. [`Floor::compare`] compares a run with it. A pass that became a skip, a skip for another reason,
//! and a missing row are failures, although nothing in the run itself failed. Rows that do better than the
//! list are reported, so that somebody raises the list with `--record`. This module knows nothing of a
//! particular judge and never changes a verdict. Start reading at [`Floor`].

use super::table::{Report, Verdict};
use anyhow::{Context, Result, bail, ensure};
use core::fmt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How many rows of a run may be excused. With more of them, chance no longer explains the failures.
pub const EXCUSED_AT_MOST: usize = 3;
/// The names of the lists that must exist. If a list named here is gone, its judge has no floor, and that is
/// an error.
const RECORDED: &str = "recorded";
const HEADER: [&str; 3] = ["row", "verdict", "reason"];

/// What is expected of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// It passes.
    Pass,
    /// It is skipped for exactly this reason.
    Skip(String),
}

/// The list of one judge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    rows: Vec<(String, Expected)>,
}

/// How a run is to be compared, apart from its rows.
#[derive(Debug, Clone, Copy)]
pub struct Scope {
    /// Whether the run was complete. If so, a row that is in the list and not in the run is a failure.
    pub whole: bool,
    /// Prefixes of the reasons that say that the judge itself could not judge this time, whatever the device
    /// did.
    pub excuses: &'static [&'static str],
}

/// The result of comparing a run with its list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FloorCheck {
    /// Rows that are as the list says.
    pub as_expected: usize,
    /// Rows that passed although the list does not require it.
    pub better: Vec<String>,
    /// Rows that the judge could not judge this time.
    pub excused: Vec<String>,
    /// Rows below the list, each with what was expected.
    pub worse: Vec<String>,
}

impl Floor {
    /// Rows and what is expected of them.
    pub fn expected(&self) -> impl Iterator<Item = (&str, &Expected)> {
        self.rows.iter().map(|(name, expected)| (name.as_str(), expected))
    }

    /// The list that `report` would meet. Rows that failed keep their entry in `before`; their names are
    /// returned.
    pub fn record(report: &Report, before: Option<&Self>) -> (Self, Vec<String>) {
        let known = before.map(Self::by_name).unwrap_or_default();
        let (mut rows, mut failed) = (Vec::new(), Vec::new());
        for (name, verdict) in numbered(report) {
            let expected = match verdict {
                Verdict::Pass(_) => Some(Expected::Pass),
                Verdict::Skip(reason) => Some(Expected::Skip(reason.clone())),
                Verdict::Fail(_) => {
                    failed.push(name.clone());
                    known.get(name.as_str()).map(|expected| (*expected).clone())
                }
            };
            rows.extend(expected.map(|expected| (name, expected)));
        }
        (Self { rows }, failed)
    }

    /// Compares a run with the list.
    pub fn compare(&self, report: &Report, scope: Scope) -> FloorCheck {
        let mut left = self.by_name();
        let mut comparison = FloorCheck::default();
        for (name, verdict) in numbered(report) {
            let expected = left.remove(name.as_str());
            comparison.add(name, expected, verdict, scope);
        }
        if scope.whole {
            let missing = self.rows.iter().filter(|(name, _)| left.contains_key(name.as_str()));
            comparison
                .worse
                .extend(missing.map(|(name, expected)| format!("{name}: {expected}, and was not asked")));
        }
        comparison
    }

    fn by_name(&self) -> BTreeMap<&str, &Expected> {
        self.rows.iter().map(|(name, expected)| (name.as_str(), expected)).collect()
    }

    /// Parses a list. A row that occurs twice, or says anything but `pass` or `skip`, is an error.
    pub fn parse(text: &str) -> Result<Self> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let header = reader.headers()?;
        ensure!(header == HEADER.as_slice(), "the columns are {header:?} and not {HEADER:?}");
        let mut floor = Self::default();
        for record in reader.records() {
            let record = record?;
            let [name, verdict, reason] = [0, 1, 2].map(|column| record.get(column).unwrap_or_default());
            let expected = match (verdict, reason) {
                ("pass", "") => Expected::Pass,
                ("skip", reason) if !reason.is_empty() => Expected::Skip(reason.to_owned()),
                _ => bail!(
                    "row {name:?} is {verdict:?} with the reason {reason:?}: it passes without one or is skipped with one"
                ),
            };
            ensure!(floor.rows.iter().all(|(other, _)| other != name), "row {name:?} is there twice");
            floor.rows.push((name.to_owned(), expected));
        }
        Ok(floor)
    }

    /// The list as [`Self::parse`] reads it.
    pub fn to_csv(&self) -> Result<String> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(HEADER)?;
        for (name, expected) in &self.rows {
            match expected {
                Expected::Pass => writer.write_record([name.as_str(), "pass", ""])?,
                Expected::Skip(reason) => writer.write_record([name.as_str(), "skip", reason])?,
            }
        }
        Ok(String::from_utf8(writer.into_inner()?)?)
    }
}

impl FloorCheck {
    /// Whether no row fell below the list and no more rows were excused than chance explains.
    pub fn is_success(&self) -> bool {
        self.worse.is_empty() && self.excused.len() <= EXCUSED_AT_MOST
    }

    fn add(&mut self, name: String, expected: Option<&Expected>, verdict: &Verdict, scope: Scope) {
        match (expected, verdict) {
            (Some(Expected::Pass), Verdict::Pass(_)) => self.as_expected += 1,
            (Some(Expected::Skip(wanted)), Verdict::Skip(reason)) if wanted == reason => {
                self.as_expected += 1
            }
            (Some(Expected::Skip(_)) | None, Verdict::Pass(_)) => self.better.push(name),
            (_, Verdict::Skip(reason)) if scope.excuses.iter().any(|excuse| reason.starts_with(excuse)) => {
                self.excused.push(format!("{name}: {reason}"));
            }
            (Some(expected), seen) => self.worse.push(format!("{name}: {expected}, and now: {seen}")),
            (None, seen) => self.worse.push(format!("{name}: not in the list, and now: {seen}")),
        }
    }
}

/// Names of the rows with their verdicts. A row that a judge runs more than once, for example after a reboot,
/// gets a number.
fn numbered(report: &Report) -> impl Iterator<Item = (String, &Verdict)> {
    let mut seen = BTreeMap::<String, u32>::new();
    report.rows().map(move |(name, verdict)| {
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        (if *times == 1 { name } else { format!("{name} ({times})") }, verdict)
    })
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passed when the list was recorded"),
            Self::Skip(reason) => write!(f, "was skipped when the list was recorded ({reason})"),
        }
    }
}

impl fmt::Display for FloorCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, rows) in [
            ("BELOW THE LIST", &self.worse),
            ("not judged", &self.excused),
            ("beyond the list; --record raises it", &self.better),
        ] {
            rows.iter().try_for_each(|row| writeln!(f, "{kind}: {row}"))?;
        }
        let Self { as_expected, better, excused, worse } = self;
        write!(
            f,
            "{as_expected} rows as the list says, {} beyond, {} not judged (at most {EXCUSED_AT_MOST}), {} below",
            better.len(),
            excused.len(),
            worse.len()
        )
    }
}

/// The lists of all judges.
#[derive(Debug, Clone)]
pub struct Floors {
    directory: PathBuf,
}

impl Floors {
    /// The lists of this source tree, `tests/judges`, or of the directory in `BAREVERBS_JUDGES`.
    pub fn of_this_tree() -> Self {
        match std::env::var_os("BAREVERBS_JUDGES") {
            Some(directory) => Self::in_directory(Path::new(&directory)),
            None => Self::in_directory(&Path::new(env!("CARGO_MANIFEST_DIR")).join("judges")),
        }
    }

    /// The lists in a directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// The file of a list.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.csv"))
    }

    /// The list of a judge; `None` if none was ever recorded. A list that was recorded and is gone is an
    /// error.
    pub fn read(&self, name: &str) -> Result<Option<Floor>> {
        let path = self.path(name);
        if path.exists() {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            return Floor::parse(&text).map(Some).with_context(|| path.display().to_string());
        }
        let recorded = self.recorded()?.iter().any(|known| known == name);
        ensure!(!recorded, "{} is gone, and {RECORDED} beside it says that it was recorded", path.display());
        Ok(None)
    }

    /// Writes the list of a judge.
    pub fn write(&self, name: &str, floor: &Floor) -> Result<()> {
        let path = self.path(name);
        std::fs::write(&path, floor.to_csv()?).with_context(|| path.display().to_string())?;
        let mut recorded = self.recorded()?;
        if !recorded.iter().any(|known| known == name) {
            recorded.push(name.to_owned());
            recorded.sort();
            let text: String = recorded.iter().map(|name| format!("{name}\n")).collect();
            std::fs::write(self.directory.join(RECORDED), text).context(RECORDED)?;
        }
        Ok(())
    }

    fn recorded(&self) -> Result<Vec<String>> {
        let path = self.directory.join(RECORDED);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(text.lines().map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests;
