//! What guests can and cannot do with files, asked through the interface that they use.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::FutureExt as _;
use rustix::fs::{CWD, FileType as NodeType, Mode, mknodat};
use tempfile::TempDir;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Descriptor, DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor,
    HostDirectoryEntryStream as _, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi_io::bindings::wasi::io::streams::{HostInputStream, HostOutputStream};
use wasmtime_wasi_io::streams::StreamError;

use super::super::gate::Gate;
use super::super::state::{Outside, WasiState};
use super::super::testing::TestGate;
use super::stream::CHUNK;
use crate::sandbox::reach::{Access, Directory, Reach};

const READ: DescriptorFlags = DescriptorFlags::READ;
const WRITE: DescriptorFlags = DescriptorFlags::WRITE;
const FOLLOW: PathFlags = PathFlags::SYMLINK_FOLLOW;

/// A guest with one granted directory.
struct Guest {
    gate: Arc<TestGate>,
    wasi: WasiState,
    root: u32,
}

impl Guest {
    async fn new(directory: &Path, access: Access) -> Guest {
        let gate = TestGate::new();
        let grant = Directory { mount: "/work".to_owned(), path: directory.to_owned(), access };
        let reach = Arc::new(Reach { directories: vec![grant], ..Reach::default() });
        let shared: Arc<dyn Gate> = gate.clone();
        let mut wasi =
            WasiState::open(reach, shared, Arc::new(Outside::new().unwrap())).await.unwrap();
        let preopens = wasi.get_directories().unwrap();
        assert_eq!(preopens[0].1, "/work");
        Guest { gate, wasi, root: preopens[0].0.rep() }
    }

    /// Makes every call go to the pool, as on a network file system.
    async fn without_quick_answers(directory: &Path, access: Access) -> Guest {
        let mut guest = Guest::new(directory, access).await;
        let root: Resource<super::descriptor::Descriptor> = Resource::new_borrow(guest.root);
        if let super::descriptor::Descriptor::Directory(root) =
            guest.wasi.table.get_mut(&root).unwrap()
        {
            root.local = None;
        }
        guest
    }

    fn root(&self) -> Resource<Descriptor> {
        Resource::new_borrow(self.root)
    }

    async fn open(
        &mut self,
        path: &str,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> Result<u32, ErrorCode> {
        let root = self.root();
        code(self.wasi.open_at(root, FOLLOW, path.to_owned(), open, flags).await)
            .map(|file| file.rep())
    }

    async fn read_all(&mut self, path: &str) -> Result<Vec<u8>, ErrorCode> {
        let file = self.open(path, OpenFlags::empty(), READ).await?;
        let mut all = Vec::new();
        let stream = code(self.wasi.read_via_stream(Resource::new_borrow(file), 0))?.rep();
        loop {
            match self.wasi.blocking_read(Resource::new_borrow(stream), 1 << 20).await {
                Ok(bytes) => all.extend(bytes),
                Err(StreamError::Closed) => break,
                Err(error) => panic!("{error}"),
            }
        }
        streams_drop_input(&mut self.wasi, stream).await;
        HostDescriptor::drop(&mut self.wasi, Resource::new_own(file)).unwrap();
        Ok(all)
    }

    async fn list(&mut self, path: &str) -> Result<Vec<(String, DescriptorType)>, ErrorCode> {
        let directory = self.open(path, OpenFlags::DIRECTORY, READ).await?;
        let stream = code(self.wasi.read_directory(Resource::new_borrow(directory)).await)?.rep();
        let mut all = Vec::new();
        while let Some(entry) =
            code(self.wasi.read_directory_entry(Resource::new_borrow(stream)).await)?
        {
            all.push((entry.name, entry.type_));
        }
        all.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(all)
    }
}

async fn streams_drop_input(wasi: &mut WasiState, stream: u32) {
    HostInputStream::drop(wasi, Resource::new_own(stream)).await.unwrap();
}

async fn streams_drop_output(wasi: &mut WasiState, stream: u32) {
    HostOutputStream::drop(wasi, Resource::new_own(stream)).await.unwrap();
}

fn code<T>(result: FsResult<T>) -> Result<T, ErrorCode> {
    result.map_err(|error| error.downcast().expect("an error code, not a trap"))
}

#[track_caller]
fn refused<T>(result: Result<T, ErrorCode>, expected: ErrorCode) {
    assert_eq!(result.err(), Some(expected));
}

fn pipe(path: &Path) {
    mknodat(CWD, path, NodeType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// A grant with a bit of everything, beside a file that is not granted.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let work = dir.path().join("work");
    fs::create_dir_all(work.join("sub/deep")).unwrap();
    fs::write(work.join("file"), "hello").unwrap();
    fs::write(work.join("sub/other"), "other").unwrap();
    for (target, link) in [
        ("file", "link"),
        ("sub", "sublink"),
        ("../secret", "escape"),
        ("sub/../../secret", "escape2"),
        ("/dev/zero", "zero"),
        ("/etc", "etc"),
        ("/proc/self/root", "root"),
        ("missing", "dangling"),
        ("loop", "loop"),
    ] {
        std::os::unix::fs::symlink(target, work.join(link)).unwrap();
    }
    pipe(&work.join("pipe"));
    std::os::unix::fs::symlink("pipe", work.join("pipelink")).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(work.join("socket")).unwrap();
    dir
}

async fn guests(access: Access) -> Vec<(TempDir, Guest)> {
    let mut both = Vec::new();
    for quick in [true, false] {
        let dir = tree();
        let work = dir.path().join("work");
        let guest = if quick {
            Guest::new(&work, access).await
        } else {
            Guest::without_quick_answers(&work, access).await
        };
        both.push((dir, guest));
    }
    both
}

#[tokio::test]
async fn files_are_read_through_links_that_stay_inside() {
    for (_dir, mut guest) in guests(Access::Read).await {
        for _twice in 0..2 {
            assert_eq!(guest.read_all("file").await.unwrap(), b"hello");
            assert_eq!(guest.read_all("link").await.unwrap(), b"hello");
            assert_eq!(guest.read_all("sublink/other").await.unwrap(), b"other");
            assert_eq!(guest.read_all("sub/deep/../../file").await.unwrap(), b"hello");
            assert_eq!(guest.read_all("./sub/./other").await.unwrap(), b"other");
        }
    }
}

#[tokio::test]
async fn nothing_outside_the_grant_is_reached() {
    for (_dir, mut guest) in guests(Access::ReadWrite).await {
        for path in [
            "..",
            "../secret",
            "sub/../../secret",
            "/etc/passwd",
            "/",
            "escape",
            "escape2",
            "zero",
            "etc",
            "etc/passwd",
            "root",
            "root/etc/passwd",
            "sublink/../../secret",
        ] {
            let root = guest.root();
            refused(guest.open(path, OpenFlags::empty(), READ).await, ErrorCode::NotPermitted);
            refused(
                code(guest.wasi.stat_at(root, FOLLOW, path.to_owned()).await),
                ErrorCode::NotPermitted,
            );
            let root = guest.root();
            refused(
                code(guest.wasi.metadata_hash_at(root, FOLLOW, path.to_owned()).await),
                ErrorCode::NotPermitted,
            );
        }
        for path in ["../new", "/tmp/new", "escape/new"] {
            let root = guest.root();
            assert!(guest.open(path, OpenFlags::CREATE, WRITE).await.is_err());
            assert!(guest.wasi.create_directory_at(root, path.to_owned()).await.is_err());
        }
        let (old, new) = (guest.root(), guest.root());
        refused(
            code(guest.wasi.rename_at(old, "file".to_owned(), new, "../stolen".to_owned()).await),
            ErrorCode::NotPermitted,
        );
        let (old, new) = (guest.root(), guest.root());
        refused(
            code(
                guest
                    .wasi
                    .link_at(
                        old,
                        PathFlags::empty(),
                        "../secret".to_owned(),
                        new,
                        "mine".to_owned(),
                    )
                    .await,
            ),
            ErrorCode::NotPermitted,
        );
        let root = guest.root();
        let now = NewTimestamp::Now;
        refused(
            code(guest.wasi.set_times_at(root, FOLLOW, "escape".to_owned(), now, now).await),
            ErrorCode::NotPermitted,
        );
        refused(guest.open("loop", OpenFlags::empty(), READ).await, ErrorCode::Loop);
        refused(guest.open("missing", OpenFlags::empty(), READ).await, ErrorCode::NoEntry);
        refused(guest.open("", OpenFlags::empty(), READ).await, ErrorCode::NoEntry);
        refused(guest.open("a\0b", OpenFlags::empty(), READ).await, ErrorCode::Invalid);
        refused(guest.open("file/x", OpenFlags::empty(), READ).await, ErrorCode::NotDirectory);
        refused(
            guest.open(&"x".repeat(300), OpenFlags::empty(), READ).await,
            ErrorCode::NameTooLong,
        );
    }
}

#[tokio::test]
async fn a_link_to_follow_or_not() {
    for (_dir, mut guest) in guests(Access::Read).await {
        let root = guest.root();
        let open = guest
            .wasi
            .open_at(root, PathFlags::empty(), "link".to_owned(), OpenFlags::empty(), READ)
            .await;
        refused(code(open), ErrorCode::Loop);
        let root = guest.root();
        let stat =
            code(guest.wasi.stat_at(root, PathFlags::empty(), "escape".to_owned()).await).unwrap();
        assert_eq!(stat.type_, DescriptorType::SymbolicLink);
        let root = guest.root();
        assert_eq!(code(guest.wasi.readlink_at(root, "link".to_owned()).await).unwrap(), "file");
    }
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_at_once() {
    for (dir, mut guest) in guests(Access::ReadWrite).await {
        for path in ["pipe", "pipelink", "socket"] {
            for (open, flags) in [
                (OpenFlags::empty(), READ),
                (OpenFlags::empty(), WRITE),
                (OpenFlags::empty(), READ | WRITE),
                (OpenFlags::CREATE, WRITE),
                (OpenFlags::TRUNCATE, WRITE),
                (OpenFlags::DIRECTORY, READ),
            ] {
                refused(guest.open(path, open, flags).await, ErrorCode::NotPermitted);
            }
        }
        let root = guest.root();
        let stat = code(guest.wasi.stat_at(root, FOLLOW, "pipe".to_owned()).await).unwrap();
        assert_eq!(stat.type_, DescriptorType::Fifo);
        drop(dir);
    }
    // The real device, granted by mistake.
    let mut guest = Guest::new(Path::new("/dev"), Access::ReadWrite).await;
    refused(guest.open("zero", OpenFlags::empty(), READ).await, ErrorCode::NotPermitted);
    refused(guest.open("null", OpenFlags::empty(), WRITE).await, ErrorCode::NotPermitted);
}

#[tokio::test]
async fn a_read_only_grant_refuses_every_change() {
    for (dir, mut guest) in guests(Access::Read).await {
        let before = fs::metadata(dir.path().join("work/file")).unwrap();
        for (open, flags) in [
            (OpenFlags::empty(), WRITE),
            (OpenFlags::empty(), READ | WRITE),
            (OpenFlags::TRUNCATE, READ),
            (OpenFlags::CREATE, READ),
            (OpenFlags::CREATE | OpenFlags::EXCLUSIVE, READ),
        ] {
            refused(guest.open("file", open, flags).await, ErrorCode::ReadOnly);
            refused(guest.open("new", open, flags).await, ErrorCode::ReadOnly);
        }
        let now = NewTimestamp::Now;
        let name = |text: &str| text.to_owned();
        let file = guest.open("file", OpenFlags::empty(), READ).await.unwrap();
        let f = || Resource::<Descriptor>::new_borrow(file);
        let (a, b) = (guest.root(), guest.root());
        let w = &mut guest.wasi;
        refused(code(w.set_size(f(), 0).await), ErrorCode::ReadOnly);
        refused(code(w.set_times(f(), now, now).await), ErrorCode::ReadOnly);
        refused(code(HostDescriptor::write(w, f(), b"x".to_vec(), 0).await), ErrorCode::ReadOnly);
        refused(code(w.write_via_stream(f(), 0)), ErrorCode::ReadOnly);
        refused(code(w.append_via_stream(f())), ErrorCode::ReadOnly);
        refused(code(w.rename_at(a, name("file"), b, name("moved")).await), ErrorCode::ReadOnly);
        let r = || Resource::<Descriptor>::new_borrow(guest.root);
        refused(code(w.set_times(r(), now, now).await), ErrorCode::ReadOnly);
        refused(
            code(w.set_times_at(r(), FOLLOW, name("file"), now, now).await),
            ErrorCode::ReadOnly,
        );
        refused(code(w.create_directory_at(r(), name("new")).await), ErrorCode::ReadOnly);
        refused(code(w.remove_directory_at(r(), name("sub")).await), ErrorCode::ReadOnly);
        refused(code(w.unlink_file_at(r(), name("file")).await), ErrorCode::ReadOnly);
        refused(code(w.symlink_at(r(), name("file"), name("new")).await), ErrorCode::ReadOnly);
        refused(
            code(w.link_at(r(), PathFlags::empty(), name("file"), r(), name("new")).await),
            ErrorCode::ReadOnly,
        );
        code(w.sync(f()).await).unwrap();
        let sub = guest.open("sub", OpenFlags::DIRECTORY, READ).await.unwrap();
        let below = guest.wasi.create_directory_at(Resource::new_borrow(sub), name("new")).await;
        refused(code(below), ErrorCode::ReadOnly);
        let after = fs::metadata(dir.path().join("work/file")).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(fs::read(dir.path().join("work/file")).unwrap(), b"hello");
    }
}

#[tokio::test]
async fn files_are_made_written_and_removed() {
    for (dir, mut guest) in guests(Access::ReadWrite).await {
        let work = dir.path().join("work");
        let file = guest
            .open("new", OpenFlags::CREATE | OpenFlags::EXCLUSIVE, READ | WRITE)
            .await
            .unwrap();
        refused(
            guest.open("new", OpenFlags::CREATE | OpenFlags::EXCLUSIVE, WRITE).await,
            ErrorCode::Exist,
        );
        let f = || Resource::<Descriptor>::new_borrow(file);
        let w = &mut guest.wasi;
        assert_eq!(
            code(HostDescriptor::write(w, f(), b"0123456789".to_vec(), 0).await).unwrap(),
            10
        );
        let out = code(w.write_via_stream(f(), 4)).unwrap().rep();
        w.blocking_write_and_flush(Resource::new_borrow(out), b"ab".to_vec()).await.unwrap();
        w.blocking_write_and_flush(Resource::new_borrow(out), b"cd".to_vec()).await.unwrap();
        let end = code(w.append_via_stream(f())).unwrap().rep();
        HostOutputStream::write(w, Resource::new_borrow(end), b"END".to_vec()).unwrap();
        streams_drop_output(w, end).await;
        streams_drop_output(w, out).await;
        assert_eq!(fs::read(work.join("new")).unwrap(), b"0123abcd89END");
        assert_eq!(
            code(HostDescriptor::read(w, f(), 4, 2).await).unwrap(),
            (b"23ab".to_vec(), false)
        );
        assert_eq!(
            code(HostDescriptor::read(w, f(), 100, 10).await).unwrap(),
            (b"END".to_vec(), true)
        );
        assert_eq!(code(HostDescriptor::read(w, f(), 100, 13).await).unwrap(), (Vec::new(), true));
        code(w.set_size(f(), 3).await).unwrap();
        assert_eq!(code(w.stat(f()).await).unwrap().size, 3);
        code(w.sync_data(f()).await).unwrap();
        let truncated = guest.open("new", OpenFlags::TRUNCATE, WRITE).await.unwrap();
        assert_eq!(fs::read(work.join("new")).unwrap(), b"");
        let w = &mut guest.wasi;
        refused(
            code(w.read_via_stream(Resource::new_borrow(truncated), 0)),
            ErrorCode::BadDescriptor,
        );
        let r = || Resource::<Descriptor>::new_borrow(guest.root);
        let name = |text: &str| text.to_owned();
        code(w.create_directory_at(r(), name("made")).await).unwrap();
        code(w.rename_at(r(), name("new"), r(), name("made/moved")).await).unwrap();
        code(w.link_at(r(), PathFlags::empty(), name("made/moved"), r(), name("hard")).await)
            .unwrap();
        code(w.symlink_at(r(), name("../hard"), name("made/soft")).await).unwrap();
        refused(
            code(w.symlink_at(r(), name("/etc/passwd"), name("bad")).await),
            ErrorCode::NotPermitted,
        );
        refused(
            code(w.symlink_at(r(), name("../secret"), name("bad")).await),
            ErrorCode::NotPermitted,
        );
        let one = code(w.stat_at(r(), FOLLOW, name("made/soft")).await).unwrap();
        assert_eq!((one.type_, one.link_count), (DescriptorType::RegularFile, 2));
        assert_eq!(
            code(w.metadata_hash_at(r(), FOLLOW, name("hard")).await).unwrap().lower,
            code(w.metadata_hash(f()).await).unwrap().lower
        );
        assert!(w.is_same_object(f(), Resource::new_borrow(truncated)).await.unwrap());
        assert!(!w.is_same_object(f(), r()).await.unwrap());
        refused(code(w.remove_directory_at(r(), name("made")).await), ErrorCode::NotEmpty);
        for path in ["made/soft", "made/moved", "hard"] {
            code(w.unlink_file_at(r(), name(path)).await).unwrap();
        }
        code(w.remove_directory_at(r(), name("made")).await).unwrap();
        refused(code(w.unlink_file_at(r(), name("sub")).await), ErrorCode::IsDirectory);
        refused(guest.open("sub", OpenFlags::empty(), WRITE).await, ErrorCode::IsDirectory);
        refused(guest.open("sub", OpenFlags::TRUNCATE, READ).await, ErrorCode::IsDirectory);
        refused(guest.open("file", OpenFlags::DIRECTORY, READ).await, ErrorCode::NotDirectory);
        refused(
            guest.open("new", OpenFlags::DIRECTORY | OpenFlags::CREATE, READ).await,
            ErrorCode::Invalid,
        );
    }
}

#[tokio::test]
async fn times_are_set_on_files_directories_and_links() {
    use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
    for (dir, mut guest) in guests(Access::ReadWrite).await {
        let work = dir.path().join("work");
        let at = |seconds| NewTimestamp::Timestamp(Datetime { seconds, nanoseconds: 5 });
        let modified = |path: &str| {
            let metadata = fs::symlink_metadata(work.join(path)).unwrap();
            metadata.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
        };
        let r = || Resource::<Descriptor>::new_borrow(guest.root);
        let w = &mut guest.wasi;
        for (path, flags, changed, seconds) in [
            ("file", FOLLOW, "file", 1000),
            ("sub/other", FOLLOW, "sub/other", 2000),
            ("link", FOLLOW, "file", 3000),
            ("link", PathFlags::empty(), "link", 4000),
            ("sub", FOLLOW, "sub", 5000),
            (".", FOLLOW, ".", 6000),
            ("sub/..", FOLLOW, ".", 7000),
            ("sublink", FOLLOW, "sub", 8000),
        ] {
            code(
                w.set_times_at(r(), flags, path.to_owned(), NewTimestamp::NoChange, at(seconds))
                    .await,
            )
            .unwrap();
            assert_eq!(modified(changed), seconds, "{path}");
        }
        assert_eq!(modified("file"), 3000);
        code(w.set_times(r(), NewTimestamp::NoChange, at(9000)).await).unwrap();
        assert_eq!(modified("."), 9000);
        let stat = code(w.stat(r()).await).unwrap();
        assert_eq!(stat.data_modification_timestamp.unwrap().seconds, 9000);
        let wrong = NewTimestamp::Timestamp(Datetime { seconds: 1, nanoseconds: 1_000_000_000 });
        refused(code(w.set_times(r(), wrong, wrong).await), ErrorCode::Invalid);
        let late = NewTimestamp::Timestamp(Datetime { seconds: u64::MAX, nanoseconds: 0 });
        refused(code(w.set_times(r(), late, late).await), ErrorCode::Overflow);
    }
}

#[tokio::test]
async fn a_directory_of_ten_thousand_entries_is_listed_in_batches() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..10_000 {
        fs::write(dir.path().join(format!("{number:05}")), "").unwrap();
    }
    let mut guest = Guest::new(dir.path(), Access::Read).await;
    let all = guest.list(".").await.unwrap();
    assert_eq!(all.len(), 10_000);
    assert_eq!(all[0], ("00000".to_owned(), DescriptorType::RegularFile));
    assert_eq!(all[9_999].0, "09999");
    assert!(guest.gate.charged.load(Ordering::Relaxed) >= 10_000 * 5);
    assert!(
        guest.gate.blocked.load(Ordering::Relaxed) < 30,
        "some hundred entries for each call on the pool"
    );
}

#[tokio::test]
async fn a_listing_tells_kinds_and_survives_names_that_are_not_unicode() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tree();
    let work = dir.path().join("work");
    fs::write(work.join(std::ffi::OsStr::from_bytes(b"bad\xffname")), "").unwrap();
    let mut guest = Guest::new(&work, Access::Read).await;
    let all = guest.list(".").await.unwrap();
    for (name, kind) in [
        ("file", DescriptorType::RegularFile),
        ("sub", DescriptorType::Directory),
        ("link", DescriptorType::SymbolicLink),
        ("pipe", DescriptorType::Fifo),
        ("socket", DescriptorType::Socket),
        ("bad\u{fffd}name", DescriptorType::RegularFile),
    ] {
        assert!(all.contains(&(name.to_owned(), kind)), "{name}");
    }
    refused(guest.list("file").await, ErrorCode::NotDirectory);
    refused(guest.list("escape").await, ErrorCode::NotPermitted);
}

#[tokio::test]
async fn a_file_that_grows_without_end_is_read_in_bounded_pieces_until_the_budget_ends() {
    for (dir, mut guest) in guests(Access::Read).await {
        // As large as a file can look; it takes no room.
        let endless = fs::File::create(dir.path().join("work/endless")).unwrap();
        endless.set_len(1 << 40).unwrap();
        guest.gate.allow(10 * CHUNK + 100);
        let file = guest.open("endless", OpenFlags::empty(), READ).await.unwrap();
        let (bytes, end) = code(
            HostDescriptor::read(&mut guest.wasi, Resource::new_borrow(file), u64::MAX, 0).await,
        )
        .unwrap();
        assert_eq!((bytes.len(), end), (CHUNK, false));
        let stream = code(guest.wasi.read_via_stream(Resource::new_borrow(file), 0)).unwrap().rep();
        let mut pieces = 0;
        let error = loop {
            match guest.wasi.blocking_read(Resource::new_borrow(stream), u64::MAX).await {
                Ok(bytes) => {
                    assert_eq!(bytes.len(), CHUNK);
                    pieces += 1;
                }
                Err(error) => break error,
            }
        };
        assert_eq!(pieces, 9);
        assert!(matches!(error, StreamError::Trap(_)), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_grew_is_read_on_by_a_new_stream() {
    use std::io::Write as _;
    let dir = tree();
    let mut guest = Guest::new(&dir.path().join("work"), Access::Read).await;
    let file = guest.open("file", OpenFlags::empty(), READ).await.unwrap();
    let stream = code(guest.wasi.read_via_stream(Resource::new_borrow(file), 0)).unwrap().rep();
    assert_eq!(guest.wasi.blocking_read(Resource::new_borrow(stream), 3).await.unwrap(), b"hel");
    fs::OpenOptions::new()
        .append(true)
        .open(dir.path().join("work/file"))
        .unwrap()
        .write_all(b" world")
        .unwrap();
    let rest = guest.wasi.blocking_read(Resource::new_borrow(stream), 100).await.unwrap();
    assert_eq!(rest, b"lo world");
    let ended = guest.wasi.blocking_read(Resource::new_borrow(stream), 100).await;
    assert!(matches!(ended, Err(StreamError::Closed)));
}

#[tokio::test]
async fn open_files_are_limited_and_places_come_back() {
    for (_dir, mut guest) in guests(Access::Read).await {
        let before = guest.gate.files.available_permits();
        let mut open = Vec::new();
        while let Ok(file) = guest.open("file", OpenFlags::empty(), READ).await {
            open.push(file);
        }
        assert_eq!(open.len(), before);
        refused(guest.open("file", OpenFlags::empty(), READ).await, ErrorCode::Quota);
        let root = guest.root();
        refused(code(guest.wasi.read_directory(root).await), ErrorCode::Quota);
        // A stream keeps the place of its file.
        let kept = open.pop().unwrap();
        let stream = code(guest.wasi.read_via_stream(Resource::new_borrow(kept), 0)).unwrap().rep();
        HostDescriptor::drop(&mut guest.wasi, Resource::new_own(kept)).unwrap();
        refused(guest.open("file", OpenFlags::empty(), READ).await, ErrorCode::Quota);
        streams_drop_input(&mut guest.wasi, stream).await;
        guest.open("file", OpenFlags::empty(), READ).await.unwrap();
        let gate = guest.gate.clone();
        drop(guest);
        assert_eq!(gate.files.available_permits(), before);
    }
}

#[tokio::test]
async fn a_full_pool_is_waited_for() {
    let dir = tree();
    let mut guest = Guest::without_quick_answers(&dir.path().join("work"), Access::ReadWrite).await;
    let file = guest.open("file", OpenFlags::empty(), READ | WRITE).await.unwrap();
    let out = code(guest.wasi.write_via_stream(Resource::new_borrow(file), 0)).unwrap().rep();
    let gate = guest.gate.clone();
    let all = gate.blocking.clone().acquire_many_owned(64).await.unwrap();
    // A stream takes the bytes at once and writes them when there is a place.
    HostOutputStream::write(&mut guest.wasi, Resource::new_borrow(out), b"J".to_vec()).unwrap();
    let permit = HostOutputStream::check_write(&mut guest.wasi, Resource::new_borrow(out));
    assert_eq!(permit.unwrap(), 0);
    let before = gate.blocked.load(Ordering::Relaxed);
    // Given up in the middle, as by a stop.
    assert!(guest.read_all("file").now_or_never().is_none());
    assert_eq!(gate.blocked.load(Ordering::Relaxed), before, "nothing began");
    drop(all);
    streams_drop_output(&mut guest.wasi, out).await;
    assert_eq!(guest.read_all("file").await.unwrap(), b"Jello");
}

#[tokio::test]
async fn a_guest_that_polls_reads_and_writes_too() {
    use wasmtime_wasi_io::bindings::wasi::io::poll::Host as _;
    for (_dir, mut guest) in guests(Access::ReadWrite).await {
        let file = guest.open("file", OpenFlags::empty(), READ | WRITE).await.unwrap();
        let stream = code(guest.wasi.read_via_stream(Resource::new_borrow(file), 0)).unwrap().rep();
        let subscribed = HostInputStream::subscribe(&mut guest.wasi, Resource::new_borrow(stream));
        let pollable = subscribed.unwrap().rep();
        let mut all = Vec::new();
        loop {
            guest.wasi.table.poll(vec![Resource::new_borrow(pollable)]).await.unwrap();
            match HostInputStream::read(&mut guest.wasi, Resource::new_borrow(stream), 2) {
                Ok(bytes) => all.extend(bytes),
                Err(StreamError::Closed) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(all, b"hello");
    }
}

#[tokio::test]
async fn writing_more_than_was_permitted_ends_the_guest() {
    let dir = tree();
    let mut guest = Guest::new(&dir.path().join("work"), Access::ReadWrite).await;
    let file = guest.open("file", OpenFlags::empty(), WRITE).await.unwrap();
    let out = code(guest.wasi.write_via_stream(Resource::new_borrow(file), 0)).unwrap().rep();
    let much = Bytes::from(vec![0; CHUNK + 1]).to_vec();
    let written = HostOutputStream::write(&mut guest.wasi, Resource::new_borrow(out), much);
    assert!(matches!(written, Err(StreamError::Trap(_))));
}

#[tokio::test]
async fn a_grant_that_cannot_be_opened_is_named() {
    let dir = tree();
    for (path, expected) in [
        ("missing", "No such file"),
        ("work/file", "Not a directory"),
        ("work/pipe", "Not a directory"),
    ] {
        let path = dir.path().join(path);
        let grant =
            Directory { mount: "/data".to_owned(), path: path.clone(), access: Access::Read };
        let reach = Arc::new(Reach { directories: vec![grant], ..Reach::default() });
        let opened =
            WasiState::open(reach, TestGate::new(), Arc::new(Outside::new().unwrap())).await;
        let text = opened.unwrap_err().to_string();
        assert!(
            text.contains("/data")
                && text.contains(path.to_str().unwrap())
                && text.contains(expected),
            "{text}"
        );
    }
}
