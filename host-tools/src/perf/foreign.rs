//! Options of perftest that have no effect here, and those that are not supported: a script written for
//! `ib_*` programs learns the reason, option by option. Both spellings work, `-` and `_`.

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
    handling: OptionHandling,
}

/// What happens to an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OptionHandling {
    /// It is ignored, for this reason.
    Ignored(&'static str),
    /// It is refused, for this reason.
    Refused(&'static str),
    /// The value 1 has no effect, any other is refused, for this reason.
    OnlyOne(&'static str),
}

use OptionHandling::{Ignored, OnlyOne, Refused};

const OUR_POLLING: &str = "this driver polls in its own way";
const ALWAYS_COMPARED: &str = "two ends of `bareverbs perf` always compare their bytes";
const ACCELERATOR: &str = "accelerator memory is not supported";
const CRYPTO: &str = "the driver has no encryption and no signatures of blocks";
const MULTICAST: &str = "multicast groups are not tested; name a peer";
const MEMORY: &str = "the buffer is DMA memory of this process, laid out as perftest's is";
const THE_DEVICE: &str = "the device decides";
const SOFTWARE_LIMITS: &str = "software limits the rate here";
const ONE_PORT: &str = "a device has one port here";
const PORT_BY_DEVICE: &str = "a device has one port here, since each port of a card is a PCI function of its own: name that of the second port with --device";

const fn flag(long: &'static str, handling: OptionHandling) -> ForeignOption {
    ForeignOption { long, short: None, takes_value: false, handling }
}

const fn value(long: &'static str, handling: OptionHandling) -> ForeignOption {
    ForeignOption { takes_value: true, ..flag(long, handling) }
}

const fn short(letter: char, option: ForeignOption) -> ForeignOption {
    ForeignOption { short: Some(letter), ..option }
}

const OPTIONS: &[ForeignOption] = &[
    short('F', flag("CPU-freq", Ignored("nothing here warns of it"))),
    short('i', value("ib-port", OnlyOne(PORT_BY_DEVICE))),
    flag("dont_xchg_versions", Ignored("versions are exchanged with every peer that exchanges them")),
    flag("use_old_post_send", Ignored(OUR_POLLING)),
    flag("no_lock", Ignored("one thread has the device")),
    flag("no_enhanced_reorder", Ignored(THE_DEVICE)),
    flag("use_ooo", Ignored(THE_DEVICE)),
    flag("disable_pcie_relaxed", Ignored(THE_DEVICE)),
    flag("disable_dynamic_polling", Ignored(OUR_POLLING)),
    value("cqe_poll", Ignored(OUR_POLLING)),
    value("force-link", Ignored("the port reports its link layer")),
    value("congest_type", Ignored(THE_DEVICE)),
    value("tph_mem", Ignored(THE_DEVICE)),
    value("cpu_id", Ignored(THE_DEVICE)),
    value("ph", Ignored(THE_DEVICE)),
    value("rate_limit_type", Ignored(SOFTWARE_LIMITS)),
    value("typical_pkt_size", Ignored(SOFTWARE_LIMITS)),
    flag("data_validation", Ignored(ALWAYS_COMPARED)),
    flag("data_validation_debug", Ignored(ALWAYS_COMPARED)),
    flag("use_hugepages", Ignored("DMA memory is in huge pages wherever the machine has free ones")),
    flag("disable_numa", Ignored("memory and threads are placed only on request")),
    short('z', flag("comm_rdma_cm", Ignored("-R connects both ends by RDMA CM"))),
    short('g', flag("mcg", Refused(MULTICAST))),
    short('M', value("MGID", Refused(MULTICAST))),
    flag("connectionless", Refused(MULTICAST)),
    short('O', flag("dualport", Refused(ONE_PORT))),
    flag("report-per-port", Refused(ONE_PORT)),
    value("log_dci_streams", Refused("the driver has no dynamically connected transport")),
    value("log_active_dci_streams", Refused("the driver has no dynamically connected transport")),
    flag("aes_xts", Refused(CRYPTO)),
    flag("encrypt_on_tx", Refused(CRYPTO)),
    flag("sig_before", Refused(CRYPTO)),
    flag("sig_offload", Refused(CRYPTO)),
    value("aes_block_size", Refused(CRYPTO)),
    value("data_enc_keys_number", Refused(CRYPTO)),
    value("kek_path", Refused(CRYPTO)),
    value("credentials_path", Refused(CRYPTO)),
    value("data_enc_key_app_path", Refused(CRYPTO)),
    flag("odp", Refused("every page of the buffer is present; paging on demand is the kernel's")),
    flag("use-null-mr", Refused(MEMORY)),
    value("mmap", Refused(MEMORY)),
    value("mmap-offset", Refused(MEMORY)),
    flag("unsolicited_write", Refused("immediate data always take a receive here: only SRD can do without")),
    value("use_cuda", Refused(ACCELERATOR)),
    value("use_cuda_bus_id", Refused(ACCELERATOR)),
    flag("use_cuda_dmabuf", Refused(ACCELERATOR)),
    flag("use_data_direct", Refused(ACCELERATOR)),
    value("cuda_mem_type", Refused(ACCELERATOR)),
    value("gpu_touch", Refused(ACCELERATOR)),
    value("use_rocm", Refused(ACCELERATOR)),
    flag("use_rocm_dmabuf", Refused(ACCELERATOR)),
    value("use_hl", Refused(ACCELERATOR)),
    value("use_neuron", Refused(ACCELERATOR)),
    flag("use_neuron_dmabuf", Refused(ACCELERATOR)),
    value("use_mlu", Refused(ACCELERATOR)),
    flag("use_mlu_dmabuf", Refused(ACCELERATOR)),
    value("use_musa", Refused(ACCELERATOR)),
    flag("use_musa_dmabuf", Refused(ACCELERATOR)),
    value("use_opencl", Refused(ACCELERATOR)),
    value("opencl_platform_id", Refused(ACCELERATOR)),
    flag("use_ib_dm_dmabuf", Refused(ACCELERATOR)),
];

/// Those of them that were given.
#[derive(Debug, Clone, Default)]
pub(super) struct ForeignArguments {
    given: Vec<GivenOption>,
}

#[derive(Debug, Clone)]
struct GivenOption {
    option: &'static ForeignOption,
    value: Option<String>,
}

impl ForeignArguments {
    /// Refuses unsupported options, and reports ignored ones.
    pub(super) fn check(&self) -> Result<()> {
        for GivenOption { option: ForeignOption { long, handling, .. }, value } in &self.given {
            match handling {
                OnlyOne(_) if value.as_deref() == Some("1") => {}
                OnlyOne(reason) => {
                    bail!("--{long} {} of perftest: {reason}", value.as_deref().unwrap_or_default())
                }
                Refused(reason) => bail!("--{long} of perftest is not supported: {reason}"),
                Ignored(reason) => eprintln!("--{long} is ignored: {reason}"),
            }
        }
        Ok(())
    }
}

/// Each option also with `-` and `_` exchanged.
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
        let given = OPTIONS.iter().filter(is_given).map(|option| GivenOption {
            option,
            value: option.takes_value.then(|| matches.get_one::<String>(option.long).cloned()).flatten(),
        });
        Ok(Self { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
