//! Faults on the wires of simulated devices in one line of text: the `--faults` option.
//!
//! Comma-separated items. Random faults, in both directions: `loss=0.01`, `duplicate=0.01`, `corrupt=0.001`,
//! `reorder=0.05`, `reorder-by=20us`, `jitter=5us`. Scripted faults: `out:7=drop`, `in:0x0a/3=duplicate`: the
//! direction, then a frame number or an opcode and the number among its frames, then `drop`, `duplicate`, `flip=BIT`,
//! `delay=TIME` or `hold=FRAMES`.

use bareverbs_prm::time::Duration;
use bareverbs_sim::net::capture::Direction;
use bareverbs_sim::net::fault::{Action, Chance, FaultId, Faults, RandomFaults, ScriptedFault, Trigger};
use bareverbs_sim::run::Seed;
use std::str::FromStr;

/// Faults of a wire, without the seed of the random ones.
///
/// ```
/// use bareverbs_serve::real_time::FaultScript;
///
/// // One frame in a hundred is lost, and the eighth one that is sent.
/// let script: FaultScript = "loss=0.01,out:7=drop".parse()?;
/// assert_eq!((script.inbound.len(), script.outbound.len()), (0, 1));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultScript {
    /// Random faults.
    pub random: RandomFaults,
    /// Script for received frames.
    pub inbound: Vec<ScriptedFault>,
    /// Script for sent frames.
    pub outbound: Vec<ScriptedFault>,
}

impl FromStr for FaultScript {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            script.add(word).map_err(|what| format!("'{word}': {what}"))?;
        }
        Ok(script)
    }
}

impl FaultScript {
    /// The faults for one direction of an Ethernet wire.
    pub fn faults(&self, direction: Direction, seed: Seed) -> Faults {
        let (name, script) = match direction {
            Direction::Inbound => ("faults of inbound", &self.inbound),
            Direction::Outbound => ("faults of outbound", &self.outbound),
        };
        let mut faults = Faults::new(seed.stream(name));
        faults.set_random(self.random);
        for (id, fault) in (0..).zip(script) {
            faults.arm(FaultId(id), *fault);
        }
        faults
    }

    fn add(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').ok_or("there is no '='")?;
        if let Some((direction, frame)) = name.split_once(':') {
            let fault = ScriptedFault { when: trigger(frame)?, action: action(value)? };
            match direction {
                "in" => self.inbound.push(fault),
                "out" => self.outbound.push(fault),
                _ => return Err("directions are 'in' and 'out'".into()),
            }
            return Ok(());
        }
        let random = &mut self.random;
        match name {
            "loss" => random.loss = chance(value)?,
            "duplicate" => random.duplicate = chance(value)?,
            "corrupt" => random.corrupt = chance(value)?,
            "reorder" => {
                random.reorder = chance(value)?;
                if random.reorder_by == Duration::ZERO {
                    random.reorder_by = Duration::from_micros(20);
                }
            }
            "reorder-by" => random.reorder_by = duration(value)?,
            "jitter" => random.jitter = duration(value)?,
            _ => return Err("there is no such fault".into()),
        }
        Ok(())
    }
}

fn chance(text: &str) -> Result<Chance, String> {
    let ratio: f64 = text.parse().map_err(|_| "a probability is a number from 0 to 1")?;
    if (0.0..=1.0).contains(&ratio) {
        Ok(Chance::from_ratio(ratio))
    } else {
        Err("a probability is from 0 to 1".into())
    }
}

fn trigger(text: &str) -> Result<Trigger, String> {
    let Some((opcode, nth)) = text.split_once('/') else {
        return Ok(Trigger::Frame(number(text)?));
    };
    let opcode = u8::try_from(number(opcode)?).map_err(|_| "an op-code has 8 bits")?;
    Ok(Trigger::Opcode { opcode, nth: number(nth)? })
}

fn action(text: &str) -> Result<Action, String> {
    let narrow =
        |value: &str| u32::try_from(number(value)?).map_err(|_| "the number is too large".to_owned());
    match text.split_once('=') {
        None if text == "drop" => Ok(Action::Drop),
        None if text == "duplicate" => Ok(Action::Duplicate),
        Some(("flip", bit)) => Ok(Action::FlipBit(narrow(bit)?)),
        Some(("hold", frames)) => Ok(Action::HoldBehind(narrow(frames)?)),
        Some(("delay", time)) => Ok(Action::Delay(duration(time)?)),
        _ => Err("the action is drop, duplicate, flip=BIT, delay=TIME or hold=FRAMES".into()),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a number"))
}

/// Parses a number with ns, us or ms, up to an hour.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1), ("us", 1000), ("ms", 1_000_000)];
    let unit = units.iter().find_map(|(unit, nanos)| Some((text.strip_suffix(unit)?, nanos)));
    let (digits, nanos) = unit.ok_or("a time ends with ns, us or ms")?;
    let total = number(digits)?.checked_mul(*nanos).filter(|nanos| *nanos <= 3_600_000_000_000);
    total.map(Duration::from_nanos).ok_or_else(|| "the time is too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_chances_and_single_frames() {
        let script: FaultScript =
            "loss=0.5, reorder=1,jitter=5us,out:7=drop,in:0x0a/3=delay=2ms".parse().unwrap();
        assert_eq!(script.random.loss, Chance::from_ratio(0.5));
        assert_eq!(
            (script.random.reorder, script.random.reorder_by),
            (Chance::ALWAYS, Duration::from_micros(20))
        );
        assert_eq!(script.random.jitter, Duration::from_micros(5));
        assert_eq!(script.outbound, [ScriptedFault { when: Trigger::Frame(7), action: Action::Drop }]);
        let when = Trigger::Opcode { opcode: 10, nth: 3 };
        assert_eq!(script.inbound, [ScriptedFault { when, action: Action::Delay(Duration::from_millis(2)) }]);
    }

    #[test]
    fn malformed_input_is_refused_with_the_word() {
        let bad = [
            "loss",
            "loss=2",
            "loss=x",
            "lost=1",
            "up:1=drop",
            "in:x=drop",
            "in:1=burn",
            "in:0x100/1=drop",
            "jitter=5",
            "jitter=99999999999ms",
            "out:1=flip=4294967296",
        ];
        for word in bad {
            let refusal = word.parse::<FaultScript>().unwrap_err();
            assert!(refusal.contains(word), "{refusal}");
        }
    }
}
