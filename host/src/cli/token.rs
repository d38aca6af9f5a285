//! `checkrein token`: who may ask a daemon through TCP.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use checkrein::plugin::Configuration;
use checkrein::server::{ListedToken, NewToken, Profiles, TokenId, Tokens, TokensError, Verb};
use jiff::Timestamp;
use serde_json::json;

use super::code::Code;
use super::problem::Problem;
use super::screen::Screen;
use super::text;

/// `checkrein token`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Token {
    /// Make a token, and print it. It is shown this once and kept nowhere.
    Add(Add),
    /// List the tokens, without anything that would let somebody in.
    List(List),
    /// Take a token back. A daemon refuses it from the next request on.
    Revoke(Revoke),
}

/// Where the tokens are.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Where {
    /// The file of the tokens.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The configuration of the daemon, whose [serve] names that file as `tokens`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The arguments of `checkrein token add`.
#[derive(Debug, clap::Args)]
pub(super) struct Add {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    scope: Scope,
    /// What it is good for, `read`, `prompt`, `stop` or `admin`; may be repeated. None brings another along.
    #[arg(long = "verb", value_name = "VERB", required = true, value_parser = verb)]
    verbs: Vec<Verb>,
    /// For how long, such as 12h, 30d or 8w; without it until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Duration>,
    /// What people call it, such as the name of who gets it. It is the issuer of stops that are asked for with it.
    #[arg(long, value_name = "WORDS")]
    label: String,
    /// Print its id and the token as JSON.
    #[arg(long)]
    json: bool,
}

/// For which profiles a token is good.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Scope {
    /// Good for this profile and not for the host as a whole; may be repeated.
    #[arg(long = "profile", value_name = "NAME")]
    profiles: Vec<String>,
    /// Good for every profile, also those that come later, and for the host as a whole.
    #[arg(long)]
    all_profiles: bool,
}

/// The arguments of `checkrein token list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    #[command(flatten)]
    place: Where,
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

/// The arguments of `checkrein token revoke`.
#[derive(Debug, clap::Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    place: Where,
    /// The id of the token, as `token list` shows it.
    #[arg(value_name = "ID")]
    id: TokenId,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(super) fn execute(self) -> Result<Code, Problem> {
        match self {
            Token::Add(add) => add.execute(),
            Token::List(list) => list.execute(),
            Token::Revoke(revoke) => revoke.execute(),
        }
    }
}

impl Where {
    fn file(&self) -> Result<PathBuf, Problem> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        let config = self.config.clone().unwrap_or_default();
        let configuration = Configuration::load(&config).map_err(|error| {
            let attempt = format!("could not use the configuration {}", config.display());
            Problem::because(Code::Usage, attempt, error)
        })?;
        configuration.serve.tokens.ok_or_else(|| {
            let words = format!("{} names no file of tokens", config.display());
            Problem::new(Code::Usage, words)
                .advise("write `tokens = \"FILE\"` into its [serve], or give --file FILE")
        })
    }

    fn tokens(&self) -> Result<Tokens, Problem> {
        Tokens::load(&self.file()?).map_err(|error| problem(&error, "could not read the tokens"))
    }
}

fn problem(error: &TokensError, attempt: &str) -> Problem {
    let machine = matches!(
        error,
        TokensError::Read { .. } | TokensError::Write { .. } | TokensError::Randomness(_)
    );
    let code = if machine { Code::Refused } else { Code::Usage };
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let words = std::iter::once(error.to_string()).chain(cause).collect::<Vec<_>>().join(": ");
    Problem::because(code, attempt, anyhow::Error::msg(words))
}

impl Add {
    fn execute(self) -> Result<Code, Problem> {
        let mut tokens = self.place.tokens()?;
        let now = Timestamp::now();
        let expires = self.expires.map(|time| now.checked_add(time)).transpose();
        let expires = expires.map_err(|error| {
            Problem::because(Code::Usage, "no calendar has the end of that time", error)
        })?;
        let profiles = match self.scope.all_profiles {
            true => Profiles::All,
            false => Profiles::Only(self.scope.profiles.into_iter().collect()),
        };
        let verbs: BTreeSet<Verb> = self.verbs.into_iter().collect();
        let new = NewToken { label: self.label, profiles, verbs, expires };
        let (id, token) =
            tokens.add(new, now).map_err(|error| problem(&error, "could not make a token"))?;
        let token = token.expose();
        match self.json {
            true => text::print(&format!("{}\n", json!({ "id": id, "token": token })))?,
            false => {
                text::print(&format!("{token}\n"))?;
                Screen::plain().line(&format!(
                    "its id is {id}; it is shown this once, so keep it where it is needed"
                ));
            }
        }
        Ok(Code::Completed)
    }
}

impl List {
    fn execute(&self) -> Result<Code, Problem> {
        let tokens = self.place.tokens()?;
        let listed: Vec<ListedToken<'_>> = tokens.list().collect();
        let rows: Vec<Vec<String>> = listed.iter().map(row).collect();
        text::print(&match (self.json, rows.is_empty()) {
            (true, _) => format!("{:#}\n", json!({ "tokens": listed })),
            (false, true) => "no tokens\n".to_owned(),
            (false, false) => text::columns(&rows),
        })?;
        Ok(Code::Completed)
    }
}

fn row(token: &ListedToken<'_>) -> Vec<String> {
    let profiles = match token.profiles {
        Profiles::All => "all profiles".to_owned(),
        Profiles::Only(names) => names.iter().cloned().collect::<Vec<_>>().join(","),
    };
    let verbs: Vec<&str> = token.verbs.iter().map(|verb| verb.as_str()).collect();
    let until = match token.expires {
        None => "until it is revoked".to_owned(),
        Some(end) if end <= Timestamp::now() => format!("expired on {}", day(end)),
        Some(end) => format!("until {}", day(end)),
    };
    let (label, profiles) = (text::line(token.label, 40), text::line(&profiles, 60));
    vec![token.id.to_string(), label, profiles, verbs.join(","), until]
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%MZ").to_string()
}

impl Revoke {
    fn execute(&self) -> Result<Code, Problem> {
        let mut tokens = self.place.tokens()?;
        let there = tokens.revoke(&self.id);
        if !there.map_err(|error| problem(&error, "could not take the token back"))? {
            return Err(Problem::new(Code::Usage, format!("there is no token {}", self.id)));
        }
        text::print(&match self.json {
            true => format!("{}\n", json!({ "revoked": self.id })),
            false => format!("{} is revoked\n", self.id),
        })?;
        Ok(Code::Completed)
    }
}

fn verb(text: &str) -> Result<Verb, String> {
    let found = Verb::ALL.into_iter().find(|verb| verb.as_str() == text);
    found.ok_or_else(|| "the verbs are read, prompt, stop and admin".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("m", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)];
    let read = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(*seconds)
    });
    let read = read.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    read.ok_or_else(|| "write a number with m, h, d or w, such as 30d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_with_its_unit() {
        assert_eq!(time("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert_eq!(time("5m"), Ok(Duration::from_secs(300)));
        for bad in ["", "d", "30", "0d", "-1d", "1y", "1.5h", "99999999999999999999w"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
