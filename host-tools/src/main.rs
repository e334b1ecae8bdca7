//! The `bareverbs` command. Exit status: 0 for success, 1 if a problem was found, 2 if the command could not be carried
//! out as given.

use bareverbs_tools::{
    Failure, advise, advise_check, demo, devinfo, doctor, dpu, explain, gids, inject, ipoib, kernel,
    link_type, manual, monitor, offload_figures, perf, ping, report, run, serve, vfio,
};
use clap::{Arg, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use std::process::ExitCode;

/// RDMA verbs for mlx5-class NICs without the kernel, a simulated NIC to run them on, and the tools for both.
#[derive(Debug, Parser)]
#[command(name = "bareverbs", version = manual::VERSION, arg_required_else_help = true)]
struct Command {
    #[command(subcommand)]
    subcommand: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Look up every key of a file on a simulated server in six ways, and verify every value.
    Demo(demo::DemoArguments),
    /// Serve a simulated NIC to a virtual machine over vfio-user.
    Serve(serve::ServeArguments),
    /// Run an unmodified program with a simulated RDMA device.
    Run(run::RunArguments),
    /// Inject faults into the hosts of a `bareverbs run` network at given times.
    Inject(inject::InjectArguments),
    /// Show the properties of a device, or the differences between two devices.
    Devinfo(devinfo::DevinfoArguments),
    /// Show the GID table of a port, and which index reaches a peer and why no other does.
    Gids(gids::GidsArguments),
    /// Find out what keeps RDMA from working, and how to fix it.
    Doctor(doctor::DoctorArguments),
    /// Show a device's counters, their rates and what these mean, or export them to Prometheus.
    Monitor(monitor::MonitorArguments),
    /// Show or set the link type of a card's ports: InfiniBand or Ethernet.
    LinkType(link_type::LinkTypeArguments),
    /// Measure bandwidth or latency with perftest's options; the peer may be one of its `ib_*` programs.
    Perf(Box<perf::PerfArguments>),
    /// Probe a peer over datagrams or a connection: loss, duplicates, order, round-trip time.
    Ping(Box<ping::PingArguments>),
    /// Connect a TAP interface of this machine to an InfiniBand subnet with IP over InfiniBand.
    Ipoib(ipoib::IpoibArguments),
    /// Explain a completion status, a syndrome, an error name, a counter or a finding, and what to try.
    Explain(explain::ExplainArguments),
    /// Check, disassemble and try programs to deploy as kernels near data; deploy, list and remove them on a service.
    Kernel(Box<kernel::KernelArguments>),
    /// Serve kernels near data to tenants, or look up keys in such a service.
    Dpu(dpu::DpuArguments),
    /// Tell which way of looking up is fastest for given chains, sizes and loads, and at which length a kernel pays
    /// off.
    Advise(advise::AdviseArguments),
    /// Compare the advice with what lookups take in the simulator, over chains, sizes, updates and loads.
    AdviseCheck(advise_check::AdviseCheckArguments),
    /// Compute the figures of the StRoM paper with our kernels and stated costs, next to the paper's.
    OffloadFigures(offload_figures::FiguresArguments),
    /// Show what happened in a capture: a self-contained page, and a timeline for Perfetto.
    Report(report::ReportArguments),
    /// List, check, bind and unbind PCI functions for user-space drivers.
    Vfio(vfio::VfioArguments),
    /// Print shell completions.
    Completions(manual::CompletionsArguments),
    /// Write man pages.
    Man(manual::ManArguments),
}

/// Parses the command line.
fn parse() -> Command {
    let matches = with_negative_numbers(Command::command()).get_matches();
    Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Lets every option take a negative number, so that its own check says which numbers are possible. No option has a digit as its name.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let take = |option: Arg| {
        let takes_value = !option.is_positional() && option.get_action().takes_values();
        option.allow_negative_numbers(takes_value)
    };
    command.mut_args(take).mut_subcommands(with_negative_numbers)
}

fn main() -> ExitCode {
    let outcome = match parse().subcommand {
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
        Subcommands::AdviseCheck(arguments) => advise_check::run(&arguments),
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
