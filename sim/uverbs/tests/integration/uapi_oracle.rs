//! Structures and numbers of the kernel's headers, compared with what the C compiler makes of those headers
//! (`tests/vectors/uapi`).

use bareverbs_uverbs::uapi::{NUMBERS, STRUCTURES, Structure};
use std::collections::BTreeMap;
use std::path::Path;

fn rows(name: &str) -> Vec<csv::StringRecord> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/uapi").join(name);
    let mut reader = csv::Reader::from_path(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    reader.records().map(|row| row.unwrap()).collect()
}

/// Offset and width of every field of every structure of the headers.
fn places() -> BTreeMap<(String, String), (usize, usize)> {
    let place = |row: &csv::StringRecord| {
        let number = |column: usize| row[column].parse::<usize>().unwrap();
        ((row[0].to_owned(), row[1].to_owned()), (number(2), number(3)))
    };
    rows("structs.csv").iter().map(place).collect()
}

fn structures() -> impl Iterator<Item = &'static Structure> {
    STRUCTURES.into_iter().flatten()
}

#[test]
fn every_field_lies_where_the_header_puts_it() {
    let places = places();
    for structure in structures() {
        for field in structure.fields {
            // `in` is a keyword of Rust.
            let name = field.name.trim_start_matches("r#").to_owned();
            let expected = places.get(&(structure.name.to_owned(), name));
            let got = (field.offset, field.width);
            assert_eq!(expected, Some(&got), "{}.{}", structure.name, field.name);
        }
    }
}

#[test]
fn every_structure_is_as_long_and_as_complete_as_the_header_says() {
    let places = places();
    for structure in structures() {
        let size = places[&(structure.name.to_owned(), "(sizeof)".to_owned())].1;
        assert_eq!(structure.size, size, "{}", structure.name);
        let covered: usize = structure.fields.iter().map(|field| field.width).sum();
        assert_eq!(covered, size, "{} has bytes that no field covers", structure.name);
    }
}

#[test]
fn every_number_is_the_headers() {
    let numbers: BTreeMap<String, u64> = rows("numbers.csv")
        .iter()
        .map(|row| (row[0].to_owned(), row[1].parse().unwrap_or(u64::MAX)))
        .collect();
    for &(name, value) in NUMBERS.into_iter().flatten() {
        assert_eq!(numbers.get(name), Some(&value), "{name}");
    }
}
