//! Links in the SA.

use super::*;
use crate::wire::management::administration::{LinkRecord, record};

/// Requirement: IBTA v1.4 §15.2.5.13: each cable has a LinkRecord for each direction, found by LIDs and ports of its
/// ends.
#[test]
fn each_cable_is_seen_from_both_ends() {
    let (mut switch, agents) = subnet(1);
    let mut links = |mask, query: &LinkRecord| {
        let wanted = request(method::GET_TABLE, record::LINK, mask, query);
        let (links, _) = table::<LinkRecord>(&mut switch, &agents, 0, &wanted);
        let ends = |link: &LinkRecord| (link.from_lid(), link.from_port(), link.to_lid(), link.to_port());
        links.iter().map(ends).collect::<Vec<_>>()
    };
    let (there, back) = ((MANAGER_LID, 2, 4, 1), (4, 1, MANAGER_LID, 2));
    let mut query = LinkRecord::new();
    assert_eq!(links(0, &query), [(MANAGER_LID, 1, 2, 1), (2, 1, MANAGER_LID, 1), there, back]);
    query.set_from_lid(5).set_to_lid(5).set_from_port(2).set_to_port(2);
    assert_eq!([links(1, &query), links(1 << 1, &query)], [[back], [there]]);
    assert_eq!([links(1 << 2, &query), links(1 << 3, &query)], [[back], [there]]);
    assert_eq!(links(1 | 1 << 3, &query), []);
}
