//! Op-codes in text: up to eight letters, as in `KVLOOKUP`, or a number.

use bareverbs::offload::kernel::Opcode;

/// The op-code that a text names: letters are its bytes from the highest down, padded with zeros.
pub(crate) fn parse_opcode(text: &str) -> Result<Opcode, String> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16)
            .map(Opcode)
            .map_err(|_| format!("{text:?} is not a 64-bit number"));
    }
    let letters = text.as_bytes();
    if !(1..=8).contains(&letters.len()) || !letters.iter().all(u8::is_ascii_graphic) {
        return Err(format!(
            "{text:?} is not an op-code: write up to eight letters, such as KVLOOKPR, or a number such as 0x1234"
        ));
    }
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(letters).for_each(|(byte, letter)| *byte = *letter);
    Ok(Opcode(u64::from_be_bytes(bytes)))
}

/// The text of an op-code, which [`parse_opcode`] parses back.
pub(crate) fn opcode_text(opcode: Opcode) -> String {
    let bytes = opcode.0.to_be_bytes();
    let letters = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let text: String = bytes.iter().take(letters).map(|byte| char::from(*byte)).collect();
    match parse_opcode(&text) {
        Ok(same) if same == opcode => text,
        _ => format!("{:#x}", opcode.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_and_numbers_name_op_codes_both_ways() {
        let lookup = Opcode(u64::from_be_bytes(*b"KVLOOKUP"));
        assert_eq!((parse_opcode("KVLOOKUP"), opcode_text(lookup)), (Ok(lookup), "KVLOOKUP".into()));
        assert_eq!(parse_opcode("0x4b564c4f4f4b5550"), Ok(lookup));
        for opcode in [0, 1, 0x41, u64::MAX, u64::from_be_bytes(*b"SUM\0\0\0\0\0"), 0x3078_3100_0000_0000] {
            assert_eq!(parse_opcode(&opcode_text(Opcode(opcode))), Ok(Opcode(opcode)), "{opcode:#x}");
        }
        for bad in ["", "NINE LETTERS", "123456789", "0xg", "ä"] {
            assert!(parse_opcode(bad).is_err(), "{bad}");
        }
    }
}
