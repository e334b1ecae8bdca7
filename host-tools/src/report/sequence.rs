//! The frames around the moment at which a connection failed, as a diagram of two lines with arrows.

use super::frames::Frame;
use super::tally::{Broken, Pair, address, refusal};
use std::collections::VecDeque;
use std::fmt::Write as _;

/// Frames that are shown before the failure, and after it.
const BEFORE: usize = 30;
const AFTER: usize = 10;
/// Pixels between two arrows.
const ROW: usize = 22;

/// One arrow.
struct Arrow {
    nanos: u64,
    /// Whether it goes from the requester to the responder.
    forth: bool,
    /// Whether it did not arrive.
    lost: bool,
    refused: bool,
    label: String,
}

/// Collects arrows of one connection.
pub(super) struct Sequence<'a> {
    broken: &'a Broken,
    arrows: VecDeque<Arrow>,
    after: usize,
    /// Interfaces of requests and of responses.
    seen: [Option<usize>; 2],
}

impl<'a> Sequence<'a> {
    pub(super) const fn new(broken: &'a Broken) -> Self {
        Self { broken, arrows: VecDeque::new(), after: 0, seen: [None; 2] }
    }

    pub(super) fn take(&mut self, frame: &Frame<'_>) {
        let Ok(packet) = &frame.packet else { return };
        let pair = Pair::of(packet);
        let Broken { pair: there, qpn, nanos, .. } = self.broken;
        let forth =
            pair == *there && !packet.bth.opcode.is_response() && packet.bth.destination.value() == *qpn;
        let back = pair == there.back() && packet.bth.opcode.is_response();
        // A frame that passes several interfaces is counted at the one where it was first seen.
        let seen = if forth { &mut self.seen[0] } else { &mut self.seen[1] };
        if (forth || back) && *seen.get_or_insert(frame.interface) != frame.interface {
            return;
        }
        let is_after = frame.nanos > *nanos;
        if !forth && !back || is_after && self.after == AFTER {
            return;
        }
        self.after += usize::from(is_after);
        if !is_after && self.arrows.len() == BEFORE {
            self.arrows.pop_front();
        }
        let refused = refusal(packet);
        let what = refused.map_or_else(|| packet.bth.opcode.to_string(), |(name, _)| format!("NAK: {name}"));
        let note = frame.note.map_or(String::new(), |note| format!(" ({note})"));
        self.arrows.push_back(Arrow {
            nanos: frame.nanos,
            forth,
            lost: frame.is_lost(),
            refused: refused.is_some(),
            label: format!("{what} PSN {}{note}", packet.bth.psn.value()),
        });
    }

    /// The diagram.
    pub(super) fn svg(&self) -> String {
        let height = ROW * (self.arrows.len() + 3);
        let Pair { from, to, .. } = self.broken.pair;
        let mut svg = format!("<svg class=\"plot\" viewBox=\"0 0 900 {height}\" role=\"img\">\n");
        for (x, name) in [(200, from), (700, to)] {
            let _ = writeln!(svg, "<text x=\"{x}\" y=\"16\" class=\"end\">{}</text>", escape(&address(name)));
            let _ = writeln!(svg, "<line x1=\"{x}\" y1=\"24\" x2=\"{x}\" y2=\"{height}\" class=\"life\"/>");
        }
        let first = self.arrows.front().map_or(0, |arrow| arrow.nanos);
        for (row, arrow) in self.arrows.iter().enumerate() {
            let y = ROW * (row + 2);
            let (start, end) = if arrow.forth { (200, 700) } else { (700, 200) };
            // The arrow of a lost frame ends in the middle.
            let end = if arrow.lost { 450 } else { end };
            let tip = if arrow.forth { end - 8 } else { end + 8 };
            let class = if arrow.lost || arrow.refused { "bad" } else { "good" };
            let micros = arrow.nanos.saturating_sub(first) as f64 / 1000.0;
            let _ = writeln!(svg, "<text x=\"110\" y=\"{}\" class=\"time\">{micros:.3} µs</text>", y + 4);
            let _ = writeln!(
                svg,
                "<path d=\"M{start} {y} L{end} {y} M{tip} {} L{end} {y} L{tip} {}\" class=\"{class}\"/>",
                y - 4,
                y + 4
            );
            let _ = writeln!(
                svg,
                "<text x=\"450\" y=\"{}\" class=\"label\">{}</text>",
                y - 3,
                escape(&arrow.label)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Escapes text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
