//! Networks of `bareverbs run`: where they are, and who is in them.

use anyhow::{Context, Result, bail};
use bareverbs_serve::network::{NetworkDirectory, is_network_name};
use bareverbs_uverbs::VirtualHost;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Reads `--host`.
pub(crate) fn parse_host(name: &str) -> Result<VirtualHost, String> {
    VirtualHost::new(name)
        .ok_or_else(|| "a virtual host has 1 to 32 letters, digits, hyphens or dots in its name".into())
}

/// Reads `--network`.
pub(crate) fn parse_name(name: &str) -> Result<String, String> {
    if is_network_name(name) {
        return Ok(name.to_owned());
    }
    Err("a network has 1 to 32 letters, digits, hyphens, underscores or dots in its name, and no dot first"
        .into())
}

/// The network of a name, below the user's directory.
pub(crate) fn open(home: &Path, name: &str) -> Result<NetworkDirectory> {
    Ok(NetworkDirectory::create(&home.join("networks").join(name))?)
}

/// Makes a host known in its network.
pub(crate) fn add(network: &NetworkDirectory, host: &VirtualHost) -> Result<()> {
    let others = network.hosts();
    let others = others.iter().filter(|name| *name != host.name()).filter_map(|name| VirtualHost::new(name));
    let same = |other: &VirtualHost| other.mac() == host.mac() || other.ipv4() == host.ipv4();
    if let Some(other) = others.into_iter().find(same) {
        bail!(
            "host {} would have the address of host {}, which is in this network already: addresses follow from names; choose \
             another --host",
            host.name(),
            other.name()
        );
    }
    Ok(network.add_host(host.name())?)
}

/// The user's own directory for what is forgotten at the next boot.
pub(crate) fn home() -> Result<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let home = match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("bareverbs"),
        None => std::env::temp_dir().join(format!("bareverbs-{own}")),
    };
    fs::DirBuilder::new().mode(0o700).recursive(true).create(&home).with_context(|| {
        format!("cannot make {}; set XDG_RUNTIME_DIR to a directory of your own", home.display())
    })?;
    let about = fs::symlink_metadata(&home).with_context(|| format!("cannot read {}", home.display()))?;
    if !about.is_dir() || about.uid() != own {
        bail!("{} belongs to somebody else; set XDG_RUNTIME_DIR to a directory of your own", home.display());
    }
    Ok(home)
}
