//! The figures of a service as OpenMetrics 1.0 text.

use super::service::ServiceFigures;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The exposition.
pub(super) fn exposition(figures: &ServiceFigures) -> String {
    let mut text = String::new();
    let (runtime, server) = (figures.runtime, figures.server);
    for (name, help, value) in [
        ("requests_accepted", "Requests that were run.", runtime.accepted),
        ("requests_refused", "Requests that were refused with an answer.", runtime.refused),
        ("requests_dropped", "Requests that could not be answered.", runtime.dropped),
        (
            "requests_unreadable",
            "Requests that could not be copied out of their receive buffers.",
            server.unreadable,
        ),
        ("memory_reads", "Reads of the table that kernels and programs asked for.", runtime.dma_requests),
        ("replies", "Answers that were sent.", server.replies),
        ("replies_lost", "Answers that could not be sent.", server.lost_replies),
        ("connections_broken", "Connections that broke.", server.broken),
        ("connections_made", "Connections that were made.", figures.connected),
    ] {
        let _ = write!(
            text,
            "# TYPE bareverbs_dpu_{name} counter\n# HELP bareverbs_dpu_{name} {help}\nbareverbs_dpu_{name}_total {value}\n"
        );
    }
    for (name, help, value) in [
        ("requests_running", "Requests that run now.", figures.running),
        ("programs", "Programs that answer now.", figures.programs),
        ("table_rows", "Rows of the table.", figures.rows),
    ] {
        let _ = write!(
            text,
            "# TYPE bareverbs_dpu_{name} gauge\n# HELP bareverbs_dpu_{name} {help}\nbareverbs_dpu_{name} {value}\n"
        );
    }
    let mut tenants: BTreeMap<&str, usize> = BTreeMap::new();
    figures.connections.iter().for_each(|tenant| *tenants.entry(tenant).or_default() += 1);
    text.push_str("# TYPE bareverbs_dpu_connections gauge\n# HELP bareverbs_dpu_connections Connections of a tenant now.\n");
    for (tenant, connections) in tenants {
        let tenant = tenant.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = writeln!(text, "bareverbs_dpu_connections{{tenant=\"{tenant}\"}} {connections}");
    }
    text.push_str("# EOF\n");
    text
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
            server: DpuCounters { replies: 2, ..DpuCounters::default() },
            running: 1,
            programs: 4,
            connections: vec!["b\"".into(), "a".into(), "b\"".into()],
            connected: 9,
            rows: 10,
        };
        let text = exposition(&figures);
        for line in [
            "bareverbs_dpu_requests_accepted_total 3",
            "bareverbs_dpu_replies_total 2",
            "bareverbs_dpu_requests_running 1",
            "bareverbs_dpu_programs 4",
            "bareverbs_dpu_connections{tenant=\"a\"} 1",
            "bareverbs_dpu_connections{tenant=\"b\\\"\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
