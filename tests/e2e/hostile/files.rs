//! Hostile guests and files.

use checkrein_testkit::{TestHostBuilder, within};

use super::says;
use crate::start::{Result, agent, hard, host, interrupted, neighbour, tool};

/// A host whose tool is given the folder `work` of the home, with what a test puts there.
fn with_folder(access: &str, limits: &str) -> TestHostBuilder {
    let directory = format!("directories = [{{ mount = \"work\", access = \"{access}\" }}]");
    let given = format!(
        "[plugins.tool.grants]\ndirectories = [{{ mount = \"work\", path = \"work\", access = \"{access}\" }}]"
    );
    host()
        .plugin(agent())
        .plugin(neighbour())
        .plugin(tool().grants(&directory).limits(limits))
        .configuration(&given)
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_guest_that_opens_every_file_it_can() -> Result {
    let host = with_folder("read", "open-files = 8").build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::write(host.home().join("work/file"), "text")?;
    let before = checkrein_testkit::Footprint::now()?.files;
    let hears =
        says(&host, "call tool_open-all {\"path\":\"/work/file\",\"count\":1000000}").await?;
    assert!(hears.contains("Quota exceeded"), "{hears}");
    // Other tests of this process open files, too; but not thousands.
    assert!(checkrein_testkit::Footprint::now()?.files < before + 500);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn paths_that_lead_out_of_the_folder() -> Result {
    let host = with_folder("read-write", "").build()?;
    let work = host.home().join("work");
    std::fs::create_dir(&work)?;
    std::fs::write(host.home().join("secret"), "not for you")?;
    std::os::unix::fs::symlink("/etc", work.join("absolute"))?;
    std::os::unix::fs::symlink("../secret", work.join("relative"))?;
    std::os::unix::fs::symlink("loop", work.join("loop"))?;
    for path in [
        "/work/../secret",
        "/work/x/../../secret",
        "/work/relative",
        "/work/absolute/hostname",
        "/work/loop",
        "/secret",
        "/etc/hostname",
        "/proc/self/environ",
        "/dev/zero",
        "../secret",
        "/work/\\u0000secret",
    ] {
        let hears = says(&host, &format!("call tool_read {{\"path\":\"{path}\"}}")).await?;
        assert!(!hears.starts_with("ok"), "{path}: {hears}");
        assert!(!hears.contains("not for you"), "{path}: {hears}");
    }
    // A link of its own making leads nowhere either.
    says(&host, "call tool_link {\"path\":\"/work/own\",\"text\":\"../secret\"}").await?;
    let hears = says(&host, "call tool_read {\"path\":\"/work/own\"}").await?;
    assert!(!hears.starts_with("ok"), "{hears}");
    let hears =
        says(&host, "call tool_write {\"path\":\"/work/relative\",\"text\":\"mine now\"}").await?;
    assert!(!hears.starts_with("ok"), "{hears}");
    assert_eq!(std::fs::read_to_string(host.home().join("secret"))?, "not for you");
    // And what is its own, it can have.
    assert_eq!(
        says(&host, "call tool_write {\"path\":\"/work/a\",\"text\":\"b\"}").await?,
        "ok: written"
    );
    assert_eq!(says(&host, "call tool_read {\"path\":\"/work/a\"}").await?, "ok: b");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_folder_that_was_given_for_reading_stays_as_it_is() -> Result {
    let host = with_folder("read", "").build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::write(host.home().join("work/file"), "text")?;
    for call in [
        "write {\"path\":\"/work/file\",\"text\":\"other\"}",
        "write {\"path\":\"/work/new\",\"text\":\"other\"}",
        "link {\"path\":\"/work/link\",\"text\":\"file\"}",
    ] {
        let hears = says(&host, &format!("call tool_{call}")).await?;
        assert!(!hears.starts_with("ok"), "{call}: {hears}");
    }
    assert_eq!(says(&host, "call tool_list {\"path\":\"/work\"}").await?, "ok: file");
    assert_eq!(says(&host, "call tool_read {\"path\":\"/work/file\"}").await?, "ok: text");
    Ok(())
}

/// Opening a FIFO would hold a thread until somebody opens its other end.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn fifos_and_devices_hold_nobody() -> Result {
    let host = with_folder("read-write", "").build()?;
    let work = host.home().join("work");
    std::fs::create_dir(&work)?;
    let made = std::process::Command::new("mkfifo").arg(work.join("fifo")).status()?;
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(work.join("socket"))?;
    for name in ["fifo", "socket"] {
        for call in ["read", "write", "read-on", "open-all"] {
            let goal = format!(
                "call tool_{call} {{\"path\":\"/work/{name}\",\"text\":\"x\",\"count\":1}}"
            );
            let hears = says(&host, &goal).await?;
            assert!(
                !hears.starts_with("ok: ") || hears.starts_with("ok: 0 | "),
                "{name} {call}: {hears}"
            );
        }
    }
    Ok(())
}

/// An operator who grants the folder of all devices has granted none of them.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn devices_are_no_files() -> Result {
    let directory = "directories = [{ mount = \"dev\", access = \"read-write\" }]";
    let given = "[plugins.tool.grants]\n\
        directories = [{ mount = \"dev\", path = \"/dev\", access = \"read-write\" }]";
    let host = host()
        .plugin(agent())
        .plugin(neighbour())
        .plugin(tool().grants(directory))
        .configuration(given)
        .build()?;
    for device in ["zero", "null", "full", "random", "tty", "ptmx"] {
        for call in ["read", "write", "read-on", "open-all"] {
            let goal = format!(
                "call tool_{call} {{\"path\":\"/dev/{device}\",\"text\":\"x\",\"count\":1}}"
            );
            let hears = says(&host, &goal).await?;
            assert!(
                !hears.starts_with("ok: ") || hears.starts_with("ok: 0 | "),
                "{device} {call}: {hears}"
            );
        }
    }
    Ok(())
}

/// Rule W3 and the limit on bytes: reading has an end even where the file has none.
#[tokio::test(flavor = "multi_thread")]
pub(crate) async fn a_file_without_an_end() -> Result {
    let host = with_folder("read", "door-bytes = \"32MiB\"").build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::File::create(host.home().join("work/endless"))?.set_len(1 << 40)?;
    let hears = says(&host, "call tool_read-on {\"path\":\"/work/endless\"}").await?;
    assert_eq!(hears, "limit: the tool used up its limit `door-bytes`: ask for less at once");
    // Nobody has to wait for that limit.
    let host = with_folder("read", "").build()?;
    std::fs::create_dir(host.home().join("work"))?;
    std::fs::File::create(host.home().join("work/endless"))?.set_len(1 << 40)?;
    let session = host.session("agent").await?;
    let turn = session.prompt("call tool_read-on {\"path\":\"/work/endless\"}", "")?;
    host.logged("reading").await?;
    session.stop_turn(None, &hard("enough"))?;
    assert_eq!(within("the end", turn.ended()).await?.outcome, interrupted(hard("enough")));
    host.settles().await
}
