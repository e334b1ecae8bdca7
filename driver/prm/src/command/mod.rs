//! Commands: one module per family, input and output of each command as a layout (PRM, command reference).

pub mod caps;
pub mod cq;
pub mod entry;
pub mod eq;
pub mod hca;
pub mod mkey;
pub mod pages;
pub mod pd;
pub mod port;
pub mod qp;
pub mod uar;
