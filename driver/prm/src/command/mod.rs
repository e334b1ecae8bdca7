//! Commands: one module per family, input and output of each command as a layout (PRM, command reference).

pub mod entry;
pub mod hca;
pub mod pages;
pub mod caps;
pub mod uar;
pub mod eq;
pub mod cq;
pub mod pd;
pub mod mkey;
pub mod qp;
pub mod port;
pub mod ib_port;
pub mod srq;
