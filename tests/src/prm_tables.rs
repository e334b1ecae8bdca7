//! The reference tables of `tests/vectors/prm`, and the comparison of a layout or a numbering with them.
//!
//! The tables were generated from the headers that Linux and rdma-core compile; see `tests/vectors/README.md`.

use bareverbs_prm::field::{FieldInfo, LayoutInfo};
use bareverbs_prm::numbering::NumberingInfo;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a field lies: bits from the start of the structure (bit 0 is the top bit of byte 0) and its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPlace {
    /// Offset in bits.
    pub offset: u32,
    /// Width in bits.
    pub width: u32,
}

/// How much was compared, and what was wrong.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Fields, or rows of a numbering, whose place or value was looked up.
    pub fields: usize,
    /// The same fields once more, below the path of a structure that contains theirs.
    pub nested_fields: usize,
    /// Structures whose length was looked up.
    pub sizes: usize,
    /// Structures inside others whose fields the tables omit there (large unions).
    pub left_out: Vec<String>,
    /// One line for each difference.
    pub faults: Vec<String>,
}

/// All reference tables.
#[derive(Debug, Default)]
pub struct Tables {
    /// (structure, path) → place and rank of its source; a lower rank wins.
    places: BTreeMap<(String, String), (u8, FieldPlace)>,
    sizes: BTreeMap<String, u64>,
    numbers: BTreeMap<(String, String), u64>,
}

/// A file of the vectors directory.
pub fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(name)
}

fn rows(name: &str) -> Vec<csv::StringRecord> {
    let path = vector(name);
    let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    reader.records().map(|row| row.unwrap_or_else(|e| panic!("{}: {e}", path.display()))).collect()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} in a reference table is not a number"))
}

impl Tables {
    /// Reads the four files.
    pub fn load() -> Self {
        let mut tables = Self::default();
        for row in rows("prm/layout_flat.csv").into_iter().chain(rows("prm/layout_more.csv")) {
            let place = FieldPlace { offset: number(&row[2]), width: number(&row[3]) };
            tables.add_place(&row[0], &row[1], 0, place);
        }
        rows("prm/datapath.csv").iter().for_each(|row| tables.add_datapath(row));
        for row in rows("prm/structs.csv") {
            tables.sizes.insert(row[0].to_owned(), number(&row[2]));
        }
        for row in rows("prm/enums.csv") {
            tables.numbers.insert((row[0].to_owned(), row[1].to_owned()), number(&row[2]));
        }
        tables
    }

    fn add_place(&mut self, structure: &str, path: &str, rank: u8, place: FieldPlace) {
        let entry = self.places.entry((structure.to_owned(), path.to_owned())).or_insert((rank, place));
        if rank < entry.0 {
            *entry = (rank, place);
        }
    }

    fn add_datapath(&mut self, row: &csv::StringRecord) {
        let (structure, field, offset, width) =
            (&row[0], &row[1], number::<u32>(&row[2]), number::<u32>(&row[3]));
        if field == "(sizeof)" {
            self.sizes.insert(structure.to_owned(), u64::from(width));
            return;
        }
        let rank = match &row[7] {
            "linux" => 0,
            "derived" => 1,
            _ => 2,
        };
        self.add_place(structure, field, rank, datapath_place(offset, width, &row[4]));
    }

    /// Where the tables put a field, if they have it.
    pub fn place(&self, structure: &str, path: &str) -> Option<FieldPlace> {
        self.places.get(&(structure.to_owned(), path.to_owned())).map(|found| found.1)
    }

    /// Compares a layout, its length, and everything inside it.
    pub fn compare_layout(&self, info: &LayoutInfo, out: &mut Comparison) {
        self.compare_size(info, out);
        for field in info.fields {
            match field.part {
                None => self.compare_field(info, field, out),
                Some(part) => self.compare_part(info, field, part, out),
            }
        }
    }

    fn compare_size(&self, info: &LayoutInfo, out: &mut Comparison) {
        out.sizes += 1;
        let declared = info.dwords as u64 * 4;
        match self.sizes.get(info.prm_name) {
            Some(&size) if size == declared => {}
            Some(size) => out.faults.push(format!(
                "{} ({}) is {declared} bytes long, the table says {size}",
                info.name, info.prm_name
            )),
            None => out.faults.push(format!("{} ({}): the tables have no length", info.name, info.prm_name)),
        }
    }

    fn compare_field(&self, info: &LayoutInfo, field: &FieldInfo, out: &mut Comparison) {
        out.fields += 1;
        let declared = FieldPlace { offset: field.bit_offset, width: field.bit_width };
        self.compare_place(info, field.path, declared, out);
    }

    fn compare_place(&self, info: &LayoutInfo, path: &str, declared: FieldPlace, out: &mut Comparison) {
        match self.place(info.prm_name, path) {
            Some(place) if place == declared => {}
            Some(place) => out.faults.push(format!(
                "{} ({}.{path}): declared {declared:?}, table {place:?}",
                info.name, info.prm_name
            )),
            None => out.faults.push(format!("{} ({}.{path}): not in the tables", info.name, info.prm_name)),
        }
    }

    /// A structure inside another: its fields are looked up again under the container's dotted path.
    fn compare_part(&self, outer: &LayoutInfo, field: &FieldInfo, part: &LayoutInfo, out: &mut Comparison) {
        if field.bit_width as usize != part.dwords * 32 {
            out.faults.push(format!("{}.{}: not as wide as {}", outer.name, field.path, part.name));
        }
        if !self.has_below(outer.prm_name, field.path) {
            out.left_out.push(format!("{}.{}", outer.prm_name, field.path));
            return;
        }
        self.compare_nested(outer, field.path, field.bit_offset, part, out);
    }

    fn compare_nested(
        &self,
        outer: &LayoutInfo,
        path: &str,
        base: u32,
        part: &LayoutInfo,
        out: &mut Comparison,
    ) {
        for field in part.fields {
            let (path, offset) = (format!("{path}.{}", field.path), base + field.bit_offset);
            if let Some(inner) = field.part {
                self.compare_nested(outer, &path, offset, inner, out);
                continue;
            }
            out.nested_fields += 1;
            self.compare_place(outer, &path, FieldPlace { offset, width: field.bit_width }, out);
        }
    }

    fn has_below(&self, structure: &str, path: &str) -> bool {
        let prefix = format!("{path}.");
        let from = (structure.to_owned(), prefix.clone());
        self.places.range(from..).next().is_some_and(|((s, p), _)| s == structure && p.starts_with(&prefix))
    }

    /// Compares every row of a numbering with the tables, by its name there.
    pub fn compare_numbering(&self, info: &NumberingInfo, out: &mut Comparison) {
        for row in info.rows {
            out.fields += 1;
            let key = (info.prm_group.to_owned(), row.prm_name.to_owned());
            match self.numbers.get(&key) {
                Some(&value) if value == u64::from(row.value) => {}
                Some(value) => out.faults.push(format!(
                    "{}::{}: declared {:#x}, table {value:#x}",
                    info.name, row.prm_name, row.value
                )),
                None => out.faults.push(format!("{}::{}: not in the tables", info.name, row.prm_name)),
            }
        }
    }

    /// Names that the tables have in a group, as (name, value).
    pub fn group(&self, group: &str) -> impl Iterator<Item = (&str, u64)> {
        self.numbers
            .iter()
            .filter(move |((g, _), _)| g == group)
            .map(|((_, name), &value)| (name.as_str(), value))
    }
}

/// Bytes and `hi:lo` of the big-endian value there, as a place counted from the top bit of byte 0.
fn datapath_place(byte_offset: u32, byte_width: u32, bits: &str) -> FieldPlace {
    match bits.split_once(':') {
        None => FieldPlace { offset: byte_offset * 8, width: byte_width * 8 },
        Some((hi, lo)) => {
            let (hi, lo) = (number::<u32>(hi), number::<u32>(lo));
            FieldPlace { offset: (byte_offset + byte_width) * 8 - 1 - hi, width: hi - lo + 1 }
        }
    }
}
