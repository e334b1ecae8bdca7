//! Fixtures that both tests of the exchange share.

use bareverbs_core::RemoteEndpoint;
use bareverbs_exchange::{Introduction, Listener};
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::psn::Psn;

/// The introduction of host `number`.
pub fn introduction(number: u8) -> Introduction {
    let endpoint = RemoteEndpoint {
        qpn: Qpn::from_low_bits(0x40 + u32::from(number)),
        psn: Psn::new(7),
        gid: Gid::from_ipv4([10, 0, 0, number]),
        mac: MacAddress([2, 0, 0, 0, 0, number]),
        version: None,
        lid: 0,
    };
    Introduction::new("test 1", endpoint)
}

/// A listener and its address.
pub fn listen() -> (Listener, String) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap().to_string();
    (listener, address)
}
