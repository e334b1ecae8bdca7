//! Which kernel the guest boots: one of the series that Debian packages, installed beside each other in one root.

use anyhow::{Context, Result};
use clap::ValueEnum;
use std::fs;
use std::path::Path;

/// A series of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Kernel {
    /// Debian 12's.
    #[value(name = "6.1")]
    Linux6_1,
    /// Debian 13's, which every judge boots unless it is told otherwise.
    #[default]
    #[value(name = "6.12")]
    Linux6_12,
    /// That of Debian 13's backports.
    #[value(name = "7.3")]
    Linux7_3,
}

impl Kernel {
    /// Its first two numbers.
    pub fn series(self) -> &'static str {
        match self {
            Self::Linux6_1 => "6.1",
            Self::Linux6_12 => "6.12",
            Self::Linux7_3 => "7.3",
        }
    }

    /// The suite of Debian that has it.
    pub fn suite(self) -> &'static str {
        match self {
            Self::Linux6_1 => "bookworm",
            Self::Linux6_12 => super::recipe::SUITE,
            Self::Linux7_3 => super::recipe::BACKPORTS,
        }
    }

    /// The name of a judge's list for this kernel.
    pub fn list_name(self, judge: &str) -> String {
        if self == Self::default() { judge.to_owned() } else { format!("{judge}-{}", self.series()) }
    }

    /// The newest of its releases for which `boot` has a kernel and an initial RAM disk.
    pub(super) fn newest_release(self, boot: &Path) -> Result<String> {
        newest(releases(boot)?, self.series()).with_context(|| {
            format!("no Linux {} with an initial RAM disk in {}", self.series(), boot.display())
        })
    }
}

/// A parameter of mlx5_core: the profile without a cache of memory keys. With the default profile, mlx5_ib makes some thousand keys for
/// each function when it probes and destroys them when it goes, which takes an emulated processor about ten seconds each way.
pub(super) const WITHOUT_KEY_CACHE: &str = "prof_sel=0";

/// Kernel words with which mlx5_core has no cache of memory keys, for the short forms of judges; none for a long run.
pub(super) fn short_form_words(long: bool) -> Vec<String> {
    if long { Vec::new() } else { vec![format!("mlx5_core.{WITHOUT_KEY_CACHE}")] }
}

fn releases(boot: &Path) -> Result<Vec<String>> {
    let mut releases = Vec::new();
    for entry in fs::read_dir(boot).with_context(|| format!("no kernel in {}", boot.display()))? {
        let name = entry?.file_name();
        let release = name.to_string_lossy().strip_prefix("vmlinuz-").map(str::to_owned);
        releases.extend(release.filter(|release| boot.join(format!("initrd.img-{release}")).is_file()));
    }
    Ok(releases)
}

fn newest(releases: Vec<String>, series: &str) -> Option<String> {
    let wanted = version_key(series);
    let keyed = releases.into_iter().map(|release| (version_key(&release), release));
    keyed.filter(|(key, _)| key.starts_with(&wanted)).max().map(|(_, release)| release)
}

/// The numbers of a version, for comparison.
fn version_key(release: &str) -> Vec<u64> {
    release.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_their_numbers() {
        assert!(version_key("6.12.107+deb13-amd64") > version_key("6.12.99+deb13-amd64"));
    }

    #[test]
    fn a_series_takes_the_newest_of_its_own_releases() {
        let releases =
            ["6.1.0-9-amd64", "6.1.0-41-amd64", "6.12.99+deb13-amd64", "6.12.107+deb13-amd64", "7.3.4-amd64"];
        let newest = |series| newest(releases.map(str::to_owned).to_vec(), series);
        assert_eq!(newest("6.1").as_deref(), Some("6.1.0-41-amd64"), "6.12 is no release of 6.1");
        assert_eq!(newest("6.12").as_deref(), Some("6.12.107+deb13-amd64"));
        assert_eq!(newest("7.3").as_deref(), Some("7.3.4-amd64"));
        assert_eq!(newest("6.2"), None);
    }

    #[test]
    fn lists_of_other_kernels_have_names_of_their_own() {
        assert_eq!(Kernel::default().list_name("storage"), "storage");
        assert_eq!(Kernel::Linux6_1.list_name("mlx5-eth"), "mlx5-eth-6.1");
    }
}
