//! The rest of the table: success, health, delivery of commands, completion queues, ports.

use super::table::{Entry, Kind};

macro_rules! entries {
    ($($kind:ident, $number:expr, [$($name:literal),+]: $cause:literal, $compare:literal, $attempt:literal;)*) => {
        pub(super) const ENTRIES: &[Entry] = &[
            $(Entry { kind: Kind::$kind, names: &[$($name),+], number: $number, cause: $cause, compare: $compare, attempt: $attempt },)*
        ];
    };
}

entries! {
    Completion, Some(0), ["IBV_WC_SUCCESS", "SUCCESS", "OK"]:
        "the work request was carried out", "nothing", "nothing: all is well";
    CqError, Some(0x01), ["CQ_OVERRUN"]:
        "a completion queue was full when something completed: the completion is lost, and its queue pairs go to ERROR",
        "entries of the queue against everything that may complete into it: the sends and receives of all its queue pairs",
        "make the queue larger, or poll more often; then reset and connect again";
    CqError, Some(0x02), ["CQ_ACCESS_VIOLATION_ERROR"]:
        "the device could not write to the memory of a completion queue",
        "mapping of the ring in the IOMMU; whether its memory was freed", "keep the memory mapped until the queue is destroyed";
    Delivery, Some(0x01), ["SIGNAT_ERR"]:
        "the signature of a command is wrong: its bytes changed on the way", "every byte of the entry and its mailboxes", "look for DMA faults (dmesg)";
    Delivery, Some(0x02), ["TOK_ERR"]:
        "the mailboxes of a command have another token than its entry", "token of the entry and of each block", "fill mailboxes before the doorbell";
    Delivery, Some(0x03), ["BAD_BLK_NUM_ERR"]:
        "the mailboxes of a command are not numbered from 0 on", "block numbers", "number the blocks in order";
    Delivery, Some(0x04), ["OUT_PTR_ALIGN_ERR"]:
        "the output mailbox of a command is not aligned", "output pointer", "align it to 512 bytes";
    Delivery, Some(0x05), ["IN_PTR_ALIGN_ERR"]:
        "the input mailbox of a command is not aligned", "input pointer", "align it to 512 bytes";
    Delivery, Some(0x06), ["FW_ERR"]:
        "firmware failed while it took a command", "health buffer", "reset the device; update the firmware";
    Delivery, Some(0x07), ["IN_LENGTH_ERR"]:
        "the input of a command is longer than its mailboxes", "input length against the chain", "chain enough blocks";
    Delivery, Some(0x08), ["OUT_LENGTH_ERR"]:
        "the output of a command is longer than its mailboxes", "output length against the chain", "chain enough blocks";
    Delivery, Some(0x09), ["RES_FLD_NOT_CLR_ERR"]:
        "a reserved field of a command entry is not zero", "bytes of the entry", "zero the entry before it is filled";
    Delivery, Some(0x10), ["CMD_DESCR_ERR"]:
        "the entry of a command is malformed", "bytes of the entry", "compare with the manual, command queue entry layout";
    Health, Some(0x01), ["FW_INTERNAL_ERR"]:
        "firmware stopped at an assertion", "assert_exit_ptr, extended syndrome, firmware version", "reset the device; update the firmware";
    Health, Some(0x07), ["DEAD_IRISC"]:
        "a processor of the device does not answer", "firmware version, temperature", "power the machine off and on; replace the card";
    Health, Some(0x08), ["HW_FATAL_ERR"]:
        "the hardware is broken, or lost power", "power and temperature of the card", "power the machine off and on; replace the card";
    Health, Some(0x09), ["FW_CRC_ERR"]:
        "the firmware in the memory of the device is damaged", "firmware image", "burn the firmware again";
    Health, Some(0x0a), ["ICM_FETCH_PCI_ERR"]:
        "the device could not read host memory that it owns: command queue, mailboxes or its pages",
        "mappings of the IOMMU (dmesg: DMAR, AMD-Vi), bus master enable", "keep the pages mapped until the device has given them back; then reset";
    Health, Some(0x0b), ["ICM_PAGE_ERR"]:
        "the device has a bad page of host memory", "pages that MANAGE_PAGES gave", "give whole pages, and none twice; then reset";
    Health, Some(0x0c), ["ASYNCHRONOUS_EQ_BUF_OVERRUN"]:
        "the queue of asynchronous events is full: events are lost", "consumer index of the event queue, its entries", "poll events; make the queue larger";
    Health, Some(0x0d), ["EQ_IN_ERR"]:
        "an event queue is in error", "state of the event queue", "reset the device";
    Health, Some(0x0e), ["EQ_INV"]:
        "an event queue is armed with an impossible consumer index", "doorbell of the event queue", "write the index of the last entry taken";
    Health, Some(0x0f), ["FFSER_ERR"]:
        "a soft error of the memory in the device", "how often it comes", "reset the device; replace the card if it comes again";
    Health, Some(0x10), ["HIGH_TEMP_ERR"]:
        "the card is too hot and has stopped", "temperature, airflow", "cool it; then power the machine off and on";
    Health, Some(0x12), ["ICM_PCI_POISONED_ERR"]:
        "poisoned data came over PCIe: host memory or the bus is broken", "machine check log, PCIe AER", "look at the memory and the slot";
    Command, Some(0x00), ["CMD_STAT_OK"]: "the command was carried out", "nothing", "nothing: all is well";
    PortState, Some(1), ["PORT_DOWN", "IBV_PORT_DOWN", "DOWN", "POLLING"]:
        "the port has no link",
        "cable and module; whether software switched the port off (Disabled); link layers of both ends: InfiniBand and Ethernet never meet, \
         and both poll for ever (LINK_TYPE_P1)",
        "bareverbs doctor --device DEVICE --peer FILE; mstconfig -d BDF query LINK_TYPE_P1";
    PortState, Some(2), ["PORT_INIT", "IBV_PORT_INIT", "INIT"]:
        "an InfiniBand port has a link and no subnet manager has configured it", "sm_lid 0; whether opensm runs on the fabric", "start a subnet manager";
    PortState, Some(3), ["PORT_ARMED", "IBV_PORT_ARMED"]:
        "the subnet manager has configured the port and not activated it", "log of the subnet manager", "restart the subnet manager";
    PortState, Some(4), ["PORT_ACTIVE", "IBV_PORT_ACTIVE", "LINKUP"]: "the port carries packets", "nothing", "nothing: all is well";
    PortState, None, ["DISABLED"]:
        "software has switched the port off", "admin_status of register PAOS", "ip link set IF up";
    Ping, None, ["PING_LOST"]:
        "a probe or its answer never came: the wire lost it, a switch dropped it, or the end that receives had no receive posted, another \
         Q_Key or another P_Key",
        "rx_prioN_discards, out_of_buffer and rx_crc_errors_phy of both ends (bareverbs monitor); whether all are lost or some; -c UD against -c RC",
        "all lost: bareverbs gids --peer PEER, a firewall for UDP 4791, the route; some lost: PFC or ECN, cable and module";
    Ping, None, ["PING_LATE"]:
        "an answer came after its timeout (-W)",
        "the percentiles of the round trip; PFC pauses (rx_prioN_pause); how busy the answering machine is",
        "raise -W to see how late they are; look for the queue in which they wait";
    Ping, None, ["PING_DUPLICATE"]:
        "an answer came twice: the fabric duplicated the probe or its answer",
        "spanning tree and link aggregation of the switches, mirror ports; a capture at both ends",
        "remove the loop or the mirror; a reliable connection hides duplicates, datagrams do not";
    Ping, None, ["PING_OUT_OF_ORDER"]:
        "an answer overtook an earlier one",
        "paths of the fabric: ECMP by packet, adaptive routing, link aggregation; service level and traffic class of both ends",
        "keep one flow on one path (the UDP source port decides); a reliable connection takes reordered packets for lost ones";
    Ping, None, ["PING_STRAY"]:
        "an answer came to a probe that was never sent",
        "whether another test uses the same queue pair number and Q_Key; whether an earlier ping was interrupted",
        "ping again: every run has a queue pair of its own";
    Event, Some(0x09), ["PORT_CHANGE", "IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE"]:
        "the state of the port changed", "Device::port", "read the state again; connections may have to be made anew";
    Event, Some(0x12), ["SRQ_CATAS_ERROR", "IBV_EVENT_SRQ_ERR"]:
        "a shared receive queue broke: it could not be read", "mapping of its ring, doorbell record", "destroy it and its queue pairs, and make them again";
    Event, Some(0x13), ["SRQ_LAST_WQE", "IBV_EVENT_QP_LAST_WQE_REACHED"]:
        "a queue pair in ERROR has taken its last receive of the shared queue", "nothing is wrong", "the queue pair may be reset or destroyed now";
    Event, Some(0x14), ["SRQ_RQ_LIMIT", "IBV_EVENT_SRQ_LIMIT_REACHED"]:
        "fewer receives are left in a shared queue than its limit", "the limit, how fast receives are used", "post receives, then arm the limit again";
    Event, Some(0x08), ["INTERNAL_ERROR", "IBV_EVENT_DEVICE_FATAL"]:
        "the device is broken", "health buffer", "bareverbs doctor --device DEVICE; reset the device";
    Errno, Some(111), ["ECONNREFUSED"]:
        "nobody listens at the peer", "port and address; whether the server runs", "start the server first";
    Errno, Some(113), ["EHOSTUNREACH"]:
        "no route to the peer", "ip route get PEER", "bareverbs gids --peer PEER";
    Errno, Some(19), ["ENODEV"]:
        "there is no such device, or the interface of its GID is not in this network namespace", "gid_attrs/ndevs against ip link",
        "give the container the interface too; bareverbs doctor";
    Errno, Some(121), ["EREMOTEIO"]:
        "firmware refused a command: what it said is in its output", "status and syndrome of the command (dmesg)", "bareverbs explain the status";
    Errno, Some(61), ["ENODATA"]:
        "the entry of the GID table that was asked for is empty", "index of the GID", "bareverbs gids, show_gids: take an index that is in use";
}
