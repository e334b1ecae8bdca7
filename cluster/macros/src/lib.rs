// `cargo test --doc` compiles examples here even though Cargo.toml leaves them to the facade.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, TokenStream, TokenTree};

/// Turns a function that takes a `&Trial` into a test. The test runs the function for many seeds, shrinks a failing
/// trial, and prints the line that replays it. Its arguments set fields of `bareverbs::cluster::Exploration`, each as
/// `name = value`.
#[proc_macro_attribute]
pub fn test(arguments: TokenStream, function: TokenStream) -> TokenStream {
    let Some(name) = name_of(function.clone()) else {
        return refuse(
            "#[bareverbs::test] belongs on a function that takes a &Trial and returns a TestResult",
        );
    };
    let fields = match fields_of(arguments) {
        Some(fields) => fields,
        None => {
            return refuse(
                "#[bareverbs::test] takes fields of Exploration, such as seeds = 100, hosts = (3, 5)",
            );
        }
    };
    let mut body = function;
    let call = format!("::bareverbs::cluster::explore(\"{name}\", &__limits, {name});");
    body.extend(parse("let __limits = "));
    body.extend(parse("::bareverbs::cluster::Exploration"));
    body.extend([TokenTree::Group(Group::new(Delimiter::Brace, fields))]);
    body.extend(parse(";"));
    body.extend(parse(&call));
    let mut test = parse("#[::core::prelude::v1::test] fn");
    test.extend([
        TokenTree::Ident(name),
        TokenTree::Group(Group::new(Delimiter::Parenthesis, TokenStream::new())),
        TokenTree::Group(Group::new(Delimiter::Brace, body)),
    ]);
    test
}

/// The identifier after the first `fn`.
fn name_of(function: TokenStream) -> Option<Ident> {
    let mut tokens = function.into_iter();
    tokens.by_ref().find(|token| matches!(token, TokenTree::Ident(word) if word.to_string() == "fn"))?;
    match tokens.next()? {
        TokenTree::Ident(name) => Some(name),
        _ => None,
    }
}

/// Converts `name = value, …` into the fields of a struct expression that takes the rest from its default.
fn fields_of(arguments: TokenStream) -> Option<TokenStream> {
    let mut fields = TokenStream::new();
    let mut tokens = arguments.into_iter().peekable();
    while let Some(name) = tokens.next() {
        let is_name = matches!(name, TokenTree::Ident(_));
        let is_equal = matches!(tokens.next(), Some(TokenTree::Punct(sign)) if sign.as_char() == '=');
        if !is_name || !is_equal || tokens.peek().is_none() {
            return None;
        }
        fields.extend([name, TokenTree::Punct(Punct::new(':', Spacing::Alone))]);
        let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',');
        while let Some(value) = tokens.next_if(|token| !is_comma(token)) {
            fields.extend([value]);
        }
        tokens.next();
        fields.extend(parse(","));
    }
    fields.extend(parse("..::core::default::Default::default()"));
    Some(fields)
}

fn refuse(why: &str) -> TokenStream {
    parse(&format!("::core::compile_error!({why:?});"))
}

/// Tokens of source text that this file generates.
fn parse(text: &str) -> TokenStream {
    match text.parse() {
        Ok(tokens) => tokens,
        Err(_) => unreachable!("the text is Rust"),
    }
}
