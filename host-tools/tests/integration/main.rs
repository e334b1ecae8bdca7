//! Tests of the `bareverbs` command as a user types it. They are one program, which is built faster than one for each
//! file; `cargo test -p bareverbs-tools --test integration serve::` runs those of one file.

mod book;
mod cli;
mod deploy;
mod devinfo;
mod dpu;
mod dpu_host;
mod dpu_streams;
mod inject;
mod link_type;
mod manual;
mod monitor;
mod perf;
mod ping;
mod report;
mod run;
mod run_wire;
mod schemas;
mod serve;
mod serve_topology;
mod support;
mod tap;
