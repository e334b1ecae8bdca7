//! Output that the book shows, one file each, compared with what is printed now.

use std::fs;

/// Compares `text` with `book/src/output/NAME.txt`, or writes it there if `BAREVERBS_UPDATE_BOOK` is set.
pub fn is(name: &str, text: &str) {
    let path = crate::book::source().join("output").join(format!("{name}.txt"));
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("BAREVERBS_UPDATE_BOOK").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        kept, text,
        "the book shows something else: BAREVERBS_UPDATE_BOOK=1 cargo test -p bareverbs-tests --test integration book::"
    );
}
