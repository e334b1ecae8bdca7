//! A fake file system tree for tests.

use super::{Address, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// A temporary tree, removed on drop.
pub(crate) struct FakeTree {
    directory: TempDir,
}

impl FakeTree {
    pub(crate) fn new() -> Self {
        let fake = Self { directory: tempfile::tempdir().unwrap() };
        fake.file("proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n");
        fake.file("proc/self/mounts", "/dev/vda1 / ext4 rw 0 0\n");
        fake.file("sys/bus/pci/drivers_probe", "");
        fake
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::at(self.directory.path())
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.directory.path().join(path)).unwrap()
    }

    pub(crate) fn directory(&self, path: &str) {
        fs::create_dir_all(self.directory.path().join(path)).unwrap();
    }

    fn link(&self, target: &Path, path: &Path) {
        let _ = fs::remove_file(path);
        symlink(target, path).unwrap();
    }

    /// Adds a function of vendor 15b3 in an IOMMU group.
    pub(crate) fn function(
        &self,
        address: &str,
        device: u16,
        driver: Option<&str>,
        group: Option<u32>,
    ) -> Address {
        let directory = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{directory}/vendor"), "0x15b3\n");
        self.file(&format!("{directory}/device"), &format!("{device:#06x}\n"));
        self.file(&format!("{directory}/class"), "0x020000\n");
        self.file(&format!("{directory}/numa_node"), "1\n");
        self.file(&format!("{directory}/driver_override"), "(null)\n");
        self.driven_by(address, driver);
        if let Some(group) = group {
            self.in_group(address, group);
        }
        address.parse().unwrap()
    }

    pub(crate) fn driven_by(&self, address: &str, driver: Option<&str>) {
        let link = self.directory.path().join(format!("sys/bus/pci/devices/{address}/driver"));
        let _ = fs::remove_file(&link);
        if let Some(driver) = driver {
            let directory = self.directory.path().join("sys/bus/pci/drivers").join(driver);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("unbind"), "").unwrap();
            self.link(&directory, &link);
        }
    }

    pub(crate) fn in_group(&self, address: &str, group: u32) {
        let root = self.directory.path();
        let groups = root.join(format!("sys/kernel/iommu_groups/{group}"));
        fs::create_dir_all(groups.join("devices")).unwrap();
        let function = root.join(format!("sys/bus/pci/devices/{address}"));
        self.link(&groups, &function.join("iommu_group"));
        self.link(&function, &groups.join("devices").join(address));
    }
}
