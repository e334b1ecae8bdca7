//! All places of a device as one type, so that a task is compiled once. Compiling it for each place took more than half
//! of this crate's build time.

use bareverbs_core::hal::Either;
#[cfg(feature = "uverbs")]
use bareverbs_hal::uverbs::UverbsHal as KernelHal;
use bareverbs_hal::vfio::VfioHal;
use bareverbs_hal::vfio_user::VfioUserHal;
// Without the feature nobody has a device of the kernel, and any type may stand here.
#[cfg(not(feature = "uverbs"))]
use bareverbs_hal::vfio_user::VfioUserHal as KernelHal;
use bareverbs_hal_sim::SimHal;
use bareverbs_hal_sim::real_time::RealTimeHal;
use bareverbs_network::NetworkIo;
use bareverbs_sim::nic::Nic;

/// The place of a host's device in a network of hosts.
type HostHal = RealTimeHal<Nic, NetworkIo>;
/// A place whose device is a simulated one: of another process, of a world in virtual time, or of a host.
type SoftwareHal = Either<VfioUserHal, Either<SimHal, HostHal>>;

/// Any place. A card on VFIO comes first: its accesses take one branch more than on their own.
pub(crate) type AnyHal = Either<VfioHal, Either<KernelHal, SoftwareHal>>;

pub(crate) const fn of_vfio(hal: VfioHal) -> AnyHal {
    Either::Left(hal)
}

#[cfg(feature = "uverbs")]
pub(crate) const fn of_kernel(hal: KernelHal) -> AnyHal {
    Either::Right(Either::Left(hal))
}

pub(crate) const fn of_vfio_user(hal: VfioUserHal) -> AnyHal {
    in_software(Either::Left(hal))
}

pub(crate) const fn of_world(hal: SimHal) -> AnyHal {
    in_software(Either::Right(Either::Left(hal)))
}

pub(crate) const fn of_host(hal: HostHal) -> AnyHal {
    in_software(Either::Right(Either::Right(hal)))
}

const fn in_software(hal: SoftwareHal) -> AnyHal {
    Either::Right(Either::Right(hal))
}
