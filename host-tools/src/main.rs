//! The `bareverbs` command. Exit status: 0 if all is well, 1 if something was found to be wrong, 2 if the command could not
//! be carried out as given.

use bareverbs_tools::{
    Failure, advise, demo, devinfo, doctor, dpu, explain, gids, inject, ipoib, kernel, link_type, manual,
    monitor, offload_figures, perf, ping, report, run, serve, vfio,
};
use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

/// RDMA verbs for mlx5-class NICs, with nothing in between; and a simulated NIC to run them on.
#[derive(Debug, Parser)]
#[command(name = "bareverbs", version = manual::VERSION, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Fetch every key of a file from a simulated server, six ways, and check every value.
    Demo(demo::DemoArguments),
    /// Serve the simulated NIC to a virtual machine, over vfio-user.
    Serve(serve::ServeArguments),
    /// Run an unmodified program that finds a simulated RDMA device.
    Run(run::RunArguments),
    /// Inject faults into the hosts of a network of `bareverbs run`, at given times.
    Inject(inject::InjectArguments),
    /// Show what a device is and can do, or in what two devices differ.
    Devinfo(devinfo::DevinfoArguments),
    /// Show the GID table of a port, and which index reaches a peer.
    Gids(gids::GidsArguments),
    /// Find what keeps RDMA from working, and how to repair it.
    Doctor(doctor::DoctorArguments),
    /// Show the counters of a device, how fast they rise and what that says, or serve them to Prometheus.
    Monitor(monitor::MonitorArguments),
    /// Show or set whether the ports of a card are InfiniBand or Ethernet.
    LinkType(link_type::LinkTypeArguments),
    /// Measure bandwidth or latency, with perftest's options; the peer may be an `ib_*` program.
    Perf(Box<perf::PerfArguments>),
    /// Ask a peer whether it answers, over datagrams or a connection: loss, duplicates, order, time of the round trip.
    Ping(Box<ping::PingArguments>),
    /// Join a TAP interface of this machine with an InfiniBand subnet, by IP over InfiniBand.
    Ipoib(ipoib::IpoibArguments),
    /// Explain a completion status, a syndrome, a command status or the name of an error.
    Explain(explain::ExplainArguments),
    /// Check, disassemble and try programs that are deployed as kernels near data; deploy, list and remove them on a service.
    Kernel(Box<kernel::KernelArguments>),
    /// Serve kernels near data to tenants, and look keys up in such a service.
    Dpu(dpu::DpuArguments),
    /// Say which way of looking up is the fastest, for chains, sizes and loads, and from which length on a kernel pays.
    Advise(advise::AdviseArguments),
    /// Compute the figures of the StRoM paper from our kernels and stated costs, beside the paper's.
    OffloadFigures(offload_figures::FiguresArguments),
    /// Show what happened in a capture: a page without outside parts, and a timeline for Perfetto.
    Report(report::ReportArguments),
    /// List, check, bind and unbind PCI functions for user space.
    Vfio(vfio::VfioArguments),
    /// Print completions for a shell.
    Completions(manual::CompletionsArguments),
    /// Write man pages.
    Man(manual::ManArguments),
}

fn main() -> ExitCode {
    let outcome = match Command::parse().subcommand {
        Subcommands::Demo(arguments) => demo::run(&arguments),
        Subcommands::Serve(arguments) => serve::run(&arguments).map(|()| true),
        Subcommands::Run(arguments) => run::run(&arguments).map(|()| true),
        Subcommands::Inject(arguments) => inject::run(&arguments).map(|()| true),
        Subcommands::Devinfo(arguments) => devinfo::run(&arguments),
        Subcommands::Gids(arguments) => gids::run(&arguments),
        Subcommands::Doctor(arguments) => doctor::run(&arguments),
        Subcommands::Monitor(arguments) => monitor::run(&arguments),
        Subcommands::LinkType(arguments) => link_type::run(&arguments),
        Subcommands::Perf(arguments) => perf::run(&arguments),
        Subcommands::Ping(arguments) => ping::run(&arguments),
        Subcommands::Ipoib(arguments) => ipoib::run(&arguments).map(|()| true),
        Subcommands::Explain(arguments) => explain::run(&arguments),
        Subcommands::Kernel(arguments) => kernel::run(&arguments),
        Subcommands::Dpu(arguments) => dpu::run(&arguments),
        Subcommands::Advise(arguments) => advise::run(&arguments).map(|()| true),
        Subcommands::OffloadFigures(arguments) => offload_figures::run(&arguments),
        Subcommands::Report(arguments) => report::run(&arguments),
        Subcommands::Vfio(arguments) => vfio::run(&arguments),
        Subcommands::Completions(arguments) => manual::completions(Command::command(), &arguments),
        Subcommands::Man(arguments) => manual::man(Command::command(), &arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(failure) => complain(&failure),
    }
}

fn complain(failure: &Failure) -> ExitCode {
    match failure {
        Failure::Input(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
        Failure::Run(error) => {
            eprintln!("failed: {error:#}");
            ExitCode::from(1)
        }
    }
}
