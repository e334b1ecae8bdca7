//! SET_OPTION.

use super::call::CmCall;
use super::identifier::Stage;
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;

/// Longest ACK timeout, as a code of 5 bits.
const LONGEST_TIMEOUT: u8 = 31;

impl<P: Process> CmCall<'_, P> {
    pub(super) fn set_option(&mut self, file: ConnectionFileId, command: &CmSetOption) -> Result<(), Errno> {
        self.identifier(file, command.id)?;
        match (command.level, command.optname) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => {
                let [class] = self.value(command)?;
                self.identifier(file, command.id)?.traffic_class = class;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                let shares = u32::from_ne_bytes(self.value(command)?) != 0;
                let known = self.identifier(file, command.id)?;
                if known.stage != Stage::Idle && known.shares_port != shares {
                    return Err(Errno::Invalid);
                }
                known.shares_port = shares;
            }
            // Families never share ports here, whatever is requested, so nothing changes.
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                let _: [u8; 4] = self.value(command)?;
                if !matches!(self.identifier(file, command.id)?.stage, Stage::Idle | Stage::Bound) {
                    return Err(Errno::Invalid);
                }
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                let [code] = self.value(command)?;
                if code > LONGEST_TIMEOUT || self.identifier(file, command.id)?.is_datagram() {
                    return Err(Errno::Invalid);
                }
                self.identifier(file, command.id)?.ack_timeout = Some(code);
            }
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
                let length = command.optlen as usize;
                if length == 0 || !length.is_multiple_of(size_of::<PathRecordData>()) {
                    return Err(Errno::Invalid);
                }
                // RoCE has a single path, so other paths of the program are ignored.
                return self.take_route(command.id);
            }
            _ => return Err(Errno::NoCommand),
        }
        Ok(())
    }

    /// The value of an option, which has a fixed length.
    fn value<const N: usize>(&mut self, command: &CmSetOption) -> Result<[u8; N], Errno> {
        if command.optlen as usize != N {
            return Err(Errno::Invalid);
        }
        let mut value = [0; N];
        self.process.read(command.optval, &mut value)?;
        Ok(value)
    }
}
