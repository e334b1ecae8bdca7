//! What is said when a peer refuses a connection, or does not say what was asked for, and what to try.

use bareverbs_cm::{News, reason};
use bareverbs_perftest::line::{START_FIRST, START_OTHER_END};

/// What to try when the time for an answer is over.
pub(super) const NO_ANSWER: &str = START_FIRST;
/// What to try when nobody has asked.
pub(super) const NOBODY_ASKS: &str = START_OTHER_END;
/// What to try when a peer that was there has left.
pub(super) const PEER_LEFT: &str = "; its own output says why";
/// All communication IDs of this process are in use.
pub(super) const TOO_MANY: &str = "RDMA CM has too many connections: use fewer queue pairs (-q)";

/// What a peer does that neither accepts nor refuses, and what to try.
pub(super) fn silence(news: &News) -> String {
    match news {
        News::Unreachable => format!("does not answer{NO_ANSWER}"),
        News::Disconnected { .. } | News::TimeWaitOver => {
            format!("ends the connection before it began{PEER_LEFT}")
        }
        _ => format!("answers another question than was asked{NO_ANSWER}"),
    }
}

/// The text for a rejection reason (IBTA v1.4 §12.6.7.2).
pub(super) fn reason_text(number: u64) -> String {
    let known = [
        (reason::NO_RESOURCES, "it has no room for another one"),
        (reason::TIMEOUT, "it has given up"),
        (reason::INVALID_SERVICE_ID, "nobody listens there"),
        (reason::STALE_CONNECTION, "it has an earlier connection of this queue pair"),
        (reason::CONSUMER, "its program does not want it"),
    ];
    let found = known.iter().find(|(reason, _)| u64::from(*reason) == number);
    found.map_or_else(|| format!("reason {number}"), |(reason, text)| format!("{text} (reason {reason})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_comes_with_advice() {
        for (news, begin) in [
            (News::Unreachable, "does not answer; start the end that listens first"),
            (News::Disconnected { timed_out: false }, "ends the connection before it began; its own output"),
            (News::Established, "answers another question than was asked; "),
        ] {
            assert!(silence(&news).starts_with(begin), "{}", silence(&news));
        }
        assert_eq!(reason_text(8), format!("{} (reason 8)", "nobody listens there"));
        assert_eq!(reason_text(999), "reason 999");
    }
}
