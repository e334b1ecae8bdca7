//! The figures hold, or say where they do not.

use super::*;

#[test]
fn every_point_of_every_figure_is_within_ten_percent_or_has_a_sentence() {
    let rows = all(&Components::STROM_10G).expect("the kernels run");
    for row in &rows {
        assert!(row.is_explained(), "{row:?}");
        assert!(row.here.is_finite() && row.here > 0.0, "{row:?}");
    }
    let points = |figure: &str| rows.iter().filter(|row| row.figure.starts_with(figure)).count();
    assert_eq!(["7", "8", "9", "10", "11", "13"].map(points), [4, 7, 14, 6, 8, 6]);
    let apart: Vec<&FigureRow> = rows.iter().filter(|row| !row.is_close()).collect();
    assert!(apart.len() <= 5, "too many rows need an explanation: {apart:#?}");
}

/// A model whose results did not depend on its components would be no model.
#[test]
fn the_ratios_follow_the_components() {
    let fast_pcie = Components { pcie_per_byte: 0.0, crc_on_client_per_byte: 0.0, ..Components::STROM_10G };
    let (slow, fast) = (all(&Components::STROM_10G).expect("rows"), all(&fast_pcie).expect("rows"));
    let at = |rows: &[FigureRow], figure: &str, point: &str, what: &str| {
        let row =
            rows.iter().find(|row| row.figure.starts_with(figure) && row.point == point && row.what == what);
        row.expect("a row").here
    };
    let check = |rows: &[FigureRow]| at(rows, "9", "4096 B", "READ and check / READ");
    assert!(check(&slow) > 1.4 && (check(&fast) - 1.0).abs() < 1e-9);
    let kernel = |rows: &[FigureRow]| at(rows, "9", "4096 B", "kernel / READ");
    assert!(kernel(&slow) > kernel(&fast));
}

#[test]
fn the_text_has_a_line_for_each_point() {
    let rows = all(&Components::STROM_10G).expect("rows");
    assert_eq!(text(&Components::STROM_10G, &rows).lines().count(), rows.len() + 1);
}
