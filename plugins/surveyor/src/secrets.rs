//! Strings that look like secrets: where they are and what they seem to be, never what they say.

use checkrein_guest::prelude::*;
use regex_lite::{Captures, Regex};

use crate::words;

/// A sort of secret.
struct Rule {
    /// What people call it.
    name: &'static str,
    /// The expression that finds it. A group `s` is the secret itself; without one it is the whole match.
    pattern: &'static str,
    /// How many characters at its start are the same in all of them, and may be shown.
    public: usize,
    /// What else must be true of it.
    test: fn(&str) -> bool,
}

/// Every string of this form is a secret, or was meant to look like one.
fn random(secret: &str) -> bool {
    entropy(secret) >= 2.5 && !is_placeholder(secret)
}

fn always(_: &str) -> bool {
    true
}

// None of these expressions may match its own line in this file.
#[rustfmt::skip]
const RULES: &[Rule] = &[
    Rule { name: "private key", pattern: r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s*$|\\[nr])", public: 0, test: always },
    Rule { name: "AWS access key id", pattern: r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b", public: 4, test: random },
    Rule { name: "GitHub token", pattern: r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})\b", public: 4, test: random },
    Rule { name: "GitLab token", pattern: r"\bgl(?:pat|ptt|rt|dt|cbt)-[A-Za-z0-9_-]{20,64}", public: 6, test: random },
    Rule { name: "Slack token", pattern: r"\bxox[abeoprs]-[A-Za-z0-9-]{16,255}", public: 5, test: random },
    Rule { name: "Slack webhook", pattern: r"hooks\.slack\.com/services/(?P<s>T[A-Z0-9]{6,}/B[A-Z0-9]{6,}/[A-Za-z0-9]{16,})", public: 0, test: random },
    Rule { name: "Stripe key", pattern: r"\b[rs]k_live_[A-Za-z0-9]{16,255}", public: 8, test: random },
    Rule { name: "Google API key", pattern: r"\bAIza[A-Za-z0-9_-]{35}\b", public: 4, test: random },
    Rule { name: "Google OAuth secret", pattern: r"\bGOCSPX-[A-Za-z0-9_-]{28}\b", public: 7, test: random },
    Rule { name: "API key of a model provider", pattern: r"\bsk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{32,255}", public: 3, test: random },
    Rule { name: "Hugging Face token", pattern: r"\bhf_[A-Za-z0-9]{34}\b", public: 3, test: random },
    Rule { name: "npm token", pattern: r"\bnpm_[A-Za-z0-9]{36}\b", public: 4, test: random },
    Rule { name: "PyPI token", pattern: r"\bpypi-AgEI[A-Za-z0-9_-]{50,}", public: 5, test: random },
    Rule { name: "crates.io token", pattern: r"\bcio[A-Za-z0-9]{32}\b", public: 3, test: random },
    Rule { name: "SendGrid key", pattern: r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}\b", public: 3, test: random },
    Rule { name: "Twilio key", pattern: r"\bSK[0-9a-f]{32}\b", public: 2, test: random },
    Rule { name: "DigitalOcean token", pattern: r"\bdo[opr]_v1_[0-9a-f]{64}\b", public: 7, test: random },
    Rule { name: "age secret key", pattern: r"\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b", public: 16, test: random },
    Rule { name: "JSON web token", pattern: r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", public: 3, test: is_token },
    Rule { name: "password in a URL", pattern: r#"\b[a-z][a-z0-9+.]{1,20}://[^\s:@/"'<>]{1,60}:(?P<s>[^\s:@/"'<>]{3,100})@(?P<h>[A-Za-z0-9.]+)"#, public: 0, test: is_password },
    Rule { name: "value of a key", pattern: r#"(?i:(?P<k>[a-z0-9_.]{0,40}(?:api[_.-]?key|secret|token|passw(?:or)?d|passphrase|credential|private[_.-]?key|access[_.-]?key|auth[_.-]?key)[a-z0-9_]{0,20}))["']?\s{0,4}(?::=|=>|=|:)\s{0,4}["'](?P<s>[^"'\s]{8,200})["']"#, public: 0, test: always },
];

/// Something that looks like a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Secret {
    /// Whether it lies where tests and examples do.
    pub(crate) in_tests: bool,
    /// The file.
    pub(crate) path: String,
    /// The line.
    pub(crate) line: u64,
    /// What it seems to be.
    pub(crate) name: String,
    /// How it is shown: never the secret.
    pub(crate) masked: String,
}

/// The rules, ready for use.
#[derive(Debug)]
pub(crate) struct Rules {
    rules: Vec<(Regex, usize)>,
}

impl Rules {
    /// All rules.
    pub(crate) fn new() -> Rules {
        let compiled = RULES
            .iter()
            .enumerate()
            .filter_map(|(place, rule)| Some((Regex::new(rule.pattern).ok()?, place)));
        Rules { rules: compiled.collect() }
    }

    /// The expressions of all rules.
    pub(crate) fn patterns() -> impl Iterator<Item = &'static str> {
        RULES.iter().map(|rule| rule.pattern)
    }

    /// What a line of a file has, as pairs of a name and a masked form.
    pub(crate) fn find(&self, line: &str) -> Vec<(String, String)> {
        let mut found: Vec<(usize, usize, (String, String))> = Vec::new();
        for (regex, place) in &self.rules {
            let rule = &RULES[*place];
            for captures in regex.captures_iter(line) {
                let Some(secret) = captures.name("s").or_else(|| captures.get(0)) else { continue };
                let (start, end) = (secret.start(), secret.end());
                let overlaps = found.iter().any(|(from, to, _)| start < *to && *from < end);
                if !overlaps && is_secret(rule, &captures, secret.as_str()) {
                    found.push((
                        start,
                        end,
                        (rule.name.to_owned(), mask(rule, &captures, secret.as_str())),
                    ));
                }
            }
        }
        found.sort_by_key(|(start, _, _)| *start);
        found.into_iter().map(|(_, _, secret)| secret).collect()
    }
}

fn is_secret(rule: &Rule, captures: &Captures<'_>, secret: &str) -> bool {
    if let Some(host) = captures.name("h") {
        let host = host.as_str();
        let local = matches!(
            host,
            "localhost"
                | "127.0.0.1"
                | "0.0.0.0"
                | "host"
                | "hostname"
                | "db"
                | "postgres"
                | "redis"
        );
        if local
            || host.contains("example")
            || host.ends_with(".test")
            || host.ends_with(".invalid")
        {
            return false;
        }
    }
    match captures.name("k") {
        Some(key) => is_value(key.as_str(), secret),
        None => (rule.test)(secret.get(rule.public..).unwrap_or(secret)),
    }
}

/// How a secret is shown: what all of its sort have in common, and its length.
fn mask(rule: &Rule, captures: &Captures<'_>, secret: &str) -> String {
    if rule.name == "private key" {
        return "the beginning of a key".to_owned();
    }
    let length = secret.chars().count();
    match captures.name("k") {
        Some(key) => format!("{} = … ({length} characters)", words::first(key.as_str(), 40)),
        None => format!("{}… ({length} characters)", secret.get(..rule.public).unwrap_or("")),
    }
}

/// A value beside a key such as `api_key`: random enough for its length, or a password.
fn is_value(key: &str, value: &str) -> bool {
    let key = key.to_ascii_lowercase();
    // Names of things, not the things: `token_url`, `secret_name`, `password_field`.
    let about = [
        "url", "uri", "name", "id", "path", "file", "type", "field", "label", "hint", "prefix",
        "header", "env", "kind",
    ];
    if about
        .iter()
        .any(|end| key.ends_with(&format!("_{end}")) || key.ends_with(&format!(".{end}")))
    {
        return false;
    }
    if is_placeholder(value)
        || value.contains("://")
        || value.starts_with(['/', '.', '#', '@', '<', '$', '%', '{', '[', '(', '&', ':'])
    {
        return false;
    }
    let length = value.chars().count();
    let has = |test: fn(&char) -> bool| value.chars().any(|c| test(&c));
    let digits = has(char::is_ascii_digit);
    let letters = has(char::is_ascii_alphabetic);
    let marks = value
        .chars()
        .any(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '.' | '/' | ':' | ','));
    let mixed = has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase);
    if key.contains("passw") || key.contains("passphrase") {
        // Short ones are not random; a bare word or an identifier is none.
        return length <= 64 && letters && (digits || marks) && entropy(value) >= 2.5;
    }
    // Identifiers are made of words: `user-token-header`, `accessToken`.
    digits
        && letters
        && length >= 16
        && entropy(value) >= if mixed || length >= 32 { 3.0 } else { 3.3 }
}

fn is_password(secret: &str) -> bool {
    let known = [
        "pass", "password", "passwd", "pw", "pwd", "secret", "user", "root", "admin", "guest",
        "postgres", "mysql", "token",
    ];
    let lower = secret.to_ascii_lowercase();
    !known.contains(&lower.as_str())
        && !is_placeholder(secret)
        && !secret.starts_with(['$', '{', '%', '['])
}

/// The token that documentation shows everywhere is none.
fn is_token(secret: &str) -> bool {
    !secret.contains("eyJzdWIiOiIxMjM0NTY3ODkw") && random(secret)
}

/// Values that stand for a secret in documentation, templates and tests.
fn is_placeholder(value: &str) -> bool {
    let lower = value.to_ascii_lowercase();
    let words = [
        "example",
        "placeholder",
        "changeme",
        "change-me",
        "change_me",
        "your",
        "xxxx",
        "****",
        "....",
        "…",
        "dummy",
        "sample",
        "redacted",
        "masked",
        "insert",
        "replace",
        "notreal",
        "not-real",
        "not_real",
        "fake",
        "mock",
        "${",
        "{{",
        "}}",
        "$(",
        "%s",
        "<%",
        "%(",
        "process.env",
        "os.environ",
        "getenv",
        "abcdefgh",
        "12345678",
        "01234567",
        "deadbeef",
        "foobar",
        "lorem",
        "testtest",
        "undefined",
        "secret-",
        "my-secret",
        "mysecret",
        "my_secret",
        "hunter2",
    ];
    words.iter().any(|word| lower.contains(word)) || value.starts_with('<') && value.ends_with('>')
}

/// Bits for each character, by how often each occurs.
fn entropy(text: &str) -> f64 {
    let mut counts = std::collections::BTreeMap::new();
    for c in text.chars() {
        *counts.entry(c).or_insert(0_u32) += 1;
    }
    let length = f64::from(counts.values().sum::<u32>());
    // A fixed order, so that the sum is the same each time.
    counts.values().map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}

/// Whether a path is one of tests, examples or documentation.
pub(crate) fn is_in_tests(below: &str) -> bool {
    let lower = below.to_ascii_lowercase();
    let mut parts = lower.split('/').rev();
    let name = parts.next().unwrap_or("");
    let folders = [
        "test",
        "tests",
        "testing",
        "testdata",
        "test-data",
        "fixtures",
        "fixture",
        "__tests__",
        "spec",
        "specs",
        "example",
        "examples",
        "sample",
        "samples",
        "mocks",
        "mock",
        "docs",
        "doc",
        "benches",
        "e2e",
    ];
    parts.any(|part| folders.contains(&part))
        || [
            "_test.",
            ".test.",
            "_spec.",
            ".spec.",
            "test_",
            "tests.",
            ".example",
            ".sample",
            ".template",
        ]
        .iter()
        .any(|mark| name.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Put together at run time, so that no survey takes this file for one that leaks.
    fn random_text(length: usize) -> String {
        let letters = b"q7Rk2ZtXw9LmB4vNc8YdF3hJs6GpT5aE";
        (0..length)
            .map(|place| char::from(letters[(place * 7 + place / 32) % letters.len()]))
            .collect()
    }

    fn find(line: &str) -> Vec<String> {
        let found = Rules::new().find(line);
        found.into_iter().map(|(name, masked)| format!("{name}: {masked}")).collect()
    }

    #[test]
    fn all_rules_compile_and_leave_the_fast_way_open() {
        assert_eq!(Rules::new().rules.len(), RULES.len());
        for rule in RULES {
            // With these the search tool would look at each line alone.
            assert!(
                !rule.pattern.contains("-m")
                    && !rule.pattern.contains("\\A")
                    && !rule.pattern.contains("\\z")
            );
        }
    }

    #[test]
    fn well_known_forms_are_found_and_masked() {
        let upper = random_text(200).to_uppercase().replace(['0', '1', '8', '9'], "");
        assert_eq!(
            find(&format!("id = {}{}", "AKIA", &upper[..16])),
            ["AWS access key id: AKIA… (20 characters)"]
        );
        assert_eq!(
            find(&format!("x {}{} y", "ghp_", random_text(36))),
            ["GitHub token: ghp_… (40 characters)"]
        );
        assert_eq!(
            find(&format!("{}{}", "glpat-", random_text(20))),
            ["GitLab token: glpat-… (26 characters)"]
        );
        assert_eq!(
            find(&format!("'{}{}'", "sk_live_", random_text(24))),
            ["Stripe key: sk_live_… (32 characters)"]
        );
        assert_eq!(
            find(&format!("{}{}", "AIza", random_text(35))),
            ["Google API key: AIza… (39 characters)"]
        );
        assert_eq!(
            find(&format!("{} RSA PRIVATE KEY-----", "-----BEGIN")),
            ["private key: the beginning of a key"]
        );
        assert_eq!(
            find(&format!("{} PRIVATE KEY-----", "-----BEGIN")),
            ["private key: the beginning of a key"]
        );
        assert_eq!(find(&format!("\"{} EC PRIVATE KEY-----\\nMHc\"", "-----BEGIN")).len(), 1);
        assert!(find(&format!("if s == \"{} PRIVATE KEY-----\" {{", "-----BEGIN")).is_empty());
        assert!(find(&format!("{} PUBLIC KEY-----", "-----BEGIN")).is_empty());
        let url = format!("postgres://app:{}@db.internal.net/x", random_text(12));
        assert_eq!(find(&url), ["password in a URL: … (12 characters)"]);
    }

    #[test]
    fn values_of_telling_keys_are_found_when_they_are_random() {
        let value = random_text(32);
        assert_eq!(
            find(&format!("api_key = \"{value}\"")),
            ["value of a key: api_key = … (32 characters)"]
        );
        assert_eq!(
            find(&format!("  \"clientSecret\": '{value}',")),
            ["value of a key: clientSecret = … (32 characters)"]
        );
        assert_eq!(
            find(&format!("DB_PASSWORD := \"{}\"", "Tr0ub4dor&3")),
            ["value of a key: DB_PASSWORD = … (11 characters)"]
        );
        // One secret, one finding: the better known form wins.
        let token = format!("token = \"{}{}\"", "ghp_", random_text(36));
        assert_eq!(find(&token), ["GitHub token: ghp_… (40 characters)"]);
    }

    #[test]
    fn no_part_of_a_secret_is_shown() {
        let value = random_text(40);
        for line in [
            format!("api_key = '{value}'"),
            format!("{}{value}", "sk-ant-"),
            format!("ssh://u:{value}@h.net"),
        ] {
            let shown = find(&line).join(" ");
            assert!(!shown.is_empty());
            assert!((0..value.len() - 4).all(|at| !shown.contains(&value[at..at + 4])), "{shown}");
        }
    }

    #[test]
    fn what_stands_for_a_secret_is_none() {
        for line in [
            "api_key = \"your-api-key-goes-here-123\"",
            "password = \"changeme123\"",
            "password: \"password\"",
            "token = \"${GITHUB_TOKEN_VALUE_1}\"",
            "secret_name = \"q7Rk2ZtXw9LmB4vNc8YdF3hJ\"",
            "token_url = 'https://host.net/oauth2/token1'",
            "token: \"accessTokenHeaderName\"",
            "passwordLabel: \"Enter your password\"",
            "api_key = os.environ['API_KEY']",
            "api_key = \"aaaaaaaaaaaaaaaa1111111111111111\"",
            "postgres://user:password@localhost:5432/db",
            "postgres://app:Zk3mQ9xL@localhost/db",
            "http://example.com:8080/a@b",
            "let secret = \"this_is_only_a_name\";",
        ] {
            assert_eq!(find(line), [""; 0], "{line}");
        }
        assert!(find(&format!("{}IOSFODNN7EXAMPLE", "AKIA")).is_empty());
        assert!(find(&format!("{}{}", "AKIA", "X".repeat(16))).is_empty());
        assert!(find(&format!("{}{}", "ghp_", "x".repeat(36))).is_empty());
    }

    #[test]
    fn tests_and_examples_are_known_by_their_path() {
        assert!(
            is_in_tests("tests/keys.rs")
                && is_in_tests("src/a_test.go")
                && is_in_tests(".env.example")
        );
        assert!(!is_in_tests("src/latest.rs") && !is_in_tests("contest/a.rs"));
    }
}
