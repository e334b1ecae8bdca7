//! The view on a terminal: counters that are not zero, their rates, and the meaning of the abnormal ones.

use super::ending::LOOK;
use super::sample::{Sample, is_serious};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::prelude::{Frame, Line, Style, Stylize as _, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, Wrap};
use std::time::{Duration, Instant};

/// Lines for explanations.
const SENTENCES: u16 = 8;

/// The source of samples while the view is shown.
pub(super) trait Feed {
    /// Takes the next sample.
    fn sample(&mut self) -> anyhow::Result<Sample>;
    /// Lets time pass, including simulated time.
    fn pass(&mut self, until: Instant) -> anyhow::Result<()>;
    /// Whether the process was told to end.
    fn is_ended(&self) -> anyhow::Result<bool>;
}

/// Draws samples until somebody presses q or ends the process, or until `limit` of them were shown.
///
/// # Errors
/// The terminal cannot be used, or a sample could not be taken.
pub(super) fn run(
    selector: &str,
    interval: Duration,
    limit: Option<u64>,
    feed: &mut dyn Feed,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let outcome = (|| -> anyhow::Result<()> {
        for count in 1.. {
            let shown = feed.sample()?;
            terminal.draw(|frame| draw(frame, selector, &shown))?;
            if limit.is_some_and(|limit| count >= limit) || is_left(Instant::now() + interval, feed)? {
                break;
            }
        }
        Ok(())
    })();
    ratatui::try_restore()?;
    outcome
}

/// Waits for the next sample; returns true if somebody leaves before.
fn is_left(until: Instant, feed: &mut dyn Feed) -> anyhow::Result<bool> {
    loop {
        let now = Instant::now();
        if now >= until {
            return Ok(false);
        }
        feed.pass(until.min(now + LOOK))?;
        if feed.is_ended()? {
            return Ok(true);
        }
        if !event::poll(Duration::ZERO)? {
            continue;
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
    frame.render_widget(table(selector, sample, counters.width), counters);
    frame.render_widget(findings(sample), sentences);
    let quiet = sample.rows.iter().filter(|row| row.value == 0).count();
    frame.render_widget(Line::from(format!("q leaves; {quiet} counters are zero")).dim(), foot);
}

/// Below this width the names need every column.
const NARROW: u16 = 60;
/// Columns of the numbers, if there is room.
const WIDE: [usize; 2] = [20, 14];

fn table<'a>(selector: &'a str, sample: &'a Sample, width: u16) -> Table<'a> {
    let shown = || sample.rows.iter().filter(|row| row.value > 0);
    let rows = shown().map(|row| {
        let style = match row.abnormal {
            Some(abnormal) if is_serious(abnormal.kind) => Style::new().red(),
            Some(_) => Style::new().yellow(),
            None => Style::new(),
        };
        let number = |text: String| Cell::from(Text::from(text).right_aligned());
        Row::new([Cell::from(row.name.as_str()), number(row.value.to_string()), number(row.rate_text())])
            .style(style)
    });
    let heads = if width < NARROW { ["value", "/s"] } else { ["value", "per second"] };
    let longest = |texts: &mut dyn Iterator<Item = String>| texts.map(|text| text.len()).max().unwrap_or(0);
    let needed = [
        longest(&mut shown().map(|row| row.value.to_string())),
        longest(&mut shown().map(|row| row.rate_text())),
    ];
    let columns = [0, 1].map(|column| {
        let least = needed[column].max(heads[column].len());
        Constraint::Length(if width < NARROW { least } else { least.max(WIDE[column]) } as u16)
    });
    let header = Row::new([
        Cell::from("counter"),
        Cell::from(Text::from(heads[0]).right_aligned()),
        Cell::from(Text::from(heads[1]).right_aligned()),
    ]);
    let title = format!(" {selector} after {:.0} s ", sample.at.as_secs_f64());
    Table::new(rows, [Constraint::Fill(1), columns[0], columns[1]])
        .header(header.bold())
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
