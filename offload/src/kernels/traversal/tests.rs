use super::*;
use crate::budget::{Budget, Limits, Next};
use crate::kernels::field::{ByteOrder, Field, Predicate};
use bareverbs_prm::time::Time;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The address at which the owner of the structures has its region mapped.
const MAPPED: u64 = 0x7f12_0000_0000;

/// The answer, and the number of elements and values that were read for it.
type Response = Result<(Vec<u8>, u16), Status>;

/// Runs a traversal over memory that does not change; every read must lie inside.
fn run(memory: &[u8], parameters: &[u8]) -> Response {
    let grant = Grant::new(0x10_0000, memory.len() as u64)?;
    let limits = Limits { hops: 512, ..Limits::default() };
    let mut budget = Budget::new(limits, Time::ZERO);
    let (mut kernel, mut step) = Traversal::start(parameters, &grant)?;
    let mut bytes: &[u8] = &[];
    for _turn in 0..=limits.hops {
        match budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                bytes = &memory[range.offset() as usize..][..range.length() as usize];
                let mut other = without_fast_path(&kernel);
                step = kernel.dma_done(bytes, &grant);
                assert_eq!(step, other.dma_done(bytes, &grant), "with the fast path, then without");
            }
            Next::Emit(Emission { offset, length, .. }) => {
                let response = bytes.get(offset as usize..).and_then(|rest| rest.get(..length as usize));
                return response
                    .map(|response| (response.to_vec(), budget.hops()))
                    .ok_or(Status::OutOfBounds);
            }
            Next::End(status) => return Err(status),
            other => panic!("a traversal does not ask for {other:?}"),
        }
    }
    panic!("the traversal went on beyond its budget");
}

/// The same kernel without its fast path.
fn without_fast_path(kernel: &Traversal) -> Traversal {
    let mut kernel = kernel.clone();
    kernel.rules.iter_mut().for_each(|rule| rule.fast_path = FastPath::NONE);
    kernel
}

/// Memory with structures as a program of the host lays them out: little-endian words, absolute addresses.
#[derive(Default)]
struct Heap(Vec<u8>);

impl Heap {
    /// The first 64 bytes stay free, so that nothing is at offset zero.
    fn new() -> Self {
        Self(vec![0; 64])
    }
    /// Appends words and returns their address.
    fn put(&mut self, words: &[u64]) -> u64 {
        let at = self.0.len();
        words.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
        MAPPED + at as u64
    }
    fn set(&mut self, address: u64, word: u64) {
        self.0[(address - MAPPED) as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }
}

fn table(start: u64, element: u16, rows: &[Row], keys: &[u64]) -> TraversalTable {
    let mut table = TraversalTable {
        start: start - MAPPED,
        pointer_base: MAPPED,
        element,
        order: ByteOrder::LittleEndian,
        value: Value::Pointer(Field::word(4)),
        length: Length::Fixed(8),
        rows: [Row::END; ROWS],
        keys: [0; KEYS],
        key_count: keys.len() as u8,
    };
    table.rows[..rows.len()].copy_from_slice(rows);
    table.keys[..keys.len()].copy_from_slice(keys);
    table
}

fn follow(field: Field) -> Row {
    Row::otherwise(Action::Follow).pointer(field)
}

fn number(response: Response) -> Result<u64, Status> {
    response.map(|(bytes, _)| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

/// Element: key, next, value pointer; the layout of the paper's list.
fn list(heap: &mut Heap, keys: &[u64]) -> u64 {
    keys.iter().rev().fold(0, |next, &key| {
        let value = heap.put(&[key * 10]);
        heap.put(&[key, next, value])
    })
}

const LIST: [Row; 2] =
    [Row::when(Predicate::Equal, 1, Action::Emit), Row::otherwise(Action::Follow).pointer(Field::word(2))];

#[test]
fn a_list_is_walked_to_the_key_or_to_its_end() {
    let mut heap = Heap::new();
    let start = list(&mut heap, &[5, 3, 9]);
    let find = |key| run(&heap.0, &table(start, 24, &LIST, &[key]).encode());
    assert_eq!(find(9), Ok((90_u64.to_le_bytes().to_vec(), 4)), "three elements and the value");
    assert_eq!(number(find(5)), Ok(50));
    assert_eq!(find(4), Err(Status::NotFound));
}

#[test]
fn the_fast_path_leads_through_a_list_and_leaves_its_end_open() {
    let mut heap = Heap::new();
    let start = list(&mut heap, &[5, 3]);
    let grant = Grant::new(0x10_0000, heap.0.len() as u64).unwrap();
    let (mut kernel, _) = Traversal::start(&table(start, 24, &LIST, &[3]).encode(), &grant).unwrap();
    let element = |key: u64, next: u64| [key, next, 0].map(u64::to_le_bytes).concat();
    let next = kernel.next_element(&element(5, MAPPED + 64), &grant).unwrap();
    assert_eq!((next.offset(), next.length()), (64, 24));
    for (open, why) in [
        (element(3, MAPPED + 64), "the key"),
        (element(5, 0), "no next"),
        (element(5, MAPPED - 1), "before the region"),
        (element(5, MAPPED + heap.0.len() as u64 - 23), "beyond the region"),
        (element(5, MAPPED + 64)[..15].to_vec(), "no element"),
    ] {
        assert_eq!(kernel.next_element(&open, &grant), None, "{why}");
    }
    kernel.set_expecting(Expecting::Value);
    assert_eq!(kernel.next_element(&element(5, MAPPED + 64), &grant), None, "a value is no element");
}

#[test]
fn every_predicate_compares_the_element_with_the_key() {
    let mut heap = Heap::new();
    let start = list(&mut heap, &[5, 3, 9]);
    let find = |predicate, key| {
        let rows = [Row::when(predicate, 1, Action::Emit), LIST[1]];
        number(run(&heap.0, &table(start, 24, &rows, &[key]).encode()))
    };
    assert_eq!(find(Predicate::LessThan, 5), Ok(30));
    assert_eq!(find(Predicate::GreaterThan, 5), Ok(90));
    assert_eq!(find(Predicate::NotEqual, 5), Ok(30));
    assert_eq!(find(Predicate::Always, 0), Ok(50));
    assert_eq!(find(Predicate::LessThan, 3), Err(Status::NotFound));
}

#[test]
fn a_chain_of_buckets_has_its_value_beside_the_key_that_matched() {
    let mut heap = Heap::new();
    let values: Vec<u64> = (0..6).map(|n| heap.put(&[n * 100])).collect();
    // Three keys, each with its pointer, and the next bucket.
    let second = heap.put(&[4, values[3], 5, values[4], 6, values[5], 0]);
    let start = heap.put(&[1, values[0], 2, values[1], 3, values[2], second]);
    let rows = [Row::when(Predicate::Equal, 0b1_0001_0001, Action::Emit), follow(Field::word(12))];
    let find = |key| {
        let table =
            TraversalTable { value: Value::Pointer(Field::after_key(2)), ..table(start, 56, &rows, &[key]) };
        number(run(&heap.0, &table.encode()))
    };
    for key in 1..=6 {
        assert_eq!(find(key), Ok((key - 1) * 100));
    }
    assert_eq!(find(values[0]), Err(Status::NotFound), "a pointer is no key");
}

/// Node: key, left, right, value in the node. Returns the address of the node.
fn tree(heap: &mut Heap, sorted: &[(u64, u64)]) -> u64 {
    if sorted.is_empty() {
        return 0;
    }
    let middle = sorted.len() / 2;
    let (key, value) = sorted[middle];
    let (left, right) = (tree(heap, &sorted[..middle]), tree(heap, &sorted[middle + 1..]));
    heap.put(&[key, left, right, value])
}

const TREE: [Row; 3] = [
    Row::when(Predicate::Equal, 1, Action::Emit),
    Row::when(Predicate::LessThan, 1, Action::Follow).pointer(Field::word(4)),
    Row::otherwise(Action::Follow).pointer(Field::word(2)),
];

proptest! {
    #[test]
    fn a_tree_agrees_with_a_map(
        entries in proptest::collection::btree_map(0_u64..200, any::<u64>(), 1..60),
        key in 0_u64..200,
    ) {
        let mut heap = Heap::new();
        let sorted: Vec<(u64, u64)> = entries.iter().map(|(key, value)| (*key, *value)).collect();
        let root = tree(&mut heap, &sorted);
        let table = TraversalTable { value: Value::Inline(Field::word(6)), ..table(root, 32, &TREE, &[key]) };
        let found = run(&heap.0, &table.encode());
        if let Ok((_, hops)) = &found {
            prop_assert!(*hops <= 6, "the height of the tree, and the value is in the node");
        }
        prop_assert_eq!(number(found), entries.get(&key).copied().ok_or(Status::NotFound));
    }

    #[test]
    fn a_skip_list_agrees_with_a_map(
        entries in proptest::collection::btree_map(1_u64..1000, (any::<u64>(), 0_usize..3), 1..60),
        key in 1_u64..1000,
    ) {
        let mut heap = Heap::new();
        let root = skip_list(&mut heap, &entries);
        let rows = [
            Row::when(Predicate::Equal, 1, Action::Emit),
            Row::when(Predicate::LessThan, 0b100, Action::Follow).pointer(Field::word(4)),
            Row::when(Predicate::Equal, 0b100, Action::Follow).pointer(Field::word(4)),
            follow(Field::word(6)),
        ];
        let table = TraversalTable { value: Value::Inline(Field::word(8)), ..table(root, 40, &rows, &[key]) };
        let expected = entries.get(&key).map(|(value, _)| *value).ok_or(Status::NotFound);
        prop_assert_eq!(number(run(&heap.0, &table.encode())), expected);
    }

    #[test]
    fn arbitrary_tables_and_memory_end_and_read_nothing_outside(
        bytes in proptest::collection::vec(any::<u8>(), PARAMETERS),
        memory in proptest::collection::vec(prop_oneof![3 => 0_u8..4, 1 => any::<u8>()], 1..600),
        plausible: bool,
        whole_words: bool,
        element in 1_u16..70,
    ) {
        let mut bytes = bytes;
        if plausible {
            let ranges: &[(usize, u8)] = &[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (19, 8)];
            ranges.iter().for_each(|(at, below)| bytes[*at] %= below);
            bytes[8..16].fill(0);
            bytes[16..18].copy_from_slice(&(element * 4).to_be_bytes());
            bytes[18] = bytes[18] % 8 + 1;
            for field in [24, 28, 44, 60, 76, 92] {
                bytes[field] %= element as u8;
                bytes[field + 1] %= 2;
                bytes[field + 2] %= 16;
                bytes[field + 3] = bytes[field + 3] % 16 + 1;
            }
            for row in [32, 48, 64, 80] {
                bytes[row..row + 7].fill(0);
                bytes[row + 8] %= 5;
                bytes[row + 9] %= 4;
                bytes[row + 10] %= 16;
                bytes[row + 11] = bytes[row + 11] % 16 + 1;
                if whole_words {
                    bytes[row + 7] = 1 << (bytes[row + 7] % 8);
                    (bytes[row + 10], bytes[row + 11]) = (0, 64);
                    (bytes[row + 13], bytes[row + 14], bytes[row + 15]) = (0, 0, 64);
                }
            }
        }
        let _ended = run(&memory, &bytes);
    }

    #[test]
    fn encoded_values_are_decoded(bytes in proptest::collection::vec(any::<u8>(), PARAMETERS)) {
        if let Ok(table) = TraversalTable::parse(&bytes) {
            prop_assert_eq!(TraversalTable::parse(&table.encode()), Ok(table));
        }
    }
}

/// Nodes of each level: key, key of the successor, successor, the same node one level below, value. Returns the highest head.
fn skip_list(heap: &mut Heap, entries: &BTreeMap<u64, (u64, usize)>) -> u64 {
    let mut below: BTreeMap<u64, u64> = BTreeMap::new();
    let mut head = 0;
    for level in 0..3 {
        let (mut next, mut next_key) = (0, u64::MAX);
        let mut nodes = BTreeMap::new();
        for (&key, &(value, _)) in entries.iter().rev().filter(|(_, (_, height))| *height >= level) {
            let down = below.get(&key).copied().unwrap_or(0);
            next = heap.put(&[key, next_key, next, down, value]);
            next_key = key;
            nodes.insert(key, next);
        }
        head = heap.put(&[0, next_key, next, head, 0]);
        below = nodes;
    }
    head
}

#[test]
fn a_graph_is_walked_by_labels_and_ends_behind_the_last() {
    let mut heap = Heap::new();
    // Node: two edges of label and target, value pointer.
    let values: Vec<u64> = (0..3).map(|n| heap.put(&[n + 70])).collect();
    let c = heap.put(&[0, 0, 0, 0, values[2]]);
    let b = heap.put(&[3, c, 0, 0, values[1]]);
    let a = heap.put(&[1, b, 2, c, values[0]]);
    heap.set(c, 9);
    heap.set(c + 8, a);
    let rows = [Row::when(Predicate::Equal, 0b1_0001, Action::FollowNextKey).pointer(Field::after_key(2))];
    let walk = |labels: &[u64]| {
        let value = Value::Pointer(Field::word(8));
        let table = TraversalTable { value, ..table(a, 40, &rows, labels) };
        number(run(&heap.0, &table.encode()))
    };
    assert_eq!(walk(&[1]), Ok(71));
    assert_eq!(walk(&[2]), Ok(72));
    assert_eq!(walk(&[1, 3]), Ok(72));
    assert_eq!(walk(&[1, 3, 9, 2, 9, 1]), Ok(71), "a cycle");
    assert_eq!(walk(&[1, 4]), Err(Status::NotFound));
}

#[test]
fn keys_pointers_and_lengths_may_be_bits_of_a_word() {
    let mut heap = Heap::new();
    let value = heap.put(&[u64::from_le_bytes(*b"abcdefgh")]);
    // A 16-bit tag above a 48-bit pointer, as many hash tables pack them; the length is in bits 8 to 15.
    let start = heap.put(&[0xbeef << 48 | value, 3 << 8 | 0x77]);
    let row = Row { key_shift: 48, key_bits: 16, ..Row::when(Predicate::Equal, 1, Action::Emit) };
    let table = TraversalTable {
        value: Value::Pointer(Field::word(0).bits(0, 48)),
        length: Length::Field(Field::word(2).bits(8, 8)),
        ..table(start, 16, &[row], &[0xbeef])
    };
    assert_eq!(run(&heap.0, &table.encode()), Ok((b"abc".to_vec(), 2)));
}

#[test]
fn big_endian_elements_are_read_as_such() {
    let mut memory = vec![0; 64];
    memory[0..8].copy_from_slice(&7_u64.to_be_bytes());
    memory[8..12].copy_from_slice(&0xa1b2_c3d4_u32.to_be_bytes());
    let row = Row { key_bits: 64, ..Row::when(Predicate::Equal, 1, Action::Emit) };
    let table = TraversalTable {
        pointer_base: 0,
        order: ByteOrder::BigEndian,
        value: Value::Inline(Field::word(2)),
        length: Length::Field(Field::word(2).bits(29, 3)),
        ..table(MAPPED, 12, &[row], &[7])
    };
    assert_eq!(run(&memory, &table.encode()), Err(Status::OutOfBounds), "five bytes leave the element");
    let table = TraversalTable { length: Length::Field(Field::word(2).bits(30, 2)), ..table };
    assert_eq!(run(&memory, &table.encode()), Ok((vec![0xa1, 0xb2], 1)));
}

#[test]
fn pointers_outside_the_region_and_endless_chains_have_different_statuses() {
    let mut heap = Heap::new();
    let element = heap.put(&[5, 0, 0]);
    let mut find = |next, key| {
        heap.set(element + 8, next);
        run(&heap.0, &table(element, 24, &LIST, &[key]).encode())
    };
    assert_eq!(find(MAPPED + 4096, 1), Err(Status::OutOfBounds));
    assert_eq!(find(MAPPED - 8, 1), Err(Status::OutOfBounds));
    assert_eq!(find(u64::MAX, 1), Err(Status::OutOfBounds));
    assert_eq!(find(element, 1), Err(Status::HopLimit));
    assert_eq!(find(0, 5), Err(Status::NotFound), "the element has no value");
}

#[test]
fn tables_whose_words_leave_the_element_are_refused() {
    let good = table(MAPPED, 24, &LIST, &[1]);
    assert!(good.fits());
    let pointer = |field| [LIST[0], follow(field), Row::END, Row::END];
    let bad = [
        TraversalTable { element: 26, ..good },
        TraversalTable { element: 0, ..good },
        TraversalTable { element: 260, ..good },
        TraversalTable { element: 20, ..good },
        TraversalTable { key_count: 0, ..good },
        TraversalTable { key_count: 9, ..good },
        TraversalTable { value: Value::Pointer(Field::word(5)), ..good },
        TraversalTable { value: Value::Inline(Field::word(7)), ..good },
        TraversalTable { length: Length::Field(Field::word(5)), ..good },
        TraversalTable { rows: pointer(Field::word(5)), ..good },
        TraversalTable { rows: pointer(Field::word(0).bits(0, 0)), ..good },
        TraversalTable { rows: pointer(Field::word(0).bits(1, 64)), ..good },
        TraversalTable { rows: [Row { positions: 1 << 5, ..LIST[0] }; 4], ..good },
        TraversalTable { rows: [Row { key_bits: 0, ..LIST[0] }; 4], ..good },
    ];
    for table in bad {
        assert_eq!(TraversalTable::parse(&table.encode()), Err(Status::BadParameters), "{table:?}");
    }
    for (at, value) in [(19, 8), (40, 5), (41, 4), (45, 2), (25, 2)] {
        let mut bytes = good.encode();
        bytes[at] = value;
        assert_eq!(TraversalTable::parse(&bytes), Err(Status::BadParameters), "byte {at}");
    }
}

#[test]
fn parameters_have_their_fields_at_the_stated_places() {
    let bytes = TraversalTable {
        start: 0x0102,
        value: Value::Pointer(Field { position: 4, relative: true, shift: 3, bits: 40 }),
        length: Length::Fixed(0x0a0b),
        ..table(MAPPED, 24, &LIST, &[0x0c0d, 0x0e0f])
    }
    .encode();
    assert_eq!(bytes.len(), 160);
    assert_eq!(bytes[..8], 0x0102_u64.to_be_bytes());
    assert_eq!(bytes[8..16], MAPPED.to_be_bytes());
    assert_eq!(bytes[16..24], [0, 24, 2, 0, 0, 0, 0x0a, 0x0b]);
    assert_eq!(bytes[24..28], [4, 1, 3, 40]);
    assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 64, 0, 0, 0, 64]);
    assert_eq!(bytes[96..112], [0, 0, 0, 0, 0, 0, 0x0c, 0x0d, 0, 0, 0, 0, 0, 0, 0x0e, 0x0f]);
}
