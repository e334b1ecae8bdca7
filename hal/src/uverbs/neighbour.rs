//! Where packets for a peer go: the kernel of a device knows by its routes and its neighbour table.

use super::context::KernelContext;
use super::request::Request;
use super::{PORT, UverbsError};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_uapi::*;
use zerocopy::{FromZeros, IntoBytes};

/// What Linux gives user programs' datagrams unless they say otherwise.
const HOP_LIMIT: u8 = 64;
/// Length of the provider's answer up to the end of the MAC address. An older kernel does not give one.
const WITH_MAC: u32 = 10;

/// The MAC address of the peer with a GID, or of the router to it, for packets from entry `gid_index` of the RoCE address table of the
/// device `name`, such as `mlx5_0`. The kernel asks the network (ARP, IPv6 neighbour discovery) if it does not know the
/// address; that takes a second at most.
///
/// ```no_run
/// use bareverbs_hal::uverbs::resolve_neighbour;
/// use bareverbs_prm::ids::Gid;
///
/// println!("{}", resolve_neighbour("mlx5_0", 3, Gid::from_ipv4([192, 0, 2, 7]))?);
/// # Ok::<(), bareverbs_hal::uverbs::UverbsError>(())
/// ```
///
/// # Errors
/// The device cannot be opened ([`UverbsError`]), the entry is empty, no route leads to the peer, or nobody answers
/// ([`UverbsError::Neighbour`]).
pub fn resolve_neighbour(name: &str, gid_index: u8, gid: Gid) -> Result<MacAddress, UverbsError> {
    let context = KernelContext::open(&super::find::find(name)?.file)?;
    let resolved = context.protection_domain().and_then(|domain| context.resolve(domain, gid_index, gid));
    resolved.map_err(|errno| UverbsError::Neighbour {
        gid,
        gid_index,
        error: std::io::Error::from_raw_os_error(errno),
    })
}

impl KernelContext {
    /// A protection domain of the kernel, for address handles. It ends with the file.
    fn protection_domain(&self) -> Result<u32, i32> {
        let (request, mut answer) = (0_u64, AllocPdResp::new_zeroed());
        let mut provider = Mlx5AllocPdResp::new_zeroed();
        write_command(IB_USER_VERBS_CMD_ALLOC_PD)
            .input(UVERBS_ATTR_CORE_IN, request.as_bytes())
            .output(UVERBS_ATTR_CORE_OUT, answer.as_mut_bytes())
            .output(UVERBS_ATTR_UHW_OUT, provider.as_mut_bytes())
            .run(self.file())?;
        Ok(answer.pd_handle)
    }

    /// Creates an address handle. The kernel reports its MAC address, because libraries write it into their work requests. The handle ends
    /// with the file.
    fn resolve(&self, pd_handle: u32, sgid_index: u8, gid: Gid) -> Result<MacAddress, i32> {
        let grh = GlobalRoute { dgid: gid.0, sgid_index, hop_limit: HOP_LIMIT, ..GlobalRoute::new_zeroed() };
        let attr = AhAttr { grh, is_global: 1, port_num: PORT, ..AhAttr::new_zeroed() };
        let request = CreateAh { pd_handle, attr, ..CreateAh::new_zeroed() };
        let (mut answer, mut provider) = (CreateAhResp::new_zeroed(), Mlx5CreateAhResp::new_zeroed());
        write_command(IB_USER_VERBS_CMD_CREATE_AH)
            .input(UVERBS_ATTR_CORE_IN, request.as_bytes())
            .output(UVERBS_ATTR_CORE_OUT, answer.as_mut_bytes())
            .output(UVERBS_ATTR_UHW_OUT, provider.as_mut_bytes())
            .run(self.file())?;
        match provider.response_length {
            WITH_MAC.. => Ok(MacAddress(provider.dmac)),
            _ => Err(libc::EOPNOTSUPP),
        }
    }
}

/// A command that libraries used to `write` to the file.
fn write_command<'a>(command: u32) -> Request<'a> {
    Request::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .number(UVERBS_ATTR_WRITE_CMD, command.into())
}
