//! The texts of errors: which object was wanted, and what to try.

use bareverbs_core::address_handle::AddressHandleError;
use bareverbs_core::completion_queue::CompletionQueueError;
use bareverbs_core::device::OpenCause;
use bareverbs_core::fast_region::{FastRegionError, FastRegisterError};
use bareverbs_core::hal::HalError;
use bareverbs_core::memory_region::RegisterError;
use bareverbs_core::memory_window::WindowError;
use bareverbs_core::queue_pair::{BuildError, ConnectError, PostError};
use bareverbs_core::shared_receive_queue::SharedReceiveQueueError;
use bareverbs_core::{WorkCompletionStatus, WorkRequestFailed};
use bareverbs_prm::numbering::CqeSyndrome;
use std::fmt::Display;

#[test]
fn lack_of_memory_names_the_object() {
    let short = HalError::OutOfDmaMemory { length: 8192, alignment: 4096 };
    let errors: [(&dyn Display, &str); 5] = [
        (&BuildError::Memory(short), "a queue pair: no DMA memory"),
        (&RegisterError::Memory(short), "a memory region: no DMA memory"),
        (&CompletionQueueError::Memory(short), "a completion queue: no DMA memory"),
        (&SharedReceiveQueueError::Memory(short), "shared receive queue: no DMA memory"),
        (&FastRegionError::Memory(short), "fast registration: no DMA memory"),
    ];
    for (error, begin) in errors {
        assert!(error.to_string().starts_with(begin), "{error}");
    }
}

#[test]
fn limits_say_what_was_attempted() {
    let (name, asked, limit) = ("hop_limit", 300, 255);
    let errors: [(&dyn Display, &str); 3] = [
        (&BuildError::Limit { name, asked, limit }, "a queue pair with hop_limit 300"),
        (&ConnectError::Limit { name, asked, limit }, "connecting with hop_limit 300"),
        (&AddressHandleError::Limit { name, asked, limit }, "an address handle with hop_limit 300"),
    ];
    for (error, begin) in errors {
        assert!(error.to_string().starts_with(begin), "{error}");
    }
}

#[test]
fn a_lack_of_the_device_comes_with_advice() {
    let errors: [(&dyn Display, &str); 10] = [
        (&OpenCause::BadQueueGeometry { log_size: 9, log_stride: 9 }, "update the firmware"),
        (&OpenCause::NoIssi1 { supported: 1 }, "update the firmware"),
        (&OpenCause::Missing { feature: "rc" }, "update the firmware"),
        (&RegisterError::NoRelaxedOrdering, "Capabilities::relaxed_ordering"),
        (&RegisterError::NoAtomics, "Capabilities::atomics"),
        (&WindowError::NotOffered, "Capabilities::memory_windows"),
        (&FastRegionError::NotOffered, "Capabilities::memory_windows"),
        (&FastRegisterError::Page { page: 4, pages: 4 }, "use a smaller number"),
        (&SharedReceiveQueueError::NoXrc, "Capabilities::xrc"),
        (&PostError::MessageTooLong { length: 2, limit: 1 }, "split the message"),
    ];
    for (error, advice) in errors {
        assert!(error.to_string().contains(advice), "{error}");
    }
}

/// The text of every status has an explanation and, after it, a next step.
#[test]
fn failed_completions_say_what_to_look_at() {
    for row in CqeSyndrome::INFO.rows {
        let status = WorkCompletionStatus::Failed(CqeSyndrome::from_raw(row.value as u8));
        let completion = bareverbs_core::WorkCompletion { status, ..bareverbs_core::WorkCompletion::EMPTY };
        let text = WorkRequestFailed(completion).to_string();
        let has_step = [": check", ": look", ": compare", ": keep", ": post", "; the first", "than the path"];
        assert!(has_step.iter().any(|step| text.contains(step)), "{text}");
    }
}
