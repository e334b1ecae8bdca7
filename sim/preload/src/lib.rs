//! # bareverbs-preload: the library that `bareverbs run` loads into an unmodified RDMA program
//!
//! **What this is.** Replacements of C library functions through which a program looks for an RDMA device. Paths below
//! `/sys` and `/dev/infiniband` are redirected to a directory of `bareverbs run`; [`bareverbs_uverbs`] and the
//! simulated NIC inside the process implement the device file. Everything else goes to the C library unchanged.
//!
//! **What it may not do.** It decides nothing about verbs. It accesses the program's memory only in ways that survive
//! invalid addresses. A program started without `bareverbs run` sees no difference.
//!
//! **Where to read first.** `paths` for what is redirected, `calls` and `names` for the functions, `device` for the
//! life of the device, `nic_thread` and `verbs_calls` for what drives it, `link` for the path of its frames to
//! [`bareverbs_network`] and other processes.
#![cfg(target_os = "linux")]

mod calls;
mod connection_calls;
mod connection_files;
mod descriptors;
mod device;
mod errno;
mod event_files;
#[cfg(target_arch = "x86_64")]
mod guarded;
mod interfaces;
mod link;
mod memory;
mod names;
mod netlink_sockets;
mod next;
mod nic_thread;
mod own_work;
mod paths;
mod program;
mod settings;
mod verbs_calls;
mod verbs_layout;
