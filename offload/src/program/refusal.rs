//! A [`DeployError`] in numbers, for the wire: a remote deployer gets the same reason as a direct caller of
//! the verifier.

use super::instruction::{Feature, Illegal};
use super::verify::DeployError;

/// A refusal in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Number of the reason.
    pub(super) reason: u32,
    /// The instruction; zero where there is none.
    pub(super) instruction: u16,
    /// The reason's value; signed numbers as two's complement.
    pub(super) value: u64,
}

impl From<DeployError> for Refusal {
    fn from(error: DeployError) -> Self {
        let (reason, instruction, value) = match error {
            DeployError::Empty => (1, 0, 0),
            DeployError::TooLong { instructions } => (2, 0, instructions as u64),
            DeployError::NotWhole { bytes } => (3, 0, bytes as u64),
            DeployError::Illegal { instruction, reason } => (4, instruction, illegal_to_value(reason)),
            DeployError::FramePointer { instruction } => (5, instruction, 0),
            DeployError::JumpOutside { instruction, target } => (6, instruction, target as u64),
            DeployError::JumpIntoConstant { instruction, target } => (7, instruction, target as u64),
            DeployError::Shift { instruction, bits } => (8, instruction, u64::from(bits as u32)),
            DeployError::DivisionByZero { instruction } => (9, instruction, 0),
            DeployError::StackOutside { instruction, offset, bytes } => {
                (10, instruction, pair(offset as u16, bytes.into()))
            }
            DeployError::NoEnd { instruction } => (11, instruction, 0),
        };
        Self { reason, instruction: instruction as u16, value }
    }
}

impl Refusal {
    /// The error; `None` for a reason that this version does not know.
    pub(super) fn error(self) -> Option<DeployError> {
        let (instruction, value) = (usize::from(self.instruction), self.value);
        Some(match self.reason {
            1 => DeployError::Empty,
            2 => DeployError::TooLong { instructions: usize::try_from(value).ok()? },
            3 => DeployError::NotWhole { bytes: usize::try_from(value).ok()? },
            4 => DeployError::Illegal { instruction, reason: illegal_of_value(value)? },
            5 => DeployError::FramePointer { instruction },
            6 => DeployError::JumpOutside { instruction, target: value as i64 },
            7 => DeployError::JumpIntoConstant { instruction, target: value as i64 },
            8 => DeployError::Shift { instruction, bits: u32::try_from(value).ok()? as i32 },
            9 => DeployError::DivisionByZero { instruction },
            10 => {
                let (offset, bytes) = (u16::try_from(value >> 32).ok()?, u8::try_from(value as u32).ok()?);
                DeployError::StackOutside { instruction, offset: offset as i16, bytes }
            }
            11 => DeployError::NoEnd { instruction },
            _ => return None,
        })
    }
}

const fn pair(high: u16, low: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

fn illegal_to_value(illegal: Illegal) -> u64 {
    match illegal {
        Illegal::Opcode(opcode) => pair(1, opcode.into()),
        Illegal::Unsupported(feature) => pair(2, feature as u32),
        Illegal::ReservedField => pair(3, 0),
        Illegal::Register(register) => pair(4, register.into()),
        Illegal::CutConstant => pair(5, 0),
        Illegal::Helper(number) => pair(6, number as u32),
    }
}

fn illegal_of_value(value: u64) -> Option<Illegal> {
    let low = value as u32;
    let byte = u8::try_from(low).ok();
    Some(match value >> 32 {
        1 => Illegal::Opcode(byte?),
        2 => Illegal::Unsupported(*Feature::ALL.get(usize::try_from(low.checked_sub(1)?).ok()?)?),
        3 => Illegal::ReservedField,
        4 => Illegal::Register(byte?),
        5 => Illegal::CutConstant,
        6 => Illegal::Helper(low as i32),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn illegal() -> impl Strategy<Value = Illegal> {
        prop_oneof![
            any::<u8>().prop_map(Illegal::Opcode),
            proptest::sample::select(&Feature::ALL[..]).prop_map(Illegal::Unsupported),
            Just(Illegal::ReservedField),
            any::<u8>().prop_map(Illegal::Register),
            Just(Illegal::CutConstant),
            any::<i32>().prop_map(Illegal::Helper),
        ]
    }

    fn error() -> impl Strategy<Value = DeployError> {
        let at = || 0_usize..512;
        prop_oneof![
            Just(DeployError::Empty),
            (0_usize..70_000).prop_map(|instructions| DeployError::TooLong { instructions }),
            (0_usize..70_000).prop_map(|bytes| DeployError::NotWhole { bytes }),
            (at(), illegal()).prop_map(|(instruction, reason)| DeployError::Illegal { instruction, reason }),
            at().prop_map(|instruction| DeployError::FramePointer { instruction }),
            (at(), any::<i64>())
                .prop_map(|(instruction, target)| DeployError::JumpOutside { instruction, target }),
            (at(), any::<i64>())
                .prop_map(|(instruction, target)| DeployError::JumpIntoConstant { instruction, target }),
            (at(), any::<i32>()).prop_map(|(instruction, bits)| DeployError::Shift { instruction, bits }),
            at().prop_map(|instruction| DeployError::DivisionByZero { instruction }),
            (at(), any::<i16>(), any::<u8>()).prop_map(|(instruction, offset, bytes)| {
                DeployError::StackOutside { instruction, offset, bytes }
            }),
            at().prop_map(|instruction| DeployError::NoEnd { instruction }),
        ]
    }

    proptest! {
        #[test]
        fn every_error_survives_the_way_there_and_back(error in error()) {
            prop_assert_eq!(Refusal::from(error).error(), Some(error));
        }

        #[test]
        fn a_refusal_from_a_peer_decodes_to_a_known_error_or_none(reason in 0_u32..14, instruction: u16, value: u64) {
            if let Some(error) = (Refusal { reason, instruction, value }).error() {
                prop_assert_eq!(Refusal::from(error).reason, reason);
            }
        }
    }

    #[test]
    fn features_are_found_by_their_number() {
        for (index, feature) in Feature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, index + 1);
        }
    }
}
