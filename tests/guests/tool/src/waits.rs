//! Calls that wait for ever, and calls that are made for ever.

use checkrein_guest::prelude::*;

#[cfg(target_arch = "wasm32")]
use checkrein_guest::__private::tool::checkrein::plugin as wit;
#[cfg(target_arch = "wasm32")]
use wasip2::clocks::monotonic_clock;

const HOURS: u64 = 3_600_000_000_000 * 100;

/// Makes that many handles and keeps them all.
#[cfg(target_arch = "wasm32")]
pub(crate) fn handles(count: usize) -> Result<Output, Failure> {
    let kept: Vec<_> = (0..count).map(|_| monotonic_clock::subscribe_duration(HOURS)).collect();
    Ok(kept.len().to_string().into())
}

/// One import, over and over: says that it has begun, and never ends.
#[cfg(target_arch = "wasm32")]
pub(crate) fn over_and_over(import: &str, cx: &ToolContext) -> Result<Output, Failure> {
    for round in 0_u64.. {
        match import {
            "config.get" => drop(wit::config::get("key")),
            "config.keys" => drop(wit::config::keys()),
            "secrets.get" => drop(wit::secrets::get("key")),
            "log.write" => wit::log::write("debug", ""),
            "wasi:clocks/monotonic-clock.now" => drop(monotonic_clock::now()),
            "wasi:io/poll" => monotonic_clock::subscribe_duration(0).block(),
            "wasi:random/random" => drop(wasip2::random::random::get_random_u64()),
            "wasi:cli/stderr" => drop(wasip2::cli::stderr::get_stderr().check_write()),
            "wasi:filesystem/preopens" => drop(wasip2::filesystem::preopens::get_directories()),
            "wasi:filesystem/types" => drop(std::fs::metadata("/work").is_ok()),
            _ => panic!("there is no import `{import}`"),
        }
        if round == 100 {
            cx.info("looping");
        }
    }
    Ok("".into())
}

/// Waits for hours, in one of the ways that WASI has for it.
#[cfg(target_arch = "wasm32")]
pub(crate) fn sleep(how: &str, cx: &ToolContext) -> Result<Output, Failure> {
    cx.info("sleeping");
    match how {
        "std" => std::thread::sleep(Duration::from_nanos(HOURS)),
        "block" => monotonic_clock::subscribe_duration(HOURS).block(),
        "poll" => {
            let (one, other) = (
                monotonic_clock::subscribe_duration(HOURS),
                monotonic_clock::subscribe_duration(HOURS),
            );
            wasip2::io::poll::poll(&[&one, &other]);
        }
        _ => panic!("there is no way `{how}` to sleep"),
    }
    Ok("awake".into())
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn handles(_count: usize) -> Result<Output, Failure> {
    Err(Failure::failed("only in a sandbox"))
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn over_and_over(_import: &str, _cx: &ToolContext) -> Result<Output, Failure> {
    Err(Failure::failed("only in a sandbox"))
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn sleep(_how: &str, _cx: &ToolContext) -> Result<Output, Failure> {
    let _ = HOURS;
    Err(Failure::failed("only in a sandbox"))
}
