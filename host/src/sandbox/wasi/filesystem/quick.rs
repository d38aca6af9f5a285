//! What the kernel can answer from its caches, without waiting for a disk or a server. Everything else goes to the gate's pool.
//!
//! A hop to the pool and back costs ten times as much as the call itself when the answer is in memory, and a tool that reads
//! ten thousand files makes forty thousand calls. So on local file systems the kernel is asked in forms that do not wait: a
//! lookup that fails unless every step is cached and on the same mount, attributes as they are known, a read that fails unless
//! the pages are there. Only Linux has these forms; elsewhere, and on network and user-space file systems, nothing is quick.

#[cfg(target_os = "linux")]
pub(super) use linux::{local_device, look, open, prepare, read, stat};
#[cfg(not(target_os = "linux"))]
pub(super) use none::{local_device, look, open, prepare, read, stat};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use cap_std::fs::Dir;
    use rustix::fd::{AsFd, OwnedFd};
    use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
    use rustix::io::{Errno, ReadWriteFlags};
    use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, OpenFlags, PathFlags};

    use super::super::attributes::Facts;
    use super::super::descriptor::{Descriptor, Directory, OpenFile};
    use super::super::open::Request;

    /// File systems whose files are opened without asking anybody else: ext4, xfs, btrfs, tmpfs, f2fs, zfs, bcachefs.
    const LOCAL: [u64; 7] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e];

    /// The device of a directory when its file system is a local one. Blocks.
    pub(in super::super) fn local_device(dir: &Dir) -> Option<u64> {
        use cap_std::fs::MetadataExt;
        // A fixed width for a field whose type differs between processors.
        let magic = rustix::fs::fstatfs(dir).ok()?.f_type as u64 & 0xffff_ffff;
        if LOCAL.contains(&magic) { Some(dir.dir_metadata().ok()?.dev()) } else { None }
    }

    /// The attributes of what is open already; none when they are not at hand.
    pub(in super::super) fn stat(descriptor: &Descriptor) -> Option<Facts> {
        match descriptor {
            Descriptor::File(file) if file.open.quick => stat_fd(&file.open.file),
            Descriptor::Directory(directory) if directory.local.is_some() => {
                stat_fd(&directory.open.dir)
            }
            Descriptor::File(_) | Descriptor::Directory(_) => None,
        }
    }

    fn stat_fd(fd: impl AsFd) -> Option<Facts> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(fd, c"", flags, StatxFlags::BASIC_STATS).ok()?;
        StatxFlags::from_bits_retain(found.stx_mask)
            .contains(StatxFlags::BASIC_STATS)
            .then(|| facts(&found))
    }

    fn facts(found: &Statx) -> Facts {
        let kind = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::RegularFile => DescriptorType::RegularFile,
            FileType::Directory => DescriptorType::Directory,
            FileType::Symlink => DescriptorType::SymbolicLink,
            FileType::Fifo => DescriptorType::Fifo,
            FileType::Socket => DescriptorType::Socket,
            FileType::CharacterDevice => DescriptorType::CharacterDevice,
            FileType::BlockDevice => DescriptorType::BlockDevice,
            FileType::Unknown => DescriptorType::Unknown,
        };
        let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, i64::from(time.tv_nsec));
        Facts {
            kind,
            device: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            links: found.stx_nlink.into(),
            size: found.stx_size,
            times: [time(found.stx_atime), time(found.stx_mtime), time(found.stx_ctime)],
        }
    }

    fn resolve(directory: &Directory, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let beneath = ResolveFlags::BENEATH
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV
            | ResolveFlags::CACHED;
        rustix::fs::openat2(
            &directory.open.dir,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            beneath,
        )
    }

    fn nofollow(flags: PathFlags) -> OFlags {
        if flags.contains(PathFlags::SYMLINK_FOLLOW) { OFlags::empty() } else { OFlags::NOFOLLOW }
    }

    /// The attributes of what a path leads to; none when the lookup would have to wait, or needs a second look.
    pub(in super::super) fn look(
        directory: &Directory,
        path: &str,
        flags: PathFlags,
    ) -> Option<io::Result<Facts>> {
        directory.local?;
        match resolve(directory, path, OFlags::PATH | nofollow(flags)) {
            Ok(found) => Some(Ok(stat_fd(found)?)),
            Err(Errno::NOENT) => Some(Err(Errno::NOENT.into())),
            Err(_) => None,
        }
    }

    /// Opens a regular file for reading; none when this is anything else, or would have to wait.
    pub(in super::super) fn open(
        directory: &Directory,
        request: &Request,
    ) -> Option<io::Result<std::fs::File>> {
        if request.writes() || request.open_flags != OpenFlags::empty() {
            return None;
        }
        // As on the pool: looked at first, for opening a device can already do something; and again on the handle.
        match look(directory, &request.path, request.path_flags)? {
            Ok(facts) if facts.kind == DescriptorType::RegularFile => {}
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        }
        let flags =
            OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY | nofollow(request.path_flags);
        let file = resolve(directory, &request.path, flags).ok()?;
        (stat_fd(&file)?.kind == DescriptorType::RegularFile).then(|| Ok(file.into()))
    }

    /// Whether an open file can be asked at once. Reading must not note the time of access then, because that can wait for the
    /// disk's journal; only the owner of a file may leave it out.
    pub(in super::super) fn prepare(file: &std::fs::File, device: u64, local: Option<u64>) -> bool {
        let quiet =
            || rustix::fs::fcntl_setfl(file, rustix::fs::fcntl_getfl(file)? | OFlags::NOATIME);
        local == Some(device) && quiet().is_ok()
    }

    /// Reads what is in memory; none when nothing of it is.
    pub(in super::super) fn read(
        open: &OpenFile,
        buffer: &mut [u8],
        offset: u64,
    ) -> Option<io::Result<usize>> {
        if !open.quick {
            return None;
        }
        let read = rustix::io::preadv2(
            &open.file,
            &mut [io::IoSliceMut::new(buffer)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        // Whatever went wrong, the pool will find it too and say it.
        read.ok().map(Ok)
    }
}

#[cfg(not(target_os = "linux"))]
mod none {
    use std::io;

    use cap_std::fs::Dir;
    use wasmtime_wasi::p2::bindings::filesystem::types::PathFlags;

    use super::super::attributes::Facts;
    use super::super::descriptor::{Descriptor, Directory, OpenFile};
    use super::super::open::Request;

    pub(in super::super) fn local_device(_: &Dir) -> Option<u64> {
        None
    }

    pub(in super::super) fn stat(_: &Descriptor) -> Option<Facts> {
        None
    }

    pub(in super::super) fn look(
        _: &Directory,
        _: &str,
        _: PathFlags,
    ) -> Option<io::Result<Facts>> {
        None
    }

    pub(in super::super) fn open(_: &Directory, _: &Request) -> Option<io::Result<std::fs::File>> {
        None
    }

    pub(in super::super) fn prepare(_: &std::fs::File, _: u64, _: Option<u64>) -> bool {
        false
    }

    pub(in super::super) fn read(_: &OpenFile, _: &mut [u8], _: u64) -> Option<io::Result<usize>> {
        None
    }
}
