//! The table. Its vendor syndromes are those that users of ConnectX devices reported publicly, with the
//! source.

/// The kind of number or name of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `ibv_wc_status`.
    Completion,
    /// `syndrome` of an error completion.
    Syndrome,
    /// `vendor_err_synd` of an error completion.
    Vendor,
    /// Status byte of a command.
    Command,
    /// `errno` of a call of libibverbs.
    Errno,
    /// Asynchronous event.
    Event,
    /// Why a completion queue failed.
    CqError,
    /// Delivery status of a command.
    Delivery,
    /// `syndrome` of the health buffer.
    Health,
    /// State of a port.
    PortState,
    /// A result of `bareverbs ping`.
    Ping,
    /// How a lookup near data ended.
    Lookup,
    /// Why a program near data cannot be deployed, or failed.
    Program,
    /// Exit status of `bareverbs`.
    Exit,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Completion => "completion status",
            Self::Syndrome => "completion syndrome",
            Self::Vendor => "vendor syndrome",
            Self::Command => "command status",
            Self::Errno => "errno",
            Self::Event => "asynchronous event",
            Self::CqError => "completion queue error",
            Self::Delivery => "command delivery status",
            Self::Health => "health syndrome",
            Self::PortState => "port state",
            Self::Ping => "finding of ping",
            Self::Lookup => "status of a lookup",
            Self::Program => "fault of a program near data",
            Self::Exit => "exit status of bareverbs",
        }
    }

    /// Prefix of the stable ID.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Completion => "completion",
            Self::Syndrome => "syndrome",
            Self::Vendor => "vendor",
            Self::Command => "command",
            Self::Errno => "errno",
            Self::Event => "event",
            Self::CqError => "cq-error",
            Self::Delivery => "delivery",
            Self::Health => "health",
            Self::PortState => "port-state",
            Self::Ping => "ping",
            Self::Lookup => "lookup",
            Self::Program => "program",
            Self::Exit => "exit",
        }
    }
}

/// One row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// In capitals; the first is shown.
    pub(super) names: &'static [&'static str],
    pub(super) number: Option<u32>,
    pub(super) cause: &'static str,
    pub(super) compare: &'static str,
    pub(super) attempt: &'static str,
}

/// A completion status has two numbers: that of libibverbs and that of the device.
macro_rules! entries {
    (
        completions { $($wc:literal, $wc_name:literal, $syndrome:literal, $prm:literal: $c:literal, $v:literal, $t:literal;)* }
        others { $($kind:ident, $number:expr, [$($name:literal),+]: $cause:literal, $compare:literal, $attempt:literal;)* }
    ) => {
        pub(super) const ENTRIES: &[Entry] = &[
            $(
                Entry { kind: Kind::Completion, names: &[$wc_name], number: Some($wc), cause: $c, compare: $v, attempt: $t },
                Entry { kind: Kind::Syndrome, names: &[$prm], number: Some($syndrome), cause: $c, compare: $v, attempt: $t },
            )*
            $(Entry { kind: Kind::$kind, names: &[$($name),+], number: $number, cause: $cause, compare: $compare, attempt: $attempt },)*
        ];
    };
}

entries! {
    completions {
        1, "IBV_WC_LOC_LEN_ERR", 0x01, "LOCAL_LENGTH_ERR":
            "a message is longer than its receive, than the path MTU of a datagram, or than the device allows",
            "bytes of the SEND and of the receive's slices; of a datagram, 40 bytes more for the route header",
            "post larger receives, or split the message";
        2, "IBV_WC_LOC_QP_OP_ERR", 0x02, "LOCAL_QP_OP_ERR":
            "the device does not understand a work request, or the queue pair does not offer the operation",
            "service of the queue pair (READ and atomics need RC), atomic_cap, max_rd_atomic of at least 1",
            "use an operation of the service; look at the bytes of the work queue entry";
        4, "IBV_WC_LOC_PROT_ERR", 0x04, "LOCAL_PROT_ERR":
            "a slice names memory that its local key does not give",
            "lkey, address and length of each slice against the region; its protection domain against the queue pair's; LOCAL_WRITE for \
             receives, READs and atomics",
            "keep the region registered until the work request completes; register it in the same domain";
        5, "IBV_WC_WR_FLUSH_ERR", 0x05, "WR_FLUSH_ERR":
            "the queue pair is in ERROR (or SQE): this work request was not carried out because of an earlier failure",
            "the first completion that failed, and asynchronous events of the queue pair",
            "explain that first failure; then reset and connect again";
        6, "IBV_WC_MW_BIND_ERR", 0x06, "MW_BIND_ERR":
            "a memory window could not be bound to its region",
            "MW_BIND right and domain of the region, range and rights of the window",
            "register the region with the right to bind windows; ask for no right that the region has not";
        7, "IBV_WC_BAD_RESP_ERR", 0x10, "BAD_RESP_ERR":
            "the peer answered with a packet that does not fit the request",
            "path MTU at both ends, PSNs, whether two queue pairs think that they are connected to the same peer",
            "connect again with fresh PSNs; capture the wire";
        8, "IBV_WC_LOC_ACCESS_ERR", 0x11, "LOCAL_ACCESS_ERR":
            "the peer's WRITE with immediate data or SEND with invalidate ran into a protection fault here",
            "rkey, rights and range that the peer uses, against the region",
            "keep the region registered; invalidate only what may be invalidated";
        9, "IBV_WC_REM_INV_REQ_ERR", 0x12, "REMOTE_INVAL_REQ_ERR":
            "the peer refused the request as invalid",
            "qp_access_flags of the peer, its receive's length, max_rd_atomic here against max_dest_rd_atomic there, 8-byte alignment of atomics",
            "allow the operation on the peer's queue pair; post longer receives; make both read limits agree";
        10, "IBV_WC_REM_ACCESS_ERR", 0x13, "REMOTE_ACCESS_ERR":
            "the peer refused the remote key, the right or the range",
            "rkey and address as the peer sent them (byte order!), length, REMOTE_READ/REMOTE_WRITE/REMOTE_ATOMIC of the peer's region, its domain",
            "exchange key and address again; register with the right; keep it registered";
        11, "IBV_WC_REM_OP_ERR", 0x14, "REMOTE_OP_ERR":
            "the peer could not carry the request out: its own receive or queue is broken",
            "completions and events at the peer, lkey and rights of its receive",
            "fix the peer's receive";
        12, "IBV_WC_RETRY_EXC_ERR", 0x15, "TRANSPORT_RETRY_EXC_ERR":
            "the peer did not answer within all retries",
            "state of the peer's queue pair (RTR at least), dest_qp_num, sq_psn here against rq_psn there, path MTU at both ends, GIDs: index, \
             version (RoCE v1 or v2), family and VLAN; state and MTU of both ports; firewall for UDP 4791; timeout and retry_cnt",
            "ping between the two GIDs; compare QueuePair::diagnose of both ends; capture both ports";
        13, "IBV_WC_RNR_RETRY_EXC_ERR", 0x16, "RNR_RETRY_EXC_ERR":
            "the peer had no receive posted within all retries",
            "receives posted at the peer, rnr_retry here (7 is for ever), min_rnr_timer at the peer",
            "post receives before the peer sends; raise rnr_retry to 7";
        16, "IBV_WC_REM_ABORT_ERR", 0x22, "REMOTE_ABORTED_ERR":
            "the peer gave the operation up",
            "events at the peer; only reliable datagrams and DC have this status, not RC",
            "look at the peer's side";
    }
    others {
        Vendor, Some(0x81), ["VENDOR_TIMEOUT"]:
            "transport retry counter exceeded (NVIDIA/nccl issue 1405)",
            "as for IBV_WC_RETRY_EXC_ERR", "as for IBV_WC_RETRY_EXC_ERR";
        Vendor, Some(0x88), ["VENDOR_REMOTE_ACCESS"]:
            "the peer answered with a NAK for a remote access error (ofiwg/libfabric issue 4283)",
            "as for IBV_WC_REM_ACCESS_ERR", "as for IBV_WC_REM_ACCESS_ERR";
        Vendor, Some(0x89), ["VENDOR_REMOTE_OPERATION"]:
            "the peer answered with a NAK for a remote operational error",
            "as for IBV_WC_REM_OP_ERR", "as for IBV_WC_REM_OP_ERR";
        Vendor, Some(0x8a), ["VENDOR_REMOTE_INVALID"]:
            "the peer answered with a NAK for an invalid request (charmplusplus/charm issue 2532)",
            "as for IBV_WC_REM_INV_REQ_ERR", "as for IBV_WC_REM_INV_REQ_ERR";
        Vendor, Some(0x51), ["VENDOR_LOCAL_PROTECTION"]:
            "a local key does not give the memory (NVIDIA/nccl issue 214)",
            "as for IBV_WC_LOC_PROT_ERR", "as for IBV_WC_LOC_PROT_ERR; with device memory, that its driver lets the NIC reach it";
        Vendor, Some(0xf9), ["VENDOR_FLUSHED"]:
            "flushed with the queue pair (NVIDIA/nccl issue 1353)",
            "the first completion that failed", "explain that one";
        Command, Some(0x01), ["INT_ERR"]:
            "the firmware had an internal error", "health buffer, firmware version", "reset the device; update the firmware";
        Command, Some(0x02), ["BAD_OP_ERR"]:
            "the device has no such command", "opcode, and the capability that announces it", "ask the capability first";
        Command, Some(0x03), ["BAD_PARAM_ERR"]:
            "a field of the command has a value that the device does not take",
            "every field against the manual; for INIT2RTR: path MTU against the port's, GRH and GID index on RoCE, families of both GIDs; \
             for a modify: opt_param_mask against the transition",
            "decode the syndrome with the vendor; change one field at a time";
        Command, Some(0x04), ["BAD_SYS_STATE_ERR"]:
            "the device is not in the state for this command", "ENABLE_HCA, SET_ISSI, INIT_HCA in this order", "bring the device up in order";
        Command, Some(0x05), ["BAD_RES_ERR"]:
            "the command names an object that does not exist", "number of the object; who destroyed it", "create it first";
        Command, Some(0x06), ["RES_BUSY"]:
            "the object is in use", "who uses it", "destroy the users first";
        Command, Some(0x07), ["NOT_READY"]:
            "the device is not ready yet", "initializing bit of the initialization segment", "wait, then try again";
        Command, Some(0x08), ["LIM_ERR"]:
            "a limit of the device is exceeded", "the capability of what was asked for; log_sra_max and log_rra_max of a queue pair", "ask for less";
        Command, Some(0x09), ["BAD_RES_STATE_ERR"]:
            "the object is in a state in which this cannot be done", "users of the object: queue pairs of a completion queue, keys of a domain",
            "destroy the users first, in the reverse order of creation";
        Command, Some(0x0a), ["IX_ERR"]:
            "an index is outside of its table", "pkey_index, GID index, port, vector", "use an index within the table";
        Command, Some(0x0f), ["NO_RES_ERR"]:
            "no resources are left", "objects alive against the capabilities; pages given to the device", "free objects; give pages when the device asks";
        Command, Some(0x10), ["BAD_QP_STATE_ERR"]:
            "the queue pair is not in the state from which this transition starts",
            "state by QUERY_QP: it may have moved by itself to ERROR, SQE or SQD", "query, then take the transitions that lead on from there";
        Command, Some(0x30), ["BAD_PKT_ERR"]:
            "a management packet is malformed", "the packet", "fix the program that built it";
        Command, Some(0x40), ["BAD_SIZE_OUTS_CQES_ERR"]:
            "a completion queue holds more entries than its new size", "entries not polled", "poll first, then resize";
        Command, Some(0x50), ["BAD_INP_LEN_ERR"]:
            "the input of a command has a wrong length", "length of the layout, and of the page list behind it", "send the whole layout";
        Command, Some(0x51), ["BAD_OUTP_LEN_ERR"]:
            "the output of a command does not fit", "length of the layout", "make room for the whole output";
        Errno, Some(22), ["EINVAL"]:
            "a call of libibverbs was given what it does not take; from ibv_modify_qp: a transition without a required attribute or with a \
             forbidden one, or a value that firmware refuses",
            "attr_mask against the table of the transition; on RoCE is_global must be 1; path_mtu against active_mtu; sgid_index against the GID \
             table; pkey_index; max_rd_atomic against max_qp_rd_atom",
            "the bareverbs driver names the attributes: see QueuePair::modify and ConnectError";
        Errno, Some(110), ["ETIMEDOUT"]:
            "no answer: from ibv_modify_qp to RTR on RoCE, the Ethernet address of the peer's GID could not be resolved",
            "IP addresses of both ports, the route, ARP or neighbour table", "ping the peer's address from the same port";
        Errno, Some(12), ["ENOMEM"]:
            "no memory, or not enough of it may be locked", "ulimit -l, max_qp_wr, max_sge, size of the queues", "raise the limit of locked memory; ask for less";
        Errno, Some(16), ["EBUSY"]:
            "the object is still in use", "queue pairs of a completion queue, regions of a domain", "destroy the users first";
        Errno, Some(14), ["EFAULT"]:
            "memory that was to be registered is not mapped", "address and length against the mappings", "register mapped memory";
        Errno, Some(1), ["EPERM"]:
            "the operation needs a right that the process does not have, or is forbidden to all", "capabilities (CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN), seccomp and user namespaces of a container", "give the capability, or run as root";
        Errno, Some(13), ["EACCES"]:
            "the process may not do this", "/dev/infiniband, capabilities, ulimit -l", "give the rights, or run as the owner";
        Event, Some(0x03), ["SQ_DRAINED", "IBV_EVENT_SQ_DRAINED"]:
            "a send queue that was moved to SQD has ended what it had begun", "nothing is wrong", "change the attributes, then move to RTS";
        Event, Some(0x05), ["WQ_CATAS_ERROR", "IBV_EVENT_QP_FATAL"]:
            "a queue of the queue pair broke: it could not be read, or its completion queue is full or broken",
            "doorbell record, mapping of the rings, consumer index of the completion queue", "poll often enough; reset the queue pair";
        Event, Some(0x10), ["WQ_INVAL_REQ_ERROR", "IBV_EVENT_QP_REQ_ERR"]:
            "the peer sent a request that is invalid here", "as for IBV_WC_REM_INV_REQ_ERR, from the other end", "look at the peer's completion";
        Event, Some(0x11), ["WQ_ACCESS_ERROR", "IBV_EVENT_QP_ACCESS_ERR"]:
            "the peer asked for memory that its key does not give", "as for IBV_WC_REM_ACCESS_ERR, from the other end", "look at the peer's completion";
        Event, Some(0x04), ["CQ_ERROR", "IBV_EVENT_CQ_ERR"]:
            "a completion queue is full or broken", "its size against everything that may complete into it", "poll often enough; make it larger";
    }
}
