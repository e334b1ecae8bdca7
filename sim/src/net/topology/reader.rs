//! Parser of a topology: for each node, ID lines, then the node line, then its port lines.

use super::error::{TopologyFileError, TopologyProblem};
use super::model::{NodeKind, SubnetTopology, TopologyLink, TopologyNode};
use super::speed::LinkSpeed;
use std::collections::BTreeMap;

/// Longest line and longest name in bytes.
const LINE: usize = 4096;
const NAME: usize = 128;
/// Most nodes: more than there are LIDs.
const NODES: usize = 1 << 16;
/// Lines that `ibnetdiscover -g` adds between nodes.
const PASSED_OVER: [&str; 4] = ["Chassis ", "Non-Chassis Nodes", "Hostname:", "DiffChassis"];

type Outcome<T> = Result<T, TopologyProblem>;

/// One end of a cable as described at its node. The peer is only known by name.
struct CableLine {
    line: usize,
    node: usize,
    port: u8,
    far: String,
    far_port: u8,
    far_guid: u64,
    far_lid: u16,
    own: TopologyLink,
}

/// ID lines that precede a node line.
#[derive(Default)]
struct Identifiers {
    vendor: u32,
    device: u16,
    system_guid: u64,
    guid: Option<u64>,
    port_guid: Option<u64>,
}

#[derive(Default)]
struct Reader {
    nodes: Vec<TopologyNode>,
    names: BTreeMap<String, usize>,
    guids: BTreeMap<u64, usize>,
    cables: Vec<CableLine>,
    identifiers: Identifiers,
}

impl SubnetTopology {
    /// Parses the output of `ibnetdiscover`.
    pub fn parse(text: &str) -> Result<Self, TopologyFileError> {
        let mut reader = Reader::default();
        for (line, text) in (1..).zip(text.lines()) {
            reader.read_line(line, text).map_err(|problem| TopologyFileError { line, problem })?;
        }
        reader.join()
    }
}

impl Reader {
    fn read_line(&mut self, number: usize, line: &str) -> Outcome<()> {
        if line.len() > LINE {
            return Err(TopologyProblem::TooMuch("bytes of a line", LINE));
        }
        let (code, comment) = line.split_once('#').unwrap_or((line, ""));
        let code = code.trim();
        if code.is_empty() || PASSED_OVER.iter().any(|start| code.starts_with(start)) {
            return Ok(());
        }
        if let Some(rest) = code.strip_prefix('[') {
            return self.read_port(number, rest, comment);
        }
        if let Some((key, value)) = code.split_once('=') {
            return self.read_identifier(code, key, value);
        }
        let (word, rest) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
        let kind = match word {
            "Switch" => NodeKind::Switch,
            "Ca" | "Hca" => NodeKind::ChannelAdapter,
            "Rt" => NodeKind::Router,
            _ => return Err(TopologyProblem::Unknown(excerpt(code))),
        };
        self.read_node(kind, rest.trim(), comment)
    }

    fn read_identifier(&mut self, code: &str, key: &str, value: &str) -> Outcome<()> {
        let known = &mut self.identifiers;
        match key {
            "vendid" => known.vendor = hexadecimal("vendor", value)? as u32 & 0xff_ffff,
            "devid" => known.device = narrow("device", value, hexadecimal("device", value)?)?,
            "sysimgguid" => known.system_guid = hexadecimal("GUID", value)?,
            "switchguid" | "caguid" | "rtguid" => {
                let (guid, port) = value.split_once('(').unwrap_or((value, ""));
                known.guid = Some(hexadecimal("GUID", guid)?);
                if let Some(port) = port.trim_end().strip_suffix(')') {
                    known.port_guid = Some(hexadecimal("GUID", port)?);
                }
            }
            _ => return Err(TopologyProblem::Unknown(excerpt(code))),
        }
        Ok(())
    }

    /// Parses `36 "S-…"`; the comment has the node description and port 0.
    fn read_node(&mut self, kind: NodeKind, rest: &str, comment: &str) -> Outcome<()> {
        if self.nodes.len() >= NODES {
            return Err(TopologyProblem::TooMuch("nodes", NODES));
        }
        let (ports, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let ports = ports.parse().map_err(|_| TopologyProblem::Number("number of ports", excerpt(ports)))?;
        let (name, _) = name(rest)?;
        let known = core::mem::take(&mut self.identifiers);
        let guid = known.guid.or_else(|| guid_of(&name)).filter(|guid| *guid != 0);
        let guid = guid.ok_or_else(|| TopologyProblem::NoGuid(name.clone()))?;
        let (description, details) = quoted(comment).unwrap_or(("", comment));
        let index = self.nodes.len();
        if self.guids.insert(guid, index).is_some() || self.names.insert(name.clone(), index).is_some() {
            return Err(TopologyProblem::SameNode(name));
        }
        self.nodes.push(TopologyNode {
            kind,
            guid,
            port_guid: known.port_guid.unwrap_or(guid),
            system_guid: known.system_guid,
            vendor: known.vendor,
            device: known.device,
            ports,
            description: description.to_owned(),
            is_enhanced: details.trim_start().starts_with("enhanced"),
            lid: number_after(details, "lid").unwrap_or(0),
            lmc: number_after(details, "lmc").map_or(0, |lmc| lmc.min(7) as u8),
            links: BTreeMap::new(),
        });
        Ok(())
    }

    /// Parses `1](guid) "S-…"[3](guid)`; the comment has LIDs and speed.
    fn read_port(&mut self, line: usize, rest: &str, comment: &str) -> Outcome<()> {
        let node = self.nodes.len().checked_sub(1).ok_or(TopologyProblem::PortWithoutNode)?;
        let (port, rest) = port_number(rest)?;
        let (guid, rest) = optional_guid(past_external(rest))?;
        let (far, rest) = name(rest.trim_start())?;
        let (far_port, rest) = match rest.strip_prefix('[') {
            Some(rest) => port_number(rest)?,
            None => (1, rest),
        };
        let (far_guid, _) = optional_guid(past_external(rest).trim_start())?;
        self.check_port(node, port)?;
        let before = comment.split('"').next().unwrap_or("");
        let behind = comment.rsplit('"').next().unwrap_or("");
        let is_switch = self.nodes[node].kind == NodeKind::Switch;
        let speed = comment.split_whitespace().rev().find_map(LinkSpeed::parse);
        let own = TopologyLink {
            guid: guid.unwrap_or(if is_switch { self.nodes[node].port_guid } else { self.nodes[node].guid }),
            lid: if is_switch { 0 } else { number_after(before, "lid").unwrap_or(0) },
            lmc: if is_switch { 0 } else { number_after(before, "lmc").map_or(0, |lmc| lmc.min(7) as u8) },
            // Filled in once all nodes are known.
            node: usize::MAX,
            port: far_port,
            speed: speed.unwrap_or(LinkSpeed::EDR_4X),
        };
        let far_lid = number_after(behind, "lid").unwrap_or(0);
        self.cables.push(CableLine {
            line,
            node,
            port,
            far,
            far_port,
            far_guid: far_guid.unwrap_or(0),
            far_lid,
            own,
        });
        Ok(())
    }

    fn check_port(&self, node: usize, port: u8) -> Outcome<()> {
        let (name, ports) = (self.nodes[node].name(), self.nodes[node].ports);
        if port == 0 || port > ports {
            return Err(TopologyProblem::NoSuchPort { node: name, port, ports });
        }
        Ok(())
    }

    /// Resolves the peers of all cables. A cable that only one end mentions counts.
    fn join(mut self) -> Result<SubnetTopology, TopologyFileError> {
        let cables = core::mem::take(&mut self.cables);
        for cable in &cables {
            self.join_end(cable).map_err(|problem| TopologyFileError { line: cable.line, problem })?;
        }
        for cable in cables {
            self.complete(&cable).map_err(|problem| TopologyFileError { line: cable.line, problem })?;
        }
        Ok(SubnetTopology { nodes: self.nodes })
    }

    fn join_end(&mut self, cable: &CableLine) -> Outcome<()> {
        let far =
            *self.names.get(&cable.far).ok_or_else(|| TopologyProblem::NoSuchNode(cable.far.clone()))?;
        self.check_port(far, cable.far_port)?;
        if (far, cable.far_port) == (cable.node, cable.port) {
            return Err(TopologyProblem::EndsDisagree { node: cable.far.clone(), port: cable.far_port });
        }
        let node = &mut self.nodes[cable.node];
        let own = TopologyLink { node: far, ..cable.own.clone() };
        if node.links.insert(cable.port, own).is_some() {
            return Err(TopologyProblem::TwoCables { node: node.name(), port: cable.port });
        }
        Ok(())
    }

    fn complete(&mut self, cable: &CableLine) -> Outcome<()> {
        // By now every cable has been checked.
        let Some(far) = self.names.get(&cable.far).copied() else { return Ok(()) };
        let node = &mut self.nodes[far];
        let is_switch = node.kind == NodeKind::Switch;
        let guid = if is_switch { node.port_guid } else { node.guid };
        let back = node.links.entry(cable.far_port).or_insert(TopologyLink {
            guid: if is_switch || cable.far_guid == 0 { guid } else { cable.far_guid },
            lid: if is_switch { 0 } else { cable.far_lid },
            lmc: 0,
            node: cable.node,
            port: cable.port,
            speed: cable.own.speed,
        });
        if (back.node, back.port) != (cable.node, cable.port) {
            return Err(TopologyProblem::EndsDisagree { node: cable.far.clone(), port: cable.far_port });
        }
        Ok(())
    }
}

/// A quoted name, and the rest.
fn name(text: &str) -> Outcome<(String, &str)> {
    let (name, rest) = quoted(text)
        .filter(|_| text.starts_with('"'))
        .ok_or_else(|| TopologyProblem::Expected("a name in quotation marks", excerpt(text)))?;
    if name.len() > NAME {
        return Err(TopologyProblem::TooMuch("bytes of a name", NAME));
    }
    Ok((name.to_owned(), rest))
}

/// The contents of the first quotation marks, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    text.split_once('"')?.1.split_once('"')
}

/// Parses `3]`, and returns the rest.
fn port_number(text: &str) -> Outcome<(u8, &str)> {
    let closed = text.split_once(']');
    let (number, rest) =
        closed.ok_or_else(|| TopologyProblem::Expected("a port in brackets", excerpt(text)))?;
    let port = number.trim().parse().map_err(|_| TopologyProblem::Number("port", excerpt(number)))?;
    Ok((port, rest))
}

/// Skips `[ext 7]`, the port number on the outside of a chassis.
fn past_external(text: &str) -> &str {
    let external = text.strip_prefix("[ext ").and_then(|rest| rest.split_once(']'));
    external.map_or(text, |(_, rest)| rest)
}

/// Parses an optional `(guid)`, and returns the rest.
fn optional_guid(text: &str) -> Outcome<(Option<u64>, &str)> {
    let Some(rest) = text.strip_prefix('(') else { return Ok((None, text)) };
    let closed = rest.split_once(')');
    let (guid, rest) =
        closed.ok_or_else(|| TopologyProblem::Expected("a GUID in parentheses", excerpt(text)))?;
    Ok((Some(hexadecimal("GUID", guid)?), rest))
}

/// The GUID in a name made of a letter and 16 digits.
fn guid_of(name: &str) -> Option<u64> {
    let (_, digits) = name.split_once('-')?;
    if digits.len() == 16 { u64::from_str_radix(digits, 16).ok() } else { None }
}

fn hexadecimal(what: &'static str, text: &str) -> Outcome<u64> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).map_err(|_| TopologyProblem::Number(what, excerpt(text)))
}

fn narrow<T: TryFrom<u64>>(what: &'static str, text: &str, value: u64) -> Outcome<T> {
    T::try_from(value).map_err(|_| TopologyProblem::Number(what, excerpt(text)))
}

/// The number after a word. Comments are free text, so anything else counts as missing.
fn number_after(text: &str, word: &str) -> Option<u16> {
    let mut words = text.split_whitespace();
    words.find(|found| *found == word)?;
    words.next()?.parse().ok()
}

/// The excerpt of a text for an error message.
fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}
