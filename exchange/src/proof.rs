//! How an end proves that it knows a key without sending it: HMAC-SHA256 over everything said so far, including a fresh
//! nonce from each end.
//!
//! ```text
//! name           0 the caller's number (32)   32 its name
//! challenge      0 the number of the end that is called (32)
//! proof          0 HMAC-SHA256 (32)
//! ```
//! The caller's proof covers its name, both nonces and its introduction; the called end's proof covers its own
//! introduction as well. So nobody in between can change or replay an introduction. Nothing is encrypted.

use crate::message::{Limit, MessageError, check};
use core::fmt;
use core::str::FromStr;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a nonce.
const NONCE: usize = 32;
/// The two ends' proofs begin differently, so that neither can be used as the other's.
const CALLER: &[u8] = b"bareverbs exchange 1: caller\0";
const CALLED: &[u8] = b"bareverbs exchange 1: called\0";
/// What the secret of a session begins with: it is neither of the proofs, which are sent.
const SECRET: &[u8] = b"bareverbs exchange 1: secret\0";

/// A number that is used only once.
pub(crate) type Nonce = [u8; NONCE];
/// The proof that an end knows the key.
pub(crate) type Proof = [u8; 32];

/// A 32-byte secret that two ends share. Its text form is 64 hexadecimal digits, as `openssl rand -hex 32` prints them.
/// It is never printed.
///
/// ```
/// use bareverbs_exchange::SharedKey;
///
/// let digits = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
/// assert!(digits.parse::<SharedKey>().is_ok());
/// assert_eq!("secret".parse::<SharedKey>().unwrap_err().to_string(), "a key is 64 hexadecimal digits, but this text has 6 characters");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey([u8; 32]);

/// 32 bytes that only the two ends of a session know; another session has others.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret([u8; 32]);

impl SessionSecret {
    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(not shown)")
    }
}

/// Text that is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedKeyError {
    letters: usize,
    /// The first character that is not a digit, counted from one.
    letter: Option<usize>,
}

/// A caller's name and the key that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name, 1 to 64 bytes long.
    pub name: String,
    /// The key that the other end holds for this name.
    pub key: SharedKey,
}

impl SharedKey {
    /// A key made of these bytes, which must come from a source of randomness.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// HMAC pads a short key with zeros to its block length.
    fn hmac(&self) -> Hmac<Sha256> {
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        Hmac::new(&block.into())
    }

    fn mac(&self, label: &[u8], transcript: &Transcript<'_>) -> Hmac<Sha256> {
        let mut mac = self.hmac();
        mac.update(label);
        for part in [transcript.name.as_bytes(), transcript.caller_nonce, transcript.called_nonce] {
            add(&mut mac, part);
        }
        add(&mut mac, transcript.introduction);
        mac
    }
}

/// Adds a part, preceded by its length: otherwise parts could be confused with each other.
fn add(mac: &mut Hmac<Sha256>, part: &[u8]) {
    mac.update(&(part.len() as u64).to_be_bytes());
    mac.update(part);
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(not shown)")
    }
}

impl FromStr for SharedKey {
    type Err = SharedKeyError;

    fn from_str(text: &str) -> Result<Self, SharedKeyError> {
        let digits: Vec<char> = text.trim().chars().collect();
        let letter = digits.iter().position(|digit| !digit.is_ascii_hexdigit()).map(|at| at + 1);
        let wrong = SharedKeyError { letters: digits.len(), letter };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let value = pair.iter().try_fold(0, |value, digit| Some(value * 16 + digit.to_digit(16)?));
            *byte = value.and_then(|value| u8::try_from(value).ok()).ok_or(wrong)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for SharedKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.letter {
            Some(letter) if self.letters == 64 => {
                write!(f, "a key is 64 hexadecimal digits, but character {letter} of this text is not one")
            }
            _ => write!(f, "a key is 64 hexadecimal digits, but this text has {} characters", self.letters),
        }
    }
}

impl core::error::Error for SharedKeyError {}

/// Everything that both ends said before a proof.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transcript<'a> {
    pub(crate) name: &'a str,
    pub(crate) caller_nonce: &'a Nonce,
    pub(crate) called_nonce: &'a Nonce,
    /// Body of the caller's introduction.
    pub(crate) introduction: &'a [u8],
}

impl Transcript<'_> {
    /// Computes the caller's proof.
    pub(crate) fn of_caller(&self, key: &SharedKey) -> Proof {
        key.mac(CALLER, self).finalize().into_bytes().into()
    }

    /// Checks the caller's proof in constant time.
    pub(crate) fn is_of_caller(&self, key: &SharedKey, proof: &[u8]) -> bool {
        key.mac(CALLER, self).verify_slice(proof).is_ok()
    }

    fn called(&self, key: &SharedKey, introduction: &[u8]) -> Hmac<Sha256> {
        let mut mac = key.mac(CALLED, self);
        add(&mut mac, introduction);
        mac
    }

    /// Computes the called end's proof over its own introduction.
    pub(crate) fn of_called(&self, key: &SharedKey, introduction: &[u8]) -> Proof {
        self.called(key, introduction).finalize().into_bytes().into()
    }

    /// What both ends know after the proofs, and nobody else: it is never sent.
    pub(crate) fn secret(&self, key: &SharedKey, introduction: &[u8]) -> SessionSecret {
        let mut mac = key.mac(SECRET, self);
        add(&mut mac, introduction);
        SessionSecret(mac.finalize().into_bytes().into())
    }

    /// Checks the called end's proof in constant time.
    pub(crate) fn is_of_called(&self, key: &SharedKey, introduction: &[u8], proof: &[u8]) -> bool {
        self.called(key, introduction).verify_slice(proof).is_ok()
    }
}

/// A caller's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) nonce: Nonce,
    pub(crate) name: String,
}

impl Name {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, MessageError> {
        check_name(&self.name)?;
        Ok([&self.nonce[..], self.name.as_bytes()].concat())
    }

    pub(crate) fn decode(body: &[u8]) -> Result<Self, MessageError> {
        let (nonce, name) = body
            .split_first_chunk()
            .ok_or(MessageError::Length { expected: NONCE + 1, found: body.len() })?;
        let name = core::str::from_utf8(name).map_err(|_| MessageError::NotText)?;
        check_name(name)?;
        Ok(Self { nonce: *nonce, name: name.to_owned() })
    }
}

fn check_name(name: &str) -> Result<(), MessageError> {
    match name.len() {
        0 => Err(MessageError::Length { expected: NONCE + 1, found: NONCE }),
        length => check(Limit::Name, length),
    }
}

/// Decodes the nonce of a challenge.
pub(crate) fn decode_challenge(body: &[u8]) -> Result<Nonce, MessageError> {
    body.try_into().map_err(|_| MessageError::Length { expected: NONCE, found: body.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONCES: [Nonce; 2] = [[1; NONCE], [2; NONCE]];

    fn transcript<'a>(name: &'a str, introduction: &'a [u8]) -> Transcript<'a> {
        Transcript { name, caller_nonce: &NONCES[0], called_nonce: &NONCES[1], introduction }
    }

    /// RFC 4231's test case 1 has a key of 20 bytes. HMAC ignores zeros after a short key, so the case also tests these
    /// 32.
    #[test]
    fn the_mac_is_that_of_rfc_4231() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let mut mac = SharedKey::new(key).hmac();
        mac.update(b"Hi There");
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        let found: [u8; 32] = mac.finalize().into_bytes().into();
        assert_eq!(found.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), expected);
    }

    #[test]
    fn a_proof_holds_for_its_own_transcript_and_key_only() {
        let (key, other) = (SharedKey::new([7; 32]), SharedKey::new([8; 32]));
        let said = transcript("shop", b"introduction");
        let proof = said.of_caller(&key);
        assert!(said.is_of_caller(&key, &proof));
        assert!(!said.is_of_caller(&other, &proof) && !said.is_of_caller(&key, &proof[..31]));
        for changed in [
            transcript("sho", b"introduction"),
            transcript("shopi", b"ntroduction"),
            transcript("shop", b"introductiom"),
            Transcript { caller_nonce: &NONCES[1], ..said },
            Transcript { called_nonce: &NONCES[0], ..said },
        ] {
            assert!(!changed.is_of_caller(&key, &proof), "{changed:?}");
        }
        let called = said.of_called(&key, b"own");
        assert!(said.is_of_called(&key, b"own", &called) && !said.is_of_called(&key, b"owm", &called));
        assert!(!said.is_of_called(&key, b"", &proof), "a proof is not sent back as the other's");
    }

    #[test]
    fn the_session_secret_depends_on_the_whole_transcript_and_is_not_a_proof() {
        let (key, other) = (SharedKey::new([7; 32]), SharedKey::new([8; 32]));
        let said = transcript("shop", b"introduction");
        let secret = said.secret(&key, b"own");
        assert_eq!(secret, said.secret(&key, b"own"));
        assert!(!format!("{secret:?}").contains(&secret.as_bytes()[0].to_string()));
        let again = Transcript { caller_nonce: &NONCES[1], ..said };
        for different in [said.secret(&other, b"own"), said.secret(&key, b"owm"), again.secret(&key, b"own")]
        {
            assert_ne!(secret, different);
        }
        assert!(
            *secret.as_bytes() != said.of_caller(&key) && *secret.as_bytes() != said.of_called(&key, b"own")
        );
    }

    #[test]
    fn keys_are_digits_and_are_not_printed() {
        let key: SharedKey = format!(" {}\n", "0f".repeat(32)).parse().unwrap();
        assert_eq!(key, SharedKey::new([15; 32]));
        assert!(!format!("{key:?}").contains("15"));
        let complaint = |text: &str| text.parse::<SharedKey>().unwrap_err().to_string();
        assert!(complaint(&"0".repeat(63)).ends_with("has 63 characters"));
        assert!(complaint(&format!("{}g", "0".repeat(63))).contains("character 64"));
        assert!(complaint(&"é".repeat(64)).contains("character 1 "));
    }

    proptest! {
        #[test]
        fn names_are_read_again_and_other_bytes_refused(nonce: Nonce, name in "\\PC{0,70}", bytes: Vec<u8>) {
            let said = Name { nonce, name };
            match said.encode() {
                Ok(body) => prop_assert_eq!(Name::decode(&body), Ok(said)),
                Err(_) => prop_assert!(said.name.is_empty() || said.name.len() > Limit::Name.largest()),
            }
            if let Ok(read) = Name::decode(&bytes) {
                prop_assert_eq!(read.encode(), Ok(bytes));
            }
        }
    }
}
