//! What the kernel gives to this process: address space, mappings, files, memory, time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use checkrein::sandbox::{CompileLimits, EngineError, Engines, Limits, Pool};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::check::{Check, words};
use crate::cli::text;

/// Files that the host itself has open: streams, databases, listeners, runtimes, a compiling child.
const FILES_OF_THE_HOST: u64 = 256;

/// Files for each live run: what its guest has open, most of which have nothing open at one time.
const FILES_PER_RUN: u64 = 1;

/// Live runs that are reckoned with where there is no pool that bounds them.
const RUNS_WITHOUT_POOL: u64 = 256;

/// Nobody has run this before 2025, and the clock of a machine whose battery is dead begins long before.
const EARLIEST: Duration = Duration::from_secs(1_735_689_600);

/// After the year 2100.
const LATEST: Duration = Duration::from_secs(4_133_980_800);

/// Whether the kernel has what the host uses where it is there.
pub(super) fn kernel() -> Check {
    let name = "kernel";
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let system = format!("{} {release}", uname.sysname().to_string_lossy());
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened =
        rustix::fs::openat2(rustix::fs::CWD, ".", flags, Mode::empty(), ResolveFlags::BENEATH);
    let mut lacks = Vec::new();
    if matches!(opened, Err(Errno::NOSYS | Errno::PERM)) {
        lacks.push("openat2 (files below a granted directory are opened in more steps)");
    }
    if !Pool::scans_pages() {
        lacks.push("PAGEMAP_SCAN (giving memory back after a run takes longer)");
    }
    match lacks.is_empty() {
        true => Check::ok(name, format!("{system}, with openat2 and PAGEMAP_SCAN")),
        false => Check::warning(
            name,
            format!("{system}, without {}", lacks.join(" and ")),
            "all works without; Linux 6.7 and later have both, where no filter of a container forbids them",
        ),
    }
}

/// Whether the clock says what it can be, and goes.
pub(super) fn clock() -> Check {
    let name = "clock";
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let advice = "set the clock, and keep it right with an NTP client: certificates, expiry and schedules depend on it";
    let days = since.as_secs() / (24 * 3600);
    if since < EARLIEST {
        return Check::problem(
            name,
            format!("it stands {days} days after 1970, which is too early"),
            advice,
        );
    }
    if since > LATEST {
        return Check::problem(
            name,
            format!("it stands {days} days after 1970, which is too late"),
            advice,
        );
    }
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    let later = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if began.elapsed().is_zero() || later < since {
        return Check::problem(name, "it does not go forward", advice);
    }
    Check::ok(name, "it can be right, and goes forward")
}

/// Whether the pools that instances come from can be mapped.
pub(super) fn address_space(engines: &Result<Engines, EngineError>, pool: Pool) -> Check {
    let name = "address-space";
    let limit = getrlimit(Resource::As).current;
    let limited = limit
        .map_or_else(|| "no limit".to_owned(), |limit| format!("a limit of {}", text::size(limit)));
    let advice = match limit {
        Some(_) => "raise the limit (`ulimit -v unlimited`, or LimitAS=infinity of a systemd unit)",
        None => "allow this process more address space, or set a smaller `pool-size` in [sandbox]",
    };
    let engines = match engines {
        Ok(engines) => engines,
        Err(error) => {
            let saw = format!("{limited}, and no engine could be made: {}", words(error));
            return Check::problem(name, saw, advice);
        }
    };
    // The second engine has a pool of its own, which is mapped when the first run with a fuel budget comes.
    if let Err(error) = engines.fuel() {
        let saw = format!("{limited}, and no engine with fuel could be made: {}", words(&error));
        return Check::problem(name, saw, advice);
    }
    let Some(slots) = engines.slots() else {
        let saw = format!(
            "{limited}, and no pool: each instance maps memory of its own, which starts runs slower"
        );
        return match pool {
            Pool::OnDemand => Check::ok(name, saw),
            Pool::Auto | Pool::Slots(_) => Check::warning(name, saw, advice),
        };
    };
    let saw = format!("{limited}; pools for {} live runs were mapped", text::count(slots.into()));
    match pool {
        Pool::Slots(asked) if slots < asked => Check::warning(
            name,
            format!("{saw}, of {} that were asked for", text::count(asked.into())),
            advice,
        ),
        Pool::Auto | Pool::Slots(_) | Pool::OnDemand => Check::ok(name, saw),
    }
}

/// Whether the kernel allows as many mappings as a full pool has.
pub(super) fn mappings(slots: Option<u32>, pool: Pool) -> Check {
    let name = "mappings";
    let file = "/proc/sys/vm/max_map_count";
    let Some(allowed) = number_in(Path::new(file)) else {
        return Check::ok(name, format!("there is no {file} to look at"));
    };
    let wanted = match (slots, pool) {
        (Some(slots), _) | (None, Pool::Slots(slots)) => slots,
        (None, Pool::OnDemand) => {
            return Check::ok(name, format!("{}; there is no pool", text::count(allowed)));
        }
        (None, Pool::Auto) => Pool::USEFUL_SLOTS,
    };
    let needed = Pool::mappings(wanted);
    let saw = format!(
        "{} allowed, {} needed when {} runs live",
        text::count(allowed),
        text::count(needed),
        text::count(wanted.into())
    );
    let advice = format!(
        "set it with `sysctl -w vm.max_map_count={needed}`, or a smaller `pool-size` in [sandbox]"
    );
    match needed <= allowed {
        true => Check::ok(name, saw),
        false if matches!(pool, Pool::Slots(_)) => Check::problem(name, saw, advice),
        false => Check::warning(name, saw, advice),
    }
}

/// Whether as many files and sockets can be open as live runs and so many connections need.
pub(super) fn open_files(slots: Option<u32>, connections: u64) -> Check {
    let limit = getrlimit(Resource::Nofile);
    judge_files(limit.current.unwrap_or(u64::MAX), limit.maximum, slots, connections)
}

fn judge_files(soft: u64, hard: Option<u64>, slots: Option<u32>, connections: u64) -> Check {
    let name = "open-files";
    let runs = slots.map_or(RUNS_WITHOUT_POOL, u64::from);
    let fixed = FILES_OF_THE_HOST.saturating_add(connections);
    let wanted = fixed.saturating_add(runs * FILES_PER_RUN);
    let beside = match connections {
        0 => String::new(),
        connections => format!(" and {} connections", text::count(connections)),
    };
    if soft >= wanted {
        let limit = if soft == u64::MAX { "no limit".to_owned() } else { text::count(soft) };
        return Check::ok(
            "open-files",
            format!(
                "{limit}; {} are enough for {} live runs{beside}",
                text::count(wanted),
                text::count(runs)
            ),
        );
    }
    let mut advice =
        format!("raise it with `ulimit -n {wanted}`, or LimitNOFILE={wanted} of a systemd unit");
    if let Some(hard) = hard.filter(|hard| *hard < wanted) {
        advice.push_str(&format!(
            "; the hard limit is {}, which only root can raise",
            text::count(hard)
        ));
    }
    if soft < FILES_OF_THE_HOST {
        let saw = format!(
            "{}, fewer than the {FILES_OF_THE_HOST} that the host itself may need",
            text::count(soft)
        );
        return Check::problem(name, saw, advice);
    }
    let enough = soft.saturating_sub(fixed) / FILES_PER_RUN;
    let saw = format!(
        "{}, enough for about {} of {} live runs{beside}",
        text::count(soft),
        text::count(enough),
        text::count(runs)
    );
    Check::warning(name, saw, advice)
}

/// Whether what the configuration allows to runs and compilations can be had.
pub(super) fn memory(ceilings: &[Limits], compile: &CompileLimits) -> Check {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let free = read(Path::new("/proc/meminfo")).and_then(|text| available(&text));
    let limit = read(Path::new("/proc/self/cgroup")).and_then(|text| group_limit(&text, read));
    let largest = ceilings.iter().map(|ceiling| ceiling.memory).max().unwrap_or(0);
    let compilations = compile.memory.saturating_mul(compile.jobs as u64);
    judge_memory(free, limit, largest, compilations)
}

fn judge_memory(free: Option<u64>, limit: Option<u64>, largest: u64, compilations: u64) -> Check {
    let name = "memory";
    let Some(room) = free.into_iter().chain(limit).min() else {
        return Check::ok(name, "there is no /proc/meminfo to look at");
    };
    let of =
        |what: &str, bytes: Option<u64>| bytes.map(|bytes| format!("{what} {}", text::size(bytes)));
    let seen: Vec<String> = [of("available", free), of("limit of the control group", limit)]
        .into_iter()
        .flatten()
        .collect();
    let saw = format!(
        "{}; one run may use {}, compilations together {}",
        seen.join(", "),
        text::size(largest),
        text::size(compilations)
    );
    if room < largest {
        return Check::problem(
            name,
            saw,
            "lower `memory` in [limits], or give the machine or the container more",
        );
    }
    if room < largest.saturating_add(compilations) {
        return Check::warning(
            name,
            saw,
            "lower `memory` or `jobs` in [compile], or give the machine or the container more",
        );
    }
    let runs = (room - compilations) / largest.max(1);
    Check::ok(name, format!("{saw}; room for {} such runs", text::count(runs)))
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The lowest limit of the control groups that this process is in, of version 2 or 1; none where none has one.
fn group_limit(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            some if some.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let inside = PathBuf::from(format!("{root}{path}"));
        let above = inside.ancestors().take_while(|above| above.starts_with(root));
        above.filter_map(|above| read(&above.join(file))?.trim().parse::<u64>().ok()).min()
    });
    // Version 1 writes no limit as the largest number of whole pages.
    limits.min().filter(|limit| *limit < 1 << 60)
}

fn number_in(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn few_files_are_a_warning_and_very_few_a_problem() {
        let verdict = |soft, hard, slots| {
            let check = judge_files(soft, hard, slots, 0);
            (check.verdict, check.advice.unwrap_or_default())
        };
        assert_eq!(verdict(u64::MAX, None, Some(2048)).0, Verdict::Ok);
        assert_eq!(verdict(2304, None, Some(2048)).0, Verdict::Ok);
        let (few, advice) = verdict(1024, Some(2000), Some(2048));
        assert_eq!(few, Verdict::Warning);
        assert!(
            advice.contains("ulimit -n 2304") && advice.contains("hard limit is 2,000"),
            "{advice}"
        );
        assert_eq!(verdict(255, None, None).0, Verdict::Problem);
        // The socket and an address, as they are usually.
        let daemon = |soft| judge_files(soft, None, Some(2048), 2 * (512 + 64));
        assert_eq!((daemon(4096).verdict, daemon(2304).verdict), (Verdict::Ok, Verdict::Warning));
        assert_eq!(verdict(1024, None, None).0, Verdict::Ok);
    }

    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let files = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".to_owned()),
            "/sys/fs/cgroup/a/memory.max" => Some("1000\n".to_owned()),
            "/sys/fs/cgroup/memory.max" => Some("2000\n".to_owned()),
            "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => Some("3000\n".to_owned()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => {
                Some("9223372036854771712\n".to_owned())
            }
            _ => None,
        };
        assert_eq!(group_limit("0::/a/b\n", files), Some(1000));
        assert_eq!(group_limit("4:cpu:/x\n3:memory,other:/c\n", files), Some(3000));
        assert_eq!(group_limit("3:memory:/\n", files), None);
        assert_eq!(group_limit("0::/none\nodd\n", files), Some(2000));
    }

    #[test]
    fn memory_is_judged_by_the_lower_of_what_is_there_and_what_is_allowed() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        let verdict = |free, limit| judge_memory(free, limit, 64, 100).verdict;
        assert_eq!(verdict(Some(1000), None), Verdict::Ok);
        assert_eq!(verdict(Some(1000), Some(150)), Verdict::Warning);
        assert_eq!(verdict(Some(1000), Some(50)), Verdict::Problem);
        assert_eq!(verdict(Some(50), Some(1000)), Verdict::Problem);
        assert_eq!(verdict(None, None), Verdict::Ok);
    }
}
