//! The view on a terminal: counters that are not zero, how fast they rise, and what the abnormal ones say.

use super::sample::{Sample, is_serious};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::prelude::{Frame, Line, Style, Stylize as _, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, Wrap};
use std::time::{Duration, Instant};

/// Lines for sentences.
const SENTENCES: u16 = 8;

/// Draws samples until somebody presses q, or `limit` of them have been shown.
///
/// # Errors
/// The terminal cannot be used, or a sample could not be taken.
pub(super) fn run(
    selector: &str,
    interval: Duration,
    limit: Option<u64>,
    sample: &mut dyn FnMut() -> anyhow::Result<Sample>,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let mut count = 0;
    let outcome = loop {
        let shown = match sample() {
            Ok(shown) => shown,
            Err(error) => break Err(error),
        };
        if let Err(error) = terminal.draw(|frame| draw(frame, selector, &shown)) {
            break Err(error.into());
        }
        count += 1;
        if limit.is_some_and(|limit| count >= limit) {
            break Ok(());
        }
        match is_left(Instant::now() + interval) {
            Ok(true) => break Ok(()),
            Ok(false) => {}
            Err(error) => break Err(error.into()),
        }
    };
    ratatui::try_restore()?;
    outcome
}

/// Waits for the next sample; true if somebody leaves before.
fn is_left(until: Instant) -> std::io::Result<bool> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !event::poll(left)? {
            return Ok(false);
        }
        let Event::Key(key) = event::read()? else { continue };
        let interrupted = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let quits = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if key.kind == KeyEventKind::Press && (quits || interrupted) {
            return Ok(true);
        }
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, selector: &str, sample: &Sample) {
    let rows = Layout::vertical([Constraint::Min(3), Constraint::Length(SENTENCES), Constraint::Length(1)]);
    let [counters, sentences, foot] = rows.areas(frame.area());
    frame.render_widget(table(selector, sample), counters);
    frame.render_widget(findings(sample), sentences);
    let quiet = sample.rows.iter().filter(|row| row.value == 0).count();
    frame.render_widget(Line::from(format!("q leaves; {quiet} counters are zero")).dim(), foot);
}

fn table<'a>(selector: &'a str, sample: &'a Sample) -> Table<'a> {
    let rows = sample.rows.iter().filter(|row| row.value > 0).map(|row| {
        let style = match row.abnormal {
            Some(abnormal) if is_serious(abnormal.kind) => Style::new().red(),
            Some(_) => Style::new().yellow(),
            None => Style::new(),
        };
        let number = |text: String| Cell::from(Text::from(text).right_aligned());
        Row::new([Cell::from(row.name.as_str()), number(row.value.to_string()), number(row.rate_text())])
            .style(style)
    });
    let header = Row::new(["counter", "value", "per second"]).bold();
    let title = format!(" {selector} after {:.0} s ", sample.at.as_secs_f64());
    Table::new(rows, [Constraint::Fill(1), Constraint::Length(20), Constraint::Length(14)])
        .header(header)
        .block(Block::bordered().title(title))
}

fn findings(sample: &Sample) -> Paragraph<'_> {
    let mut lines: Vec<Line<'_>> = sample
        .abnormal()
        .map(|(row, abnormal)| Line::from(format!("{}: {}; {}", row.name, abnormal.says, abnormal.fix)))
        .collect();
    if lines.is_empty() {
        lines.push(Line::from("nothing abnormal rises").green());
    }
    Paragraph::new(lines).wrap(Wrap { trim: true }).block(Block::bordered().title(" what it says "))
}
