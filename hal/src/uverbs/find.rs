//! Finds the device file of an RDMA device by its name, in sysfs.

use super::error::UverbsError;
use bareverbs_prm::pci::PciIdentity;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel lists the device files.
const CLASS: &str = "/sys/class/infiniband_verbs";
/// Where the device files are.
const FILES: &str = "/dev/infiniband";
/// Most device files that Linux has numbers for.
const MOST: u32 = 256;

/// A device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) file: PathBuf,
    /// Firmware: major, minor, subminor; zeros if the kernel does not tell.
    pub(super) revision: [u16; 3],
    pub(super) identity: Option<PciIdentity>,
}

/// Finds a device by its name, such as mlx5_0.
pub(super) fn find(name: &str) -> Result<Found, UverbsError> {
    find_in(Path::new(CLASS), name)
}

fn find_in(class: &Path, name: &str) -> Result<Found, UverbsError> {
    let mut others = Vec::new();
    for number in 0..MOST {
        let file = format!("uverbs{number}");
        let Some(device) = text(&class.join(&file).join("ibdev")) else { continue };
        if device != name {
            others.push(device);
            continue;
        }
        let of_device = |leaf: &str| text(&class.join(&file).join("device").join(leaf));
        let firmware = text(&class.with_file_name("infiniband").join(name).join("fw_ver"));
        return Ok(Found {
            file: Path::new(FILES).join(&file),
            revision: firmware.and_then(|text| revision(&text)).unwrap_or_default(),
            identity: identity(of_device),
        });
    }
    Err(UverbsError::NotFound { name: name.to_owned(), others })
}

/// A file of the port of a device, without the end of its line.
pub(super) fn port_text(name: &str, file: &str) -> Option<String> {
    text(&Path::new(CLASS).with_file_name("infiniband").join(name).join("ports/1").join(file))
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

/// `16.35.4030`.
fn revision(text: &str) -> Option<[u16; 3]> {
    let mut parts = text.split('.').map(str::parse);
    let revision = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?];
    parts.next().is_none().then_some(revision)
}

fn identity(of_device: impl Fn(&str) -> Option<String>) -> Option<PciIdentity> {
    let number = |leaf| u16::from_str_radix(of_device(leaf)?.strip_prefix("0x")?, 16).ok();
    let revision = number("revision").and_then(|revision| u8::try_from(revision).ok()).unwrap_or_default();
    Some(PciIdentity { vendor: number("vendor")?, device: number("device")?, revision })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_device_is_found_by_its_name() {
        let sys = tempfile::tempdir().unwrap();
        let class = sys.path().join("infiniband_verbs");
        put(&class, "uverbs0/ibdev", "mlx5_1\n");
        put(&class, "uverbs7/ibdev", "mlx5_0\n");
        put(&class, "uverbs7/device/vendor", "0x15b3\n");
        put(&class, "uverbs7/device/device", "0xa2dc\n");
        put(&class, "uverbs7/device/revision", "0x01\n");
        put(sys.path(), "infiniband/mlx5_0/fw_ver", "32.43.1014\n");
        let found = find_in(&class, "mlx5_0").unwrap();
        assert_eq!(found.file, Path::new("/dev/infiniband/uverbs7"));
        assert_eq!(found.revision, [32, 43, 1014]);
        let identity = PciIdentity { vendor: 0x15b3, device: 0xa2dc, revision: 1 };
        assert_eq!(found.identity, Some(identity));
        let bare = find_in(&class, "mlx5_1").unwrap();
        assert_eq!((bare.revision, bare.identity), ([0; 3], None));
    }

    #[test]
    fn the_error_for_an_unknown_device_lists_the_known_ones() {
        let class = tempfile::tempdir().unwrap();
        put(class.path(), "uverbs0/ibdev", "mlx5_0\n");
        let error = find_in(class.path(), "mlx5_9").unwrap_err().to_string();
        assert!(error.contains("mlx5_9") && error.contains("mlx5_0"), "{error}");
        let none = tempfile::tempdir().unwrap();
        assert!(find_in(none.path(), "mlx5_0").unwrap_err().to_string().contains("mlx5_ib"));
    }
}
