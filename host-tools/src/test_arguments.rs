//! Arguments of a subcommand from words, for tests.

/// The arguments as the command reads them.
pub(crate) fn parse<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    #[derive(clap::Parser)]
    struct Command<A: clap::Args> {
        #[command(flatten)]
        arguments: A,
    }
    let line = ["bareverbs"].iter().chain(words).copied();
    <Command<A> as clap::Parser>::try_parse_from(line).map(|command| command.arguments)
}

/// The arguments of words that must be right.
pub(crate) fn parsed<A: clap::Args>(words: &[&str]) -> A {
    parse(words).unwrap_or_else(|error| panic!("{error}"))
}
