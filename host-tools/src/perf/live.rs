//! Rows that are shown while the test goes on: those of `--run_infinitely`.

use super::output_arguments::OutputArguments;
use super::plan::Plan;
use super::report::{self, Occasion};
use super::run::{PerfOutcome, SizeRow};
use crate::Failure;
use crate::output::{Audience, audience, print_to_reader};
use anyhow::Result;

/// Where they are shown. JSON has them all at the end; that its reader has gone is noticed all the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveRows<'a> {
    pub(crate) occasion: &'a Occasion,
    pub(crate) wishes: &'a OutputArguments,
}

impl LiveRows<'_> {
    /// Shows what stands in front of them.
    pub(crate) fn begin(&self, outcome: &PerfOutcome) -> Result<Audience> {
        match self.wishes.json || self.wishes.number.is_some() {
            true => shown(audience()),
            false => shown(print_to_reader(&report::beginning(outcome, self.occasion))),
        }
    }

    /// Shows one.
    pub(crate) fn row(&self, row: &SizeRow, plan: &Plan) -> Result<Audience> {
        match self.wishes.json {
            true => shown(audience()),
            false => shown(print_to_reader(&report::lines_of(row, plan, self.wishes))),
        }
    }
}

fn shown(printed: Result<Audience, Failure>) -> Result<Audience> {
    printed.map_err(|failure| match failure {
        Failure::Input(error) | Failure::Run(error) => error,
    })
}
