//! # bareverbs-preload: the library that `bareverbs run` loads into an unmodified RDMA program
//!
//! **What this is.** Functions of the C library, replaced where a program looks for an RDMA device: paths below `/sys` and
//! `/dev/infiniband` lead to a directory of `bareverbs run`, and the device file is answered by
//! [`bareverbs_uverbs`] and the simulated NIC inside the process. Everything else goes to the C library as it is.
//!
//! **What it may not do.** It decides nothing about verbs. It reaches the memory of the program only through system calls that
//! survive a wrong address. A program that was started without `bareverbs run` sees no difference.
//!
//! **Where to read first.** `paths` for what is replaced, `calls` and `names` for the functions, `device` for the life of the
//! device, `nic_thread` and `verbs_calls` for what drives it, `link` for the way of its frames to
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
