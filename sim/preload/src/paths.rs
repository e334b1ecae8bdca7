//! Path redirection: those in `sysfs::REPLACED` lead to the directory that `bareverbs run` created.

use crate::errno::keeping_errno;
use crate::own_work::OwnWork;
use crate::settings::Settings;
use bareverbs_serve::network::environment::DIRECTORY;
use bareverbs_uverbs::DeviceIndex;
use bareverbs_uverbs::sysfs::{CONNECTION_FILE, PortStateFile, REPLACED};
use core::ffi::{CStr, c_char};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::OnceLock;

/// The directory, if the program was started by `bareverbs run`.
fn directory() -> Option<&'static OsStr> {
    static FOUND: OnceLock<Option<OsString>> = OnceLock::new();
    FOUND.get_or_init(|| std::env::var_os(DIRECTORY)).as_deref()
}

/// What a redirected path refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// Nothing special.
    None,
    /// A device file.
    Device(DeviceIndex),
    /// The connection management file.
    Connections,
}

/// The program's path, or its replacement.
pub(crate) struct Redirected {
    given: *const c_char,
    instead: Option<CString>,
    special: Special,
}

impl Redirected {
    /// # Safety
    /// `path` is null or a C string that lives as long as the answer is used.
    pub(crate) unsafe fn of(path: *const c_char) -> Self {
        let unchanged = Self { given: path, instead: None, special: Special::None };
        if path.is_null() {
            return unchanged;
        }
        // SAFETY: the caller's promise.
        let text = unsafe { CStr::from_ptr(path) }.to_bytes();
        if !is_replaced(text) {
            return unchanged;
        }
        let Some(directory) = directory() else { return unchanged };
        let mut instead = directory.to_owned().into_vec();
        match unplugged(text) {
            Some(path) => {
                instead.push(b'/');
                instead.extend_from_slice(path.as_bytes());
            }
            None => instead.extend_from_slice(text),
        }
        let special = match DeviceIndex::of_device_file(text) {
            Some(index) => Special::Device(index),
            None if text == CONNECTION_FILE.as_bytes() => Special::Connections,
            None => Special::None,
        };
        Self { instead: CString::new(instead).ok(), special, ..unchanged }
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.instead.as_ref().map_or(self.given, |path| path.as_ptr())
    }

    /// What the path refers to.
    pub(crate) const fn special(&self) -> Special {
        self.special
    }
}

/// What a path leads to if it is a state of a port whose cable is out.
fn unplugged(path: &[u8]) -> Option<String> {
    let file = PortStateFile::of(path)?;
    (!keeping_errno(|| has_cable(file.device))).then_some(file.unplugged)
}

/// Whether the cable of a device of this host is plugged in. A host without valid settings has no device to plug in.
fn has_cable(device: DeviceIndex) -> bool {
    static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
    let _own_work = OwnWork::begin();
    let settings = SETTINGS.get_or_init(|| Settings::read().ok()).as_ref();
    let port = |settings: &'static Settings| settings.ports.get(usize::from(device.number()));
    settings.is_none_or(|found| port(found).is_none_or(|port| found.network.has_cable(port.name())))
}

/// Whether a path is a replaced directory or lies below one.
fn is_replaced(path: &[u8]) -> bool {
    let below = |directory: &&str| {
        let rest = path.strip_prefix(directory.as_bytes());
        rest.is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
    };
    REPLACED.iter().any(below)
}

/// Whether the program was started by `bareverbs run`.
pub(crate) fn is_active() -> bool {
    directory().is_some_and(|directory| !directory.as_bytes().is_empty())
}
