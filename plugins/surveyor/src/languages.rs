//! Which language a file is written in, by its name or its first line.

use std::collections::HashMap;

/// What a language is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Programs.
    Code,
    /// Texts for people.
    Prose,
    /// Values, settings, markup.
    Data,
}

/// A language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Language {
    /// What people call it.
    pub(crate) name: &'static str,
    /// What it is for.
    pub(crate) used_for: Use,
}

struct Row {
    language: Language,
    /// Endings after the last dot, in lower case.
    endings: &'static [&'static str],
    /// Whole names, in lower case.
    names: &'static [&'static str],
    /// Programs that a first line such as `#!/usr/bin/env python3` names, without digits at their end.
    programs: &'static [&'static str],
}

const fn row(
    name: &'static str,
    used_for: Use,
    endings: &'static [&'static str],
    names: &'static [&'static str],
    programs: &'static [&'static str],
) -> Row {
    Row { language: Language { name, used_for }, endings, names, programs }
}

use Use::{Code, Data, Prose};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("Ada", Code, &["adb", "ads"], &[], &[]),
    row("Agda", Code, &["agda"], &[], &[]),
    row("Apex", Code, &["cls", "trigger"], &[], &[]),
    row("AppleScript", Code, &["applescript", "scpt"], &[], &["osascript"]),
    row("AsciiDoc", Prose, &["adoc", "asciidoc"], &[], &[]),
    row("Assembly", Code, &["asm", "s", "nasm"], &[], &[]),
    row("Astro", Code, &["astro"], &[], &[]),
    row("AWK", Code, &["awk"], &[], &["awk", "gawk", "mawk"]),
    row("Ballerina", Code, &["bal"], &[], &[]),
    row("Batch", Code, &["bat", "cmd"], &[], &[]),
    row("BibTeX", Data, &["bib"], &[], &[]),
    row("C", Code, &["c"], &[], &["tcc"]),
    row("C/C++ header", Code, &["h"], &[], &[]),
    row("C#", Code, &["cs", "csx"], &[], &[]),
    row("C++", Code, &["cc", "cpp", "cxx", "c++", "hh", "hpp", "hxx", "ipp", "inl", "cppm", "ixx"], &[], &[]),
    row("Cairo", Code, &["cairo"], &[], &[]),
    row("Clojure", Code, &["clj", "cljs", "cljc", "edn", "bb"], &[], &["bb", "clojure"]),
    row("CMake", Code, &["cmake"], &["cmakelists.txt"], &[]),
    row("COBOL", Code, &["cob", "cbl", "cpy"], &[], &[]),
    row("CoffeeScript", Code, &["coffee"], &["cakefile"], &["coffee"]),
    row("Common Lisp", Code, &["lisp", "lsp", "cl", "asd"], &[], &["sbcl"]),
    row("Crystal", Code, &["cr"], &[], &["crystal"]),
    row("CSS", Code, &["css", "pcss"], &[], &[]),
    row("CSV", Data, &["csv", "tsv"], &[], &[]),
    row("CUDA", Code, &["cu", "cuh"], &[], &[]),
    row("Cython", Code, &["pyx", "pxd", "pxi"], &[], &[]),
    row("D", Code, &["d", "di"], &[], &["rdmd", "dmd"]),
    row("Dart", Code, &["dart"], &[], &["dart"]),
    row("Devicetree", Data, &["dts", "dtsi"], &[], &[]),
    row("Dhall", Data, &["dhall"], &[], &[]),
    row("Diff", Data, &["diff", "patch"], &[], &[]),
    row("Dockerfile", Code, &["dockerfile", "containerfile"], &["dockerfile", "containerfile"], &[]),
    row("Dotenv", Data, &["env"], &[".env"], &[]),
    row("DOT", Data, &["dot", "gv"], &[], &[]),
    row("Elixir", Code, &["ex", "exs", "heex", "eex"], &[], &["elixir"]),
    row("Elm", Code, &["elm"], &[], &[]),
    row("Emacs Lisp", Code, &["el"], &[".emacs"], &["emacs"]),
    row("Erlang", Code, &["erl", "hrl", "escript"], &["rebar.config"], &["escript"]),
    row("F#", Code, &["fs", "fsi", "fsx"], &[], &[]),
    row("Fish", Code, &["fish"], &[], &["fish"]),
    row("Fortran", Code, &["f", "f77", "f90", "f95", "f03", "f08", "for"], &[], &[]),
    row("GDScript", Code, &["gd"], &[], &[]),
    row("Gettext", Data, &["po", "pot"], &[], &[]),
    row("Gleam", Code, &["gleam"], &[], &[]),
    row("GLSL", Code, &["glsl", "vert", "frag", "comp", "geom"], &[], &[]),
    row("Go", Code, &["go"], &[], &["go"]),
    row("Go module", Data, &[], &["go.mod", "go.sum", "go.work"], &[]),
    row("GraphQL", Code, &["graphql", "gql"], &[], &[]),
    row("Groovy", Code, &["groovy", "gradle", "gvy"], &["jenkinsfile"], &["groovy"]),
    row("Handlebars", Code, &["hbs", "handlebars", "mustache"], &[], &[]),
    row("Haskell", Code, &["hs", "lhs", "hsc"], &[], &["runhaskell", "runghc"]),
    row("HCL", Data, &["hcl", "nomad"], &[], &[]),
    row("HLSL", Code, &["hlsl", "fx"], &[], &[]),
    row("HTML", Code, &["html", "htm", "xhtml"], &[], &[]),
    row("Idris", Code, &["idr"], &[], &[]),
    row("Ignore file", Data, &[], &[".gitignore", ".dockerignore", ".npmignore", ".eslintignore", ".prettierignore", ".gitattributes"], &[]),
    row("INI", Data, &["ini", "cfg", "properties", "editorconfig"], &[".editorconfig", ".gitconfig", ".gitmodules", ".npmrc", ".pylintrc", ".flake8"], &[]),
    row("Java", Code, &["java"], &[], &["java"]),
    row("JavaScript", Code, &["js", "mjs", "cjs", "jsx"], &[], &["node", "nodejs"]),
    row("Jinja", Code, &["j2", "jinja", "jinja2"], &[], &[]),
    row("JSON", Data, &["json", "json5", "jsonc", "jsonl", "ndjson", "geojson", "webmanifest", "avsc"], &[".babelrc", ".eslintrc", ".prettierrc", "composer.lock", "pipfile.lock", "flake.lock"], &[]),
    row("Jsonnet", Code, &["jsonnet", "libsonnet"], &[], &[]),
    row("Julia", Code, &["jl"], &[], &["julia"]),
    row("Jupyter notebook", Data, &["ipynb"], &[], &[]),
    row("Just", Code, &["just"], &["justfile", ".justfile"], &["just"]),
    row("Kotlin", Code, &["kt", "kts"], &[], &["kotlin"]),
    row("LaTeX", Prose, &["tex", "sty", "ltx"], &[], &[]),
    row("Lean", Code, &["lean"], &[], &[]),
    row("Less", Code, &["less"], &[], &[]),
    row("Linker script", Code, &["ld", "lds"], &[], &[]),
    row("Liquid", Code, &["liquid"], &[], &[]),
    row("Lua", Code, &["lua", "luau"], &[], &["lua", "luajit"]),
    row("Makefile", Code, &["mk", "mak"], &["makefile", "gnumakefile", "kbuild", "makefile.am", "makefile.in"], &["make"]),
    row("Markdown", Prose, &["md", "markdown", "mdown", "mdx", "qmd", "rmd"], &[], &[]),
    row("MATLAB", Code, &[], &[], &["octave"]),
    row("Meson", Code, &[], &["meson.build", "meson_options.txt", "meson.options"], &[]),
    row("Mojo", Code, &["mojo"], &[], &["mojo"]),
    row("Nim", Code, &["nim", "nims", "nimble"], &[], &["nim"]),
    row("Nix", Code, &["nix"], &[], &["nix-shell"]),
    row("Nushell", Code, &["nu"], &[], &["nu"]),
    row("Objective-C", Code, &["m"], &[], &[]),
    row("Objective-C++", Code, &["mm"], &[], &[]),
    row("OCaml", Code, &["ml", "mli", "mll", "mly"], &["dune", "dune-project"], &["ocaml"]),
    row("Odin", Code, &["odin"], &[], &[]),
    row("Org", Prose, &["org"], &[], &[]),
    row("Pascal", Code, &["pas", "pp", "dpr", "lpr"], &[], &["instantfpc"]),
    row("Perl", Code, &["pl", "pm", "t", "pod"], &["cpanfile"], &["perl"]),
    row("PHP", Code, &["php", "phtml", "php3", "php4", "php5"], &[], &["php"]),
    row("PlantUML", Data, &["puml", "plantuml"], &[], &[]),
    row("PostScript", Data, &["ps", "eps"], &[], &[]),
    row("PowerShell", Code, &["ps1", "psm1", "psd1"], &[], &["pwsh"]),
    row("Prolog", Code, &["pro", "prolog"], &[], &["swipl"]),
    row("Protocol Buffers", Code, &["proto"], &[], &[]),
    row("Puppet", Code, &["epp"], &[], &[]),
    row("PureScript", Code, &["purs"], &[], &[]),
    row("Python", Code, &["py", "pyi", "pyw"], &["sconstruct", "wscript"], &["python", "pypy", "uv"]),
    row("QML", Code, &["qml"], &[], &[]),
    row("R", Code, &["r"], &[".rprofile"], &["rscript"]),
    row("Racket", Code, &["rkt"], &[], &["racket"]),
    row("Raku", Code, &["raku", "rakumod", "p6", "pm6"], &[], &["raku"]),
    row("reStructuredText", Prose, &["rst", "rest"], &[], &[]),
    row("ReScript", Code, &["res", "resi", "re", "rei"], &[], &[]),
    row("Ruby", Code, &["rb", "rake", "gemspec", "ru", "erb"], &["rakefile", "gemfile", "guardfile", "podfile", "vagrantfile", "brewfile"], &["ruby"]),
    row("Rust", Code, &["rs"], &[], &["rust-script"]),
    row("Sass", Code, &["sass", "scss"], &[], &[]),
    row("Scala", Code, &["scala", "sc", "sbt"], &[], &["scala"]),
    row("Scheme", Code, &["scm", "ss", "sld"], &[], &["guile", "scheme"]),
    row("Shell", Code, &["sh", "bash", "zsh", "ksh", "ebuild"], &[".bashrc", ".profile", ".zshrc", ".bash_profile", "pkgbuild", ".envrc"], &["sh", "bash", "zsh", "dash", "ksh", "ash"]),
    row("Smalltalk", Code, &["st"], &[], &[]),
    row("Solidity", Code, &["sol"], &[], &[]),
    row("SQL", Code, &["sql", "psql", "plsql"], &[], &["psql"]),
    row("Standard ML", Code, &["sml", "sig", "fun"], &[], &[]),
    row("Starlark", Code, &["bzl", "star", "bazel"], &["build", "workspace", "buck", "build.bazel", "workspace.bazel", "module.bazel"], &[]),
    row("Stylus", Code, &["styl"], &[], &[]),
    row("Svelte", Code, &["svelte"], &[], &[]),
    row("SVG", Data, &["svg"], &[], &[]),
    row("Swift", Code, &["swift"], &[], &["swift"]),
    row("systemd unit", Data, &["service", "socket", "timer", "mount"], &[], &[]),
    row("SystemVerilog", Code, &["sv", "svh"], &[], &[]),
    row("Tcl", Code, &["tcl", "tk"], &[], &["tclsh", "wish", "expect"]),
    row("Terraform", Code, &["tf", "tfvars", "tofu"], &[], &[]),
    row("Text", Prose, &["txt", "text", "log"], &["readme", "license", "licence", "copying", "authors", "changelog", "changes", "news", "todo", "notice", "contributors", "maintainers", "codeowners", "install", "version"], &[]),
    row("Thrift", Code, &["thrift"], &[], &[]),
    row("TOML", Data, &["toml"], &["cargo.lock", "poetry.lock", "pipfile", "uv.lock", "gopkg.lock"], &[]),
    row("TypeScript", Code, &["ts", "tsx", "mts", "cts"], &[], &["ts-node", "tsx", "deno", "bun"]),
    row("Typst", Prose, &["typ"], &[], &[]),
    row("Vala", Code, &["vala", "vapi"], &[], &[]),
    row("Verilog", Code, &["v", "vh"], &[], &[]),
    row("VHDL", Code, &["vhd", "vhdl"], &[], &[]),
    row("Vim script", Code, &["vim"], &[".vimrc"], &[]),
    row("Visual Basic", Code, &["vb", "vbs", "bas"], &[], &[]),
    row("Vue", Code, &["vue"], &[], &[]),
    row("WebAssembly text", Code, &["wat", "wast"], &[], &[]),
    row("WGSL", Code, &["wgsl"], &[], &[]),
    row("WIT", Code, &["wit"], &[], &[]),
    row("XML", Data, &["xml", "xsd", "xsl", "xslt", "xaml", "plist", "csproj", "fsproj", "vbproj", "props", "targets", "nuspec", "resx", "storyboard", "xib", "iml", "rng"], &[], &[]),
    row("YAML", Data, &["yml", "yaml"], &[".clang-format", ".clang-tidy", ".clangd", ".yamllint", "pubspec.lock"], &[]),
    row("Zig", Code, &["zig", "zon"], &[], &["zig"]),
];

/// Endings of files that are not text, so that there is no use in reading them.
#[rustfmt::skip]
const BINARY: &[&str] = &[
    "7z", "a", "aac", "ai", "apk", "avi", "avif", "bin", "blend", "bmp", "bz2", "class", "dat", "db", "deb", "dex", "dll", "dmg",
    "doc", "docx", "dylib", "eot", "exe", "fbx", "flac", "gif", "glb", "gz", "heic", "icns", "ico", "iso", "jar", "jks",
    "jpeg", "jpg", "keystore", "lib", "lz4", "lzma", "m4a", "mkv", "mov", "mp3", "mp4", "mpg", "msi", "nib", "npy", "npz", "o", "obj",
    "odp", "ods", "odt", "ogg", "onnx", "opus", "otf", "pack", "parquet", "pcap", "pdb", "pdf", "pickle", "pkl", "png", "ppt",
    "pptx", "psd", "pt", "pyc", "pyo", "rar", "rlib", "rmeta", "rpm", "safetensors", "so", "sqlite", "sqlite3", "swf",
    "tar", "tga", "tgz", "tif", "tiff", "ttc", "ttf", "wasm", "wav", "webm", "webp", "whl", "wmv", "woff", "woff2", "xls",
    "xlsx", "xz", "zip", "zst",
];

/// The table, in a form in which names are found quickly.
#[derive(Debug)]
pub(crate) struct Languages {
    endings: HashMap<&'static str, Language>,
    names: HashMap<&'static str, Language>,
    programs: HashMap<&'static str, Language>,
    called: HashMap<&'static str, Language>,
}

impl Languages {
    /// All languages that are known here.
    pub(crate) fn new() -> Languages {
        let pairs = |of: fn(&Row) -> &'static [&'static str]| {
            ROWS.iter()
                .flat_map(move |row| of(row).iter().map(|name| (*name, row.language)))
                .collect()
        };
        Languages {
            endings: pairs(|row| row.endings),
            names: pairs(|row| row.names),
            programs: pairs(|row| row.programs),
            called: ROWS.iter().map(|row| (row.language.name, row.language)).collect(),
        }
    }

    /// The language of a file of that name, as far as the name tells.
    pub(crate) fn by_name(&self, path: &str) -> Option<Language> {
        let name = name_of(path).to_ascii_lowercase();
        if let Some(language) = self.names.get(name.as_str()) {
            return Some(*language);
        }
        let known = ending_of(&name).and_then(|ending| self.endings.get(ending));
        // `Dockerfile.dev`, `LICENSE-MIT`, `.env.local`.
        let stem = name.split(['.', '-']).find(|part| !part.is_empty()).unwrap_or("");
        let dotted = name.starts_with('.').then(|| format!(".{stem}"));
        known.or_else(|| self.names.get(dotted.as_deref().unwrap_or(stem))).copied()
    }

    /// The language of a file whose first line is `#!…`.
    pub(crate) fn by_first_line(&self, line: &str) -> Option<Language> {
        let mut words = line.strip_prefix("#!")?.split_whitespace();
        let mut program = name_of(words.next()?);
        if program == "env" {
            program = name_of(words.find(|word| !word.starts_with('-') && !word.contains('='))?);
        }
        let program = program.to_ascii_lowercase();
        let plain = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        self.programs.get(program.as_str()).or_else(|| self.programs.get(plain)).copied()
    }

    /// The language that is called so.
    pub(crate) fn called(&self, name: &str) -> Option<Language> {
        self.called.get(name).copied()
    }
}

/// Whether a file of that name is not text.
pub(crate) fn is_binary(path: &str) -> bool {
    let name = name_of(path).to_ascii_lowercase();
    ending_of(&name).is_some_and(|ending| BINARY.binary_search(&ending).is_ok())
}

/// The last part of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What follows the last dot of a name; none for `.profile` and `Makefile`.
pub(crate) fn ending_of(name: &str) -> Option<&str> {
    name.rsplit_once('.')
        .filter(|(stem, ending)| !stem.is_empty() && !ending.is_empty())
        .map(|(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_large_sorted_and_says_nothing_twice() {
        assert!(ROWS.len() >= 60);
        let mut binary = BINARY.to_vec();
        binary.sort_unstable();
        assert_eq!(binary, BINARY);
        for of in [|row: &Row| row.endings, |row: &Row| row.names, |row: &Row| row.programs] {
            let mut all: Vec<&str> = ROWS.iter().flat_map(|row| of(row).iter().copied()).collect();
            let count = all.len();
            all.sort_unstable();
            for pair in all.windows(2) {
                assert_ne!(pair[0], pair[1]);
            }
            assert!(all.iter().all(|name| *name == name.to_lowercase()));
            assert!(count > 10);
        }
        for row in ROWS {
            assert!(
                row.endings.iter().all(|ending| BINARY.binary_search(ending).is_err()),
                "{}",
                row.language.name
            );
        }
    }

    #[test]
    fn names_tell_the_language() {
        let languages = Languages::new();
        let name = |path: &str| languages.by_name(path).map(|language| language.name);
        assert_eq!(name("/work/src/main.rs"), Some("Rust"));
        assert_eq!(name("/work/A.PY"), Some("Python"));
        assert_eq!(name("/work/Makefile"), Some("Makefile"));
        assert_eq!(name("/work/Dockerfile.dev"), Some("Dockerfile"));
        assert_eq!(name("/work/Cargo.lock"), Some("TOML"));
        assert_eq!(name("/work/.gitignore"), Some("Ignore file"));
        assert_eq!(name("/work/LICENSE-MIT"), Some("Text"));
        assert_eq!(name("/work/.env.local"), Some("Dotenv"));
        assert_eq!(name("/work/LICENSE-checker.py"), Some("Python"));
        assert_eq!(name("/work/script"), None);
        assert_eq!(name("/work/.profile"), Some("Shell"));
        assert_eq!(name("/work/a.d/x"), None);
        assert_eq!(languages.called("Rust").map(|language| language.used_for), Some(Code));
    }

    #[test]
    fn a_first_line_names_the_program() {
        let languages = Languages::new();
        let name = |line: &str| languages.by_first_line(line).map(|language| language.name);
        assert_eq!(name("#!/bin/sh"), Some("Shell"));
        assert_eq!(name("#! /usr/bin/env python3.11"), Some("Python"));
        assert_eq!(name("#!/usr/bin/env -S node --no-warnings"), Some("JavaScript"));
        assert_eq!(name("#!/usr/bin/env A=1 perl -w"), Some("Perl"));
        assert_eq!(name("#!/usr/bin/unheard-of"), None);
        assert_eq!(name("#!"), None);
        assert_eq!(name("# comment"), None);
    }

    #[test]
    fn what_is_not_text_is_known_by_its_ending() {
        assert!(is_binary("/work/logo.PNG") && is_binary("/work/a.tar.gz"));
        assert!(!is_binary("/work/png") && !is_binary("/work/a.svg"));
    }
}
