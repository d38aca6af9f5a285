//! One token: its text, its hash, and what a request with it comes to.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::scope::{Profiles, Target, Verb};
use crate::secret::Secret;

/// What every token begins with, so that one that was left somewhere is found.
const PREFIX: &str = "checkrein_";

/// Bytes of an id and of a secret, as they are before they are written as hexadecimal digits.
const ID: usize = 6;
const SECRET: usize = 32;

/// The name of a token. It is no secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId(String);

impl TokenId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<TokenId, NotAnId> {
        match is_hex(text, ID) {
            true => Ok(TokenId(text.to_owned())),
            false => Err(NotAnId),
        }
    }
}

impl TryFrom<String> for TokenId {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<TokenId, NotAnId> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> String {
        id.0
    }
}

/// A text that is not the name of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not the id of a token; one has 12 hexadecimal digits, such as 3f09a1c25e7d")]
pub struct NotAnId;

/// A token as it is sent. Nothing shows its secret.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) id: TokenId,
    text: Secret,
}

impl Token {
    /// A new one, from the randomness of the operating system.
    pub(super) fn random() -> Result<Token, getrandom::Error> {
        let mut bytes = [0_u8; ID + SECRET];
        getrandom::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(ID);
        let id = hex(id);
        let text = Secret::new(format!("{PREFIX}{id}_{}", hex(secret)));
        Ok(Token { id: TokenId(id), text })
    }

    /// Reads what stands after `Bearer`.
    fn parse(text: &str) -> Option<Token> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        (is_hex(secret, SECRET)).then_some(())?;
        Some(Token { id: id.parse().ok()?, text: Secret::new(text) })
    }

    /// Reads the value of a header `Authorization`.
    pub(super) fn from_header(header: Option<&[u8]>) -> Result<Token, Refusal> {
        let header = header.ok_or(Refusal::Missing)?;
        let text = std::str::from_utf8(header).map_err(|_| Refusal::Malformed)?;
        let (scheme, rest) = text.split_once(' ').ok_or(Refusal::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refusal::Malformed);
        }
        Token::parse(rest.trim_matches(' ')).ok_or(Refusal::Malformed)
    }

    pub(super) fn hash(&self) -> Hash {
        Hash(Sha256::digest(self.text.expose()).into())
    }

    pub(super) fn into_text(self) -> Secret {
        self.text
    }
}

/// What is kept of a token. Its secret has 256 random bits, so one round of SHA-256 is enough.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Hash([u8; 32]);

impl Hash {
    /// One that no token has.
    pub(super) const NONE: Hash = Hash([0; 32]);

    /// Takes as long for any two.
    pub(super) fn is_same(&self, other: &Hash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl TryFrom<String> for Hash {
    type Error = NotAHash;

    fn try_from(text: String) -> Result<Hash, NotAHash> {
        let digits = text.strip_prefix("sha256:").filter(|digits| is_hex(digits, 32));
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.ok_or(NotAHash)?.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| NotAHash)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| NotAHash)?;
        }
        Ok(Hash(hash))
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> String {
        format!("sha256:{}", hex(&hash.0))
    }
}

/// A text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`hash` is not `sha256:` with 64 hexadecimal digits; remove this token and make another")]
pub(super) struct NotAHash;

/// Who asks: whoever has a token, and what that is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name of the token.
    pub token: TokenId,
    /// What people call it.
    pub label: String,
    pub(super) profiles: Profiles,
    pub(super) verbs: BTreeSet<Verb>,
}

impl Principal {
    /// Whether that may be done.
    ///
    /// # Errors
    ///
    /// [`Refusal::OutOfScope`] when it may not.
    pub fn may(&self, target: Target<'_>, verb: Verb) -> Result<(), Refusal> {
        match is_in_scope((&self.profiles, &self.verbs), target, verb) {
            true => Ok(()),
            false => Err(Refusal::OutOfScope),
        }
    }
}

/// Whether what a token is good for has that in it.
pub(super) fn is_in_scope(
    (profiles, verbs): (&Profiles, &BTreeSet<Verb>),
    target: Target<'_>,
    verb: Verb,
) -> bool {
    verbs.contains(&verb) && profiles.cover(target)
}

/// Why a request is refused. What it shows says no more than its sender knows; the variant is for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no token.
    #[error("this needs a token: send `Authorization: Bearer checkrein_…`")]
    Missing,
    /// What is there is no token.
    #[error("the token is not accepted")]
    Malformed,
    /// There is no such token: it was never made, or is revoked, or its secret is wrong.
    #[error("the token is not accepted")]
    Unknown,
    /// It was good for some time, and that is over.
    #[error("the token is not accepted")]
    Expired,
    /// It is good, and not for this.
    #[error("the token is not good for this")]
    OutOfScope,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}
