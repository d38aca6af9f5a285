//! Where the programs are that compile and that run single guests: looked up once, because their processes start below `/` and with no environment.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::error::{Error, ErrorKind};

/// What a program is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    /// It compiles components.
    Compile,
    /// It runs a guest.
    Run,
}

impl Purpose {
    fn does(self) -> &'static str {
        match self {
            Purpose::Compile => "compiles components",
            Purpose::Run => "runs guests in processes of their own",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Purpose::Compile => "Compilation::Child",
            Purpose::Run => "HostBuilder::workers",
        }
    }
}

/// The whole path of a program. One with a separator is relative to the current directory, a bare name is looked up
/// in the folders of `PATH`, as `environment` gives it.
pub(super) fn locate(
    purpose: Purpose,
    program: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf, Error> {
    let bare = program.parent().is_none_or(|parent| parent.as_os_str().is_empty());
    if !bare {
        return std::path::absolute(program).map_err(|error| {
            let attempt =
                format!("could not tell where {} is, which {}", program.display(), purpose.does());
            Error::because(ErrorKind::Machine, attempt, error)
        });
    }
    let refused = |why: &str| {
        let words = format!(
            "`{}`, which {}, was not found: {why}, or give its whole path as the program of `{}`",
            program.display(),
            purpose.does(),
            purpose.setting()
        );
        Error::new(ErrorKind::Configuration, words)
    };
    let Some(folders) = environment("PATH") else {
        return Err(refused(
            "a bare name is looked up in PATH, which this host is not shown; show it with \
             `.environment(|name| std::env::var(name).ok())`",
        ));
    };
    // An empty entry means the current directory, where anybody may have put a program of that name.
    std::env::split_paths(&folders)
        .filter(|folder| !folder.as_os_str().is_empty())
        .filter_map(|folder| std::path::absolute(folder.join(program)).ok())
        .find(|candidate| candidate.is_file() && access(candidate, Access::EXEC_OK).is_ok())
        .ok_or_else(|| refused("it is in no folder of PATH; install it in one"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn a_program_with_a_separator_is_relative_to_the_current_directory() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(
            locate(Purpose::Compile, Path::new("./tool"), &nothing).unwrap(),
            here.join("tool")
        );
        assert_eq!(
            locate(Purpose::Compile, Path::new("bin/tool"), &nothing).unwrap(),
            here.join("bin/tool")
        );
        assert_eq!(
            locate(Purpose::Compile, Path::new("/bin/tool"), &nothing).unwrap(),
            Path::new("/bin/tool")
        );
    }

    #[test]
    fn a_bare_name_is_the_first_program_of_that_name_in_the_path() {
        let home = tempfile::tempdir().unwrap();
        for (folder, mode) in [("text", 0o644), ("first", 0o755), ("second", 0o755)] {
            let file = home.path().join(folder).join("tool");
            std::fs::create_dir(home.path().join(folder)).unwrap();
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::create_dir_all(home.path().join("folder/tool")).unwrap();
        let folders = ["", "folder", "none", "text", "first", "second"];
        let folders = folders.map(|name| match name {
            "" => String::new(),
            name => home.path().join(name).display().to_string(),
        });
        let path = folders.join(":");
        let shown = |name: &str| (name == "PATH").then(|| path.clone());
        if rustix::process::geteuid().is_root() {
            // Even root may not execute what nobody may.
            assert!(access(home.path().join("text/tool"), Access::EXEC_OK).is_err());
        }
        assert_eq!(
            locate(Purpose::Compile, Path::new("tool"), &shown).unwrap(),
            home.path().join("first/tool")
        );
        let error = locate(Purpose::Compile, Path::new("other"), &shown).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("in no folder of PATH; install it"), "{error}");
    }

    #[test]
    fn a_bare_name_without_a_path_is_refused_with_what_to_do() {
        let error = locate(Purpose::Compile, Path::new("checkrein"), &nothing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        for words in ["`checkrein`", "PATH", ".environment(", "whole path"] {
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
