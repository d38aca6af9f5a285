//! Calls that wait for ever, and calls that are made for ever.

use checkrein_guest::prelude::*;

#[cfg(target_arch = "wasm32")]
use checkrein_guest::__private::tool::checkrein::plugin as wit;
#[cfg(target_arch = "wasm32")]
use wasip2::{
    clocks::monotonic_clock,
    http::types::{Fields, OutgoingRequest},
    sockets::{
        instance_network::instance_network, network::IpAddressFamily,
        tcp_create_socket::create_tcp_socket, udp_create_socket::create_udp_socket,
    },
};

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::parks::{files, park};

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
            "wasi:io/poll" => drop(monotonic_clock::subscribe_duration(HOURS).ready()),
            "wasi:io/poll, waiting" => monotonic_clock::subscribe_duration(0).block(),
            "wasi:io/streams" => drop(wasip2::cli::stderr::get_stderr().check_write()),
            "wasi:cli/environment" => drop(wasip2::cli::environment::get_arguments()),
            "wasi:cli/stdin" => drop(wasip2::cli::stdin::get_stdin()),
            "wasi:cli/stdout" => drop(wasip2::cli::stdout::get_stdout()),
            "wasi:cli/stderr" => drop(wasip2::cli::stderr::get_stderr()),
            "wasi:cli/terminal-stdin" => drop(wasip2::cli::terminal_stdin::get_terminal_stdin()),
            "wasi:cli/terminal-stdout" => drop(wasip2::cli::terminal_stdout::get_terminal_stdout()),
            "wasi:cli/terminal-stderr" => drop(wasip2::cli::terminal_stderr::get_terminal_stderr()),
            "wasi:clocks/monotonic-clock" => drop(monotonic_clock::now()),
            "wasi:clocks/wall-clock" => drop(wasip2::clocks::wall_clock::now()),
            "wasi:random/random" => drop(wasip2::random::random::get_random_u64()),
            "wasi:random/insecure" => drop(wasip2::random::insecure::get_insecure_random_u64()),
            "wasi:random/insecure-seed" => drop(wasip2::random::insecure_seed::insecure_seed()),
            "wasi:filesystem/preopens" => drop(wasip2::filesystem::preopens::get_directories()),
            "wasi:filesystem/types" => drop(std::fs::metadata("/work").is_ok()),
            "wasi:sockets/instance-network" => drop(instance_network()),
            "wasi:sockets/ip-name-lookup" => drop(
                wasip2::sockets::ip_name_lookup::resolve_addresses(&instance_network(), "a.test"),
            ),
            "wasi:sockets/tcp-create-socket" => drop(create_tcp_socket(IpAddressFamily::Ipv4)),
            "wasi:sockets/tcp" => {
                let _ =
                    create_tcp_socket(IpAddressFamily::Ipv4).map(|socket| socket.is_listening());
            }
            "wasi:sockets/udp-create-socket" => drop(create_udp_socket(IpAddressFamily::Ipv4)),
            "wasi:sockets/udp" => {
                let _ =
                    create_udp_socket(IpAddressFamily::Ipv4).map(|socket| socket.address_family());
            }
            "wasi:http/types" => drop(Fields::new()),
            "wasi:http/outgoing-handler" => {
                drop(wasip2::http::outgoing_handler::handle(
                    OutgoingRequest::new(Fields::new()),
                    None,
                ));
            }
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

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn park(_arguments: &crate::Arguments, _cx: &ToolContext) -> Result<Output, Failure> {
    Err(Failure::failed("only in a sandbox"))
}

#[cfg(not(target_arch = "wasm32"))]
pub(crate) fn files(_function: &str, _cx: &ToolContext) -> Result<Output, Failure> {
    Err(Failure::failed("only in a sandbox"))
}
