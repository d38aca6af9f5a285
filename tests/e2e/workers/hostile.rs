//! Nothing that a worker says is trusted: these are programs that speak as no worker does.

use checkrein::sandbox::{LimitKind, Outcome};
use checkrein_testkit::within;

use super::{folder, says};
use crate::start::{Beside, Result, agent, hard, host, neighbour};

const STARTED: &str = "{\"type\":\"started\"}";
const TALLY: &str =
    "{\"fuel\":0,\"memory\":0,\"memory-peak\":0,\"door-bytes\":0,\"log-bytes\":0,\"calls\":0}";

fn ended(ending: &str, tally: &str) -> String {
    let ended =
        format!("{{\"type\":\"ended\",\"ending\":{ending},\"used\":{tally},\"reached\":[]}}");
    format!("{}; {}", says(STARTED), says(&ended))
}

fn call(number: u64, ask: &str) -> String {
    let call = format!(
        "{{\"type\":\"call\",\"call\":{number},\"ask\":{ask},\"used\":{TALLY},\"stopped\":false}}"
    );
    says(&call)
}

/// Runs an agent whose worker is that script, beside an honest neighbour that is in the process of the host.
async fn run(script: &str, limits: &str) -> Result<Outcome<()>> {
    let configuration =
        "[workers]\nstop-bound = \"300ms\"\n[plugins.agent]\nisolation = \"process\"";
    let host = host().plugin(agent().limits(limits)).plugin(neighbour());
    let host = host.configuration(configuration).workers("/bin/sh", &["-c", script]).build()?;
    let beside = Beside::start(&host).await?;
    let report = host.run("agent", "say never").await?;
    beside.finishes(&host).await?;
    host.is_idle()?;
    Ok(report.outcome)
}

/// Whatever it says, and however long it stays: the run ends, the process is gone, the host is as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_talks_nonsense_ends_its_own_run() -> Result {
    let started = says(STARTED);
    let checkpoint = "{\"checkpoint\":{\"name\":\"a\"}}";
    let many: String = (0..200).map(|n| call(n, checkpoint) + "; ").collect();
    let get = "{\"memory-get\":{\"key\":\"a\"}}";
    let deaf: String = (0..200).map(|n| call(n, get) + "; ").collect();
    let stays = "exec /bin/sleep 1000";
    for (what, script, expected) in [
        (
            "a frame over the bound",
            format!("{started}; printf '\\377\\377\\377\\377'; {stays}"),
            "4294967295 bytes",
        ),
        ("no JSON", format!("{started}; printf '\\003\\000\\000\\000abc'; {stays}"), "nonsense"),
        (
            "another language",
            format!("{started}; echo 'hello, I am a program'; {stays}"),
            "nonsense",
        ),
        (
            "a type that there is not",
            format!("{started}; {}; {stays}", says("{\"type\":\"hello\"}")),
            "nonsense",
        ),
        (
            "a call that there is not",
            format!("{started}; {}; {stays}", call(1, "{\"root\":{}}")),
            "nonsense",
        ),
        (
            "a call of a tool",
            format!("{started}; {}; {stays}", call(1, "{\"secret\":{\"name\":\"a\"}}")),
            "not its own",
        ),
        (
            "a name to look up",
            format!("{started}; {}; {stays}", call(1, "{\"look-up\":{\"host\":\"a\"}}")),
            "does itself",
        ),
        (
            "one number twice",
            format!("{started}; {}; {}; {stays}", call(1, checkpoint), call(1, checkpoint)),
            "one number",
        ),
        ("too many calls", format!("{started}; {many} {stays}"), "more calls at one time"),
        ("answers that it does not read", format!("{started}; {deaf} {stays}"), "it does not read"),
        (
            "an answer of another sort",
            format!("{}; {stays}", ended("{\"completed\":{\"tools\":[]}}", TALLY)),
            "another sort",
        ),
        (
            "a stop that nobody gave",
            format!("{}; {stays}", ended("{\"interrupted\":null}", TALLY)),
            "in its process alone",
        ),
        (
            "a frame that is cut short",
            format!("{started}; printf '\\011\\000\\000\\000ab'"),
            "nonsense",
        ),
        ("no word about the end", format!("{started}; exit 3"), "exit code 3"),
        (
            "words on the other stream",
            format!("{started}; echo 'out of luck' >&2; exit 3"),
            "exit code 3: out of luck",
        ),
        ("a closed output", format!("{started}; exec >&-; {stays}"), "did not end within 300 ms"),
        (
            "a flood on the other stream",
            format!("{started}; /usr/bin/yes >&2 & /bin/sleep 0.2; exit 4"),
            "exit code 4",
        ),
    ] {
        let outcome = run(&script, "").await?;
        let Outcome::Unknown(words) = &outcome else { panic!("{what}: {outcome:?}") };
        assert!(words.contains(expected), "{what}: {words}");
    }
    Ok(())
}

/// A worker that ends before it has begun has not started the run.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_never_begins_starts_nothing() -> Result {
    for script in ["exit 3", "echo 'hello, I am a program'; exec /bin/sleep 1000", "exec /nowhere"]
    {
        let outcome = run(script, "").await?;
        assert!(matches!(outcome, Outcome::NotStarted(_)), "{script}: {outcome:?}");
    }
    Ok(())
}

/// What a worker says that it gives or has used is held to the limits of the run.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_claims_is_held_to_the_limits() -> Result {
    let long = ended(&format!("{{\"completed\":{{\"text\":\"{}\"}}}}", "x".repeat(5_000)), TALLY);
    let outcome = run(&long, "output-bytes = \"4KiB\"").await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::OutputBytes));
    let burnt = TALLY.replace("\"fuel\":0", "\"fuel\":1001");
    let outcome = run(&ended("{\"completed\":{\"text\":\"\"}}", &burnt), "fuel = 1000").await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::Fuel));
    let line =
        "{\"type\":\"log\",\"level\":\"info\",\"message\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}";
    let lines: String = (0..100).map(|_| says(line) + "; ").collect();
    let outcome =
        run(&format!("{}; {lines} exec /bin/sleep 1000", says(STARTED)), "log-bytes = \"4KiB\"")
            .await?;
    assert_eq!(outcome, Outcome::Limit(LimitKind::LogBytes));
    Ok(())
}

/// Rule M4: one that has said how its run ended and stays is killed; the run ended as it said.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stays_after_its_end_is_killed() -> Result {
    let script = ended("{\"completed\":{\"text\":\"done\"}}", TALLY);
    let outcome = run(&format!("{script}; exec /bin/sleep 1000"), "").await?;
    assert_eq!(outcome, Outcome::Completed(()));
    Ok(())
}

/// Whatever it has started itself goes with it, also when it has ended before.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_has_started_is_killed_with_it() -> Result {
    for (end, expected) in [("wait", "unknown"), ("exec >&-; exit 3", "unknown")] {
        let folder = folder()?;
        let file = folder.path().join("child");
        let script = format!(
            "/bin/sleep 1000 >/dev/null 2>&1 & echo $! > {0}.new; /bin/mv {0}.new {0}; {1}; {end}",
            file.display(),
            says(STARTED)
        );
        let configuration = "isolation = \"process\"\n[workers]\nstop-bound = \"100ms\"";
        let host = host().plugin(agent()).configuration(configuration);
        let host = host.workers("/bin/sh", &["-c", &script]).build()?;
        let session = host.session("agent").await?;
        let turn = session.prompt("say never", "")?;
        if end == "wait" {
            host.doing("computing").await?;
            session.stop_turn(None, &hard("now"))?;
        }
        let report = within("the end", turn.ended()).await?;
        assert_eq!(report.outcome.status(), expected, "{report:?}");
        let child = std::fs::read_to_string(&file)?;
        // It is not ours to reap, so it may be a while until somebody does.
        let stat = format!("/proc/{}/stat", child.trim());
        let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        super::until("the child is gone", gone).await?;
        host.is_idle()?;
    }
    Ok(())
}
