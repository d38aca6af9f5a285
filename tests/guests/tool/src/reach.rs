//! Reaching for files and hosts.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;

use checkrein_guest::prelude::*;

pub(crate) fn read(path: &str) -> Result<Output, Failure> {
    Ok(fs::read_to_string(path)?.into())
}

pub(crate) fn list(path: &str) -> Result<Output, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join("\n").into())
}

pub(crate) fn write(path: &str, text: &str) -> Result<Output, Failure> {
    fs::write(path, text)?;
    Ok("written".into())
}

/// Makes a symbolic link at `path` that leads to `target`.
pub(crate) fn link(path: &str, target: &str) -> Result<Output, Failure> {
    let base = PathBuf::from(path);
    #[cfg(target_arch = "wasm32")]
    {
        let (directory, _) = wasip2::filesystem::preopens::get_directories()
            .into_iter()
            .find(|(_, name)| base.starts_with(name))
            .ok_or_else(|| Failure::denied("no such directory"))?;
        let name = base.file_name().unwrap_or_default().to_string_lossy().into_owned();
        directory.symlink_at(target, &name).map_err(|code| Failure::denied(format!("{code:?}")))?;
    }
    let _ = (base, target);
    Ok("linked".into())
}

/// Opens a file again and again and keeps it open: gives how often that went well, and why it then did not.
pub(crate) fn open_all(path: &str, count: usize) -> Result<Output, Failure> {
    let mut kept = Vec::new();
    for _ in 0..count {
        match fs::File::open(path) {
            Ok(file) => kept.push(file),
            Err(error) => return Ok(format!("{} | {error}", kept.len()).into()),
        }
    }
    Ok(format!("{} | all", kept.len()).into())
}

/// The same, of a tool that cannot do without all of them.
pub(crate) fn open_or_fail(path: &str, count: usize) -> Result<Output, Failure> {
    let open = |_| fs::File::open(path).context(format!("cannot open {path}"));
    let kept: Vec<fs::File> = (0..count).map(open).collect::<Result<_, _>>()?;
    Ok(kept.len().to_string().into())
}

/// Reads a file that may have no end.
pub(crate) fn read_on(path: &str, cx: &ToolContext) -> Result<Output, Failure> {
    let mut file = fs::File::open(path)?;
    let (mut read, mut buffer) = (0_u64, vec![0; 64 << 10]);
    cx.info("reading");
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(read.to_string().into()),
            bytes => read += bytes as u64,
        }
    }
}

/// The addresses of a host name, as the host gives them.
pub(crate) fn resolve(host: &str) -> Result<Output, Failure> {
    let found: Vec<String> =
        (host, 443_u16).to_socket_addrs()?.map(|to| to.ip().to_string()).collect();
    Ok(found.join("\n").into())
}

/// Connects and reads until the other side ends.
pub(crate) fn connect(host: &str, port: u16, cx: &ToolContext) -> Result<Output, Failure> {
    let mut stream = TcpStream::connect((host, port))?;
    stream.write_all(b"hello\n")?;
    cx.info("connected");
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text.into())
}

/// A GET over `wasi:http` that follows redirects, as a guest of bad faith would: anywhere.
#[cfg(target_arch = "wasm32")]
pub(crate) fn fetch(
    host: &str,
    port: u16,
    path: &str,
    cx: &ToolContext,
) -> Result<Output, Failure> {
    use wasip2::http::outgoing_handler::handle;
    use wasip2::http::types::{Fields, OutgoingRequest, Scheme};
    use wasip2::io::streams::StreamError;

    let (mut authority, mut path) = (format!("{host}:{port}"), path.to_owned());
    for _ in 0..5 {
        let request = OutgoingRequest::new(Fields::new());
        let refused = |()| Failure::invalid("the request cannot be built");
        request.set_scheme(Some(&Scheme::Http)).map_err(refused)?;
        request.set_authority(Some(&authority)).map_err(refused)?;
        request.set_path_with_query(Some(&path)).map_err(refused)?;
        let failed = |code| Failure::failed(format!("{code:?}"));
        let future = handle(request, None).map_err(failed)?;
        cx.info("asked");
        future.subscribe().block();
        let response = match future.get() {
            Some(Ok(response)) => response.map_err(failed)?,
            _ => return Err(Failure::failed("no answer")),
        };
        if let Some(to) = response.headers().get("location").first() {
            let to = String::from_utf8_lossy(to).into_owned();
            let rest = to.strip_prefix("http://").unwrap_or(&to).to_owned();
            let (next, tail) = rest.split_once('/').unwrap_or((&rest, ""));
            (authority, path) = (next.to_owned(), format!("/{tail}"));
            continue;
        }
        let body = response.consume().map_err(refused)?;
        let stream = body.stream().map_err(refused)?;
        let mut text = Vec::new();
        loop {
            match stream.blocking_read(64 << 10) {
                Ok(bytes) if text.is_empty() => {
                    text = bytes;
                    cx.info("answered");
                }
                // The rest is read, and not kept.
                Ok(_) => {}
                Err(StreamError::Closed) => break,
                Err(StreamError::LastOperationFailed(error)) => {
                    return Err(Failure::failed(error.to_debug_string()));
                }
            }
        }
        return Ok(String::from_utf8_lossy(&text).into_owned().into());
    }
    Err(Failure::failed("too many redirects"))
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn fetch(
    _host: &str,
    _port: u16,
    _path: &str,
    _cx: &ToolContext,
) -> Result<Output, Failure> {
    Err(Failure::failed("only in a sandbox"))
}
