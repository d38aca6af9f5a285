//! A tree to survey: many small files, and everything that a survey may stumble over.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::fifo;
use crate::start::Result;

/// Files of one folder.
pub(super) const IN_A_FOLDER: usize = 100;

/// Writes that many folders of small files.
pub(super) fn many(root: &Path, folders: usize) -> Result {
    for folder in 0..folders {
        let path = root.join(format!("crates/c{folder:03}/src"));
        fs::create_dir_all(&path)?;
        for file in 0..IN_A_FOLDER {
            let text = format!(
                "//! Number {file} of {folder}.\n\npub fn number() -> usize {{\n    {folder}_{file:03}\n}}\n"
            );
            fs::write(path.join(format!("m{file:03}.rs")), text)?;
        }
    }
    Ok(())
}

/// What is odd, and what is to be found in it.
pub(super) struct Oddities {
    /// Regular files with names that can be told.
    pub(super) files: usize,
    /// Must stand in no report.
    pub(super) secrets: [String; 2],
}

/// Writes what is odd. Words that a survey looks for are put together here, so that none takes this file for one.
pub(super) fn odd(root: &Path, outside: &Path) -> Result<Oddities> {
    let mut files = 0;
    let mut put = |name: &str, bytes: &[u8]| -> Result {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        files += 1;
        Ok(fs::write(path, bytes)?)
    };
    let todo = concat!("TO", "DO");
    let aws = ["AKIA", "Q7RK2ZTXW5LMB4VN"].concat();
    let key = "MIIEowIBAAKCAQEAq7Rk2ZtXw9LmB4vNc8YdF3hJs6GpT5aEq7Rk2ZtXw9LmB4vN";
    put("deploy/settings.env", format!("REGION=eu\nAWS_ID={aws}\n").as_bytes())?;
    let (begin, end) = ("-----BEGIN", "-----END");
    put(
        "deploy/key.pem",
        format!("{begin} RSA PRIVATE KEY-----\n{key}\n{end} RSA PRIVATE KEY-----\n").as_bytes(),
    )?;
    put(
        "marks/a.rs",
        format!("fn a() {{}}\n// {todo}: write more\n// {}: it breaks\n", concat!("FIX", "ME"))
            .as_bytes(),
    )?;
    put("marks/b.py", format!("x = '{todo}'\n# {todo} later\n").as_bytes())?;
    put("same/one.txt", "the same words in two files, long enough to count\n".as_bytes())?;
    put("same/two.txt", "the same words in two files, long enough to count\n".as_bytes())?;
    put("same/not.txt", "not the same words but as many of them, as it is\n\n".as_bytes())?;
    let mit = concat!(env!("CARGO_MANIFEST_DIR"), "/../LICENSE-MIT");
    put("LICENSE", &fs::read(mit)?)?;
    put("Cargo.toml", b"[package]\nname = \"odd\"\nlicense = \"Zlib\"\n")?;
    put("spdx.c", b"// SPDX-License-Identifier: BSD-2-Clause\nint main(void) { return 0; }\n")?;
    put("empty.rs", b"")?;
    put("binary.dat", &[0, 159, 146, 150, 0, 255, 1, 2].repeat(100))?;
    put("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")?;
    let wide: Vec<u8> = format!("\u{feff}// {todo}: in another encoding\n")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    put("utf16.rs", &wide)?;
    put("latin1.txt", b"Gr\xfc\xdfe aus K\xf6ln\n")?;
    put("no-end.txt", b"no end of line")?;
    put("long-line.js", "x".repeat(300_000).as_bytes())?;
    put("name with `marks` | and\nlines.txt", b"odd name\n")?;
    put("web/node_modules/other/index.js", b"others wrote this\n")?;
    // Vendored files are counted apart, not among the files.
    files -= 1;
    fs::write(root.join(".gitignore"), "ignored/\n")?;
    files += 1;
    fs::create_dir(root.join("ignored"))?;
    fs::write(root.join("ignored/a.rs"), "// not looked at\n")?;
    fs::write(root.join(OsStr::from_bytes(b"no-text-\xff-name.txt")), "cannot be named\n")?;
    symlink(outside, root.join("out"))?;
    symlink(root, root.join("round"))?;
    symlink("/dev/zero", root.join("zero"))?;
    symlink("nowhere", root.join("broken"))?;
    fifo(&root.join("pipe"))?;
    Ok(Oddities { files, secrets: [aws, key.to_owned()] })
}
