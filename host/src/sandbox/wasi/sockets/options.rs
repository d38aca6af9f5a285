//! The options of a socket that a guest can read and set, each within bounds.

use std::io;
use std::time::Duration;

use rustix::fd::BorrowedFd;
use rustix::net::sockopt;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily};

/// Kernel memory that a guest may ask for, in each direction.
const BUFFER: u64 = 1 << 20;
/// The kernel's own bounds for probes of a silent connection.
const PROBE_TIME: (u64, u64) = (1, 32_767);
const PROBES: (u32, u32) = (1, 127);

/// Linux counts its bookkeeping too: it doubles what is set and reads back the double.
const COUNTED_TWICE: u64 = if cfg!(target_os = "linux") { 2 } else { 1 };

pub(super) type Fd<'a> = BorrowedFd<'a>;

pub(super) fn hop_limit(fd: Fd<'_>, family: IpAddressFamily) -> io::Result<u8> {
    match family {
        IpAddressFamily::Ipv4 => Ok(u8::try_from(sockopt::ip_ttl(fd)?).unwrap_or(u8::MAX)),
        IpAddressFamily::Ipv6 => Ok(sockopt::ipv6_unicast_hops(fd)?),
    }
}

pub(super) fn set_hop_limit(fd: Fd<'_>, family: IpAddressFamily, value: u8) -> Result<(), Wrong> {
    match family {
        _ if value == 0 => return Err(Wrong::Value),
        IpAddressFamily::Ipv4 => sockopt::set_ip_ttl(fd, value.into())?,
        IpAddressFamily::Ipv6 => sockopt::set_ipv6_unicast_hops(fd, Some(value))?,
    }
    Ok(())
}

pub(super) fn buffer_size(size: rustix::io::Result<usize>) -> io::Result<u64> {
    Ok(size? as u64 / COUNTED_TWICE)
}

/// A buffer size within bounds; too much is no error, it is only not granted.
pub(super) fn bounded_buffer(value: u64) -> Result<usize, Wrong> {
    if value == 0 { Err(Wrong::Value) } else { Ok(value.min(BUFFER) as usize) }
}

pub(super) fn nanoseconds(time: rustix::io::Result<Duration>) -> io::Result<u64> {
    Ok(u64::try_from(time?.as_nanos()).unwrap_or(u64::MAX))
}

/// A time between probes, in whole seconds as the kernel takes it.
pub(super) fn probe_time(nanoseconds: u64) -> Result<Duration, Wrong> {
    if nanoseconds == 0 {
        return Err(Wrong::Value);
    }
    Ok(Duration::from_secs(nanoseconds.div_ceil(1_000_000_000).clamp(PROBE_TIME.0, PROBE_TIME.1)))
}

pub(super) fn probes(value: u32) -> Result<u32, Wrong> {
    if value == 0 { Err(Wrong::Value) } else { Ok(value.clamp(PROBES.0, PROBES.1)) }
}

/// Why an option cannot be set.
#[derive(Debug)]
pub(super) enum Wrong {
    /// The guest's value makes no sense.
    Value,
    /// The operating system does not want it.
    Os(io::Error),
}

impl From<rustix::io::Errno> for Wrong {
    fn from(errno: rustix::io::Errno) -> Wrong {
        Wrong::Os(errno.into())
    }
}

impl From<Wrong> for ErrorCode {
    fn from(wrong: Wrong) -> ErrorCode {
        match wrong {
            Wrong::Value => ErrorCode::InvalidArgument,
            Wrong::Os(error) => super::code(&error),
        }
    }
}
