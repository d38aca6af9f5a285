//! Links every interface, one by one, so that the gate hears the name of each that a guest enters.
//!
//! What is charged as bytes across the door, in both directions and by the interface itself:
//!
//! - streams and files: every byte that is read, written, skipped, spliced or zeroed; for a listed entry its name and a bit more;
//! - `wasi:filesystem`: every path, the target of a link, the names of the granted directories;
//! - `wasi:cli`: the environment. Output is charged as written to a stream, and as log text when a line is handed over;
//! - `wasi:random`: every byte that comes in a list;
//! - `wasi:sockets`: looked-up names;
//! - `wasi:http`: names and values of fields, method, path and authority as they are set, the heads of requests and answers.
//!
//! Not charged: handles, numbers, times, addresses, error texts, the scheme of a request (64 bytes at most), and what a guest reads
//! back of its own request. None of them is longer than what was charged before or than some hundred bytes. What one call may bring
//! at all is bounded by the store (`call_bytes`).

use wasmtime::StoreContextMut;
use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::clocks::WasiClocks;
use wasmtime_wasi::p2::bindings::{self, cli, clocks, filesystem, random, sockets};
use wasmtime_wasi::sockets::WasiSockets;
use wasmtime_wasi_http::WasiHttp;
use wasmtime_wasi_http::p2::bindings as http_bindings;
use wasmtime_wasi_http::p2::bindings::http::types as http_types;
use wasmtime_wasi_io::bindings::wasi::io;

use super::http;
use super::state::WasiState;

/// Store data that holds a [`WasiState`].
pub(crate) trait HasWasi: Send {
    /// The state of this store.
    fn wasi(&mut self) -> &mut WasiState;
}

/// Projects store data to the whole state.
struct Whole;

impl HasData for Whole {
    type Data<'a> = &'a mut WasiState;
}

/// Projects store data to the resource table.
struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

impl WasiState {
    pub(super) fn enter(&mut self, interface: &'static str) -> &mut WasiState {
        self.gate.enter(interface);
        self
    }
}

/// The interfaces, as a gate hears of them.
pub(crate) const INTERFACES: [&str; 29] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// Links all of WASI 0.2 that a guest may import.
///
/// # Errors
/// The linker knows one of the interfaces already.
pub(crate) fn add_to_linker<T: HasWasi + 'static>(l: &mut Linker<T>) -> wasmtime::Result<()> {
    io::error::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:io/error"))?;
    io::poll::add_to_linker::<T, Table>(l, |t| &mut t.wasi().enter("wasi:io/poll").table)?;
    io::streams::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:io/streams"))?;

    cli::environment::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:cli/environment"))?;
    cli::exit::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:cli/exit"))?;
    cli::stdin::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:cli/stdin"))?;
    cli::stdout::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:cli/stdout"))?;
    cli::stderr::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:cli/stderr"))?;
    cli::terminal_input::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:cli/terminal-input")
    })?;
    cli::terminal_output::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:cli/terminal-output")
    })?;
    cli::terminal_stdin::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:cli/terminal-stdin")
    })?;
    cli::terminal_stdout::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:cli/terminal-stdout")
    })?;
    cli::terminal_stderr::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:cli/terminal-stderr")
    })?;

    clocks::wall_clock::add_to_linker::<T, WasiClocks>(l, |t| {
        t.wasi().enter("wasi:clocks/wall-clock").clocks()
    })?;
    clocks::monotonic_clock::add_to_linker::<T, WasiClocks>(l, |t| {
        t.wasi().enter("wasi:clocks/monotonic-clock").clocks()
    })?;

    random::random::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:random/random"))?;
    random::insecure::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:random/insecure"))?;
    random::insecure_seed::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:random/insecure-seed")
    })?;

    filesystem::types::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:filesystem/types"))?;
    filesystem::preopens::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:filesystem/preopens")
    })?;

    let options = bindings::LinkOptions::default();
    sockets::network::add_to_linker::<T, Whole>(l, &(&options).into(), |t| {
        t.wasi().enter("wasi:sockets/network")
    })?;
    sockets::instance_network::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:sockets/instance-network")
    })?;
    sockets::ip_name_lookup::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:sockets/ip-name-lookup")
    })?;
    sockets::tcp_create_socket::add_to_linker::<T, Whole>(l, |t| {
        t.wasi().enter("wasi:sockets/tcp-create-socket")
    })?;
    sockets::tcp::add_to_linker::<T, Whole>(l, |t| t.wasi().enter("wasi:sockets/tcp"))?;
    sockets::udp_create_socket::add_to_linker::<T, WasiSockets>(l, |t| {
        t.wasi().enter("wasi:sockets/udp-create-socket").no_sockets()
    })?;
    sockets::udp::add_to_linker::<T, WasiSockets>(l, |t| {
        t.wasi().enter("wasi:sockets/udp").no_sockets()
    })?;

    let options = http_bindings::LinkOptions::default();
    http_types::add_to_linker::<T, WasiHttp>(l, &(&options).into(), |t| {
        t.wasi().enter("wasi:http/types").http()
    })?;
    l.allow_shadowing(true);
    http::bound(&mut l.instance("wasi:http/types@0.2.12")?)?;
    l.allow_shadowing(false);
    // The generated function wants all of `wasi:http/types` from whoever handles a request, so this one is linked by hand.
    let handle = |mut store: StoreContextMut<'_, T>,
                  (request, options): (Resource<_>, Option<Resource<_>>)| {
        let state = store.data_mut().wasi().enter("wasi:http/outgoing-handler");
        match state.handle(request, options) {
            Ok(answer) => Ok((Ok(answer),)),
            Err(error) => Ok((Err(error.downcast()?),)),
        }
    };
    l.instance("wasi:http/outgoing-handler@0.2.12")?.func_wrap("handle", handle)
}

#[cfg(test)]
mod tests {
    use super::INTERFACES;

    #[test]
    fn every_interface_that_is_entered_is_in_the_list() {
        let sources = [include_str!("link.rs"), include_str!("http/types.rs")].join("\n");
        let entered = sources.match_indices(".enter(\"wasi:").map(|(at, _)| {
            let name = &sources[at + ".enter(\"".len()..];
            &name[..name.find('"').unwrap()]
        });
        let mut seen = 0;
        for name in entered {
            assert!(INTERFACES.contains(&name), "{name}");
            seen += 1;
        }
        assert!(seen >= INTERFACES.len(), "{seen}");
    }
}
