//! Licences: known by the text of a file, by SPDX lines, and by what manifests say.

use crate::languages::{ending_of, name_of};

/// What a text is called that is none of the licences known here.
pub(crate) const UNKNOWN: &str = "not recognised";

/// The expression for a line that names a licence in the way of SPDX.
pub(crate) const SPDX_PATTERN: &str = r"SPDX-License-Identifier:[ \t]*[A-Za-z0-9(]";

/// The expression for a line of a manifest that names a licence.
pub(crate) const FIELD_PATTERN: &str = r#"^\s*(?:["']?(?i:licen[sc]e)(?:_expression)?["']?\s*(?::|=>|=)|<license|<PackageLicenseExpression|[a-z_]+\.licen[sc]e\s*=)"#;

/// Whether the file is, by its name, the text of a licence.
pub(crate) fn is_licence_file(below: &str) -> bool {
    let name = name_of(below).to_ascii_uppercase();
    let in_folder =
        below.rsplit('/').nth(1).is_some_and(|folder| matches!(folder, "LICENSES" | "LICENCES"));
    let named = ["LICENSE", "LICENCE", "COPYING", "UNLICENSE", "UNLICENCE"].iter().any(|start| {
        name.strip_prefix(start)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_']))
    });
    let text = ending_of(&name).is_none_or(|ending| {
        matches!(ending, "TXT" | "MD" | "RST" | "LESSER" | "LIB" | "TEXT" | "ADOC")
            || !is_word(ending)
    });
    (named || in_folder) && text
}

/// An ending such as `RS` or `JSON`, unlike the `0` of `LICENSE-APACHE-2.0`.
fn is_word(ending: &str) -> bool {
    ending.bytes().all(|c| c.is_ascii_alphabetic())
        && !matches!(ending, "MIT" | "APACHE" | "BSD" | "GPL" | "MPL")
}

/// Whether the file is, by its name, a manifest that may name a licence.
pub(crate) fn is_manifest(below: &str) -> bool {
    let name = name_of(below);
    matches!(
        name,
        "Cargo.toml"
            | "package.json"
            | "composer.json"
            | "pyproject.toml"
            | "setup.cfg"
            | "setup.py"
            | "DESCRIPTION"
            | "Project.toml"
            | "mix.exs"
            | "META.json"
            | "dub.json"
            | "shard.yml"
            | "galaxy.yml"
            | "Chart.yaml"
            | "conanfile.py"
            | "bower.json"
            | "vcpkg.json"
            | "project.clj"
    ) || matches!(
        ending_of(name),
        Some("gemspec" | "cabal" | "nuspec" | "csproj" | "fsproj" | "nimble" | "podspec" | "opam")
    )
}

/// The licence of a text.
pub(crate) fn by_text(text: &str) -> &'static str {
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '-'))
        .map(|word| word.trim_matches(['.', '-']))
        .filter(|word| !word.is_empty())
        .take(2_500)
        .collect();
    let text = words.join(" ").to_lowercase();
    let has = |words: &str| text.contains(words);
    let starts = |words: &str| text.find(words).is_some_and(|at| at < 300);
    if has("apache license") && has("version 2.0") {
        return if has("llvm exceptions to the apache") {
            "Apache-2.0 WITH LLVM-exception"
        } else {
            "Apache-2.0"
        };
    }
    if starts("unicode license v3") || starts("unicode inc license agreement") {
        return "Unicode-3.0";
    }
    if has("gnu affero general public license") && starts("affero") {
        return "AGPL-3.0";
    }
    if starts("gnu lesser general public license") || starts("gnu library general public license") {
        return if has("version 3") { "LGPL-3.0" } else { "LGPL-2.1" };
    }
    if starts("gnu general public license") {
        return if starts("version 3") { "GPL-3.0" } else { "GPL-2.0" };
    }
    if starts("mozilla public license") {
        return "MPL-2.0";
    }
    if starts("eclipse public license") {
        return if has("v 2.0") || has("version 2.0") { "EPL-2.0" } else { "EPL-1.0" };
    }
    if starts("business source license") {
        return "BUSL-1.1";
    }
    if starts("boost software license") {
        return "BSL-1.0";
    }
    if starts("european union public licence") {
        return "EUPL-1.2";
    }
    if starts("creative commons")
        || starts("cc0 1.0")
        || starts("attribution") && has("creative commons")
    {
        return match () {
            () if has("cc0 1.0") => "CC0-1.0",
            () if starts("noncommercial") => "CC-BY-NC",
            () if starts("sharealike") => "CC-BY-SA-4.0",
            () => "CC-BY-4.0",
        };
    }
    if has("this is free and unencumbered software released into the public domain") {
        return "Unlicense";
    }
    if has("do what the fuck you want to public license") {
        return "WTFPL";
    }
    if has("this software is provided as-is without any express or implied warranty")
        || has(
            "this software is provided as-is without any express or implied warranty in no event",
        )
    {
        return "Zlib";
    }
    if has("redistribution and use in source and binary forms") {
        let third = has("neither the name")
            || has("names of its contributors")
            || has("the name of the author may not");
        return if third { "BSD-3-Clause" } else { "BSD-2-Clause" };
    }
    if has("permission to use copy modify and or distribute this software") {
        return if has("above copyright notice") { "ISC" } else { "0BSD" };
    }
    if has("permission is hereby granted free of charge to any person obtaining a copy") {
        return match () {
            () if !has("the above copyright notice and this permission notice") => "MIT-0",
            () if has("font software") => "OFL-1.1",
            () => "MIT",
        };
    }
    if has("sil open font license") {
        return "OFL-1.1";
    }
    if starts("the artistic license") || starts("artistic license 2.0") {
        return "Artistic-2.0";
    }
    if has("all rights reserved") && !has("permission") {
        return "proprietary (\"all rights reserved\")";
    }
    UNKNOWN
}

/// The expression of an SPDX line.
pub(crate) fn spdx(line: &str) -> Option<String> {
    let (before, rest) = line.split_once("SPDX-License-Identifier:")?;
    // What stands in quotes, or behind other words, is about such a line.
    if before.contains(['"', '\'', '`'])
        || before.chars().filter(|c| c.is_alphanumeric()).count() > 3
    {
        return None;
    }
    let end = rest.find(|c: char| {
        !(c.is_ascii_alphanumeric() || matches!(c, ' ' | '\t' | '.' | '-' | '+' | '(' | ')' | ':'))
    });
    // What closes the comment is not part of it.
    let words = rest[..end.unwrap_or(rest.len())]
        .split_whitespace()
        .take_while(|word| !word.starts_with("--"));
    let mut expression: Vec<&str> = Vec::new();
    for word in words {
        let joins = |word: &str| matches!(word, "OR" | "AND" | "WITH" | "or" | "and" | "with");
        if expression.last().is_some_and(|last| !joins(last) && !last.ends_with('('))
            && !joins(word)
            && !word.starts_with(')')
        {
            break;
        }
        expression.push(word);
    }
    let text = expression.join(" ");
    (!text.is_empty() && text.len() <= 120 && text.contains(|c: char| c.is_ascii_alphabetic()))
        .then_some(text)
}

/// The value of a manifest's line; none where it only points elsewhere.
pub(crate) fn field(line: &str) -> Option<String> {
    let line = line.trim();
    let value = if let Some(rest) = line.strip_prefix('<') {
        rest.split_once('>')?.1.split('<').next()?
    } else {
        let at = line.find([':', '='])?;
        line[at..].trim_start_matches([':', '=', '>', ' ', '\t'])
    };
    let mut value = value.trim().trim_end_matches(',').trim();
    if let Some(table) = value.strip_prefix('{') {
        // `license = { text = "MIT" }`; with `workspace` or `file` it is said elsewhere.
        let (key, rest) = table.split_once([':', '='])?;
        if !matches!(key.trim().trim_matches(['"', '\'']), "text" | "type" | "name") {
            return None;
        }
        value = rest.trim().trim_end_matches('}').trim();
    }
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        '[' => value.trim_matches(['[', ']']).trim().trim_matches(['"', '\'']),
        _ => value.split(" #").next()?.trim(),
    };
    let fits = !value.is_empty()
        && value.len() <= 120
        && value.starts_with(|c: char| c.is_alphanumeric() || c == '(');
    (fits && !matches!(value, "true" | "false" | "None" | "null")).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_name() {
        for name in [
            "LICENSE",
            "a/LICENSE-MIT",
            "LICENSE-APACHE-2.0",
            "licence.md",
            "COPYING.LESSER",
            "LICENSES/MIT.txt",
            "UNLICENSE",
        ] {
            assert!(is_licence_file(name), "{name}");
        }
        for name in
            ["license.rs", "licenses.json", "LICENSED", "src/license_check.py", "docs/COPYING.html"]
        {
            assert!(!is_licence_file(name), "{name}");
        }
        assert!(
            is_manifest("a/Cargo.toml") && is_manifest("x.gemspec") && !is_manifest("Cargo.lock")
        );
    }

    #[test]
    fn texts_are_known_by_their_words() {
        assert_eq!(
            by_text(
                "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy …\nThe above copyright notice and this permission notice shall be"
            ),
            "MIT"
        );
        assert_eq!(
            by_text(
                "                                 Apache License\n                           Version 2.0, January 2004"
            ),
            "Apache-2.0"
        );
        assert_eq!(by_text("GNU GENERAL PUBLIC LICENSE\n Version 3, 29 June 2007"), "GPL-3.0");
        assert_eq!(
            by_text("GNU LESSER GENERAL PUBLIC LICENSE\n Version 2.1, February 1999"),
            "LGPL-2.1"
        );
        assert_eq!(
            by_text(
                "Redistribution and use in source and binary forms, with or\nwithout … Neither the name of"
            ),
            "BSD-3-Clause"
        );
        assert_eq!(
            by_text(
                "Permission to use, copy, modify, and/or distribute this software for any purpose … provided that the above copyright notice"
            ),
            "ISC"
        );
        assert_eq!(
            by_text("Copyright 2026 Someone. All rights reserved."),
            "proprietary (\"all rights reserved\")"
        );
        assert_eq!(by_text("Do as you like."), "not recognised");
        assert_eq!(by_text(""), "not recognised");
    }

    #[test]
    fn lines_of_spdx_end_where_the_comment_does() {
        let line = |expression: &str| format!("SPDX-License-{}: {expression}", "Identifier");
        assert_eq!(spdx(&line("MIT */")).as_deref(), Some("MIT"));
        assert_eq!(spdx(&line("MIT OR Apache-2.0")).as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(
            spdx(&line("(GPL-2.0-only WITH Linux-syscall-note) -->")).as_deref(),
            Some("(GPL-2.0-only WITH Linux-syscall-note)")
        );
        assert_eq!(spdx(&line("MIT and more words")).as_deref(), Some("MIT and more"));
        assert_eq!(spdx(&line("[ \\t]*")), None);
        assert_eq!(spdx(&format!("// {}", line("MIT"))).as_deref(), Some("MIT"));
        assert_eq!(spdx(&format!("(\"// {}", line("MIT"))), None);
        assert_eq!(spdx(&format!("The tag is {}", line("MIT"))), None);
    }

    #[test]
    fn fields_of_manifests_are_read() {
        assert_eq!(field("license = \"MIT OR Apache-2.0\"").as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(field("  \"license\": \"ISC\",").as_deref(), Some("ISC"));
        assert_eq!(field("license = { text = \"BSD-3-Clause\" }").as_deref(), Some("BSD-3-Clause"));
        assert_eq!(field("license = { workspace = true }"), None);
        assert_eq!(field("license = {file = \"LICENSE\"}"), None);
        assert_eq!(field("license=\"MIT\",").as_deref(), Some("MIT"));
        assert_eq!(field("  spec.license = 'MIT'").as_deref(), Some("MIT"));
        assert_eq!(field("<license type=\"expression\">MIT</license>").as_deref(), Some("MIT"));
        assert_eq!(field("License: GPL-3 # or later").as_deref(), Some("GPL-3"));
        assert_eq!(field("\"license\": [\"MIT\"]").as_deref(), Some("MIT"));
    }
}
