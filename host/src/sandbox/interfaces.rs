//! What a component imports and exports, read from its bytes without compiling them.
//!
//! Only the outermost component counts, and of it only names: no type is followed, so that hostile bytes cost no more
//! than one walk over the headers of their sections.

use std::fmt;

use wasmparser::{ComponentExternalKind, ComponentTypeRef, Parser, Payload};

/// The custom section in which the SDK names itself.
const SDK_SECTION: &str = "checkrein-sdk";

/// More imports or exports than this are no plugin's.
const MOST: usize = 1_000;

/// No honest name is longer.
const LONGEST: usize = 256;

/// Components and modules inside of each other.
const DEEPEST: usize = 64;

/// The package of our own interfaces.
const OWN: &str = "checkrein:plugin";

/// The version of it that this host serves.
const SERVED: Numbers = Numbers(0, 1, 0);

/// The packages of WASI that this host serves, all of version 0.2.
const WASI: [&str; 7] = ["cli", "clocks", "filesystem", "http", "io", "random", "sockets"];

/// What a component asks of its host and offers to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// What it imports, in its order.
    pub imports: Vec<Item>,
    /// What it exports, in its order.
    pub exports: Vec<Item>,
    /// The SDK with which it was made, and its version, if it says so.
    pub sdk: Option<String>,
}

/// One import or export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its name, such as `wasi:io/streams@0.2.6`. Printable ASCII.
    pub name: String,
    /// What it is.
    pub kind: ItemKind,
}

/// What an import or export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ItemKind {
    /// An interface: functions and types under one name.
    Interface,
    /// A function of its own.
    Function,
    /// A type, a component, a module, or what comes later.
    Other,
}

/// The two worlds of `checkrein:plugin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum World {
    /// Exports `run`.
    Agent,
    /// Exports `describe` and `call`.
    Tool,
}

impl Interfaces {
    /// Reads the names in a component.
    ///
    /// # Errors
    ///
    /// When the bytes are no component, or none that a plugin could be.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "sections of no interest, also those that are to come"
    )]
    pub fn read(bytes: &[u8]) -> Result<Interfaces, InterfacesError> {
        let mut read = Interfaces::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding: wasmparser::Encoding::Module, .. } if depth == 0 => {
                    return Err(InterfacesError::Module);
                }
                Payload::Version { .. } => {
                    depth += 1;
                    if depth > DEEPEST {
                        return Err(InterfacesError::TooDeep);
                    }
                }
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => {
                    for import in section {
                        let import = import?;
                        let kind = match import.ty {
                            ComponentTypeRef::Instance(_) => ItemKind::Interface,
                            ComponentTypeRef::Func(_) => ItemKind::Function,
                            ComponentTypeRef::Module(_)
                            | ComponentTypeRef::Value(_)
                            | ComponentTypeRef::Type(_)
                            | ComponentTypeRef::Component(_) => ItemKind::Other,
                        };
                        push(&mut read.imports, import.name.name, kind)?;
                    }
                }
                Payload::ComponentExportSection(section) if depth == 1 => {
                    for export in section {
                        let export = export?;
                        let kind = match export.kind {
                            ComponentExternalKind::Instance => ItemKind::Interface,
                            ComponentExternalKind::Func => ItemKind::Function,
                            ComponentExternalKind::Module
                            | ComponentExternalKind::Value
                            | ComponentExternalKind::Type
                            | ComponentExternalKind::Component => ItemKind::Other,
                        };
                        push(&mut read.exports, export.name.name, kind)?;
                    }
                }
                // A compiler puts it into the core module, and there it stays.
                Payload::CustomSection(section)
                    if section.name() == SDK_SECTION && read.sdk.is_none() =>
                {
                    read.sdk = std::str::from_utf8(section.data())
                        .ok()
                        .filter(|text| is_name(text))
                        .map(str::to_owned);
                }
                _ => {}
            }
        }
        Ok(read)
    }

    /// Why a component with these interfaces cannot be run in that world. Empty when the names give no reason; then
    /// it may still be that an interface does not look as this host knows it.
    pub fn misfits(&self, world: World) -> Vec<Misfit> {
        // A type that is imported is only a name for one of an interface.
        let served = self.imports.iter().filter(|import| import.kind != ItemKind::Other);
        let imports = served.filter_map(|import| import_misfit(&import.name, world));
        let exports = world.exports().iter().filter(|name| !self.offers(name));
        let missing = exports.map(|export| Misfit::NoExport {
            export,
            world,
            other: Some(world.other())
                .filter(|other| other.exports().iter().all(|name| self.offers(name))),
        });
        imports.chain(missing).collect()
    }

    fn offers(&self, export: &str) -> bool {
        self.exports.iter().any(|item| item.name == export && item.kind == ItemKind::Function)
    }
}

impl World {
    /// The functions that a component of this world exports.
    fn exports(self) -> &'static [&'static str] {
        match self {
            World::Agent => &["run"],
            World::Tool => &["describe", "call"],
        }
    }

    /// The interfaces of our own package that this world has.
    fn imports(self) -> &'static [&'static str] {
        match self {
            World::Agent => {
                &["types", "run", "model", "tools", "delegate", "session", "config", "log"]
            }
            World::Tool => &["types", "config", "secrets", "log"],
        }
    }

    fn other(self) -> World {
        match self {
            World::Agent => World::Tool,
            World::Tool => World::Agent,
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            World::Agent => "agent",
            World::Tool => "tool",
        })
    }
}

fn push(items: &mut Vec<Item>, name: &str, kind: ItemKind) -> Result<(), InterfacesError> {
    if items.len() == MOST {
        return Err(InterfacesError::TooMany);
    }
    if !is_name(name) {
        return Err(InterfacesError::Name);
    }
    items.push(Item { name: name.to_owned(), kind });
    Ok(())
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= LONGEST
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

fn import_misfit(import: &str, world: World) -> Option<Misfit> {
    let (path, version) = match import.split_once('@') {
        Some((path, version)) => (path, Numbers::parse(version)),
        None => (import, None),
    };
    let (package, interface) = path.split_once('/').unwrap_or((path, ""));
    let import = import.to_owned();
    if package == OWN {
        return match version {
            Some(version)
                if version.track() == SERVED.track() && world.imports().contains(&interface) =>
            {
                None
            }
            Some(version) if version.track() != SERVED.track() => {
                Some(Misfit::OtherVersion { import, made_for: version.age() })
            }
            _ if World::imports(world.other()).contains(&interface) => {
                Some(Misfit::OtherWorld { import, world })
            }
            _ => Some(Misfit::Unknown { import }),
        };
    }
    match package.strip_prefix("wasi:") {
        Some(package) if !WASI.contains(&package) => Some(Misfit::Unknown { import }),
        Some(_) if version.is_some_and(|version| version.track() == (0, 2)) => None,
        Some(_) => Some(Misfit::OtherWasi { import }),
        None => Some(Misfit::Unknown { import }),
    }
}

/// The numbers of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Numbers(u64, u64, u64);

impl Numbers {
    fn parse(text: &str) -> Option<Numbers> {
        let text = text.split(['-', '+']).next().unwrap_or(text);
        let mut numbers = text.split('.').map(|part| part.parse().ok());
        Some(Numbers(
            numbers.next()??,
            numbers.next().unwrap_or(Some(0))?,
            numbers.next().unwrap_or(Some(0))?,
        ))
    }

    /// Versions with the same track stand in for each other.
    fn track(self) -> (u64, u64) {
        if self.0 == 0 { (0, self.1) } else { (self.0, 0) }
    }

    fn age(self) -> Age {
        if self > SERVED { Age::Newer } else { Age::Older }
    }
}

/// Whether something is newer or older than this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Newer.
    Newer,
    /// Older.
    Older,
}

/// One reason why a component does not fit a world.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// It was made for another version of our interfaces.
    #[error(
        "it imports {import}, which was made for {} host; this one serves {OWN}@{SERVED}: use another version of the plugin or of the host",
        match made_for { Age::Newer => "a newer", Age::Older => "an older" }
    )]
    OtherVersion {
        /// The import.
        import: String,
        /// Which way it is off.
        made_for: Age,
    },
    /// The interface exists, but not for this kind of plugin.
    #[error("it imports {import}, which is there for {}s and not for {world}s: check `kind` in plugin.toml", world.other())]
    OtherWorld {
        /// The import.
        import: String,
        /// The world of the plugin.
        world: World,
    },
    /// It was made for another version of WASI.
    #[error("it imports {import}, and this host serves WASI 0.2: build it for wasm32-wasip2")]
    OtherWasi {
        /// The import.
        import: String,
    },
    /// Nobody serves such an interface.
    #[error("it imports {import}, which this host does not serve: build it without that")]
    Unknown {
        /// The import.
        import: String,
    },
    /// It lacks a function that the host would call.
    #[error(
        "it does not export the function `{export}`, which every {world} has{}",
        match other { Some(other) => format!("; it looks like a component of a {other}: check `kind` in plugin.toml"), None => String::new() }
    )]
    NoExport {
        /// The function.
        export: &'static str,
        /// The world of the plugin.
        world: World,
        /// The world whose exports it has.
        other: Option<World>,
    },
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// The interfaces of a component cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfacesError {
    /// The bytes are malformed, or no WebAssembly.
    #[error("the component is not valid: {} (at offset {:#x})", .0.message(), .0.offset())]
    Malformed(#[from] wasmparser::BinaryReaderError),
    /// It is a core module.
    #[error("this is a core module and not a component: build for wasm32-wasip2")]
    Module,
    /// Too many imports or exports.
    #[error("the component has more than {MOST} imports or exports")]
    TooMany,
    /// Too many components inside of each other.
    #[error("the component has more than {DEEPEST} components inside of each other")]
    TooDeep,
    /// A name that none can be.
    #[error("the component has an import or export whose name is empty, too long or not printable")]
    Name,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Interfaces {
        Interfaces::read(&wat::parse_str(text).unwrap()).unwrap()
    }

    #[test]
    fn only_what_the_outermost_component_imports_and_exports_counts() {
        let found = read(
            r#"(component
                (import "wasi:io/poll@0.2.6" (instance))
                (import "step" (func))
                (component (import "inner" (func)))
                (core module $m (@custom "checkrein-sdk" "checkrein-guest 0.1.0") (func (export "run")))
                (core instance $i (instantiate $m))
                (func (export "run") (canon lift (core func $i "run"))))"#,
        );
        let names = |items: &[Item]| {
            items.iter().map(|item| (item.name.clone(), item.kind)).collect::<Vec<_>>()
        };
        let imports = [
            ("wasi:io/poll@0.2.6".to_owned(), ItemKind::Interface),
            ("step".to_owned(), ItemKind::Function),
        ];
        assert_eq!(names(&found.imports), imports);
        assert_eq!(names(&found.exports), [("run".to_owned(), ItemKind::Function)]);
        assert_eq!(found.sdk.as_deref(), Some("checkrein-guest 0.1.0"));
    }

    #[test]
    fn every_reason_is_named() {
        let check = |import: &str, world: World, expected: Option<&str>| {
            let found = import_misfit(import, world).map(|misfit| misfit.to_string());
            match expected {
                Some(words) => assert!(
                    found.as_deref().is_some_and(|found| found.contains(words)),
                    "{import}: {found:?}"
                ),
                None => assert_eq!(found, None, "{import}"),
            }
        };
        check("checkrein:plugin/run@0.1.0", World::Agent, None);
        check("checkrein:plugin/run@0.1.7", World::Agent, None);
        check("checkrein:plugin/run@0.2.0", World::Agent, Some("made for a newer host"));
        check("checkrein:plugin/run@0.0.9", World::Agent, Some("made for an older host"));
        check("checkrein:plugin/secrets@0.1.0", World::Agent, Some("for tools and not for agents"));
        check("checkrein:plugin/oracle@0.1.0", World::Agent, Some("does not serve"));
        check("wasi:io/poll@0.2.12", World::Tool, None);
        check("wasi:io/poll@0.3.0", World::Tool, Some("WASI 0.2"));
        check("wasi:keyvalue/store@0.2.0", World::Tool, Some("does not serve"));
        check("host", World::Tool, Some("does not serve"));
    }

    #[test]
    fn a_tool_that_is_called_an_agent_is_told_so() {
        let exports = ["describe", "call"]
            .map(|name| Item { name: name.to_owned(), kind: ItemKind::Function });
        let tool = Interfaces { exports: exports.to_vec(), ..Interfaces::default() };
        assert_eq!(tool.misfits(World::Tool), []);
        let words: Vec<String> =
            tool.misfits(World::Agent).iter().map(ToString::to_string).collect();
        assert!(
            words.len() == 1 && words[0].contains("looks like a component of a tool"),
            "{words:?}"
        );
    }

    #[test]
    fn the_imports_of_both_worlds_are_those_of_their_wit() {
        let of = |text: &str| -> Vec<String> {
            let line = |line: &str| {
                Some(line.trim().strip_prefix("import ")?.trim_end_matches(';').to_owned())
            };
            std::iter::once("types".to_owned()).chain(text.lines().filter_map(line)).collect()
        };
        assert_eq!(World::Agent.imports(), of(include_str!("../../../wit/agent.wit")));
        assert_eq!(World::Tool.imports(), of(include_str!("../../../wit/tool.wit")));
    }

    #[test]
    fn what_is_no_component_is_refused() {
        assert!(matches!(Interfaces::read(b""), Err(InterfacesError::Malformed(_))));
        assert!(matches!(Interfaces::read(b"\0asm\x01\0\0\0"), Err(InterfacesError::Module)));
        let nested = format!("{}{}", "(component ".repeat(70), ")".repeat(70));
        assert!(matches!(
            Interfaces::read(&wat::parse_str(nested).unwrap()),
            Err(InterfacesError::TooDeep)
        ));
        let many: String = (0..=MOST).map(|n| format!("(import \"i{n}\" (func))")).collect();
        let many = wat::parse_str(format!("(component {many})")).unwrap();
        assert!(matches!(Interfaces::read(&many), Err(InterfacesError::TooMany)));
    }

    proptest! {
        /// Whatever the bytes are, reading them ends with an answer.
        #[test]
        fn no_bytes_do_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..512), at in 0_usize..512, byte: u8) {
            Interfaces::read(&bytes).ok();
            bytes.splice(0..0, *b"\0asm\x0d\0\x01\0");
            Interfaces::read(&bytes).ok();
            let mut honest = wat::parse_str(r#"(component (import "a:b/c@0.1.0" (instance)) (component))"#).unwrap();
            let at = at % honest.len();
            honest[at] = byte;
            Interfaces::read(&honest).ok();
            Interfaces::read(&honest[..at]).ok();
        }
    }
}
