//! Folders: whether they can be written, have room, and are where locks work. Files: who may read them.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use checkrein::plugin::Configuration;
use checkrein::sandbox::Cache;
use checkrein::server::Tokens;
use etcetera::BaseStrategy;
use rustix::fs::{statfs, statvfs};

use super::check::{Check, words};
use crate::cli::{setup, text};

/// Free space of a home below which it is time to look after it.
const ROOM_OF_A_HOME: u64 = 1 << 30;

/// The most bytes of the path of a socket.
const LONGEST_SOCKET: usize = 107;

/// File systems on other machines, on which SQLite cannot rely on locks: NFS, SMB, CIFS, 9P, AFS.
const REMOTE: [u64; 6] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x0102_1997, 0x5346_414F];

/// Where compiled code is kept.
pub(super) fn cache(configuration: &Configuration) -> Check {
    let name = "cache";
    let advice = "name another folder with `cache-directory`; without one every start compiles its components anew";
    let usual = || Some(etcetera::choose_base_strategy().ok()?.cache_dir().join("checkrein"));
    let Some(folder) = configuration.cache_directory.clone().or_else(usual) else {
        return Check::warning(name, "there is no folder for compiled code", advice);
    };
    // It asks whether anybody else could write there, too.
    if let Err(error) = Cache::open(&folder, Cache::USUAL_BYTES) {
        return Check::warning(name, words(&error), advice);
    }
    let tried = match try_writing(&folder) {
        Ok(()) => room(&folder),
        Err(error) => Err(error),
    };
    match tried {
        Err(error) => {
            Check::warning(name, format!("{} cannot be written: {error}", folder.display()), advice)
        }
        Ok(free) => {
            let saw = format!("{} can be written, {} free", folder.display(), text::size(free));
            match free < Cache::USUAL_BYTES {
                true => Check::warning(
                    name,
                    format!("{saw}; it may grow to {}", text::size(Cache::USUAL_BYTES)),
                    "make room, or name another folder with `cache-directory`",
                ),
                false => Check::ok(name, saw),
            }
        }
    }
}

/// Where the database of a profile is.
pub(super) fn home(folder: &Path) -> Check {
    let name = "home";
    let shown = folder.display();
    if !folder.is_dir() {
        return Check::problem(
            name,
            format!("{shown} is no folder"),
            "make it, or name another home",
        );
    }
    if let Err(error) = try_writing(folder) {
        let advice = "give the folder to the user that runs this";
        return Check::problem(
            name,
            format!("{shown} cannot be written and locked: {error}"),
            advice,
        );
    }
    if let Ok(system) = statfs(folder)
        && REMOTE.contains(&(system.f_type as u64))
    {
        let saw = format!("{shown} can be written, and lies on another machine");
        let advice =
            "use a local disk: databases are damaged where locks do not hold between machines";
        return Check::warning(name, saw, advice);
    }
    match room(folder) {
        Ok(free) if free < ROOM_OF_A_HOME => {
            let saw = format!("{shown} can be written, only {} free", text::size(free));
            Check::warning(name, saw, "make room: what cannot be written down is not promised")
        }
        Ok(free) => Check::ok(name, format!("{shown} can be written, {} free", text::size(free))),
        Err(error) => {
            Check::warning(name, format!("{shown}: {error}"), "see whether the disk is sound")
        }
    }
}

/// Where the daemon listens: whoever may write there may put a socket of its own in the place of the daemon's.
pub(super) fn socket(named: Option<&Path>) -> Check {
    let name = "socket";
    let socket = match named.map_or_else(setup::usual_socket, |socket| Ok(socket.to_owned())) {
        Ok(socket) => socket,
        Err(_) => {
            return Check::problem(
                name,
                "there is no folder for it",
                "name one with `socket` in [serve]",
            );
        }
    };
    let shown = socket.display();
    if socket.as_os_str().len() > LONGEST_SOCKET {
        let saw =
            format!("{shown} is longer than the {LONGEST_SOCKET} bytes that a socket may have");
        return Check::problem(name, saw, "name a shorter one with `socket` in [serve]");
    }
    let folder = match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let advice = "make the folder one of the user that runs this, for nobody else to write in, or name another socket";
    let look = match std::fs::metadata(folder) {
        Ok(look) if look.is_dir() => look,
        Ok(_) => {
            return Check::problem(name, format!("{} is no folder", folder.display()), advice);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::ok(name, format!("{shown}; its folder will be made"));
        }
        Err(error) => {
            return Check::problem(name, format!("{}: {error}", folder.display()), advice);
        }
    };
    // In a folder such as /tmp nobody removes what another has made.
    if look.mode() & 0o022 != 0 && look.mode() & 0o1000 == 0 {
        let saw =
            format!("others can write in {} (mode {:o})", folder.display(), look.mode() & 0o7777);
        return Check::problem(name, saw, advice);
    }
    match try_writing(folder) {
        Ok(()) => {
            Check::ok(name, format!("{shown}; its folder can be written, and only by its owner"))
        }
        Err(error) => {
            Check::problem(name, format!("{} cannot be written: {error}", folder.display()), advice)
        }
    }
}

/// The file with the tokens.
pub(super) fn tokens(file: &Path) -> Check {
    let name = "tokens";
    let shown = file.display();
    match Tokens::load(file) {
        Err(error) => {
            Check::problem(name, words(&error), "without it nobody is served through TCP")
        }
        Ok(tokens) => match tokens.list().count() {
            0 => Check::warning(
                name,
                format!("{shown} has none: nobody is let in"),
                "make one with `checkrein token`",
            ),
            count => {
                Check::ok(name, format!("{shown} has {count}, and only its owner can read it"))
            }
        },
    }
}

/// Who else can read a file that is to be read by its owner alone, in words.
pub(super) fn open_to_others(file: &Path) -> Option<String> {
    let look = std::fs::metadata(file).ok()?;
    let (owner, me) = (look.uid(), rustix::process::geteuid().as_raw());
    if look.mode() & 0o077 != 0 {
        Some(format!(
            "others than its owner can read or write it (mode {:o})",
            look.mode() & 0o7777
        ))
    } else if owner != me && owner != 0 {
        Some(format!("it belongs to another user ({owner})"))
    } else {
        None
    }
}

/// Writes, locks and removes a file of its own.
fn try_writing(folder: &Path) -> io::Result<()> {
    let path: PathBuf = folder.join(format!(".doctor-{}", std::process::id()));
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    let written = file
        .write_all(b"checkrein doctor\n")
        .and_then(|()| file.sync_all())
        .and_then(|()| file.try_lock().map_err(io::Error::from));
    std::fs::remove_file(&path)?;
    written
}

/// Free bytes for users that are not root.
fn room(folder: &Path) -> io::Result<u64> {
    let system = statvfs(folder)?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}
