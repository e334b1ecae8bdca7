//! How commands and lookups end: exit statuses, the statuses of kernels near data, and harmless events.

use super::table::{Entry, Kind};
use bareverbs_offload::status::Status;

macro_rules! entries {
    ($($kind:ident, $number:expr, [$($name:literal),+]: $cause:literal, $compare:literal, $attempt:literal;)*) => {
        pub(super) const ENTRIES: &[Entry] = &[
            $(Entry { kind: Kind::$kind, names: &[$($name),+], number: $number, cause: $cause, compare: $compare, attempt: $attempt },)*
        ];
    };
}

entries! {
    Exit, None, ["EXIT_0"]: "the command was carried out and found nothing wrong", "nothing", "nothing: all is well";
    Exit, None, ["EXIT_1"]:
        "the command ran and found something wrong: a bad finding, a lost probe, a missed limit, a failed \
         connection; or it failed while it ran ('failed:' on standard error)",
        "the findings on standard output, the failure on standard error", "give what is printed there to bareverbs explain";
    Exit, None, ["EXIT_2"]:
        "the command could not be carried out as given ('error:' on standard error): arguments that \
         contradict each other, or a missing device, file or peer",
        "the names in the message against those that exist", "bareverbs COMMAND --help; for a device: bareverbs doctor --device DEVICE";
    Exit, None, ["EXIT_130"]:
        "a test without an end (perf --run_infinitely) was interrupted a second time, before it could tell its peer", "nothing",
        "interrupt once: it ends and shows its figures";
    Event, Some(0x00), ["COMP"]: "a completion queue that was armed has completions", "nothing is wrong", "poll it, then arm it again";
    Event, Some(0x01), ["PATH_MIG", "IBV_EVENT_PATH_MIG"]:
        "a queue pair has gone over to its alternate path", "why the first path failed: link state, cable", "load another alternate path";
    Event, Some(0x02), ["COMM_EST", "IBV_EVENT_COMM_EST"]:
        "the first packet of the peer came to a queue pair that cannot send yet", "nothing is wrong", "go on to RTS";
    Event, Some(0x07), ["PATH_MIG_FAILED", "IBV_EVENT_PATH_MIG_ERR"]:
        "a queue pair could not go over to its alternate path", "alternate path of both ends", "load a path that leads to the peer";
    Event, Some(0x0a), ["CMD"]: "a command has ended", "nothing is wrong", "nothing";
    Event, Some(0x0b), ["PAGE_REQUEST"]:
        "firmware asks for pages of host memory, or gives some back", "nothing is wrong", "nothing: the driver answers with MANAGE_PAGES";
}

/// Messages of `bareverbs kernel run`, `dpu` and `demo` about a lookup. The cause is the text that they
/// print.
macro_rules! lookups {
    ($($status:ident, $name:literal: $cause:literal, $compare:literal, $attempt:literal;)*) => {
        pub(super) const LOOKUPS: &[(Status, Entry)] = &[
            $((Status::$status, Entry { kind: Kind::Lookup, names: &[$name], number: None, cause: $cause, compare: $compare, attempt: $attempt }),)*
        ];
    };
}

lookups! {
    Ok, "LOOKUP_OK": "the answer is complete", "nothing", "nothing: all is well";
    NotFound, "LOOKUP_NOT_FOUND":
        "the structure was walked to its end and does not hold the key", "the key, byte for byte; the root that was asked",
        "write the key first; ask the right structure";
    NoKernel, "LOOKUP_NO_KERNEL":
        "no kernel is deployed under the op-code of the request", "op-codes of the service: bareverbs kernel list",
        "deploy one: bareverbs kernel deploy";
    BadParameters, "LOOKUP_BAD_PARAMETERS":
        "the kernel does not understand the parameters", "their length and layout against the kernel's documentation", "fix the request";
    OutOfBounds, "LOOKUP_OUT_OF_BOUNDS":
        "a pointer led out of the memory that the connection was granted", "root and pointers against address and length of the grant",
        "grant the whole structure, or fix the pointer";
    HopLimit, "LOOKUP_HOP_LIMIT":
        "more elements were visited than the request allows", "length of the longest chain; a chain that leads back to itself",
        "raise the limit, or fix the chain";
    ByteLimit, "LOOKUP_BYTE_LIMIT":
        "more bytes would have been read than the request allows", "bytes of the elements on the way and of the value", "raise the limit";
    Deadline, "LOOKUP_DEADLINE":
        "the request was not finished in time", "load of the service; hops and bytes of the lookup", "give it more time, or the service less to do";
    Inconsistent, "LOOKUP_INCONSISTENT":
        "the value was being written at every try: its versions or its checksum never agreed", "how often the key is written",
        "try again; write less often in place";
    Busy, "LOOKUP_BUSY":
        "another writer kept the place busy, or the service is full", "tenants and slots of the service", "try again later";
    Revoked, "LOOKUP_REVOKED": "the grant was withdrawn while the kernel ran", "who withdrew it", "ask for a new grant";
    DmaFault, "LOOKUP_DMA_FAULT":
        "the memory of the host did not answer", "whether the memory is still registered; IOMMU faults in dmesg", "register it again and grant it anew";
    Truncated, "LOOKUP_TRUNCATED":
        "the answer is larger than the space for it", "size in the reply against that of the slot", "offer a slot of the size that the reply states";
    Fallback, "LOOKUP_FALLBACK": "the request was handed to the processor of the host", "nothing is wrong", "nothing";
    ProgramFault, "LOOKUP_PROGRAM_FAULT":
        "a deployed program accessed memory outside its segments, or returned something that is not a verb", "its accesses, step by step",
        "bareverbs kernel run shows the instruction; fix the program and deploy it again";
    OutOfFuel, "LOOKUP_OUT_OF_FUEL":
        "a deployed program used up what a step or an invocation may use", "loops without an end; steps that bareverbs kernel run counts",
        "shorten it, or allow it more fuel";
    NotAllowed, "LOOKUP_NOT_ALLOWED":
        "the connection may not deploy programs", "who may: the owner of the DPU says", "ask the owner to allow it";
    TakenBack, "LOOKUP_TAKEN_BACK":
        "the host took its memory back while it was read, or was reset", "whether the host runs", "ask the host to share its memory again";
    ShuttingDown, "LOOKUP_SHUTTING_DOWN":
        "the service ends what runs and begins nothing more", "whether it comes back", "ask again when it is back";
    ReadOnly, "LOOKUP_READ_ONLY":
        "something was to be written where the connection may only read", "rights of the grant", "ask for a grant to write";
    NoAtomics, "LOOKUP_NO_ATOMICS":
        "the way to the memory cannot compare and swap", "whether the kernel runs in the NIC or on the DPU", "run it where atomics are";
    Withdrawn, "LOOKUP_WITHDRAWN": "the client gave the request up and said so", "nothing is wrong", "nothing";
    NoStream, "LOOKUP_NO_STREAM":
        "bytes of a stream came that belong to none: its call was answered before, or the service keeps no streams",
        "the answer to the call that opened the stream; how much of it was sent", "open the stream again, from its beginning";
}

/// The status that a line of a tool names. A text of one or two words must stand alone, because "ok" may be
/// about anything.
pub(super) fn lookup_in(what: &str) -> impl Iterator<Item = &'static Entry> {
    let what = what.trim();
    let failed = LOOKUPS.iter().filter(|(status, _)| *status != Status::Ok);
    failed.filter(move |(status, _)| is_named(&status.to_string(), what)).map(|(_, entry)| entry)
}

fn is_named(status: &str, what: &str) -> bool {
    let is_sentence = status.split_whitespace().count() > 2;
    what == status || is_sentence && what.contains(status) || what.strip_prefix("no answer: ") == Some(status)
}
