//! Waits that never end, in each import of WASI that can wait, and calls of files over and over.

use wasip2::clocks::monotonic_clock::subscribe_duration;
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Advice, Descriptor, DescriptorFlags, DirectoryEntryStream, NewTimestamp, OpenFlags, PathFlags,
};
use wasip2::http::outgoing_handler::handle;
use wasip2::http::types::{Fields, IncomingBody, Method, OutgoingBody, OutgoingRequest, Scheme};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::{InputStream, OutputStream};
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{IpAddressFamily, IpSocketAddress, Ipv4SocketAddress};
use wasip2::sockets::tcp::TcpSocket;
use wasip2::sockets::tcp_create_socket::create_tcp_socket;

use checkrein_guest::prelude::*;

use crate::Arguments;

/// How long a stream that gives or takes nothing is watched before that counts.
const WATCHED: u64 = 300_000_000;

/// Goes to a place and waits there: says so just before.
pub(crate) fn park(arguments: &Arguments, cx: &ToolContext) -> Result<Output, Failure> {
    let (place, way) = arguments.text.split_once(' ').unwrap_or((&arguments.text, ""));
    let here = Here { way, cx };
    match place {
        "tcp" => {
            let socket = connect(arguments.port);
            socket.subscribe().block();
            let (input, output) = socket.finish_connect().expect("it connects");
            if way == "drop" {
                fill(&output);
                cx.info("parked");
                drop(output);
            } else {
                here.waits_on(&input, &output);
            }
        }
        "clock" => here.waits_for(&subscribe_duration(u64::MAX)),
        "connect" => here.waits_for(&connect(arguments.port).subscribe()),
        "name" => {
            let found = resolve_addresses(&instance_network(), &arguments.host);
            here.waits_for(&found.expect("it is granted").subscribe());
        }
        "answer" => {
            let request = request(arguments.port);
            here.waits_for(&handle(request, None).expect("it is granted").subscribe());
        }
        "body" => {
            let answer = handle(request(arguments.port), None).expect("it is granted");
            answer.subscribe().block();
            let answer = answer.get().expect("it is there").expect("once").expect("an answer");
            let body = answer.consume().expect("once");
            if way == "trailers" {
                here.waits_for(&IncomingBody::finish(body).subscribe());
            } else {
                let input = body.stream().expect("once");
                here.waits_on(&input, &wasip2::cli::stdout::get_stdout());
            }
        }
        "upload" => {
            let request = request(arguments.port);
            request.set_method(&Method::Post).expect("a method");
            let body: OutgoingBody = request.body().expect("once");
            let output = body.write().expect("once");
            let _answer = handle(request, None).expect("it is granted");
            here.waits_on(&wasip2::cli::stdin::get_stdin(), &output);
        }
        _ => panic!("there is no place `{place}`"),
    }
    Ok("it did not wait".into())
}

struct Here<'a> {
    way: &'a str,
    cx: &'a ToolContext,
}

impl Here<'_> {
    fn waits_for(&self, pollable: &Pollable) {
        self.cx.info("parked");
        match self.way {
            "poll" => drop(poll(&[pollable, &subscribe_duration(u64::MAX)])),
            _ => pollable.block(),
        }
    }

    /// Waits for one of two streams of which the other end neither sends nor takes anything.
    fn waits_on(&self, input: &InputStream, output: &OutputStream) {
        let parked = || self.cx.info("parked");
        match self.way {
            "read" => {
                empty(input);
                parked();
                drop(input.blocking_read(1));
            }
            "skip" => {
                empty(input);
                parked();
                drop(input.blocking_skip(1));
            }
            "splice" => {
                empty(input);
                parked();
                drop(output.blocking_splice(input, 1));
            }
            "ready to read" => {
                empty(input);
                self.waits_for(&input.subscribe());
            }
            "write" => {
                fill(output);
                parked();
                drop(output.blocking_write_and_flush(&[0; 4096]));
            }
            "zeroes" => {
                fill(output);
                parked();
                drop(output.blocking_write_zeroes_and_flush(4096));
            }
            "flush" => {
                fill(output);
                parked();
                drop(output.blocking_flush());
            }
            "ready to write" => {
                fill(output);
                self.waits_for(&output.subscribe());
            }
            way => panic!("there is no way `{way}` to wait"),
        }
    }
}

/// Reads what has come, until nothing more comes.
fn empty(input: &InputStream) {
    while waits(&input.subscribe()) == Wait::Over {
        match input.read(1 << 16) {
            Ok(_) => {}
            Err(_) => panic!("the stream has ended"),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Wait {
    Over,
    InVain,
}

/// Waits for a moment.
fn waits(pollable: &Pollable) -> Wait {
    let late = subscribe_duration(WATCHED);
    if poll(&[pollable, &late]).contains(&0) { Wait::Over } else { Wait::InVain }
}

/// Writes until nothing more is taken.
fn fill(output: &OutputStream) {
    loop {
        match output.check_write().expect("the stream is open") {
            0 if waits(&output.subscribe()) == Wait::InVain => return,
            0 => {}
            room => output.write(&vec![0; room.min(1 << 16) as usize]).expect("there is room"),
        }
    }
}

/// A socket on its way to a port of this machine.
fn connect(port: u16) -> TcpSocket {
    let socket = create_tcp_socket(IpAddressFamily::Ipv4).expect("a socket");
    let address = Ipv4SocketAddress { port, address: (127, 0, 0, 1) };
    socket.start_connect(&instance_network(), IpSocketAddress::Ipv4(address)).expect("granted");
    socket
}

fn request(port: u16) -> OutgoingRequest {
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&Scheme::Http)).expect("a scheme");
    request.set_authority(Some(&format!("127.0.0.1:{port}"))).expect("an authority");
    request.set_path_with_query(Some("/")).expect("a path");
    request
}

/// One call of a file or directory, or of a stream on a file, over and over.
pub(crate) fn files(function: &str, cx: &ToolContext) -> Result<Output, Failure> {
    let (directory, _) = get_directories().into_iter().next().expect("a directory is granted");
    let both = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let open = |name: &str| {
        directory.open_at(PathFlags::empty(), name, OpenFlags::CREATE, both).expect("it opens")
    };
    let file = open("file");
    file.write(&[1; 8192], 0).expect("it is written");
    let mut listing = directory.read_directory().expect("it is listed");
    for round in 0_u64.. {
        call(function, &directory, &file, &mut listing);
        if round == 3 {
            cx.info("looping");
        }
    }
    Ok("".into())
}

fn call(
    function: &str,
    directory: &Descriptor,
    file: &Descriptor,
    listing: &mut DirectoryEntryStream,
) {
    let follow = PathFlags::empty;
    match function {
        "advise" => drop(file.advise(0, 1, Advice::Normal)),
        "sync-data" => drop(file.sync_data()),
        "sync" => drop(file.sync()),
        "get-flags" => drop(file.get_flags()),
        "get-type" => drop(file.get_type()),
        "set-size" => drop(file.set_size(8192)),
        "set-times" => drop(file.set_times(NewTimestamp::Now, NewTimestamp::NoChange)),
        "read" => drop(file.read(8192, 0)),
        "write" => drop(file.write(b"text", 0)),
        "read-directory" => drop(directory.read_directory()),
        "read-directory-entry" => match listing.read_directory_entry() {
            Ok(Some(_)) => {}
            _ => *listing = directory.read_directory().expect("it is listed"),
        },
        "create-directory-at" => drop(directory.create_directory_at("folder")),
        "remove-directory-at" => drop(directory.remove_directory_at("folder")),
        "stat" => drop(file.stat()),
        "stat-at" => drop(directory.stat_at(follow(), "file")),
        "set-times-at" => drop(directory.set_times_at(
            follow(),
            "file",
            NewTimestamp::Now,
            NewTimestamp::NoChange,
        )),
        "link-at" => drop(directory.link_at(follow(), "file", directory, "hard")),
        "open-at" => {
            drop(directory.open_at(follow(), "file", OpenFlags::empty(), DescriptorFlags::READ))
        }
        "symlink-at" => drop(directory.symlink_at("file", "soft")),
        "readlink-at" => drop(directory.readlink_at("soft")),
        "rename-at" => drop(directory.rename_at("file", directory, "file")),
        "unlink-file-at" => drop(directory.unlink_file_at("hard")),
        "is-same-object" => drop(file.is_same_object(directory)),
        "metadata-hash" => drop(file.metadata_hash()),
        "metadata-hash-at" => drop(directory.metadata_hash_at(follow(), "file")),
        "blocking-read" => drop(file.read_via_stream(0).map(|file| file.blocking_read(4096))),
        "blocking-skip" => drop(file.read_via_stream(0).map(|file| file.blocking_skip(4096))),
        "blocking-write-and-flush" => {
            drop(file.write_via_stream(0).map(|file| file.blocking_write_and_flush(b"text")));
        }
        "blocking-flush" => drop(file.write_via_stream(0).map(|file| {
            file.check_write().ok();
            file.write(b"text").ok();
            file.blocking_flush()
        })),
        "blocking-write-zeroes-and-flush" => {
            drop(file.write_via_stream(0).map(|file| file.blocking_write_zeroes_and_flush(16)));
        }
        "blocking-splice" => {
            let (from, to) = (file.read_via_stream(0), file.write_via_stream(4096));
            drop(to.and_then(|to| from.map(|from| to.blocking_splice(&from, 16))));
        }
        _ => panic!("there is no call `{function}`"),
    }
}
