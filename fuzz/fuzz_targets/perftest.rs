//! A peer in perftest's exchange that sends anything, over TCP (lines of text) and over RDMA CM (records):
//! each message is accepted or refused.
#![no_main]

use anyhow::{Result, ensure};
use bareverbs_fuzz::Bytes;
use bareverbs_perftest::Role;
use bareverbs_perftest::exchange::{BandwidthReport, Destination, Session};
use bareverbs_perftest::line::{Carrier, DestinationForm, WaitHook};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::psn::Psn;
use libfuzzer_sys::fuzz_target;
use std::time::Duration;

/// The peer: it sends the input and discards what it receives.
struct Peer<'a> {
    input: Bytes<'a>,
    form: DestinationForm,
}

impl Carrier for Peer<'_> {
    fn send(&mut self, _: &[u8], _: &mut WaitHook<'_>) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, message: &mut [u8], _: &mut WaitHook<'_>) -> Result<()> {
        let said = self.input.take(message.len());
        ensure!(said.len() == message.len(), "the peer hung up");
        message.copy_from_slice(said);
        Ok(())
    }

    fn form(&self) -> DestinationForm {
        self.form
    }

    fn set_limit(&mut self, _: Duration) {}
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let kind = input.u8();
    let form = if kind & 1 == 0 { DestinationForm::Text } else { DestinationForm::Record };
    let role = if kind & 2 == 0 { Role::Server } else { Role::Client };
    let gid = if kind & 4 == 0 { Gid::from_ipv4([10, 0, 0, 1]) } else { Gid([0; 16]) };
    let (qpn, psn) = (Qpn::from_low_bits(0x42), Psn::new(7));
    let own =
        Destination { outstanding_reads: 16, qpn, psn, rkey: 7, address: 1 << 40, gid, lid: 5, shared_queue: None };
    let mut rest = || Ok(());
    let Ok(mut session) = Session::over(Box::new(Peer { input, form }), role, 4096, &mut rest) else { return };
    assert!([256, 512, 1024, 2048, 4096].contains(&session.mtu()), "the path MTU is not valid");
    for _ in 0..3 {
        let Ok(peer) = session.hand_shake(&own, &mut rest) else { return };
        let again = match form {
            DestinationForm::Text => Destination::parse(&peer.encode()),
            DestinationForm::Record => Destination::parse_record(&peer.encode_record()),
        };
        assert_eq!(again, Some(peer), "a parsed destination does not survive encoding");
    }
    let _ = session.exchange_reports(&BandwidthReport::default(), &mut rest);
});
