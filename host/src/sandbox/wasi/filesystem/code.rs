//! From errors of the operating system to the error codes of WASI.

use std::io;

use rustix::io::Errno;
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;

/// The error code for an error of the operating system or of cap-std.
pub(super) fn code(error: &io::Error) -> ErrorCode {
    let Some(errno) = Errno::from_io_error(error) else {
        return code_of_kind(error.kind());
    };
    match errno {
        Errno::ACCESS => ErrorCode::Access,
        Errno::AGAIN => ErrorCode::WouldBlock,
        Errno::ALREADY => ErrorCode::Already,
        Errno::BADF => ErrorCode::BadDescriptor,
        Errno::BUSY | Errno::TXTBSY => ErrorCode::Busy,
        Errno::DEADLK => ErrorCode::Deadlock,
        Errno::DQUOT => ErrorCode::Quota,
        Errno::EXIST => ErrorCode::Exist,
        Errno::FBIG => ErrorCode::FileTooLarge,
        Errno::ILSEQ => ErrorCode::IllegalByteSequence,
        Errno::INPROGRESS => ErrorCode::InProgress,
        Errno::INTR => ErrorCode::Interrupted,
        Errno::INVAL => ErrorCode::Invalid,
        Errno::ISDIR => ErrorCode::IsDirectory,
        Errno::LOOP => ErrorCode::Loop,
        Errno::MLINK => ErrorCode::TooManyLinks,
        Errno::MSGSIZE => ErrorCode::MessageSize,
        Errno::NAMETOOLONG => ErrorCode::NameTooLong,
        Errno::NODEV | Errno::NXIO => ErrorCode::NoDevice,
        Errno::NOENT => ErrorCode::NoEntry,
        Errno::NOLCK => ErrorCode::NoLock,
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => ErrorCode::InsufficientMemory,
        Errno::NOSPC => ErrorCode::InsufficientSpace,
        Errno::NOTDIR => ErrorCode::NotDirectory,
        Errno::NOTEMPTY => ErrorCode::NotEmpty,
        Errno::NOTSUP | Errno::NOSYS => ErrorCode::Unsupported,
        Errno::NOTTY => ErrorCode::NoTty,
        Errno::OVERFLOW => ErrorCode::Overflow,
        Errno::PERM => ErrorCode::NotPermitted,
        Errno::PIPE => ErrorCode::Pipe,
        Errno::ROFS => ErrorCode::ReadOnly,
        Errno::SPIPE => ErrorCode::InvalidSeek,
        Errno::XDEV => ErrorCode::CrossDevice,
        _ => ErrorCode::Io,
    }
}

/// Errors that no system call gave: those of cap-std (an escape is *permission denied*), of the gate and of path checks.
fn code_of_kind(kind: io::ErrorKind) -> ErrorCode {
    const KINDS: [(io::ErrorKind, ErrorCode); 6] = [
        (io::ErrorKind::PermissionDenied, ErrorCode::NotPermitted),
        (io::ErrorKind::NotFound, ErrorCode::NoEntry),
        (io::ErrorKind::AlreadyExists, ErrorCode::Exist),
        (io::ErrorKind::InvalidInput, ErrorCode::Invalid),
        (io::ErrorKind::ResourceBusy, ErrorCode::Busy),
        (io::ErrorKind::Unsupported, ErrorCode::Unsupported),
    ];
    KINDS.iter().find(|(known, _)| *known == kind).map_or(ErrorCode::Io, |(_, code)| *code)
}

/// The same, as an error of a host function.
#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
pub(super) fn failed(error: io::Error) -> FsError {
    code(&error).into()
}
