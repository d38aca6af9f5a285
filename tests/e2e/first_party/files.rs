//! The tools `files` and `text` through the sandbox: what they cannot reach, and what must not hold them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use checkrein::sandbox::Access;
use checkrein_testkit::{TestHost, within};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{fifo, folder, open};
use crate::start::{Result, agent, host};

/// A host with an agent that makes the calls that its goal names.
fn desk() -> Result<(TestHost, PathBuf)> {
    let host = host().plugin(agent()).with_first_party().build()?;
    let work = folder(&host, "work")?;
    Ok((host, work))
}

/// What an agent hears of one call.
async fn call(host: &TestHost, access: Access, tool: &str, arguments: &Value) -> Result<String> {
    let goal = format!("call {tool} {arguments}");
    let session = open(host, "agent", &folder(host, "work")?, access).await?;
    let heard = within(&goal, session.prompt(&*goal, "")?.ended()).await?.output;
    host.settles().await?;
    Ok(heard)
}

/// The answer of a call that works.
async fn works(host: &TestHost, access: Access, tool: &str, arguments: &Value) -> Result<Value> {
    let heard = call(host, access, tool, arguments).await?;
    let Some(answer) = heard.strip_prefix("ok: ") else {
        anyhow::bail!("{tool} {arguments}: {heard}")
    };
    Ok(serde_json::from_str(answer)?)
}

/// Everything below a folder, with what is in it.
fn contents(folder: &std::path::Path) -> Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let bytes = if path.is_file() { fs::read(&path)? } else { Vec::new() };
        all.push((path, bytes));
    }
    all.sort();
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn writing_needs_a_grant_to_write_and_a_refusal_changes_nothing() -> Result {
    let (host, work) = desk()?;
    fs::write(work.join("old.txt"), "old\n")?;
    let before = contents(&work)?;
    for arguments in [
        json!({"path": "/work/new.txt", "content": "new"}),
        json!({"path": "/work/a/b/new.txt", "content": "new"}),
        json!({"path": "/work/old.txt", "content": "new", "mode": "overwrite"}),
        json!({"path": "/work/old.txt", "content": "new", "mode": "overwrite", "in_place": true}),
        json!({"path": "/work/old.txt", "content": "new", "mode": "append"}),
        json!({"path": "/work/old.txt", "mode": "replace", "edits": [{"old": "old", "new": "new"}]}),
    ] {
        let heard = call(&host, Access::Read, "files_write", &arguments).await?;
        assert!(heard.starts_with("denied: "), "{arguments}: {heard}");
        assert_eq!(contents(&work)?, before, "{arguments}");
    }
    // With the grant all of them work.
    let write = |arguments: Value| {
        let host = &host;
        async move { works(host, Access::ReadWrite, "files_write", &arguments).await }
    };
    write(json!({"path": "/work/a/b/new.txt", "content": "new"})).await?;
    write(json!({"path": "/work/old.txt", "mode": "replace", "edits": [{"old": "old", "new": "other"}]})).await?;
    write(json!({"path": "/work/old.txt", "content": "more\n", "mode": "append"})).await?;
    assert_eq!(fs::read_to_string(work.join("a/b/new.txt"))?, "new");
    assert_eq!(fs::read_to_string(work.join("old.txt"))?, "other\nmore\n");
    // Nothing else is left of it.
    let names: Vec<PathBuf> = contents(&work)?.into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [work.join("a"), work.join("old.txt")]);
    // What is there is not made anew.
    let heard = call(
        &host,
        Access::ReadWrite,
        "files_write",
        &json!({"path": "/work/old.txt", "content": "x"}),
    )
    .await?;
    assert!(heard.starts_with("invalid: ") && heard.contains("exists already"), "{heard}");
    Ok(())
}

/// The calls that look at one file, each in its way.
fn looks(path: &str) -> [(&'static str, Value); 6] {
    [
        ("files_read", json!({"files": [{"path": path}]})),
        ("files_search", json!({"pattern": ".", "path": path})),
        ("files_search", json!({"pattern": ".", "paths": [path]})),
        ("text_hash", json!({"paths": [path], "algorithms": ["sha256"]})),
        ("text_stats", json!({"paths": [path]})),
        ("text_diff", json!({"old_path": path, "new_text": ""})),
    ]
}

/// Whether an answer tells of what is in a file.
fn tells(heard: &str) -> bool {
    ["private words", "root:", "\"sha256\":\"", "\"lines\":"]
        .iter()
        .any(|words| heard.contains(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_and_no_link_leads_out_of_the_grant() -> Result {
    let (host, work) = desk()?;
    let outside = folder(&host, "outside")?;
    fs::write(outside.join("private"), "private words\n")?;
    symlink(&outside, work.join("out"))?;
    symlink("../outside", work.join("out-by-steps"))?;
    symlink(outside.join("private"), work.join("private"))?;
    symlink("/etc/passwd", work.join("passwd"))?;
    symlink("round-b", work.join("round-a"))?;
    symlink("round-a", work.join("round-b"))?;
    let before = contents(&outside)?;
    let paths = [
        "/work/../outside/private",
        "/work/out/private",
        "/work/out-by-steps/private",
        "/work/out/../outside/private",
        "/work/private",
        "/work/passwd",
        "/work/round-a",
        "/etc/passwd",
        "../outside/private",
        "/proc/self/environ",
    ];
    // So do these tools tell of a file that they can reach.
    fs::write(work.join("inside"), "private words\n")?;
    for (tool, arguments) in looks("/work/inside") {
        let heard = call(&host, Access::ReadWrite, tool, &arguments).await?;
        assert!(tells(&heard), "{tool}: {heard}");
    }
    fs::remove_file(work.join("inside"))?;
    for path in paths {
        for (tool, arguments) in looks(path) {
            let heard = call(&host, Access::ReadWrite, tool, &arguments).await?;
            assert!(!tells(&heard), "{tool} {path}: {heard}");
        }
        for mode in ["create", "overwrite", "append"] {
            let arguments =
                json!({"path": path, "content": "changed", "mode": mode, "parents": false});
            let heard = call(&host, Access::ReadWrite, "files_write", &arguments).await?;
            assert!(!heard.starts_with("ok: "), "{mode} {path}: {heard}");
        }
    }
    assert_eq!(contents(&outside)?, before);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn fifos_and_devices_hold_no_tool() -> Result {
    let (host, work) = desk()?;
    fifo(&work.join("pipe"))?;
    symlink("/dev/zero", work.join("zero"))?;
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket"))?;
    fs::write(work.join("file"), "honest words\n")?;
    let all = ["/work/pipe", "/work/zero", "/work/socket", "/work/file"];
    let read = works(
        &host,
        Access::Read,
        "files_read",
        &json!({"files": all.map(|path| json!({"path": path}))}),
    )
    .await?;
    for place in 0..3 {
        assert!(read["files"][place]["error"].is_string(), "{read}");
    }
    assert_eq!(read["files"][3]["text"], "honest words\n");
    for tool in ["text_hash", "text_stats"] {
        let answer = works(&host, Access::Read, tool, &json!({"paths": all})).await?;
        for place in 0..3 {
            assert!(answer["results"][place]["error"].is_string(), "{tool}: {answer}");
        }
        assert!(answer["results"][3]["error"].is_null(), "{tool}: {answer}");
    }
    // A search of the folder leaves them alone; of the paths it says why.
    let found =
        works(&host, Access::Read, "files_search", &json!({"pattern": "words", "path": "/work"}))
            .await?;
    assert_eq!(found["files"].as_array().map(Vec::len), Some(1), "{found}");
    let found =
        works(&host, Access::Read, "files_search", &json!({"pattern": "words", "paths": all}))
            .await?;
    assert_eq!(found["errors"].as_array().map(Vec::len), Some(3), "{found}");
    for path in &all[..3] {
        for mode in ["create", "overwrite", "append"] {
            let arguments = json!({"path": path, "content": "x", "mode": mode});
            let heard = call(&host, Access::ReadWrite, "files_write", &arguments).await?;
            assert!(
                heard.starts_with("invalid: ") || heard.starts_with("denied: "),
                "{path} {mode}: {heard}"
            );
        }
    }
    assert!(fs::symlink_metadata(work.join("zero"))?.is_symlink());
    Ok(())
}

/// What is read of a file is what it had when it was opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_while_it_is_read_has_an_end() -> Result {
    let (host, work) = desk()?;
    let path = work.join("growing.log");
    let line = "one more line of a log that never ends\n";
    fs::write(&path, line.repeat(50_000))?;
    let begun = fs::metadata(&path)?.len();
    // Compiled before it grows: who has to wait for that finds more than one call reads.
    works(&host, Access::Read, "files_list", &json!({})).await?;
    let mut growing = JoinSet::new();
    let mut file: File = OpenOptions::new().append(true).open(&path)?;
    growing.spawn(async move {
        for _ in 0..(256 << 20) / line.len() {
            if file.write_all(line.as_bytes()).is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    });
    for (tool, arguments) in [
        ("text_hash", json!({"paths": ["/work/growing.log"]})),
        ("text_stats", json!({"paths": ["/work/growing.log"]})),
        ("files_read", json!({"files": [{"path": "/work/growing.log", "from_line": -2}]})),
        ("files_search", json!({"pattern": "never matches", "path": "/work"})),
    ] {
        let answer = works(&host, Access::Read, tool, &arguments).await?;
        if tool == "text_hash" {
            let bytes = answer["results"][0]["bytes"].as_u64().unwrap_or_default();
            assert!((begun..=fs::metadata(&path)?.len()).contains(&bytes), "{answer}");
        }
        assert!(!answer.to_string().contains("\"error\":"), "{tool}: {answer}");
    }
    growing.shutdown().await;
    assert!(fs::metadata(&path)?.len() > begun, "it did not grow");
    Ok(())
}

/// Sparse files cost nothing to make: what is read of one must be bounded.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_is_read_in_parts_and_never_whole() -> Result {
    let (host, work) = desk()?;
    let mut file = File::create(work.join("large"))?;
    file.write_all(b"the beginning\n")?;
    file.set_len(1 << 36)?;
    let read = works(
        &host,
        Access::Read,
        "files_read",
        &json!({"files": [{"path": "/work/large", "bytes": 14}]}),
    )
    .await?;
    assert!(read["files"][0]["size"] == json!(1_u64 << 36), "{read}");
    let arguments = json!({"files": [{"path": "/work/large", "from_byte": (1_u64 << 36) - 4, "bytes": 100}], "base64": true});
    let read = works(&host, Access::Read, "files_read", &arguments).await?;
    assert_eq!(read["files"][0]["base64"], "AAAAAA==", "{read}");
    let hash = works(
        &host,
        Access::Read,
        "text_hash",
        &json!({"paths": ["/work/large"], "max_bytes": 14}),
    )
    .await?;
    assert_eq!(
        (&hash["results"][0]["bytes"], &hash["results"][0]["partial"]),
        (&json!(14), &json!(true)),
        "{hash}"
    );
    Ok(())
}
