//! Errors of parsing a topology.

use core::fmt;

/// A text that is not a valid topology, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyFileError {
    /// Line number, counted from 1.
    pub line: usize,
    /// The problem.
    pub problem: TopologyProblem,
}

/// Problems in the text of a topology.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyProblem {
    /// A line, a name or the number of nodes exceeds its limit: what, and the limit.
    TooMuch(&'static str, usize),
    /// A line of an unknown kind.
    Unknown(String),
    /// Something required is missing.
    Expected(&'static str, String),
    /// A port line before any node line.
    PortWithoutNode,
    /// A number that its field cannot hold.
    Number(&'static str, String),
    /// A port beyond the node's number of ports.
    NoSuchPort {
        /// The node.
        node: String,
        /// The port.
        port: u8,
        /// Its number of ports.
        ports: u8,
    },
    /// A port with two cables.
    TwoCables {
        /// The node.
        node: String,
        /// The port.
        port: u8,
    },
    /// A node that is defined twice, or two nodes with the same GUID.
    SameNode(String),
    /// A cable to an undefined node.
    NoSuchNode(String),
    /// The two ends of a cable contradict each other.
    EndsDisagree {
        /// The node of this end.
        node: String,
        /// Its port.
        port: u8,
    },
    /// A node without a GUID: neither a line nor its name has one.
    NoGuid(String),
}

impl fmt::Display for TopologyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the topology: ", self.line)?;
        match &self.problem {
            TopologyProblem::TooMuch(what, most) => {
                write!(f, "{what}: at most {most} can be read; is it what ibnetdiscover prints?")
            }
            TopologyProblem::Unknown(text) => {
                write!(f, "`{text}` is neither a node nor a port nor an identifier: comments begin with #")
            }
            TopologyProblem::Expected(what, text) => write!(f, "expected {what} in `{text}`"),
            TopologyProblem::PortWithoutNode => {
                f.write_str("a port before any node: a line with Switch, Ca or Rt comes first")
            }
            TopologyProblem::Number(what, text) => write!(f, "`{text}` is no {what}"),
            TopologyProblem::NoSuchPort { node, port, ports } => {
                write!(f, "port {port} of {node}, which has ports 1 to {ports}")
            }
            TopologyProblem::TwoCables { node, port } => {
                write!(f, "port {port} of {node} has a cable already")
            }
            TopologyProblem::SameNode(node) => {
                write!(f, "{node} is there already, or another node has its GUID")
            }
            TopologyProblem::NoSuchNode(node) => write!(f, "a cable to {node}, which is nowhere in the text"),
            TopologyProblem::EndsDisagree { node, port } => {
                write!(f, "port {port} of {node} has another cable elsewhere in the file")
            }
            TopologyProblem::NoGuid(node) => write!(
                f,
                "{node} has no GUID: a line with switchguid=, caguid= or rtguid= before it gives it one"
            ),
        }
    }
}

impl core::error::Error for TopologyFileError {}
