//! Resolving addresses and routes: it takes time, and may find nothing.

use super::*;

#[test]
fn a_resolution_leaves_its_peer_time_to_listen() {
    let mut b = Host::new("b");
    let id = b.create(1, RDMA_PS_TCP);
    b.resolve(id, ip("a"), PORT);
    assert_eq!(b.event().err(), Some(Errno::Again), "neighbours are not resolved at once");
    let due = b.connections.next_wakeup().unwrap();
    assert_eq!(due, Time::ZERO + Duration::from_millis(RESOLUTION));
    b.pass(RESOLUTION - 1);
    assert_eq!(b.event().err(), Some(Errno::Again));
    b.pass(1);
    b.expect(ADDRESS_RESOLVED);
    let route = CmResolveRoute { id, timeout_ms: 100 };
    b.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, 0).unwrap();
    assert_eq!(b.event().err(), Some(Errno::Again), "and neither are routes");
    assert_eq!(b.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, 0), Err(Errno::Invalid), "already resolving");
    let command = CmConnect { conn_param: parameters(0x41, b""), id, ..CmConnect::new_zeroed() };
    assert_eq!(b.write(RDMA_USER_CM_CMD_CONNECT, &command, 0), Err(Errno::Invalid), "there is no route yet");
    b.pass(RESOLUTION);
    b.expect(ROUTE_RESOLVED);
}

/// The next wakeup is that of the resolutions that are still under way.
#[test]
fn a_resolution_that_ends_or_is_destroyed_wakes_nobody() {
    let mut b = Host::new("b");
    let early = b.create(1, RDMA_PS_TCP);
    b.resolve(early, ip("a"), PORT);
    b.pass(1);
    let late = b.create(2, RDMA_PS_TCP);
    b.resolve(late, ip("a"), PORT);
    let wakeups = |b: &Host| b.connections.next_wakeup();
    assert_eq!(wakeups(&b), Some(Time::ZERO + Duration::from_millis(RESOLUTION)));
    let destroy = CmDestroyId { response: BASE, id: early, reserved: 0 };
    b.write(RDMA_USER_CM_CMD_DESTROY_ID, &destroy, size_of::<CmDestroyIdResp>()).unwrap();
    assert_eq!(wakeups(&b), Some(Time::ZERO + Duration::from_millis(1 + RESOLUTION)));
    b.pass(RESOLUTION);
    assert_eq!((b.expect(ADDRESS_RESOLVED).uid, wakeups(&b)), (2, None));
    b.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &CmResolveRoute { id: late, timeout_ms: 100 }, 0).unwrap();
    assert_eq!(wakeups(&b), Some(Time::ZERO + Duration::from_millis(1 + 2 * RESOLUTION)));
    b.pass(RESOLUTION);
    b.expect(ROUTE_RESOLVED);
    assert_eq!(wakeups(&b), None);
}

#[test]
fn an_absent_host_is_not_resolved() {
    let mut b = Host::new("b");
    let id = b.create(1, RDMA_PS_TCP);
    b.resolve(id, [198, 18, 255, 255], PORT);
    assert_eq!(b.event().err(), Some(Errno::Again), "the host may still appear");
    b.pass(99);
    assert_eq!(b.event().err(), Some(Errno::Again), "the timeout has not passed");
    b.pass(RESOLUTION);
    assert_eq!(b.expect(ADDRESS_ERROR).status.cast_signed(), -110);
}
