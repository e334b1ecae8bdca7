//! The page: one file without external parts or scripts.

use super::plots::{PlotLine, latencies, lines_over_time, over_time};
use super::sequence::escape;
use super::tally::{CaptureTally, address};
use bareverbs_sim::transport::RetransmissionCause;
use std::fmt::Write as _;

/// Flows that are listed; the others are only counted.
const LISTED: usize = 200;
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;color:#1a1a1a;background:#fff}\
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.1rem;margin-top:2rem}.plot{display:block;width:100%;min-width:34rem;height:auto}\
.wide{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2rem .7rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}.cause{border-left:4px solid #b00020;padding:.3rem 1rem;background:#fdf1f2;overflow-wrap:anywhere}\
code{overflow-wrap:anywhere}.end{text-anchor:middle;font-weight:bold}.label{text-anchor:middle;font-size:12px}.time{text-anchor:middle;font-size:11px;fill:#555}\
.life{stroke:#999;stroke-dasharray:3 3}.good{stroke:#1f5fa8;fill:none;stroke-width:1.5}.bad{stroke:#b00020;fill:none;stroke-width:1.5}";

/// The contents of the page.
pub(super) struct Page<'a> {
    pub(super) source: &'a str,
    pub(super) interfaces: &'a [String],
    pub(super) tally: &'a CaptureTally,
    /// The diagram of the failed connection.
    pub(super) sequence: Option<String>,
}

impl Page<'_> {
    pub(super) fn html(&self) -> anyhow::Result<String> {
        let mut html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n",
            escape(self.source)
        );
        let _ = writeln!(html, "<p>{}</p>", escape(&summary(self.tally, self.interfaces)));
        self.failure(&mut html);
        let CaptureTally { step_nanos, .. } = self.tally;
        let per_second = 1e9 / *step_nanos as f64;
        if self.tally.frames > 0 {
            let gigabits =
                over_time(self.tally, "Gbit/s", |step| step.bytes as f64 * 8.0 * per_second / 1e9)?;
            section(&mut html, "Traffic of all interfaces", &gigabits);
            let depth = over_time(self.tally, "requests", |step| step.depth as f64)?;
            section(&mut html, "Requests without an acknowledgement", &depth);
            let repeated = over_time(self.tally, "frames", |step| step.repeated as f64)?;
            section(&mut html, "Frames sent again", &repeated);
            self.congestion(&mut html)?;
            self.devices(&mut html)?;
        }
        self.latency(&mut html)?;
        self.flows(&mut html);
        html.push_str("</body></html>\n");
        Ok(html)
    }

    /// Switches' congestion marks and the receivers' notifications, if there were any.
    fn congestion(&self, html: &mut String) -> anyhow::Result<()> {
        if self.tally.steps.iter().all(|step| step.marked + step.notified == 0) {
            return Ok(());
        }
        let lines = [
            PlotLine::new("packets with a congestion mark", |step| step.marked),
            PlotLine::new("congestion notifications", |step| step.notified),
        ];
        let plot = lines_over_time(self.tally, "frames in a step of the axis", &lines)?;
        section(html, "Congestion", &plot);
        Ok(())
    }

    /// A histogram of all requests and, if there are several kinds, one of each.
    fn latency(&self, html: &mut String) -> anyhow::Result<()> {
        let latency = &self.tally.latency;
        if latency.all.is_empty() {
            html.push_str("<h2>Latency</h2>\n<p>No request was acknowledged.</p>\n");
            return Ok(());
        }
        let title = "Latency of requests, at the interface that the capture was taken at";
        section(html, title, &latencies(&latency.all)?);
        if latency.by_kind().count() > 1 {
            for (kind, histogram) in latency.by_kind() {
                section(html, &format!("Latency of {}", kind.name()), &latencies(histogram)?);
            }
        }
        self.percentiles(html);
        Ok(())
    }

    /// Information that only the devices have.
    fn devices(&self, html: &mut String) -> anyhow::Result<()> {
        let device = &self.tally.device;
        if device.again.iter().any(|count| *count > 0) {
            let lines = RetransmissionCause::ALL
                .map(|cause| PlotLine::new(cause.name(), move |step| step.again[cause as usize]));
            let plot = lines_over_time(self.tally, "packets", &lines)?;
            section(html, "Packets sent again, by what the device says why", &plot);
        }
        if device.is_empty() {
            return Ok(());
        }
        let under_way = over_time(self.tally, "work requests", |step| step.device.under_way as f64)?;
        section(html, "Work requests under way: fetched and not ended, of all devices", &under_way);
        let lines = [
            PlotLine::new("doorbells", |step| step.device.doorbells),
            PlotLine::new("completions", |step| step.device.completions),
            PlotLine::new("completions in error", |step| step.device.errors),
            PlotLine::new("interrupts", |step| step.device.interrupts),
        ];
        let plot = lines_over_time(self.tally, "in a step of the axis", &lines)?;
        section(html, "Doorbells, completions and interrupts of all devices", &plot);
        for line in device.text().lines().filter(|line| !line.is_empty()) {
            let _ = writeln!(html, "<p>{}</p>", escape(line));
        }
        Ok(())
    }

    fn failure(&self, html: &mut String) {
        let Some(broken) = &self.tally.broken else {
            html.push_str("<p>No connection failed.</p>\n");
            return;
        };
        let since = broken.nanos - self.tally.span.map_or(broken.nanos, |(first, _)| first).min(broken.nanos);
        let _ = writeln!(
            html,
            "<h2>A connection that failed</h2>\n<p class=\"cause\">From {} to queue pair {:#x} of {}, after {:.3} µs: {}.<br>\
             <code>bareverbs explain {}</code></p>",
            escape(&address(broken.pair.from)),
            broken.qpn,
            escape(&address(broken.pair.to)),
            since as f64 / 1000.0,
            escape(&broken.cause),
            broken.explain
        );
        for row in crate::explain::explain(broken.explain) {
            let _ = writeln!(
                html,
                "<p>{}. Compare: {}. Try: {}.</p>",
                escape(row.cause),
                escape(row.compare),
                escape(row.attempt)
            );
        }
        if let Some(sequence) = &self.sequence {
            let _ = writeln!(html, "<div class=\"wide\">{sequence}</div>");
        }
    }

    /// A column for each kind of request.
    fn percentiles(&self, html: &mut String) {
        html.push_str("<div class=\"wide\"><table><tr><th>percentile, in µs</th>");
        for (kind, histogram) in self.tally.latency.by_kind() {
            let _ = write!(html, "<th>{} ({})</th>", kind.name(), histogram.len());
        }
        html.push_str("</tr>\n");
        for percentile in [50.0, 90.0, 99.0, 99.9, 100.0] {
            let _ = write!(html, "<tr><td>{percentile}</td>");
            for (_, histogram) in self.tally.latency.by_kind() {
                let nanos = histogram.value_at_percentile(percentile);
                let _ = write!(html, "<td>{:.3}</td>", nanos as f64 / 1000.0);
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table></div>\n");
    }

    fn flows(&self, html: &mut String) {
        html.push_str(
            "<h2>Requests to each queue pair</h2>\n<div class=\"wide\"><table><tr><th>from, to</th><th>queue pair</th><th>at</th>\
             <th>frames</th><th>bytes</th><th>sent again</th><th>lost</th><th>refusals</th></tr>\n",
        );
        for ((pair, qpn), flow) in self.tally.flows.iter().take(LISTED) {
            let refusals: Vec<String> =
                flow.refusals.iter().map(|(name, count)| format!("{count} {name}")).collect();
            let at = self.interfaces.get(flow.interface).map_or("?", String::as_str);
            let _ = writeln!(
                html,
                "<tr><td>{} → {}</td><td>{qpn:#x}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escape(&address(pair.from)),
                escape(&address(pair.to)),
                escape(at),
                flow.frames,
                flow.bytes,
                flow.repeated,
                flow.lost,
                escape(&refusals.join(", "))
            );
        }
        html.push_str("</table></div>\n");
        let more = self.tally.flows.len().saturating_sub(LISTED);
        if more > 0 || self.tally.further > 0 {
            let _ = writeln!(
                html,
                "<p>{more} more flows, and {} frames of flows that were counted together.</p>",
                self.tally.further
            );
        }
    }
}

fn section(html: &mut String, title: &str, svg: &str) {
    let _ = writeln!(html, "<h2>{}</h2>\n<div class=\"wide\">{svg}</div>", escape(title));
}

/// A summary in one line.
pub(super) fn summary(tally: &CaptureTally, interfaces: &[String]) -> String {
    let length = tally.span.map_or(0, |(first, last)| last - first) as f64 / 1000.0;
    let sum = |count: fn(&super::tally::Flow) -> u64| tally.flows.values().map(count).sum::<u64>();
    let mut text = format!(
        "{} frames, {} bytes, {length:.3} µs, interfaces: {}; {} flows, {} frames sent again, {} lost",
        tally.frames,
        tally.bytes,
        if interfaces.is_empty() { "none".to_owned() } else { interfaces.join(", ") },
        tally.flows.len(),
        sum(|flow| flow.repeated),
        sum(|flow| flow.lost)
    );
    for (why, count) in tally.unread.iter().take(8) {
        let _ = write!(text, "; {count} frames not read: {why}");
    }
    text
}
