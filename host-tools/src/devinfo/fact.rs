//! A named value of a device, and sections of them.

use serde_json::Value;

/// A named value. Names are those of `ibv_devinfo` where it has one, else those of the PRM.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fact {
    pub(super) name: String,
    /// For programs.
    pub(super) value: Value,
    /// For people.
    pub(super) text: String,
    /// Two devices of the same make differ in it.
    pub(super) own: bool,
    /// Why the value is not known. It is null then.
    pub(super) unknown: Option<String>,
}

impl Fact {
    pub(super) fn new(name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Null => "-".to_owned(),
            other => other.to_string(),
        };
        Self { name: name.to_owned(), value, text, own: false, unknown: None }
    }

    pub(super) fn unknown(name: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let text = format!("unknown: {reason}");
        Self { text, unknown: Some(reason), ..Self::new(name, Value::Null) }
    }

    pub(super) fn shown(self, text: String) -> Self {
        Self { text, ..self }
    }

    pub(super) fn own(self) -> Self {
        Self { own: true, ..self }
    }
}

/// Values of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) facts: Vec<Fact>,
}
