//! Why work requests fail: completion syndromes and our own vendor syndromes.

use bareverbs_prm::numbering::CqeSyndrome;
use core::ops::Deref;

/// Why the device refuses a WQE or a receive. It is one word, because nearly every step of parsing a WQE may return it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkFault(&'static FaultDescription);

/// The error completion's syndrome and our vendor syndrome.
#[derive(Debug, PartialEq, Eq)]
pub struct FaultDescription {
    /// Syndrome of the completion.
    pub syndrome: CqeSyndrome,
    /// Vendor syndrome of the completion.
    pub vendor: u8,
    /// Explanation for people.
    pub reason: &'static str,
}

impl Deref for WorkFault {
    type Target = FaultDescription;

    fn deref(&self) -> &FaultDescription {
        self.0
    }
}

macro_rules! faults {
    ($($name:ident = $syndrome:ident, $vendor:literal, $reason:literal;)*) => {
        $(
            #[doc = concat!("Vendor syndrome ", stringify!($vendor), ": ", $reason, ".")]
            pub const $name: WorkFault = WorkFault(&FaultDescription {
                syndrome: CqeSyndrome::$syndrome,
                vendor: $vendor,
                reason: $reason,
            });
        )*
        /// Every fault.
        pub const FAULTS: &[WorkFault] = &[$($name),*];
    };
}

faults! {
    INDEX = LocalQpOperation, 0x68, "wqe_index is not the counter of this WQE";
    SIZE = LocalQpOperation, 0x69, "ds is zero, or longer than what was posted or than max_wqe_sz_sq";
    OPCODE = LocalQpOperation, 0x6a, "the opcode is not supported on this queue pair";
    OPMOD = LocalQpOperation, 0x6b, "the opmod is not supported";
    QUEUE_PAIR = LocalQpOperation, 0x6c, "the control segment names another queue pair";
    SEGMENTS = LocalQpOperation, 0x6d, "a segment is missing or cut off";
    INLINE = LocalQpOperation, 0x6e, "inline data are not allowed here";
    RESERVED = LocalQpOperation, 0x6f, "a reserved bit is set (strict mode)";
    FETCH = LocalQpOperation, 0x70, "the work queue could not be read";
    COUNTER = LocalQpOperation, 0x71, "the doorbell record counts more than the queue holds";
    OFFLOAD = LocalQpOperation, 0x73, "the Ethernet segment asks for what is not offered, or for a packet that cannot be made so";
    KEY_UPDATE = MemoryWindowBind, 0x78, "the memory key does not exist, is not in the state that was expected, or cannot be changed so";
    UNFENCED = LocalQpOperation, 0x74, "a work request follows a change of a memory key without a fence (strict mode)";
    ADDRESS = LocalQpOperation, 0x75, "the address vector names no entry of the RoCE address table, or one of another family";
    DATA_KEY = LocalProtection, 0x51, "a data segment names memory that its key does not give";
    DMA_RANGES = LocalQpOperation, 0x76, "source and destination of a DMA work request are not of one length";
    DMA_ACCESS = LocalProtection, 0x54, "a DMA work request could not read its source or write its destination: the key was taken back, lacks the right, or does not cover the range";
    DATA_ACCESS = LocalProtection, 0x52, "local memory could not be reached";
    WRITTEN_ACCESS = LocalAccess, 0x53, "the memory that the peer writes to before its immediate data could not be reached";
    MESSAGE = LocalLength, 0x41, "the message is longer than log_msg_max or not of the length of the operation";
    RECEIVE = LocalLength, 0x42, "the message is longer than the receive";
    FLUSHED = WorkRequestFlushed, 0xf9, "the queue pair is in the error state";
    REMOTE_INVALID = RemoteInvalidRequest, 0x8a, "the peer refused the request as invalid";
    REMOTE_ACCESS = RemoteAccess, 0x88, "the peer refused the key, the right or the range";
    REMOTE_OPERATION = RemoteOperation, 0x89, "the peer could not carry the request out";
    BAD_RESPONSE = BadResponse, 0x8b, "the peer's answer makes no sense";
    RETRY = TransportRetryExceeded, 0x81, "no answer within all retries";
    RNR_RETRY = RnrRetryExceeded, 0x82, "the peer had no receive posted within all retries";
    ABORTED = RemoteAborted, 0x8c, "the message was forgotten, and a receive of a shared queue cannot be kept for another";
}

#[cfg(test)]
mod tests {
    use super::FAULTS;
    use std::collections::BTreeSet;

    #[test]
    fn every_cause_has_a_vendor_syndrome_of_its_own() {
        let vendor: BTreeSet<u8> = FAULTS.iter().map(|fault| fault.vendor).collect();
        assert_eq!(vendor.len(), FAULTS.len());
    }
}
