//! The metrics of a service as text for scrapers.

use super::service::ServiceFigures;
use crate::output::openmetrics::{Exposition, MetricType, ScrapeTexts};
use std::collections::BTreeMap;

/// The OpenMetrics text.
pub(super) fn exposition(figures: &ServiceFigures) -> ScrapeTexts {
    let mut text = Exposition::new();
    let (runtime, server) = (figures.runtime, figures.server);
    for (name, help, value) in [
        ("requests_accepted", "Requests that were run.", runtime.accepted),
        ("requests_refused", "Requests that were refused with an answer.", runtime.refused),
        ("requests_dropped", "Requests that could not be answered.", runtime.dropped),
        ("requests_withdrawn", "Requests that their client gave up.", runtime.withdrawn),
        (
            "requests_unreadable",
            "Requests that could not be copied out of their receive buffers.",
            server.unreadable,
        ),
        ("memory_reads", "Reads of the table that kernels and programs asked for.", runtime.dma_requests),
        ("streams", "Streams that were opened.", server.streams),
        ("replies", "Answers that were sent.", server.replies),
        ("replies_lost", "Answers that could not be sent.", server.lost_replies),
        ("connections_broken", "Connections that broke.", server.broken),
        ("connections_made", "Connections that were made.", figures.connected),
    ] {
        text.family(&format!("bareverbs_dpu_{name}"), MetricType::Counter, Some(help));
        text.sample(&[], value);
    }
    for (name, help, value) in [
        ("requests_running", "Requests that run now.", figures.running),
        ("programs", "Programs that answer now.", figures.programs),
        ("table_rows", "Rows of the table.", figures.rows),
    ] {
        text.family(&format!("bareverbs_dpu_{name}"), MetricType::Gauge, Some(help));
        text.sample(&[], value);
    }
    let mut tenants: BTreeMap<&str, usize> = BTreeMap::new();
    figures.connections.iter().for_each(|tenant| *tenants.entry(tenant).or_default() += 1);
    text.family("bareverbs_dpu_connections", MetricType::Gauge, Some("Connections of a tenant now."));
    for (tenant, connections) in tenants {
        text.sample(&[("tenant", tenant)], connections);
    }
    text.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs::offload::dpu::DpuCounters;
    use bareverbs::offload::runtime::Counters;

    #[test]
    fn every_figure_has_its_line_and_tenants_are_counted() {
        let figures = ServiceFigures {
            runtime: Counters { accepted: 3, ..Counters::default() },
            server: DpuCounters { replies: 2, streams: 7, ..DpuCounters::default() },
            running: 1,
            programs: 4,
            connections: vec!["b\"".into(), "a".into(), "b\"".into()],
            connected: 9,
            rows: 10,
        };
        let texts = exposition(&figures);
        for line in [
            "bareverbs_dpu_requests_accepted_total 3",
            "bareverbs_dpu_replies_total 2",
            "bareverbs_dpu_streams_total 7",
            "bareverbs_dpu_requests_running 1",
            "bareverbs_dpu_programs 4",
            "bareverbs_dpu_connections{tenant=\"a\"} 1",
            "bareverbs_dpu_connections{tenant=\"b\\\"\"} 2",
        ] {
            for text in [&texts.openmetrics, &texts.classic] {
                assert!(text.lines().any(|found| found == line), "{line} in {text}");
            }
        }
        assert!(texts.openmetrics.ends_with("# EOF\n") && !texts.classic.contains("EOF"));
    }
}
