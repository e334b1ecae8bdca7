//! Parses texts of words separated by single spaces.

use bareverbs_prm::numbering::NumberingInfo;
use core::fmt;

/// A text that is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextError;

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text is no record of a device; is it from a newer version?")
    }
}

impl core::error::Error for TextError {}

/// The words of a text that have not been read yet.
///
/// ```
/// use bareverbs_sim::nic::TextWords;
///
/// let mut words = TextWords::new("interrupt vector 3");
/// assert_eq!(words.word(), Ok("interrupt"));
/// assert_eq!(words.named("vector"), Ok(3_u16));
/// assert!(words.end().is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct TextWords<'a>(core::str::Split<'a, char>);

impl<'a> TextWords<'a> {
    /// All words of `text`.
    pub fn new(text: &'a str) -> Self {
        Self(text.split(' '))
    }

    /// The next word.
    pub fn word(&mut self) -> Result<&'a str, TextError> {
        self.0.next().ok_or(TextError)
    }

    /// The next word, if there is one, without taking it.
    pub fn peek(&self) -> Option<&'a str> {
        self.0.clone().next()
    }

    /// Takes the next word, which must be this one.
    pub fn expect(&mut self, word: &str) -> Result<(), TextError> {
        if self.word()? == word { Ok(()) } else { Err(TextError) }
    }

    /// A number: decimal, or hexadecimal with the prefix `0x`.
    pub fn number<T: TryFrom<u64>>(&mut self) -> Result<T, TextError> {
        let word = self.word()?;
        let value = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        value.ok().and_then(|value| T::try_from(value).ok()).ok_or(TextError)
    }

    /// The number after this word.
    pub fn named<T: TryFrom<u64>>(&mut self, name: &str) -> Result<T, TextError> {
        self.expect(name)?;
        self.number()
    }

    /// A number, written as its name in the manual or, if it has none, as a number.
    pub(super) fn numbered<T: TryFrom<u64>>(&mut self, info: &NumberingInfo) -> Result<T, TextError> {
        let name = self.peek().ok_or(TextError)?;
        match info.rows.iter().find(|row| row.name == name) {
            Some(row) => {
                self.word()?;
                T::try_from(u64::from(row.value)).map_err(|_| TextError)
            }
            None => self.number(),
        }
    }

    /// Succeeds if there are no more words.
    pub fn end(&mut self) -> Result<(), TextError> {
        if self.0.next().is_none() { Ok(()) } else { Err(TextError) }
    }
}
