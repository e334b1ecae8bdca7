//! INVOKE_WRITE: commands that were once written to the device file and now come inside an ioctl.

use crate::Errno;
use crate::call::Call;
use crate::object_methods::{alloc_domain, destroy_domain_handle};
use crate::process::Process;
use crate::request::Request;
use crate::uapi::*;
use zerocopy::IntoBytes;

/// Bit of a command's number: the extended form.
const EXTENDED: u32 = 1 << 31;
/// Bytes of QUERY_DEVICE's extended answer that every kernel since the first gives.
const LEAST_EXTENDED_ANSWER: usize = 184;

/// A command that is known, with the least bytes of request and answer.
struct WriteCommand<P: Process> {
    number: u32,
    request: usize,
    answer: usize,
    run: fn(&mut Call<'_, P>, &mut Request<'_>) -> Result<(), Errno>,
}

/// The commands that are known.
fn find<P: Process>(number: u32) -> Option<WriteCommand<P>> {
    let known = [
        WriteCommand {
            number: IB_USER_VERBS_CMD_QUERY_DEVICE,
            request: size_of::<QueryDevice>(),
            answer: size_of::<QueryDeviceResp>(),
            run: query_device,
        },
        WriteCommand {
            number: IB_USER_VERBS_CMD_QUERY_DEVICE | EXTENDED,
            request: size_of::<ExQueryDevice>(),
            answer: LEAST_EXTENDED_ANSWER,
            run: query_device_extended,
        },
        WriteCommand {
            number: IB_USER_VERBS_CMD_ALLOC_PD,
            request: size_of::<QueryDevice>(),
            answer: size_of::<AllocPdResp>(),
            run: alloc_pd,
        },
    ];
    known.into_iter().find(|command| command.number == number)
}

/// INVOKE_WRITE.
pub(crate) fn invoke<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let number = u32::try_from(request.constant(UVERBS_ATTR_WRITE_CMD)).map_err(|_| Errno::Invalid)?;
    let command = find::<P>(number).ok_or(Errno::NotSupported)?;
    let (given, room) = (request.length(UVERBS_ATTR_CORE_IN), request.length(UVERBS_ATTR_CORE_OUT));
    if given.unwrap_or(0) < command.request || room.unwrap_or(0) < command.answer {
        return Err(Errno::NoSpace);
    }
    (command.run)(call, request)
}

fn query_device<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let answer = call.device.attributes.query_device();
    request.output(call.process, UVERBS_ATTR_CORE_OUT, answer.as_bytes())
}

fn query_device_extended<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let query: ExQueryDevice = request.structure(call.process, UVERBS_ATTR_CORE_IN)?;
    if query.comp_mask != 0 || query.reserved != 0 {
        return Err(Errno::Invalid);
    }
    let attributes = &call.device.attributes;
    let room = request.length(UVERBS_ATTR_CORE_OUT).unwrap_or(0);
    let mut answer = attributes.query_device_extended();
    answer.response_length = answer.response_length.min(room as u32);
    let room = request.length(UVERBS_ATTR_UHW_OUT).unwrap_or(0);
    let provider = attributes.query_device_mlx5(room);
    request.output(call.process, UVERBS_ATTR_CORE_OUT, answer.as_bytes())?;
    request.output(call.process, UVERBS_ATTR_UHW_OUT, provider.as_bytes())
}

fn alloc_pd<P: Process>(call: &mut Call<'_, P>, request: &mut Request<'_>) -> Result<(), Errno> {
    let (pd_handle, pd) = alloc_domain(call)?;
    let (answer, provider) = (AllocPdResp { pd_handle }, Mlx5AllocPdResp { pdn: pd.value() });
    let told = request
        .output(call.process, UVERBS_ATTR_CORE_OUT, answer.as_bytes())
        .and_then(|()| request.output(call.process, UVERBS_ATTR_UHW_OUT, provider.as_bytes()));
    if told.is_err() {
        destroy_domain_handle(call, pd_handle)?;
    }
    told
}
