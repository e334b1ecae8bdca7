//! Device records and their text form, one line of words as stored in captures (docs/adr/0029). The first word is the
//! kind; queue numbers are hexadecimal, counts decimal, and opcodes have the manual's names.

use super::words::{TextError, TextWords};
use crate::transport::RetransmissionCause;
use crate::wire::BthOpcode;
use bareverbs_prm::ids::{Cqn, Qpn};
use bareverbs_prm::numbering::{CommandOpcode, CommandStatus, CqeOpcode, WqeOpcode};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use core::fmt;

/// An action of a device.
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
        /// The send queue.
        qpn: Qpn,
        /// Basic blocks posted so far according to the doorbell record, modulo 2^16.
        posted: u16,
    },
    /// A work request was fetched from the ring.
    WqeFetched {
        /// The send queue.
        qpn: Qpn,
        /// The work request.
        work: WorkName,
        /// Bytes of its local buffers.
        bytes: u32,
    },
    /// A work request ended without a completion, because it was unsignalled.
    WqeEnded {
        /// The send queue.
        qpn: Qpn,
        /// Counter of its first basic block.
        wqe: u16,
    },
    /// A packet was sent to another queue pair of the same device.
    LoopedBack(FrameOrigin),
    /// A packet was received for a queue pair.
    PacketReceived {
        /// The queue pair.
        qpn: Qpn,
        /// BTH opcode.
        opcode: BthOpcode,
        /// Packet sequence number; 0 for a datagram that did not travel in a frame.
        psn: Psn,
    },
    /// A completion was written, or waits to be written with others (compression).
    CompletionWritten {
        /// The completion queue.
        cqn: Cqn,
        /// Queue of the completed work.
        qpn: Qpn,
        /// `wqe_counter` of the entry.
        wqe: u16,
        /// Kind of completion.
        opcode: CqeOpcode,
        /// Error syndrome; 0 for success.
        syndrome: u8,
    },
    /// A completion queue was armed.
    CompletionArmed {
        /// The completion queue.
        cqn: Cqn,
        /// Consumer index of software, modulo 2^24.
        consumer: u32,
    },
    /// An interrupt was raised.
    Interrupt {
        /// MSI-X vector.
        vector: u16,
    },
    /// A command was executed.
    CommandExecuted {
        /// The command.
        opcode: CommandOpcode,
        /// Its status.
        status: CommandStatus,
    },
    /// An RPC packet was passed to the kernels.
    KernelCalled {
        /// The queue pair that received it.
        qpn: Qpn,
        /// The kernel.
        kernel: u64,
    },
    /// A kernel read host memory.
    KernelRead {
        /// Device address.
        address: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// A kernel replied.
    KernelReplied {
        /// The queue pair that carries the reply.
        qpn: Qpn,
        /// Length in bytes.
        bytes: u32,
    },
}

/// Identifies a send work request as completions do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkName {
    /// Counter of its first basic block, modulo 2^16.
    pub index: u16,
    /// Its opcode.
    pub opcode: WqeOpcode,
}

/// Why a frame is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameWork {
    /// For a work request.
    Wqe(WorkName),
    /// For a kernel's reply.
    KernelReply,
    /// In response to the peer.
    Answer,
}

/// Origin of a frame.
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
    /// The reason.
    pub work: FrameWork,
    /// Packet sequence number; `None` for an Ethernet packet.
    pub psn: Option<Psn>,
    /// Cause of a retransmission.
    pub again: Option<RetransmissionCause>,
    /// When the device wrote it, if that differs from the capture's timestamp.
    pub built: Option<Time>,
}

/// The manual's name of a number, or the number itself.
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
    /// Parses the output of [`fmt::Display`].
    ///
    /// # Errors
    /// The text has another form.
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
    /// Parses the output of [`fmt::Display`].
    ///
    /// # Errors
    /// The text has another form.
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
