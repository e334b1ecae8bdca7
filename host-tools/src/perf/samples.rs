//! Every latency of a size, one per line, as perftest lists them.

use super::output_arguments::OutputArguments;
use super::run::SizeRow;
use std::fmt::Write as _;

/// Significant digits of a number.
const DIGITS: i32 = 6;

/// The unit of printed samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleUnit {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its length in picoseconds.
    pub(crate) picos: f64,
}

/// The requested lists of a size: first in the order of the messages, then by length.
pub(crate) fn lists(row: &SizeRow, output: &OutputArguments, unit: SampleUnit) -> String {
    let SizeRow::Latency(latency) = row else { return String::new() };
    let Some(samples) = &latency.samples else { return String::new() };
    let mut text = String::new();
    if output.unsorted {
        list(&mut text, samples, unit);
    }
    if output.sorted {
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        list(&mut text, &sorted, unit);
    }
    text
}

fn list(text: &mut String, samples: &[u64], unit: SampleUnit) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "#, {}", unit.name);
    for (number, picos) in (1..).zip(samples) {
        let _ = writeln!(text, "{number}, {}", general(*picos as f64 / unit.picos));
    }
}

/// A number with six digits in the format of C's `%g`: without trailing zeros, and with an exponent if it is
/// very large or small.
fn general(value: f64) -> String {
    let precision = (DIGITS - 1) as usize;
    let scientific = format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let decimals = (DIGITS - 1 - exponent) as usize;
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
}

/// Removes trailing zeros after the decimal point, and a trailing point.
fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_printf() {
        // printf '%g\n' NUMBER
        for (value, printed) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (2.0, "2"),
            (100.0, "100"),
            (0.978_534_4, "0.978534"),
            (123_456.7, "123457"),
            (999_999.6, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_01, "1e-05"),
            (9.999_996, "10"),
        ] {
            assert_eq!(general(value), printed);
        }
    }
}
