//! Options of perftest that change nothing here, and those that nobody has here: a script that was written for `ib_*` programs hears why,
//! option by option. Both spellings are understood, `-` and `_`.

use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use std::sync::LazyLock;

/// An option of perftest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ForeignOption {
    long: &'static str,
    short: Option<char>,
    takes_value: bool,
    fate: OptionFate,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionFate {
    /// It is ignored, since.
    Ignored(&'static str),
    /// It is refused, since.
    Refused(&'static str),
}

use OptionFate::{Ignored, Refused};

const OUR_POLLING: &str = "this driver polls as it always does";
const ALWAYS_COMPARED: &str = "two ends of `bareverbs perf` always compare their bytes";
const ACCELERATOR: &str = "there is no memory of accelerators here";
const CRYPTO: &str = "the driver has no encryption and no signatures of blocks";
const MULTICAST: &str = "groups are not tested; take a peer";
const MEMORY: &str = "the buffer is one region of DMA memory, laid out as perftest's is";
const PLACEMENT: &str = "start the command with taskset or numactl";
const ONE_PORT: &str = "a device has one port here";

const fn flag(long: &'static str, fate: OptionFate) -> ForeignOption {
    ForeignOption { long, short: None, takes_value: false, fate }
}

const fn value(long: &'static str, fate: OptionFate) -> ForeignOption {
    ForeignOption { takes_value: true, ..flag(long, fate) }
}

const fn short(letter: char, option: ForeignOption) -> ForeignOption {
    ForeignOption { short: Some(letter), ..option }
}

const OPTIONS: &[ForeignOption] = &[
    short('F', flag("CPU-freq", Ignored("nothing here warns of it"))),
    short('i', value("ib-port", Ignored(ONE_PORT))),
    flag("dont_xchg_versions", Ignored("versions are exchanged with whoever exchanges them")),
    flag("use_old_post_send", Ignored(OUR_POLLING)),
    flag("no_lock", Ignored("one thread has the device")),
    flag("no_enhanced_reorder", Ignored("the device decides")),
    flag("use_ooo", Ignored("the device decides")),
    flag("disable_pcie_relaxed", Ignored("the device decides")),
    flag("disable_dynamic_polling", Ignored(OUR_POLLING)),
    value("cqe_poll", Ignored(OUR_POLLING)),
    value("force-link", Ignored("the port says what it is")),
    value("congest_type", Ignored("the device decides")),
    value("wait_destroy", Ignored("queue pairs go when nothing is on its way to them any more")),
    flag("perform_warm_up", Ignored("--margin leaves out how a test begins")),
    flag("data_validation", Ignored(ALWAYS_COMPARED)),
    flag("data_validation_debug", Ignored(ALWAYS_COMPARED)),
    short('z', flag("comm_rdma_cm", Ignored("-R lets both ends meet by RDMA CM"))),
    value("report-counters", Ignored("--json has the counters of the test's queue pairs")),
    short(
        'C',
        flag(
            "report-cycles",
            Refused("a device's clock here counts nanoseconds and no cycles; times are in µs"),
        ),
    ),
    short('g', flag("mcg", Refused(MULTICAST))),
    short('M', value("MGID", Refused(MULTICAST))),
    flag("connectionless", Refused(MULTICAST)),
    short('O', flag("dualport", Refused(ONE_PORT))),
    flag("report-per-port", Refused(ONE_PORT)),
    short('X', value("vector", Refused("events come by the vectors that the device gives this process"))),
    value("log_dci_streams", Refused("the driver has no dynamically connected transport")),
    value("log_active_dci_streams", Refused("the driver has no dynamically connected transport")),
    flag("aes_xts", Refused(CRYPTO)),
    flag("encrypt_on_tx", Refused(CRYPTO)),
    flag("sig_before", Refused(CRYPTO)),
    flag("sig_offload", Refused(CRYPTO)),
    flag("odp", Refused("every page of the buffer is present; paging on demand is not tested")),
    flag("use_hugepages", Refused(MEMORY)),
    flag("mr_per_qp", Refused(MEMORY)),
    flag("use-null-mr", Refused(MEMORY)),
    value("mmap", Refused(MEMORY)),
    value("mmap-offset", Refused(MEMORY)),
    value("payload_file_path", Refused(MEMORY)),
    flag("unsolicited_write", Refused("immediate data always take a receive here: only SRD can do without")),
    value("recv_post_list", Refused("receives are posted one by one")),
    value(
        "latency_gap",
        Refused("a message of a latency test goes when its answer has come; --rate_limit spaces those of bw"),
    ),
    flag("reversed", Refused("give the server the client's part instead")),
    flag("cpu_util", Refused("take the time of the process from the shell")),
    value("pin_cores", Refused(PLACEMENT)),
    value("numa_node", Refused(PLACEMENT)),
    flag("disable_numa", Ignored("nothing here places itself")),
    value("pkey_index", Refused("the first P_Key of the table is used")),
    value("dlid", Refused("the peer tells its LID")),
    flag("ipv6", Refused("choose the GID with -x")),
    flag("ipv6-addr", Refused("name the peer by its address of IPv6")),
    value("bind_source_ip", Refused("--address gives the port its addresses, and -x chooses one")),
    value("use_cuda", Refused(ACCELERATOR)),
    value("use_rocm", Refused(ACCELERATOR)),
    value("use_hl", Refused(ACCELERATOR)),
    value("use_neuron", Refused(ACCELERATOR)),
    value("use_mlu", Refused(ACCELERATOR)),
    value("use_musa", Refused(ACCELERATOR)),
];

/// Those of them that were given.
#[derive(Debug, Clone, Default)]
pub(super) struct ForeignArguments {
    given: Vec<&'static ForeignOption>,
}

impl ForeignArguments {
    /// Refuses what nobody has here; says what is ignored.
    pub(super) fn check(&self) -> Result<()> {
        for ForeignOption { long, fate, .. } in &self.given {
            match fate {
                Refused(reason) => bail!("--{long} of perftest is not spoken: {reason}"),
                Ignored(reason) => eprintln!("--{long} is ignored: {reason}"),
            }
        }
        Ok(())
    }
}

/// Each with the other of `-` and `_`.
static SPELLINGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let other = |option: &ForeignOption| match option.long.contains('_') {
        true => option.long.replace('_', "-"),
        false => option.long.replace('-', "_"),
    };
    OPTIONS.iter().map(other).collect()
});

impl Args for ForeignArguments {
    fn augment_args(command: Command) -> Command {
        OPTIONS.iter().zip(SPELLINGS.iter()).fold(command, |command, (option, other)| {
            let action = if option.takes_value { ArgAction::Set } else { ArgAction::SetTrue };
            let arg = Arg::new(option.long).long(option.long).short(option.short).action(action).hide(true);
            command.arg(if other == option.long { arg } else { arg.alias(other.as_str()) })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ForeignArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given =
            |option: &&ForeignOption| matches.value_source(option.long) == Some(ValueSource::CommandLine);
        Ok(Self { given: OPTIONS.iter().filter(is_given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
