//! The records of a device, and their text: one line of words, as captures carry it (docs/adr/0029). The first word says what it is; queue
//! numbers are hexadecimal, counts decimal, opcodes the names of the manual.

use super::words::{TextError, TextWords};
use crate::transport::RetransmissionCause;
use crate::wire::BthOpcode;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, CqeOpcode, WqeOpcode};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use core::fmt;

/// What a device did.
///
/// ```
/// use bareverbs_prm::ids::Qpn;
/// use bareverbs_sim::nic::DeviceEvent;
///
/// let event = DeviceEvent::SendDoorbell { qpn: Qpn::from_low_bits(0x41), posted: 3 };
/// assert_eq!(event.to_string(), "doorbell qp 0x41 posted 3");
/// assert_eq!(DeviceEvent::parse("doorbell qp 0x41 posted 3"), Ok(event));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A send doorbell was rung.
    SendDoorbell {
        /// Of this send queue.
        qpn: Qpn,
        /// Basic blocks that were ever posted, as the doorbell record said, modulo 2^16.
        posted: u16,
    },
    /// A work request was taken from the ring.
    WqeFetched {
        /// The send queue.
        qpn: Qpn,
        /// The work request.
        work: WorkName,
        /// Bytes of its local buffer.
        bytes: u32,
    },
    /// A work request ended without an entry in a completion queue, which it did not ask for.
    WqeEnded {
        /// The send queue.
        qpn: Qpn,
        /// Counter of its first basic block.
        wqe: u16,
    },
    /// A packet was written that came back inside the device.
    LoopedBack(FrameOrigin),
    /// A packet came to a queue pair.
    PacketReceived {
        /// The queue pair.
        qpn: Qpn,
        /// Opcode of the base transport header.
        opcode: BthOpcode,
        /// Packet sequence number; 0 for a datagram that took no frame.
        psn: Psn,
    },
    /// An entry was written to a completion queue, or waits there to be written with others (compression).
    CompletionWritten {
        /// The completion queue.
        cqn: Cqn,
        /// The queue whose work ended.
        qpn: Qpn,
        /// `wqe_counter` of the entry.
        wqe: u16,
        /// Kind of the entry.
        opcode: CqeOpcode,
        /// Error syndrome; 0 if the work succeeded.
        syndrome: u8,
    },
    /// A completion queue was armed.
    CompletionArmed {
        /// The completion queue.
        cqn: Cqn,
        /// Entries that software had consumed, modulo 2^24.
        consumer: u32,
    },
    /// An interrupt was raised.
    Interrupt {
        /// MSI-X vector.
        vector: u16,
    },
    /// A command was executed.
    CommandExecuted {
        /// What was asked.
        opcode: CommandOpcode,
        /// What was answered.
        status: CommandStatus,
    },
    /// A packet of a remote procedure call was given to the kernels.
    KernelCalled {
        /// The queue pair by which it came.
        qpn: Qpn,
        /// Which kernel.
        kernel: u64,
    },
    /// A kernel read host memory.
    KernelRead {
        /// Address as the device sees it.
        address: u64,
        /// Bytes.
        bytes: u32,
    },
    /// A kernel replied.
    KernelReplied {
        /// The queue pair over which the reply goes.
        qpn: Qpn,
        /// Bytes.
        bytes: u32,
    },
}

/// How completions name a send work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkName {
    /// Counter of its first basic block, modulo 2^16.
    pub index: u16,
    /// Its opcode.
    pub opcode: WqeOpcode,
}

/// For what a frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameWork {
    /// For a work request.
    Wqe(WorkName),
    /// For the reply of a kernel.
    KernelReply,
    /// For a request of the peer.
    Answer,
}

/// Whose a frame is.
///
/// ```
/// use bareverbs_prm::psn::Psn;
/// use bareverbs_sim::nic::{FrameOrigin, FrameWork};
/// use bareverbs_sim::transport::RetransmissionCause;
///
/// let origin = FrameOrigin::parse("qp 0x41 answer psn 7 (retransmission: timer)").unwrap();
/// assert_eq!((origin.work, origin.psn), (FrameWork::Answer, Some(Psn::new(7))));
/// assert_eq!(origin.again, Some(RetransmissionCause::Timer));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameOrigin {
    /// The queue that sent it.
    pub qpn: Qpn,
    /// Why.
    pub work: FrameWork,
    /// Packet sequence number; a packet of Ethernet has none.
    pub psn: Option<Psn>,
    /// Why it is sent although it was sent before.
    pub again: Option<RetransmissionCause>,
    /// When the device wrote it, if that is not when the capture has it.
    pub built: Option<Time>,
}

/// The name that the manual has for a number, or the number.
macro_rules! name {
    ($value:expr) => {
        format_args!("{}", Named($value.name(), u32::from($value.raw())))
    };
}

struct Named(&'static str, u32);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == "UNKNOWN" { write!(f, "{:#x}", self.1) } else { f.write_str(self.0) }
    }
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SendDoorbell { qpn, posted } => write!(f, "doorbell qp {qpn} posted {posted}"),
            Self::WqeFetched { qpn, work, bytes } => write!(f, "fetch qp {qpn} {work} bytes {bytes}"),
            Self::WqeEnded { qpn, wqe } => write!(f, "end qp {qpn} wqe {wqe}"),
            Self::LoopedBack(origin) => write!(f, "loopback {origin}"),
            Self::PacketReceived { qpn, opcode, psn } => {
                write!(f, "receive qp {qpn} opcode {:#04x} psn {}", opcode.raw(), psn.value())
            }
            Self::CompletionWritten { cqn, qpn, wqe, opcode, syndrome } => {
                write!(f, "cqe cq {cqn} qp {qpn} wqe {wqe} {} syndrome {syndrome:#x}", name!(opcode))
            }
            Self::CompletionArmed { cqn, consumer } => write!(f, "arm cq {cqn} consumer {consumer}"),
            Self::Interrupt { vector } => write!(f, "interrupt vector {vector}"),
            Self::CommandExecuted { opcode, status } => {
                write!(f, "command {} {}", name!(opcode), name!(status))
            }
            Self::KernelCalled { qpn, kernel } => write!(f, "kernel-call qp {qpn} kernel {kernel:#x}"),
            Self::KernelRead { address, bytes } => {
                write!(f, "kernel-read address {address:#x} bytes {bytes}")
            }
            Self::KernelReplied { qpn, bytes } => write!(f, "kernel-reply qp {qpn} bytes {bytes}"),
        }
    }
}

impl DeviceEvent {
    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let words = &mut TextWords::new(text);
        let event = match words.word()? {
            "doorbell" => Self::SendDoorbell { qpn: queue(words)?, posted: words.named("posted")? },
            "fetch" => Self::WqeFetched {
                qpn: queue(words)?,
                work: WorkName::take(words)?,
                bytes: words.named("bytes")?,
            },
            "end" => Self::WqeEnded { qpn: queue(words)?, wqe: words.named("wqe")? },
            "loopback" => {
                let rest = text.strip_prefix("loopback ").ok_or(TextError)?;
                return FrameOrigin::parse(rest).map(Self::LoopedBack);
            }
            "receive" => Self::PacketReceived {
                qpn: queue(words)?,
                opcode: BthOpcode::from_raw(words.named("opcode")?),
                psn: psn(words)?,
            },
            "cqe" => Self::take_completion(words)?,
            "arm" => Self::CompletionArmed { cqn: completions(words)?, consumer: words.named("consumer")? },
            "interrupt" => Self::Interrupt { vector: words.named("vector")? },
            "command" => Self::CommandExecuted {
                opcode: CommandOpcode::from_raw(words.numbered(&CommandOpcode::INFO)?),
                status: CommandStatus::from_raw(words.numbered(&CommandStatus::INFO)?),
            },
            "kernel-call" => Self::KernelCalled { qpn: queue(words)?, kernel: words.named("kernel")? },
            "kernel-read" => {
                Self::KernelRead { address: words.named("address")?, bytes: words.named("bytes")? }
            }
            "kernel-reply" => Self::KernelReplied { qpn: queue(words)?, bytes: words.named("bytes")? },
            _ => return Err(TextError),
        };
        words.end()?;
        Ok(event)
    }

    fn take_completion(words: &mut TextWords<'_>) -> Result<Self, TextError> {
        Ok(Self::CompletionWritten {
            cqn: completions(words)?,
            qpn: queue(words)?,
            wqe: words.named("wqe")?,
            opcode: CqeOpcode::from_raw(words.numbered(&CqeOpcode::INFO)?),
            syndrome: words.named("syndrome")?,
        })
    }
}

impl fmt::Display for WorkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wqe {} {}", self.index, name!(self.opcode))
    }
}

impl WorkName {
    fn take(words: &mut TextWords<'_>) -> Result<Self, TextError> {
        let index = words.named("wqe")?;
        Ok(Self { index, opcode: WqeOpcode::from_raw(words.numbered(&WqeOpcode::INFO)?) })
    }
}

impl fmt::Display for FrameOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qp {}", self.qpn)?;
        match &self.work {
            FrameWork::Wqe(work) => write!(f, " {work}")?,
            FrameWork::KernelReply => f.write_str(" kernel-reply")?,
            FrameWork::Answer => f.write_str(" answer")?,
        }
        if let Some(psn) = self.psn {
            write!(f, " psn {}", psn.value())?;
        }
        if let Some(built) = self.built {
            write!(f, " built {}", built.as_nanos())?;
        }
        self.again.map_or(Ok(()), |cause| write!(f, " (retransmission: {cause})"))
    }
}

impl FrameOrigin {
    /// Reads what [`fmt::Display`] wrote.
    ///
    /// # Errors
    /// It is something else.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let (text, again) = match text.split_once(" (retransmission: ") {
            Some((text, cause)) => {
                let cause = cause.strip_suffix(')').and_then(RetransmissionCause::from_name);
                (text, Some(cause.ok_or(TextError)?))
            }
            None => (text, None),
        };
        let words = &mut TextWords::new(text);
        let qpn = queue(words)?;
        let work = match words.peek() {
            Some("wqe") => FrameWork::Wqe(WorkName::take(words)?),
            Some("kernel-reply") => words.expect("kernel-reply").map(|()| FrameWork::KernelReply)?,
            _ => words.expect("answer").map(|()| FrameWork::Answer)?,
        };
        let psn = if words.peek() == Some("psn") { Some(psn(words)?) } else { None };
        let built = match words.peek() {
            Some("built") => Some(Time::ZERO + Duration::from_nanos(words.named("built")?)),
            _ => None,
        };
        words.end()?;
        Ok(Self { qpn, work, psn, again, built })
    }
}

fn queue(words: &mut TextWords<'_>) -> Result<Qpn, TextError> {
    Qpn::new(words.named("qp")?).ok_or(TextError)
}

fn completions(words: &mut TextWords<'_>) -> Result<Cqn, TextError> {
    Cqn::new(words.named("cq")?).ok_or(TextError)
}

fn psn(words: &mut TextWords<'_>) -> Result<Psn, TextError> {
    Ok(Psn::new(words.named("psn")?))
}
