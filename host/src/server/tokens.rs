//! The table of tokens: who is let in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::file::{self, TokensError};
use super::scope::{Profiles, Target, Verb};
use super::token::{Hash, Principal, Refusal, Token, TokenId, is_in_scope};
use crate::secret::Secret;

/// All tokens of a host, as they stand in its file. It has nothing in it that would let anybody in.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    entries: BTreeMap<TokenId, Entry>,
}

/// What a new token shall be good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// What people call it, such as the name of who gets it.
    pub label: String,
    /// For which profiles.
    pub profiles: Profiles,
    /// For what.
    pub verbs: BTreeSet<Verb>,
    /// Until when; none for ever.
    pub expires: Option<Timestamp>,
}

/// A token, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ListedToken<'a> {
    /// Its name.
    pub id: &'a TokenId,
    /// What people call it.
    pub label: &'a str,
    /// For which profiles it is good.
    pub profiles: &'a Profiles,
    /// For what.
    pub verbs: &'a BTreeSet<Verb>,
    /// When it was made.
    pub created: Timestamp,
    /// Until when it is good; none for ever.
    pub expires: Option<Timestamp>,
}

/// `[tokens.ID]` in the file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Entry {
    label: String,
    hash: Hash,
    profiles: Profiles,
    verbs: BTreeSet<Verb>,
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
}

impl Entry {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

impl Tokens {
    /// Reads the file. Where there is none there are no tokens, and nobody is let in.
    ///
    /// # Errors
    ///
    /// [`TokensError`] when it cannot be read, or when somebody else could read or write it.
    pub fn load(path: &Path) -> Result<Tokens, TokensError> {
        Ok(Tokens { path: path.to_owned(), entries: file::read(path)? })
    }

    /// Reads the file again, because somebody else may have changed it. When it cannot be read, all stays as it is.
    ///
    /// # Errors
    ///
    /// As [`Tokens::load`].
    pub fn reload(&mut self) -> Result<(), TokensError> {
        self.entries = file::read(&self.path)?;
        Ok(())
    }

    /// Makes a token, and keeps its hash. The text is here and nowhere else: show it once, to whoever it is for.
    ///
    /// What other processes have changed in the file meanwhile is kept.
    ///
    /// # Errors
    ///
    /// [`TokensError`] when it makes no sense or cannot be kept. Then there is no such token.
    pub fn add(&mut self, new: NewToken, now: Timestamp) -> Result<(TokenId, Secret), TokensError> {
        if new.verbs.is_empty() || matches!(&new.profiles, Profiles::Only(only) if only.is_empty())
        {
            return Err(TokensError::GoodForNothing);
        }
        if new.expires.is_some_and(|expires| expires <= now) {
            return Err(TokensError::ExpiredAlready);
        }
        let token = Token::random().map_err(TokensError::Randomness)?;
        let NewToken { label, profiles, verbs, expires } = new;
        let hash = token.hash();
        let entry = Entry { label, hash, profiles, verbs, created: now, expires };
        let id = token.id.clone();
        self.entries = file::change(&self.path, |entries| {
            entries.insert(id.clone(), entry);
        })?;
        Ok((id, token.into_text()))
    }

    /// Takes a token back. Whoever has it is refused from now on. False when there is no such token.
    ///
    /// # Errors
    ///
    /// [`TokensError`] when that cannot be kept. Then the token is still good.
    pub fn revoke(&mut self, id: &TokenId) -> Result<bool, TokensError> {
        let mut was_there = false;
        self.entries = file::change(&self.path, |entries| {
            was_there = entries.remove(id).is_some();
        })?;
        Ok(was_there)
    }

    /// All tokens, by name. What is listed lets nobody in.
    pub fn list(&self) -> impl Iterator<Item = ListedToken<'_>> {
        self.entries.iter().map(|(id, entry)| ListedToken {
            id,
            label: &entry.label,
            profiles: &entry.profiles,
            verbs: &entry.verbs,
            created: entry.created,
            expires: entry.expires,
        })
    }

    /// Who asks, by the value of their header `Authorization`.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there is no token in it that is good now.
    pub fn authenticate(
        &self,
        header: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<Principal, Refusal> {
        let token = Token::from_header(header)?;
        let entry = self.entries.get(&token.id);
        // The same work is done for a name that there is and for one that there is not.
        let kept = entry.map_or(&Hash::NONE, |entry| &entry.hash);
        let is_same = token.hash().is_same(kept);
        let entry = entry.filter(|_| is_same).ok_or(Refusal::Unknown)?;
        if entry.has_expired(now) {
            return Err(Refusal::Expired);
        }
        Ok(Principal {
            token: token.id,
            label: entry.label.clone(),
            profiles: entry.profiles.clone(),
            verbs: entry.verbs.clone(),
        })
    }

    /// Whether there is that token still, and it is good for this. It was shown before.
    pub fn allow(&self, id: &TokenId, target: Target<'_>, verb: Verb, now: Timestamp) -> bool {
        let entry = self.entries.get(id).filter(|entry| !entry.has_expired(now));
        entry.is_some_and(|entry| is_in_scope((&entry.profiles, &entry.verbs), target, verb))
    }

    /// Who asks, if they may do that.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there is no token that is good now, and for this.
    pub fn check(
        &self,
        header: Option<&[u8]>,
        target: Target<'_>,
        verb: Verb,
        now: Timestamp,
    ) -> Result<Principal, Refusal> {
        let principal = self.authenticate(header, now)?;
        principal.may(target, verb)?;
        Ok(principal)
    }
}
