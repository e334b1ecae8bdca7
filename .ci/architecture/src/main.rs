//! Checks the sources of this workspace against the architecture: permitted dependencies, cycles between
//! rooms, sizes, words.
//!
//! `.ci/arrows` runs it. `src/house.rs` is the table of permitted dependencies; `ratchet` beside it has the
//! counts that may only fall.

#![forbid(unsafe_code)]

mod arrows;
mod cycles;
mod draw;
mod examples;
mod house;
mod mentions;
mod modules;
mod ratchet;
mod resolve;
mod rules;
mod sizes;
mod sources;
#[cfg(test)]
mod tests;
mod words;

use arrows::Arrows;
use house::HOUSE;
use modules::Modules;
use sources::Sources;
use std::io::{self, Write};
use std::process::ExitCode;

const USAGE: &str = "usage: .ci/arrows [--graph [mermaid] | --words | --update]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("arrows: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[&str]) -> Result<ExitCode, String> {
    let sources = Sources::of_repository()?;
    let (modules, mut faults) = Modules::read(HOUSE, &sources)?;
    let arrows = Arrows::of(&modules);
    match arguments {
        [] => {}
        ["--graph"] => return done(&draw::text(&modules, &arrows)),
        ["--graph", "mermaid"] => return done(&draw::mermaid(&modules, &arrows)),
        ["--words"] => return done(&words::report(&modules, &sources)),
        ["--update"] => {
            ratchet::update(&words::count(&modules, &sources))?;
            draw::update(&draw::summary(&modules, &arrows))?;
        }
        _ => return Err(USAGE.into()),
    }
    faults.extend(rules::check(&modules, &arrows));
    faults.extend(cycles::check(&cycles::find(&modules, &arrows)));
    faults.extend(sizes::check(&sources)?);
    faults.extend(ratchet::check(&words::count(&modules, &sources), &ratchet::allowed()?));
    faults.extend(draw::check(&draw::summary(&modules, &arrows))?);
    println!(
        "arrows: {} files, {} arrows between rooms, {} faults",
        modules.files(),
        arrows.count(),
        faults.len()
    );
    faults.sort();
    for fault in &faults {
        println!("{fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes a text. A reader that has seen enough, such as `head`, is no fault.
fn done(text: &str) -> Result<ExitCode, String> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
