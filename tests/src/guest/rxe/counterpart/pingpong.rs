//! `ibv_rc_pingpong`: it receives into the buffer that it sends from, so every message of ours comes back.

use super::super::super::exchange::pingpong::{self, PingpongDestination};
use super::super::our_side::{PeerEnd, Work};
use super::super::pattern;
use super::part::{LIMIT, Meeting, Part, RECEIVES};
use anyhow::Result;
use std::cell::RefCell;

/// What the program's buffer holds before it has received anything.
const FILL: u8 = 0x7b;

impl Part<'_> {
    pub(super) fn pingpong(&mut self, meeting: Meeting<'_>) -> Result<String> {
        self.connection.post_receive(RECEIVES, self.near(0))?;
        self.exchange(meeting)?;
        let rounds = u64::from(self.case.iterations);
        match meeting {
            Meeting::Connect(_) => self.begin_rounds(rounds)?,
            Meeting::Accept(_) => self.answer_rounds(rounds)?,
        }
        Ok(format!("{} bytes compared", rounds * self.size() as u64))
    }

    /// Sends a message and expects it back.
    fn begin_rounds(&mut self, rounds: u64) -> Result<()> {
        for round in 0..rounds {
            let bytes = self.send(round)?;
            let both = [round, RECEIVES + round];
            if round + 1 < rounds {
                self.wait_for(&both)?
            } else {
                self.wait_for_last(&both, round)?
            }
            self.take(round, rounds, &bytes)?;
        }
        Ok(())
    }

    /// Expects the program's last message, then sends one. The next message may arrive before the ACK of this
    /// one, because the program answers as soon as it has received.
    fn answer_rounds(&mut self, rounds: u64) -> Result<()> {
        let mut expected = vec![FILL; self.size()];
        for round in 0..rounds {
            match round.checked_sub(1) {
                Some(before) => self.wait_for(&[before, RECEIVES + round])?,
                None => self.wait_for(&[RECEIVES])?,
            }
            self.take(round, rounds, &expected)?;
            expected = self.send(round)?;
        }
        self.wait_for_last(&[rounds - 1], rounds - 1)
    }

    /// Compares what was received and posts the receive of the next round.
    fn take(&mut self, round: u64, rounds: u64, expected: &[u8]) -> Result<()> {
        pattern::compare("message of the guest", &self.connection.bytes(self.near(0))?, expected)?;
        if round + 1 < rounds {
            self.connection.post_receive(RECEIVES + round + 1, self.near(0))?;
        }
        Ok(())
    }

    fn send(&mut self, round: u64) -> Result<Vec<u8>> {
        let bytes = pattern::message(round as u32, self.size());
        self.connection.fill(self.far(0).offset, &bytes)?;
        self.connection.post(round, Work::Send, self.far(0))?;
        Ok(bytes)
    }

    fn exchange(&mut self, meeting: Meeting<'_>) -> Result<()> {
        let own = self.connection.identity();
        let own = PingpongDestination { qpn: own.qpn, psn: own.psn, gid: own.gid, lid: own.lid };
        let mtu = self.case.mtu;
        let connection = RefCell::new(&mut self.connection);
        let mut meanwhile = || connection.borrow_mut().step();
        let mut connect = |peer: PingpongDestination| {
            let PingpongDestination { qpn, psn, gid, lid } = peer;
            let peer = PeerEnd { qpn, psn, gid, lid, outstanding_reads: 1 };
            connection.borrow_mut().connect(&peer, mtu)
        };
        match meeting {
            Meeting::Connect(address) => {
                let peer = pingpong::as_client(address, own, LIMIT, &mut meanwhile)?;
                connect(peer)
            }
            Meeting::Accept(listener) => {
                pingpong::as_server(listener, own, LIMIT, &mut connect, &mut meanwhile)
            }
        }
    }
}
