//! The prelude of the facade beside the names of std: an ambiguous name would not compile here.

use bareverbs::prelude::*;
use std::boxed::*;
use std::cell::*;
use std::collections::*;
use std::error::*;
use std::rc::*;
use std::sync::*;
use std::time::*;

/// Types from std's own prelude, and types that programs import with a glob. A glob silently hides std's
/// prelude, so each type is compared with the path that it must stand for.
#[test]
fn the_prelude_shadows_nothing_of_std() {
    let some: Option<u8> = std::option::Option::Some(1);
    let ok: Result<Vec<u8>, String> = std::result::Result::Ok(std::vec::Vec::new());
    let boxed: Box<u8> = std::boxed::Box::new(1);
    let counted: Rc<u8> = std::rc::Rc::new(1);
    let shared: Arc<Mutex<u8>> = std::sync::Arc::new(std::sync::Mutex::new(1));
    let cell: RefCell<Cell<u8>> = std::cell::RefCell::new(std::cell::Cell::new(1));
    let map: BTreeMap<u8, u8> = std::collections::BTreeMap::new();
    let error: &dyn Error = &std::fmt::Error;
    let second: Duration = std::time::Duration::from_secs(1);
    let all = (some, ok, boxed, counted, shared, cell, map, error.to_string());
    assert_eq!((all.0, second.as_millis()), (Some(1), 1000));
}

/// The prelude has the names that a first program uses.
#[test]
fn the_prelude_has_the_words_of_a_first_program() {
    let start = Time::ZERO + bareverbs::prm::time::Duration::from_micros(1);
    let gid = Gid::from_ipv4([10, 0, 0, 1]);
    let entry = GidEntry::roce_v2(gid, MacAddress([2, 0, 0, 0, 0, 1]));
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    assert!(start > Time::ZERO && entry.gid == gid && access != AccessFlags::LOCAL_WRITE);
}

/// The facade names each place that a driver can run in, by one feature each.
#[test]
fn the_facade_names_every_place() {
    fn size_of_place<H: Hal>() -> usize {
        size_of::<H>()
    }
    let sizes = [
        size_of_place::<bareverbs::sim::SimHal>(),
        size_of_place::<bareverbs::uverbs::UverbsHal>(),
        size_of_place::<bareverbs::vfio::VfioHal>(),
        size_of_place::<bareverbs::vfio_user::VfioUserHal>(),
    ];
    assert!(sizes.iter().all(|size| *size > 0));
}
