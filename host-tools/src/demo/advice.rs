//! The way `advised`: the client measures how long lookups take it by READs, by a kernel of the DPU and by a core of the server, and takes what
//! has been fastest for a lookup as long as this one.

use super::way_name::WayName;
use bareverbs::offload::client::LookupResult;
use bareverbs::offload::client::advisor::{Advisor, Choice, LookupSize, Prior};
use bareverbs::prm::time::Duration;
use bareverbs_sim::run::Preset;

use crate::advise::costs::Costs;
use crate::advise::model::{AdvisedWay, Case, time};

/// An average moves by one part of this with each lookup, as a power of two.
const WEIGHT: u32 = 4;

/// What the client knows of the table and of its ways.
pub(super) struct MeasuredAdvice {
    advisor: Advisor,
    /// Elements and bytes that lookups have read so far, on the average, times 2 to the [`WEIGHT`].
    elements: u32,
    bytes: u32,
}

impl MeasuredAdvice {
    /// Nothing is measured yet: each way is thought to cost what the model of `bareverbs advise` says.
    pub(super) fn new(preset: Preset) -> Self {
        let costs = Costs::of(preset);
        let ways = [AdvisedWay::Read, AdvisedWay::KernelDpu, AdvisedWay::Cpu];
        let priors = ways.map(|way| Some(prior(&costs, way)));
        Self { advisor: Advisor::new(priors), elements: 2 << WEIGHT, bytes: 64 << WEIGHT }
    }

    /// The way for the next lookup, and its expected size.
    pub(super) fn choose(&mut self) -> (Choice, LookupSize) {
        let elements = u16::try_from(self.elements >> WEIGHT).unwrap_or(u16::MAX);
        let lookup = LookupSize { elements, bytes: self.bytes >> WEIGHT };
        (self.advisor.choose(lookup), lookup)
    }

    /// A lookup has ended after so long.
    pub(super) fn learn(&mut self, choice: Choice, asked: LookupSize, result: &LookupResult, took: Duration) {
        self.advisor.learn(asked, choice, took);
        let follow = |average: &mut u32, value: u32| *average = *average - (*average >> WEIGHT) + value;
        follow(&mut self.elements, result.hops.into());
        follow(&mut self.bytes, result.length.min(u32::MAX >> (WEIGHT + 1)));
    }
}

/// The way that a choice stands for.
pub(super) const fn way_of(choice: Choice) -> WayName {
    match choice {
        Choice::Read => WayName::Read,
        Choice::Kernel => WayName::KernelDpu,
        Choice::Cpu => WayName::Cpu,
    }
}

/// The straight line through two points of the model.
fn prior(costs: &Costs, way: AdvisedWay) -> Prior {
    let at = |hops, bytes| time(costs, way, &Case { hops, bytes, load: 0.0, retries: 0.0 });
    let element = at(1, 64) - at(0, 64);
    let byte = (at(0, 4_096) - at(0, 64)) / 4_032.0;
    // A lookup counts the value among its elements, and its first 64 bytes with the element.
    let fixed = at(0, 64) - element - 64.0 * byte;
    let picos = |nanos: f64| Duration::from_picos((nanos.max(0.0) * 1e3) as u64);
    Prior { fixed: picos(fixed), per_element: picos(element), per_byte: picos(byte) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs::offload::client::Ended;

    fn result(hops: u16, length: u32) -> LookupResult {
        LookupResult {
            request_id: 0,
            ended: Ended::Found,
            length,
            version: 0,
            hops,
            round_trips: 1,
            retries: 0,
        }
    }

    #[test]
    fn the_advisors_prior_is_the_cost_model() {
        for preset in Preset::ALL {
            let costs = Costs::of(preset);
            for (way, choice) in [
                (AdvisedWay::Read, Choice::Read),
                (AdvisedWay::KernelDpu, Choice::Kernel),
                (AdvisedWay::Cpu, Choice::Cpu),
            ] {
                let advice = MeasuredAdvice::new(preset);
                let lookup = LookupSize { elements: 5, bytes: 64 };
                let expected = time(&costs, way, &Case { hops: 4, bytes: 64, load: 0.0, retries: 0.0 });
                let found = advice.advisor.expected(lookup, choice).expect("a prior").as_picos() as f64 / 1e3;
                assert!((found / expected - 1.0).abs() < 0.02, "{} {way:?}: {found} {expected}", preset.name);
            }
        }
    }

    #[test]
    fn the_expected_size_is_the_mean_of_past_lookups() {
        let mut advice = MeasuredAdvice::new(Preset::BF3_ARM);
        for _ in 0..400 {
            let (choice, asked) = advice.choose();
            advice.learn(choice, asked, &result(9, 4_000), Duration::from_micros(5));
        }
        let (_, lookup) = advice.choose();
        assert!((8..=9).contains(&lookup.elements) && (3_900..=4_000).contains(&lookup.bytes), "{lookup:?}");
    }
}
