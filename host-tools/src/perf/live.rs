//! Rows that are shown during the test: those of `--run_infinitely`.

use super::output_arguments::OutputArguments;
use super::plan::TestPlan;
use super::report::{self, TestContext};
use super::run::{PerfOutcome, SizeRow};
use crate::Failure;
use crate::output::{OutputReader, output_reader, print_to_reader};
use anyhow::Result;

/// Where they are shown. With JSON they are all printed at the end, but a reader that has gone is noticed
/// during the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LiveRows<'a> {
    pub(crate) context: &'a TestContext,
    pub(crate) output: &'a OutputArguments,
}

impl LiveRows<'_> {
    /// Shows the lines before the rows.
    pub(crate) fn begin(&self, outcome: &PerfOutcome) -> Result<OutputReader> {
        match self.output.json || self.output.number.is_some() {
            true => shown(output_reader()),
            false => shown(print_to_reader(&report::beginning(outcome, self.context))),
        }
    }

    /// Shows a row.
    pub(crate) fn row(&self, row: &SizeRow, plan: &TestPlan) -> Result<OutputReader> {
        match self.output.json {
            true => shown(output_reader()),
            false => shown(print_to_reader(&report::lines_of(row, plan, self.output))),
        }
    }
}

fn shown(printed: Result<OutputReader, Failure>) -> Result<OutputReader> {
    printed.map_err(|failure| match failure {
        Failure::Input(error) | Failure::Run(error) => error,
    })
}
