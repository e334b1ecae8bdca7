//! One annotation: `Requirement: IBTA v1.4 §9.7.5.2.1: words`.

/// The documents that requirements come from, in the order of the table.
const DOCUMENTS: [(&str, &str); 7] = [
    ("IBTA v1.4", "IBTA v1.4 §"),
    ("RDMA IP CM Service", "RDMA IP CM Service A11"),
    ("XRC", "XRC A14"),
    ("RoCE", "RoCE A16"),
    ("RoCEv2", "RoCEv2 A17"),
    ("PRM", "PRM §"),
    ("RFC 4391", "RFC 4391 §"),
];

/// What a specification requires. The order is the table's: document, section by its numbers, words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    document: usize,
    numbers: Vec<u32>,
    /// Section as written, without the document's name: `§9.7.5.2.1`, `A17.3.1`.
    pub section: String,
    /// What is required.
    pub words: String,
}

impl Requirement {
    /// Parses what follows `Requirement:`. The error says in words what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (place, words) = text.trim().split_once(": ").ok_or("no ': ' between section and words")?;
        let document = DOCUMENTS.iter().position(|(_, prefix)| place.starts_with(prefix));
        let document = document.ok_or_else(|| format!("'{place}' is not a section of a known document"))?;
        let section = place[DOCUMENTS[document].0.len()..].trim();
        let numbers = numbers(section).ok_or_else(|| format!("'{section}' is not a section"))?;
        match words.trim() {
            "" => Err("no words".into()),
            words => Ok(Self { document, numbers, section: section.into(), words: words.into() }),
        }
    }

    /// Adds the next line of the comment. The text continues until a line ends with a full stop, which is
    /// dropped.
    pub fn go_on(&mut self, line: &str) {
        if !self.words.ends_with('.') {
            self.words.push(' ');
            self.words.push_str(line.trim());
        }
    }

    /// Ends the words.
    pub fn finish(mut self) -> Self {
        self.words.truncate(self.words.trim_end_matches('.').len());
        self
    }

    /// The name of the document.
    pub fn document(&self) -> &'static str {
        DOCUMENTS[self.document].0
    }
}

/// The numbers of `§9.7.5` and `A17.3`.
fn numbers(section: &str) -> Option<Vec<u32>> {
    let bare = section.trim_start_matches(['§', 'A']);
    bare.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_ordered_by_their_numbers() {
        let of = |text| Requirement::parse(text).unwrap();
        let ordered = [
            of("IBTA v1.4 §9.7.5: b"),
            of("IBTA v1.4 §9.7.5.2: a"),
            of("IBTA v1.4 §9.7.10: a"),
            of("IBTA v1.4 §10.3.1: a"),
            of("RoCEv2 A17.3.1: a"),
            of("PRM §8.9: a"),
        ];
        assert!(ordered.is_sorted());
        assert_eq!((ordered[4].document(), ordered[4].section.as_str()), ("RoCEv2", "A17.3.1"));
    }

    #[test]
    fn malformed_annotations_are_refused() {
        for text in
            ["IBTA v1.4 §9.7.5", "IBTA §9: words", "IBTA v1.4 §9.x: words", "IBTA v1.4 §9:  ", "words: words"]
        {
            assert!(Requirement::parse(text).is_err(), "{text}");
        }
    }
}
