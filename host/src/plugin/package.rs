//! One plugin: its manifest, where it comes from, and the bytes of its component.

use std::fmt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::file::{FileError, Folder};
use super::manifest::{self, Manifest, ManifestError};
use super::names::Name;
use super::text::shown;

/// A plugin that was built into the program.
#[derive(Debug, Clone, Copy)]
pub struct Embedded {
    /// The text of its manifest.
    pub manifest: &'static str,
    /// The bytes of its component.
    pub component: &'static [u8],
}

/// A plugin whose manifest has been read and whose component is there. The component is read by
/// [`Plugin::load`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    manifest: Manifest,
    source: Source,
    size: u64,
    most: u64,
}

/// Where a plugin comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// It was built into the program.
    Embedded(&'static [u8]),
    /// It lies in this folder.
    Folder(PathBuf),
}

/// A component that has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Its bytes, unchecked.
    pub bytes: Bytes,
    /// What identifies them.
    pub digest: Digest,
}

/// The SHA-256 of a component.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Plugin {
    /// Opens the plugin in a folder; `path` is the folder or its `plugin.toml`. A component of more than
    /// `most` bytes is refused, and not read.
    ///
    /// # Errors
    /// When the manifest cannot be used, or the component is not a file inside the folder.
    pub fn open(path: &Path, most: u64) -> Result<Plugin, PluginError> {
        let path = folder_of(path);
        let folder = Folder::open(&path)?;
        let manifest = Manifest::load(&folder, &path.join(manifest::FILE_NAME))?;
        let size = folder
            .size(manifest.component.as_path(), most)
            .map_err(|source| PluginError::Component { name: manifest.name.clone(), source })?;
        Ok(Plugin { manifest, source: Source::Folder(path), size, most })
    }

    /// Takes a plugin that was built into the program.
    ///
    /// # Errors
    /// When its manifest cannot be used.
    pub fn embedded(embedded: Embedded) -> Result<Plugin, PluginError> {
        let manifest = Manifest::parse(embedded.manifest, &embedded_file(embedded))?;
        let size = embedded.component.len() as u64;
        Ok(Plugin { manifest, source: Source::Embedded(embedded.component), size, most: size })
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.manifest.name
    }

    /// Where it comes from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// The bytes of its component, as they were counted when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads the component. Blocks on the disk.
    ///
    /// # Errors
    /// When the file has become unreadable or too large since.
    pub fn load(&self) -> Result<Component, PluginError> {
        let bytes = match &self.source {
            Source::Embedded(bytes) => Bytes::from_static(bytes),
            Source::Folder(path) => {
                let read = Folder::open(path)
                    .and_then(|folder| folder.read(self.manifest.component.as_path(), self.most));
                Bytes::from(read.map_err(|source| PluginError::Component {
                    name: self.name().clone(),
                    source,
                })?)
            }
        };
        let digest = Digest::of(&bytes);
        Ok(Component { bytes, digest })
    }
}

/// The folder that a path to a plugin means.
pub(super) fn folder_of(path: &Path) -> PathBuf {
    match (path.file_name(), path.parent()) {
        (Some(name), Some(parent)) if name == manifest::FILE_NAME && !path.is_dir() => {
            if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent.to_owned() }
        }
        _ => path.to_owned(),
    }
}

/// What errors name as the place of an embedded manifest.
pub(super) fn embedded_file(embedded: Embedded) -> PathBuf {
    let line = embedded.manifest.lines().next().unwrap_or("");
    let name = line.split('"').nth(1).and_then(|name| Name::parse(name).ok());
    match name {
        Some(name) => PathBuf::from(format!("(built in) {name}/{}", manifest::FILE_NAME)),
        None => PathBuf::from(format!("(built in) {}", manifest::FILE_NAME)),
    }
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// The bytes of the digest.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Embedded(bytes) => write!(f, "Embedded({} bytes)", bytes.len()),
            Source::Folder(path) => f.debug_tuple("Folder").field(path).finish(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Embedded(_) => f.write_str("built in"),
            Source::Folder(path) => f.write_str(&shown(path)),
        }
    }
}

/// Why a plugin cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// Its manifest cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Its folder cannot be opened.
    #[error("cannot open the folder of a plugin")]
    Folder(#[from] FileError),
    /// Its component cannot be read.
    #[error("cannot read the component of the plugin {name}")]
    Component {
        /// The plugin.
        name: Name,
        /// Why.
        source: FileError,
    },
    /// The configuration calls it by another name than its manifest.
    #[error(
        "{} is called `{found}` by its manifest, and `{expected}` by the configuration; write [plugins.{found}]",
        shown(path)
    )]
    OtherName {
        /// Its folder.
        path: PathBuf,
        /// What the manifest says.
        found: Name,
        /// What the configuration says.
        expected: Name,
    },
}
