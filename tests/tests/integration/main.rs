//! Tests that need several crates. They are one program, because most of the time that a build of a program for
//! each file would take goes into compiling the same generic code again and linking it.
//!
//! `cargo test -p bareverbs-tests --test integration verbs_walk` runs those of one file.

mod book;
mod boot_trace;
mod boot_trace_driver;
mod boot_trace_sim;
mod cluster;
mod completions;
mod conversation;
mod crossing;
mod datagrams;
mod dpu_on_a_card;
mod dpu_streams;
mod errors;
mod examples;
mod futures;
mod infiniband;
mod mad_oracle;
mod management_capture;
mod memory;
mod places;
mod port;
mod prelude;
mod prm_oracle;
mod random_walk;
mod readme;
mod roce_v1;
mod send_queue_error;
mod served_card;
mod shared_datagrams;
mod shared_receive;
mod shared_walk;
mod states;
mod subnet;
mod tokio;
mod unforgiving;
mod unreliable;
mod verbs_walk;
mod waiting;
mod window_walk;
mod wire_judges;
mod xrc;
