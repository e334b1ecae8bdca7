//! Settings that a card keeps without power: a file with a line for each, in mlxconfig's notation:
//! `LINK_TYPE_P1=ETH(2)`.

use crate::input_file::read_at_most;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Ports of a card.
const PORTS: usize = 2;
/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 16;

/// The link types of a card's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardSettings {
    links: [Option<LinkType>; PORTS],
}

/// The link type of a port, with mlxconfig's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// `IB(1)`
    InfiniBand,
    /// `ETH(2)`
    Ethernet,
}

/// Why settings cannot be read.
#[derive(Debug)]
pub enum SettingsError {
    /// The file exists and cannot be read.
    Read(PathBuf, io::Error),
    /// The file is too large for a settings file.
    TooLarge(PathBuf),
    /// A line is not a setting.
    Line {
        /// The file.
        path: PathBuf,
        /// From 1 on.
        number: usize,
        /// What it says.
        text: String,
    },
}

impl LinkType {
    /// mlxconfig's number.
    pub const fn number(self) -> u8 {
        match self {
            Self::InfiniBand => 1,
            Self::Ethernet => 2,
        }
    }

    /// Parses `ETH(2)`, `ETH` or `2`.
    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "IB(1)" | "IB" | "1" => Some(Self::InfiniBand),
            "ETH(2)" | "ETH" | "2" => Some(Self::Ethernet),
            _ => None,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "IB(1)",
            Self::Ethernet => "ETH(2)",
        })
    }
}

impl CardSettings {
    /// The name of a port's setting; ports count from 1.
    pub fn link_type_name(port: u8) -> String {
        format!("LINK_TYPE_P{port}")
    }

    /// The link type of a port, if it was set.
    pub fn link_type(&self, port: u8) -> Option<LinkType> {
        self.links.get(usize::from(port).checked_sub(1)?).copied().flatten()
    }

    /// Sets the link type of a port. A card only has ports 1 and 2.
    pub fn set_link_type(&mut self, port: u8, link: LinkType) {
        if let Some(place) = usize::from(port).checked_sub(1).and_then(|at| self.links.get_mut(at)) {
            *place = Some(link);
        }
    }

    /// Reads the settings of a card; without a file there are none.
    ///
    /// # Errors
    /// The file cannot be read or is not a settings file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let bytes = match read_at_most(path, LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                return Err(SettingsError::TooLarge(path.to_owned()));
            }
            Err(error) => return Err(SettingsError::Read(path.to_owned(), error)),
        };
        let mut settings = Self::default();
        for (at, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                settings.take(line).ok_or_else(|| SettingsError::Line {
                    path: path.to_owned(),
                    number: at + 1,
                    text: line.chars().take(80).collect(),
                })?;
            }
        }
        Ok(settings)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once('=')?;
        let port = (1..=PORTS as u8).find(|port| Self::link_type_name(*port) == name.trim())?;
        self.set_link_type(port, LinkType::parse(value)?);
        Some(())
    }

    /// Writes the settings to a temporary file and renames it, so that a card never has half of them.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".new");
        let beside = PathBuf::from(beside);
        std::fs::write(&beside, self.to_string())?;
        std::fs::rename(&beside, path)
    }
}

impl fmt::Display for CardSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (port, link) in (1..).zip(self.links) {
            if let Some(link) = link {
                writeln!(f, "{}={link}", Self::link_type_name(port))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "cannot read the settings {}: {error}", path.display()),
            Self::TooLarge(path) => {
                write!(f, "{} is not a settings file: it is larger than {LARGEST} bytes", path.display())
            }
            Self::Line { path, number, text } => write!(
                f,
                "{}, line {number}: {text} is not a setting; write LINK_TYPE_P1=IB(1) or LINK_TYPE_P1=ETH(2)",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SettingsError {}
