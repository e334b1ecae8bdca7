//! Why a text is no topology.

use core::fmt;

/// Why a text is no topology, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyFileError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: TopologyProblem,
}

/// What is wrong in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyProblem {
    /// A line, the nodes, or a name is longer than there may be: what, and how much at most.
    TooMuch(&'static str, usize),
    /// The line is none of those that there are.
    Unknown(String),
    /// Something is expected that is not there.
    Expected(&'static str, String),
    /// A port before any node.
    PortWithoutNode,
    /// A number that its field does not hold.
    Number(&'static str, String),
    /// A port that the node does not have.
    NoSuchPort {
        /// The node.
        node: String,
        /// The port.
        port: u8,
        /// What it has.
        ports: u8,
    },
    /// A port with two cables.
    TwoCables {
        /// The node.
        node: String,
        /// The port.
        port: u8,
    },
    /// A node that is there twice, or whose GUID another one has.
    SameNode(String),
    /// A cable to a node that is not there.
    NoSuchNode(String),
    /// Both ends of a cable say different things of it.
    EndsDisagree {
        /// The node that is named here.
        node: String,
        /// Its port.
        port: u8,
    },
    /// A node without a GUID: no line says it, and its name has none.
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
                write!(f, "port {port} of {node} has another cable, as is said of it elsewhere")
            }
            TopologyProblem::NoGuid(node) => write!(
                f,
                "{node} has no GUID: a line with switchguid=, caguid= or rtguid= before it gives it one"
            ),
        }
    }
}

impl core::error::Error for TopologyFileError {}
