//! Index of a device of a host: `mlx5_0`, `mlx5_1` and so on. Like ports of a real card, each is a function of its own.

use alloc::format;
use alloc::string::String;

/// Most devices of a host: the functions of one PCI slot.
pub const MOST_DEVICES: u8 = 8;
/// The path of a device file without its number.
const DEVICE_FILES: &str = "/dev/infiniband/uverbs";
/// Position of the device index in a file number.
const FILE_BITS: u32 = 29;
/// File numbers of a device: two fewer than possible, so that callers have some for themselves.
const FILE_NUMBERS: u32 = (1 << FILE_BITS) - 2;

/// Index of a device within its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct DeviceIndex(u8);

impl DeviceIndex {
    /// The device with this index; `None` if it is too high.
    pub fn new(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| *number < MOST_DEVICES).map(Self)
    }

    /// All devices, from the first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MOST_DEVICES).map(Self)
    }

    /// The device whose file has this number; see [`FileNumbers`].
    pub(crate) const fn of_file(raw: u32) -> Self {
        Self((raw >> FILE_BITS) as u8)
    }

    /// The number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Name of the device.
    pub fn name(self) -> String {
        format!("mlx5_{}", self.0)
    }

    /// Name of its device file.
    pub fn verbs_name(self) -> String {
        format!("uverbs{}", self.0)
    }

    /// PCI address of its function, on a bus that no machine has.
    pub fn function(self) -> String {
        format!("0000:e1:00.{}", self.0)
    }

    /// The device whose device file has this path; `None` for other paths.
    pub fn of_device_file(path: &[u8]) -> Option<Self> {
        match path.strip_prefix(DEVICE_FILES.as_bytes())? {
            [digit @ b'0'..=b'9'] => Self::new(u32::from(digit - b'0')),
            _ => None,
        }
    }
}

/// Numbers for the files of a device. They include the device's index, so files of two devices never share a
/// number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileNumbers {
    index: DeviceIndex,
    next: u32,
}

impl FileNumbers {
    /// The numbers of a device.
    pub(crate) const fn of(index: DeviceIndex) -> Self {
        Self { index, next: 0 }
    }

    /// The device that they belong to.
    pub(crate) const fn device(&self) -> DeviceIndex {
        self.index
    }

    /// The number that [`Self::take`] returns next.
    pub(crate) const fn next(&self) -> u32 {
        (self.index.0 as u32) << FILE_BITS | self.next
    }

    /// The next number.
    pub(crate) const fn take(&mut self) -> u32 {
        let number = self.next();
        self.next = (self.next + 1) % FILE_NUMBERS;
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_decides_names_and_the_path_of_the_file() {
        let second = DeviceIndex::new(1).unwrap();
        assert_eq!(DeviceIndex::of_device_file(b"/dev/infiniband/uverbs1"), Some(second));
        assert_eq!(
            [second.name(), second.verbs_name(), second.function()],
            ["mlx5_1", "uverbs1", "0000:e1:00.1"]
        );
        for path in
            ["/dev/infiniband/uverbs", "/dev/infiniband/uverbs8", "/dev/infiniband/uverbs10", "/dev/null"]
        {
            assert_eq!(DeviceIndex::of_device_file(path.as_bytes()), None, "{path}");
        }
        assert_eq!((DeviceIndex::all().count(), DeviceIndex::new(8)), (8, None));
    }

    #[test]
    fn numbers_of_files_say_whose_they_are() {
        for index in DeviceIndex::all() {
            let mut numbers = FileNumbers { next: FILE_NUMBERS - 1, ..FileNumbers::of(index) };
            let taken = [numbers.take(), numbers.take()];
            assert_eq!(taken.map(DeviceIndex::of_file), [index; 2]);
            assert!(taken[0] < u32::MAX - 1 && taken[1] == FileNumbers::of(index).next());
        }
    }
}
