//! The key-value file.
//!
//! - **Delimiter**: tab for `.tsv` and `.tab`, comma for `.csv`; for other names, whichever of tab, comma and semicolon
//!   is most frequent in the first line.
//! - **Key and value**: the first column is the key, the rest of the line the value (several columns are rejoined with
//!   the delimiter). Keys have 1 to 64 bytes, values up to 64 KiB; any bytes are allowed.
//! - **Header**: the first line counts as a header if its first two cells are `key` and `value`, in any case.
//!   `--header` overrides this.
//! - **Duplicate keys** are an error that names both lines, because it is unclear which one was meant.
//!
//! - **Encoding**: a UTF-8 byte order mark is skipped. UTF-16 is refused, and so is an unclosed quotation mark.
//! - `-` is standard input.
//!
//! Without a file, the table of PRM fields in this repository is loaded (and any file with its header
//! `struct,path,bit_offset,bit_width` is read alike): the key is `struct.path`, the value bit offset and width. More than a third of these names are longer than a key may be; they are shortened in the middle and carry a
//! hash of the whole name instead, see [`shortened`].

use crate::input_file::{read_at_most, take_at_most};
use bareverbs::offload::kernels::kv_layout::{LINE_SIZE, MAX_KEY, MAX_VALUE, hash_key, object_size};
use bareverbs::offload::table::{HEADER_SIZE, TableConfig, TablePolicy};
use clap::ValueEnum;
use csv::{ByteRecord, ReaderBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The table of PRM fields, see `tests/vectors/README.md` for its origin.
static PRM_FIELDS: &str = include_str!("../../../tests/vectors/prm/layout_flat.csv");

/// Largest file that is read, in bytes.
const LARGEST: u64 = 1 << 28;

/// The path for standard input.
pub const STANDARD_INPUT: &str = "-";

/// A row of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// The data to look up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    /// Their origin, for display.
    pub name: String,
    /// The rows in file order.
    pub rows: Vec<Row>,
    /// Number of PRM table names that were too long for a key.
    pub shortened: usize,
}

/// Whether the first line of a file is a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Header {
    /// Yes, if its first two cells are `key` and `value`.
    #[default]
    Auto,
    /// Yes.
    Yes,
    /// No, it is data.
    No,
}

/// Why a file cannot be loaded.
#[derive(Debug)]
pub enum DataError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// It cannot be parsed.
    Malformed(csv::Error),
    /// It is UTF-16, according to its byte order mark.
    Utf16,
    /// A quotation mark is never closed.
    OpenQuote {
        /// Its line.
        line: u64,
    },
    /// It has no rows.
    Empty(String),
    /// A line has a single column.
    NoValue {
        /// The line.
        line: u64,
    },
    /// A key has the wrong length.
    KeyLength {
        /// The line.
        line: u64,
        /// Bytes of the key.
        length: usize,
    },
    /// A value is too long.
    ValueLength {
        /// The line.
        line: u64,
        /// Bytes of the value.
        length: usize,
    },
    /// A key occurs twice.
    Duplicate {
        /// The key.
        key: String,
        /// Line of its first occurrence.
        first: u64,
        /// Line of its second occurrence.
        line: u64,
    },
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Malformed(error) => write!(f, "not a CSV or TSV file: {error}"),
            Self::Utf16 => write!(f, "the file is UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"),
            Self::OpenQuote { line } => {
                write!(
                    f,
                    "line {line}: a quotation mark opens a cell and nothing closes it; one in a cell is written twice"
                )
            }
            Self::Empty(name) => write!(f, "{name} has no rows: nothing to look up"),
            Self::NoValue { line } => {
                write!(f, "line {line} has one column: need a key and a value, separated by comma or tab")
            }
            Self::KeyLength { line, length } => {
                write!(f, "line {line}: the key has {length} bytes, need 1 to {MAX_KEY}")
            }
            Self::ValueLength { line, length } => {
                write!(f, "line {line}: the value has {length} bytes, need at most {MAX_VALUE}")
            }
            Self::Duplicate { key, first, line } => {
                write!(f, "the key {key:?} is in line {first} and again in line {line}: remove one of them")
            }
        }
    }
}

impl std::error::Error for DataError {}

/// Loads a file, or the table of PRM fields.
pub fn load(path: Option<&Path>, header: Header) -> Result<DataSet, DataError> {
    let Some(path) = path else {
        return Ok(DataSet {
            name: "the PRM field table".into(),
            ..parse(PRM_FIELDS.as_bytes(), b',', Header::Auto)?
        });
    };
    let (bytes, name) = match path == Path::new(STANDARD_INPUT) {
        true => (take_at_most(io::stdin().lock(), LARGEST), "the standard input".to_owned()),
        false => (read_at_most(path, LARGEST), path.display().to_string()),
    };
    let bytes = bytes.map_err(|error| DataError::Unreadable(path.into(), error))?;
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(DataError::Utf16);
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let set = parse(bytes, delimiter(path, bytes), header)?;
    if set.rows.is_empty() {
        return Err(DataError::Empty(name));
    }
    Ok(DataSet { name, ..set })
}

fn delimiter(path: &Path, bytes: &[u8]) -> u8 {
    let extension = path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
    match extension.as_deref() {
        Some("tsv" | "tab") => b'\t',
        Some("csv") => b',',
        _ => sniffed(bytes),
    }
}

/// The delimiter that occurs most often in the first line.
fn sniffed(bytes: &[u8]) -> u8 {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: u8| line.iter().filter(|byte| **byte == delimiter).count();
    [b'\t', b',', b';'].into_iter().rev().max_by_key(|delimiter| count(*delimiter)).unwrap_or(b',')
}

/// Detects duplicate keys.
#[derive(Default)]
struct Seen(BTreeMap<Vec<u8>, u64>);

impl Seen {
    fn check(&mut self, key: &[u8], line: u64) -> Result<(), DataError> {
        match self.0.insert(key.to_vec(), line) {
            None => Ok(()),
            Some(first) => {
                let key = String::from_utf8_lossy(key).into_owned();
                Err(DataError::Duplicate { key, first, line })
            }
        }
    }
}

/// The meaning of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// Key; the rest is the value.
    KeyValue,
    /// Structure and path, which make the key; the rest is the value.
    PrmFields,
}

/// The first line of the table of PRM fields.
const PRM_HEADER: [&str; 4] = ["struct", "path", "bit_offset", "bit_width"];

/// The line of a quotation mark that opens a cell and is not closed (RFC 4180 §2). The csv reader would take
/// the rest of the file as that cell.
fn open_quote(bytes: &[u8], delimiter: u8) -> Option<u64> {
    let (mut line, mut begins, mut opened) = (1, true, None);
    let mut bytes = bytes.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            // Two marks stand for one mark inside the cell.
            b'"' if opened.is_some() && bytes.next_if_eq(&b'"').is_some() => {}
            b'"' if opened.is_some() => opened = None,
            b'"' if begins => opened = Some(line),
            b'\n' => line += 1,
            _ => {}
        }
        begins = opened.is_none() && (byte == delimiter || byte == b'\n' || byte == b'\r');
    }
    opened
}

fn parse(bytes: &[u8], delimiter: u8, header: Header) -> Result<DataSet, DataError> {
    if let Some(line) = open_quote(bytes, delimiter) {
        return Err(DataError::OpenQuote { line });
    }
    let mut reader =
        ReaderBuilder::new().delimiter(delimiter).has_headers(false).flexible(true).from_reader(bytes);
    let mut set = DataSet { name: String::new(), rows: Vec::new(), shortened: 0 };
    let mut seen = Seen::default();
    let mut columns = Columns::KeyValue;
    for (index, record) in reader.byte_records().enumerate() {
        let record = record.map_err(DataError::Malformed)?;
        if let Some(named) = header_of(&record, header).filter(|_| index == 0) {
            columns = named;
            continue;
        }
        let line = record.position().map_or(0, csv::Position::line);
        let row = row_of(&record, columns, delimiter, line, &mut set.shortened)?;
        seen.check(&row.key, line)?;
        set.rows.push(row);
    }
    Ok(set)
}

/// The meaning of the columns, if `record` is a header.
fn header_of(record: &ByteRecord, header: Header) -> Option<Columns> {
    let begins = |names: &[&str]| {
        let is = |(cell, name): (&[u8], &&str)| cell.trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        record.len() >= names.len() && record.iter().zip(names).all(is)
    };
    match header {
        Header::No => None,
        _ if begins(&PRM_HEADER) => Some(Columns::PrmFields),
        Header::Auto => begins(&["key", "value"]).then_some(Columns::KeyValue),
        Header::Yes => Some(Columns::KeyValue),
    }
}

fn row_of(
    record: &ByteRecord,
    columns: Columns,
    delimiter: u8,
    line: u64,
    shortenings: &mut usize,
) -> Result<Row, DataError> {
    let mut cells = record.iter();
    let mut cell = || cells.next().ok_or(DataError::NoValue { line });
    let key = match columns {
        Columns::KeyValue => cell()?.to_vec(),
        Columns::PrmFields => {
            let name = [cell()?, b".", cell()?].concat();
            let key = shortened(&name);
            *shortenings += usize::from(key != name);
            key
        }
    };
    let rest: Vec<&[u8]> = cells.collect();
    if rest.is_empty() {
        return Err(DataError::NoValue { line });
    }
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(DataError::KeyLength { line, length: key.len() });
    }
    let value = rest.join(&[delimiter][..]);
    if value.len() > MAX_VALUE {
        return Err(DataError::ValueLength { line, length: value.len() });
    }
    Ok(Row { key, value })
}

/// Shortens a name of any length to a key: the middle of a long name is replaced by a hash of the whole, as in
/// `beginning~0123456789abcdef~end`, 64 bytes in total.
pub fn shortened(name: &[u8]) -> Vec<u8> {
    const HASH: usize = 16;
    const BEGIN: usize = 16;
    const END: usize = MAX_KEY - BEGIN - HASH - 2;
    if name.len() <= MAX_KEY {
        return name.to_vec();
    }
    let hash = format!("~{:016x}~", hash_key(&[0; 16], name));
    [&name[..BEGIN], hash.as_bytes(), &name[name.len() - END..]].concat()
}

/// Two keys for each line of three on average. Only a full line has a successor, so overflow lines for a
/// third of the rows always suffice.
pub(crate) fn table_config(rows: usize, policy: TablePolicy) -> TableConfig {
    let lines = |n: usize| u32::try_from(n).unwrap_or(u32::MAX / 4);
    TableConfig {
        buckets: lines(rows / 2 + 1),
        overflow_lines: lines(rows / 3 + 1),
        seed: *b"bareverbs demo 1",
        policy,
    }
}

/// Bytes of descriptors, lines and objects. An object may occupy up to a quarter more than its size.
pub(crate) fn table_size(config: &TableConfig, rows: &[Row]) -> usize {
    let lines = (config.buckets as usize + config.overflow_lines as usize) * LINE_SIZE as usize;
    let objects = rows.iter().map(|row| object_size(row.key.len(), row.value.len()) as usize * 5 / 4 + 16);
    HEADER_SIZE + lines + objects.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, delimiter: u8) -> Result<Vec<(String, String)>, String> {
        let text_of = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let set = parse(text.as_bytes(), delimiter, Header::Auto).map_err(|e| e.to_string())?;
        Ok(set.rows.into_iter().map(|row| (text_of(row.key), text_of(row.value))).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn keys_values_and_headers() {
        assert_eq!(rows("a,1\nb,\n", b','), Ok(pairs(&[("a", "1"), ("b", "")])));
        assert_eq!(rows("Key,VALUE\na,1\n", b','), Ok(pairs(&[("a", "1")])));
        assert_eq!(rows("a\t1\t2\n\"b\tc\"\t3\n", b'\t'), Ok(pairs(&[("a", "1\t2"), ("b\tc", "3")])));
        assert_eq!(rows("a,1\r\n\r\nb,2", b','), Ok(pairs(&[("a", "1"), ("b", "2")])));
        assert_eq!(parse(b"x,y\na,1\n", b',', Header::Yes).expect("fine").rows.len(), 1);
        assert_eq!(parse(b"key,value\na,1\n", b',', Header::No).expect("fine").rows.len(), 2);
        assert_eq!(
            rows("struct,path,bit_offset,bit_width\na,b.c,1,2\n", b','),
            Ok(pairs(&[("a.b.c", "1,2")]))
        );
    }

    #[test]
    fn complaints_name_the_line() {
        let complaint = |text: &str| rows(text, b',').expect_err("refused");
        assert!(complaint("a,1\nb,2\na,3\n").contains("line 1 and again in line 3"));
        assert!(complaint("a,1\nlonely\n").starts_with("line 2 has one column"));
        assert!(complaint(&format!("a,1\n{},2\n", "k".repeat(65))).starts_with("line 2: the key has 65"));
        assert!(complaint(",1\n").starts_with("line 1: the key has 0"));
        assert!(complaint(&format!("a,{}\n", "v".repeat(65_537))).contains("65537 bytes"));
        assert_eq!(
            rows(&format!("{},{}\n", "k".repeat(64), "v".repeat(65_536)), b',').map(|r| r.len()),
            Ok(1)
        );
    }

    #[test]
    fn a_quotation_mark_that_nothing_closes_is_refused_with_its_line() {
        for (text, line) in [("a,\"b\n1,2\n", 1), ("a,b\n\"c\"\"\n,2\n", 2), ("a,\"x\ny\"\nb,\"", 3)] {
            assert!(
                rows(text, b',').expect_err("refused").starts_with(&format!("line {line}: a quotation mark"))
            );
        }
        for text in ["a,\"b\"\"\"\n", "a,5\" pipe\n", "\"a,b\"\"\",\"\"\r\nc,\"d\ne\"\n"] {
            assert!(rows(text, b',').is_ok(), "{text}");
        }
    }

    #[test]
    fn delimiters_are_found_by_file_name_or_content() {
        assert_eq!(delimiter(Path::new("x.TSV"), b"a,b"), b'\t');
        assert_eq!(delimiter(Path::new("x.csv"), b"a\tb"), b',');
        assert_eq!(delimiter(Path::new("x"), b"a\tb,c\td\n,,,,"), b'\t');
        assert_eq!(delimiter(Path::new("x.txt"), b"a;b"), b';');
        assert_eq!(delimiter(Path::new("x"), b"a,b"), b',');
    }

    #[test]
    fn the_prm_table_is_whole_and_its_keys_are_unique_and_fit() {
        let set = load(None, Header::Auto).expect("no duplicates");
        assert_eq!(set.rows.len(), 9_888);
        assert_eq!(set.shortened, 3_791);
        assert!(set.rows.iter().all(|row| (1..=MAX_KEY).contains(&row.key.len())));
        let first = &set.rows[0];
        assert_eq!((&first.key[..], &first.value[..]), (&b"access_register_in.argument"[..], &b"96,32"[..]));
    }

    #[test]
    fn long_names_keep_their_ends() {
        let name =
            "hca_cap_union.flow_table_nic_cap.flow_table_properties_nic_receive.max_modify_header_actions";
        let key = String::from_utf8(shortened(name.as_bytes())).expect("text");
        assert_eq!(key.len(), MAX_KEY);
        assert!(
            key.starts_with("hca_cap_union.fl~") && key.ends_with("~eive.max_modify_header_actions"),
            "{key}"
        );
        assert_eq!(shortened(&[b'x'; 64]), [b'x'; 64]);
    }
}
