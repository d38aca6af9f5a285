//! The room as a whole: hostile bytes, compilers that do not end, caches that lie.
#![cfg(target_os = "linux")] // it looks into /proc

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::Component;

use super::*;
use crate::sandbox::engine::{EngineSettings, Engines, Metering, Pool};
use crate::work::{Kind, Stop, Tree, Work};

/// The program that the tests compile in is the test program itself, with this one "test" of it. What the test harness
/// prints goes to standard error; the answer goes to what was standard output.
#[test]
#[ignore = "this is the compiling child of the other tests, not a test"]
fn child_process() {
    let output = fs::File::options().write(true).open("/proc/self/fd/3").unwrap();
    let _code = child_main(std::io::stdin(), output);
}

/// A compiler whose children can be found by `mark`, which means nothing to them.
fn marked_compiler(limits: CompileLimits, mark: &str) -> Compiler {
    let name = format!("{}::child_process", module_path!().split_once("::").unwrap().1);
    let mut args: Vec<OsString> = vec!["-c".into(), "exec \"$0\" \"$@\" 3>&1 1>&2".into()];
    args.push(std::env::current_exe().unwrap().into());
    args.extend(["--exact", &name, "--ignored", "--nocapture", "--skip", mark].map(OsString::from));
    Compiler::child("/bin/sh", args, limits)
}

fn compiler(limits: CompileLimits) -> Compiler {
    marked_compiler(limits, "nothing-else")
}

fn engines() -> Engines {
    Engines::new(&EngineSettings { pool: Pool::OnDemand }).unwrap()
}

fn loader(compiler: Compiler, cache: Option<Cache>) -> Loader {
    Loader::new(engines(), compiler, cache)
}

/// A loader that cannot compile: what it loads comes from the cache.
fn cache_only(cache: Cache) -> Loader {
    loader(
        Compiler::child("/nonexistent/compiler", Vec::new(), CompileLimits::default()),
        Some(cache),
    )
}

fn component(body: &str) -> Arc<[u8]> {
    let text = format!("(component (core module $m {body}) (core instance (instantiate $m)))");
    wat::parse_str(text).unwrap().into()
}

fn small() -> Arc<[u8]> {
    component("(func (export \"f\") (result i32) i32.const 42)")
}

/// One function that the register allocator needs very long and very much memory for.
fn bomb(loops: usize) -> Arc<[u8]> {
    let mut body = String::from("(func (export \"f\") (param i32) (result i32)");
    body.push_str(&"(local i32)".repeat(1000));
    for n in 0..loops {
        let (a, b) = (n % 1000, (n * 7 + 1) % 1000);
        body.push_str(&format!(
            "(loop (local.set {a} (i32.add (local.get {b}) (i32.const {n}))) \
             (br_if 0 (i32.lt_u (local.get {a}) (local.get {b}))))"
        ));
    }
    body.push_str("(local.get 0))");
    component(&body)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Whoever has something loaded.
fn owner() -> Work {
    Tree::new("tests").1
}

fn load(loader: &Loader, component: &Arc<[u8]>) -> Result<Component, LoadError> {
    let owner = owner();
    runtime().block_on(loader.load(Arc::clone(component), Metering::None, &owner))
}

fn compile_error(loader: &Loader, component: &Arc<[u8]>) -> CompileError {
    match load(loader, component) {
        Err(LoadError::Compile(error)) => error,
        other => panic!("expected an error of the compiler, got {:?}", other.map(|_| ())),
    }
}

/// Processes that carry this mark in their arguments and are not reaped yet.
fn processes(mark: &str) -> Vec<PathBuf> {
    let marked = |path: &PathBuf| {
        let arguments = fs::read(path.join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    };
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
    processes.filter(marked).collect()
}

fn entries(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|suffix| suffix == "code")).collect()
}

fn cache(directory: &tempfile::TempDir) -> Cache {
    Cache::open(directory.path().join("cache"), Cache::USUAL_BYTES).unwrap()
}

fn cache_path(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("cache")
}

/// A directory with a cache that holds one component.
fn filled(component: &Arc<[u8]>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    load(
        &loader(Compiler::in_process(CompileLimits::default()), Some(cache(&directory))),
        component,
    )
    .unwrap();
    assert_eq!(entries(&cache_path(&directory)).len(), 1);
    directory
}

#[test]
fn a_component_is_compiled_in_a_child_for_both_engines() {
    let owner = owner();
    let loader = loader(compiler(CompileLimits::default()), None);
    let small = small();
    let runtime = runtime();
    for metering in [Metering::None, Metering::Fuel] {
        assert!(loader.loaded(&Digest::of(&small), metering).is_none());
        runtime.block_on(loader.load(Arc::clone(&small), metering, &owner)).unwrap();
        assert!(loader.loaded(&Digest::of(&small), metering).is_some());
    }
}

#[test]
fn what_the_child_compiled_runs_in_the_pool() {
    let owner = owner();
    let engines = Engines::new(&EngineSettings { pool: Pool::Slots(16) }).unwrap();
    assert!(engines.is_pooling());
    let loader = Loader::new(engines.clone(), compiler(CompileLimits::default()), None);
    runtime().block_on(async {
        for metering in [Metering::None, Metering::Fuel] {
            let component = component("(memory 2) (table 7 funcref) (func $f) (start $f)");
            let component = loader.load(component, metering, &owner).await.unwrap();
            let engine = engines.get(metering).unwrap();
            let linker = wasmtime::component::Linker::<()>::new(engine);
            let mut store = wasmtime::Store::new(engine, ());
            store.set_epoch_deadline(1);
            if metering == Metering::Fuel {
                store.set_fuel(1_000).unwrap();
            }
            linker.instantiate_async(&mut store, &component).await.unwrap();
            let used = engines.pool_use();
            assert_eq!(
                (used.components, used.core_instances, used.memories, used.tables),
                (1, 1, 1, 1)
            );
            if metering == Metering::Fuel {
                assert!(store.get_fuel().unwrap() < 1_000);
            }
            drop(store);
            assert_eq!(engines.pool_use(), crate::sandbox::engine::PoolUse::default());
        }
    });
}

#[test]
fn what_is_no_component_is_refused_before_a_process_is_started() {
    let loader =
        loader(Compiler::child("/nonexistent", Vec::new(), CompileLimits::default()), None);
    let found = |bytes: &[u8]| {
        let error = compile_error(&loader, &bytes.into());
        let CompileError::NotAComponent { found } = error else { panic!("{error}") };
        found
    };
    assert_eq!(found(b""), Found::Nothing);
    assert_eq!(found(b"\0asm"), Found::Truncated);
    assert_eq!(found(b"(component)"), Found::Text);
    assert_eq!(found(&wat::parse_str("(module)").unwrap()), Found::CoreModule);
    assert_eq!(found(&[0xc3; 1000]), Found::Unknown);
    let large = vec![0; 100 << 20].into();
    let error = compile_error(&loader, &large);
    assert!(
        matches!(error, CompileError::TooLarge { bytes: 104_857_600, limit: 67_108_864 }),
        "{error}"
    );
}

#[test]
fn a_malformed_component_is_refused_with_the_place() {
    let loader = loader(compiler(CompileLimits::default()), None);
    let whole = small();
    let cut: Arc<[u8]> = whole[..whole.len() - 7].into();
    let error = compile_error(&loader, &cut);
    assert!(matches!(error, CompileError::Invalid { offset: Some(1..), .. }), "{error}");

    let mut noise = b"\0asm\x0d\0\x01\0".to_vec();
    noise.extend((0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
    let error = compile_error(&loader, &noise.into());
    assert!(matches!(error, CompileError::Invalid { offset: Some(8..), .. }), "{error}");
}

#[test]
fn a_component_that_needs_a_proposal_is_refused_as_such() {
    let loader = loader(compiler(CompileLimits::default()), None);
    for body in [
        "(memory 1 1 shared)",
        "(memory i64 1)",
        "(func $f return_call $f)",
        "(tag (param i32))",
        "(type (struct (field i32)))",
    ] {
        let error = compile_error(&loader, &component(body));
        assert!(matches!(error, CompileError::Unsupported { .. }), "{body}: {error}");
    }
}

#[test]
fn a_compilation_that_does_not_end_is_ended() {
    let mark = "ended-by-time";
    let limits = CompileLimits { time: Duration::from_secs(2), ..CompileLimits::default() };
    let loader = loader(marked_compiler(limits, mark), None);
    let start = Instant::now();
    let error = compile_error(&loader, &bomb(20_000));
    assert!(matches!(error, CompileError::TimedOut { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(
        processes(mark),
        Vec::<PathBuf>::new(),
        "the child is reaped when the error is there"
    );
    // The next one has its turn.
    load(&loader, &small()).unwrap();
}

#[test]
fn a_compilation_that_eats_memory_is_ended() {
    let limits = CompileLimits { memory: 64 << 20, ..CompileLimits::default() };
    let loader = loader(compiler(limits), None);
    let error = compile_error(&loader, &bomb(3_000));
    assert!(matches!(error, CompileError::OutOfMemory { limit: 67_108_864 }), "{error}");
    load(&loader, &small()).unwrap();
}

#[test]
fn a_program_that_is_not_ours_is_named() {
    let small = small();
    let limits = CompileLimits { time: Duration::from_secs(20), ..CompileLimits::default() };
    let with = |script: &str| {
        let compiler = Compiler::child("/bin/sh", vec!["-c".into(), script.into()], limits.clone());
        compile_error(&loader(compiler, None), &small)
    };
    let error = compile_error(
        &loader(Compiler::child("/nonexistent", Vec::new(), limits.clone()), None),
        &small,
    );
    assert!(matches!(error, CompileError::Spawn { .. }), "{error}");
    let error = with("echo unhelpful >&2; exit 3");
    assert!(
        matches!(&error, CompileError::Crashed { signal: None, code: Some(3), diagnostics } if diagnostics == "unhelpful"),
        "{error}"
    );
    let error = with("kill -SEGV $$");
    assert!(matches!(error, CompileError::Crashed { signal: Some(11), .. }), "{error}");
    let error = with("echo 'hello, this is some other program'; cat > /dev/null");
    assert!(matches!(error, CompileError::Crashed { .. }), "{error}");
    let error = with("kill -XCPU $$");
    assert!(matches!(error, CompileError::TimedOut { .. }), "{error}");
}

#[test]
fn dropping_the_last_waiter_ends_and_reaps_the_child() {
    let owner = owner();
    let mark = "dropped-by-all";
    let loader = loader(marked_compiler(CompileLimits::default(), mark), None);
    let bomb = bomb(20_000);
    runtime().block_on(async {
        let (mut one, mut other) = (
            Box::pin(loader.load(Arc::clone(&bomb), Metering::None, &owner)),
            Box::pin(loader.load(Arc::clone(&bomb), Metering::None, &owner)),
        );
        until("the child is there", async || {
            assert!(futures::poll!(&mut one).is_pending());
            assert!(futures::poll!(&mut other).is_pending());
            processes(mark).len() == 1
        })
        .await;
        drop(one);
        assert!(futures::poll!(&mut other).is_pending());
        assert_eq!(processes(mark).len(), 1, "someone still waits");
        drop(other);
        until("the child is reaped", async || processes(mark).is_empty()).await;
    });
}

/// Rules W3 and S4: a compilation is in the tree by its kind until its process has been reaped, and a hard stop of it or
/// of what owns it ends it; whoever else waits for the same component has it compiled again.
#[test]
fn a_compilation_is_work_until_its_process_is_reaped() {
    let mark = "in-the-tree";
    let loader = loader(marked_compiler(CompileLimits::default(), mark), None);
    let bomb = bomb(20_000);
    let (tree, root) = Tree::new("tests");
    let session = |label: &str| root.open(Kind::Session, label.to_owned()).unwrap();
    let (one, other) = (session("one"), session("other"));
    let compilations = || {
        let nodes = tree.executions(tree.root());
        assert!(nodes.iter().all(|node| node.kind == Kind::Compilation), "{nodes:?}");
        nodes.into_iter().map(|node| (node.id, node.owner)).collect::<Vec<_>>()
    };
    let hard = Stop::hard("test", "enough");
    runtime().block_on(async {
        let mut first = Box::pin(loader.load(Arc::clone(&bomb), Metering::None, &one));
        let mut second = Box::pin(loader.load(Arc::clone(&bomb), Metering::None, &other));
        until("the child is there", async || {
            assert!(futures::poll!(&mut first).is_pending());
            assert!(futures::poll!(&mut second).is_pending());
            processes(mark).len() == 1
        })
        .await;
        let id = match compilations()[..] {
            [(id, owner)] if owner == Some(one.id()) => id,
            ref others => panic!("{others:?}"),
        };
        // The owner is stopped: it has its answer at once, and the process goes before its node does.
        assert_eq!(one.stop(&hard), 2);
        assert!(matches!(first.await, Err(LoadError::Compile(CompileError::Stopped))));
        until("its process is gone", async || {
            assert!(futures::poll!(&mut second).is_pending());
            !tree.contains(id)
        })
        .await;
        until("the other has its own", async || {
            assert!(futures::poll!(&mut second).is_pending());
            matches!(compilations()[..], [(_, owner)] if owner == Some(other.id()))
                && processes(mark).len() == 1
        })
        .await;
        // A stop of the compilation itself is told to whoever had it begun.
        tree.stop(compilations()[0].0, &hard).unwrap();
        assert!(matches!(second.await, Err(LoadError::Compile(CompileError::Stopped))));
        assert_eq!(compilations(), []);
        assert_eq!(processes(mark), Vec::<PathBuf>::new(), "reaped before its node went");
    });
}

/// Waits for what the kernel does in its own time.
async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done().await {
        assert!(Instant::now() < patience, "not in time: {what}");
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_child_whose_parent_is_gone_ends() {
    // The parent's death shows only as the end of the input.
    let mut child = std::process::Command::new("/bin/sh");
    let name = format!("{}::child_process", module_path!().split_once("::").unwrap().1);
    child.args(["-c", "exec \"$0\" \"$@\" 3>&1 1>&2"]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", &name, "--ignored", "--nocapture"]).env_clear();
    child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
    let engines = engines();
    let bomb = bomb(20_000);
    let head = frame::encode(&frame::Request {
        code: engines.code_settings(Metering::None),
        key: engines.code_key(Metering::None).unwrap(),
        memory: 4 << 30,
        cpu_seconds: 600,
        component_bytes: bomb.len() as u64,
    });
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &head.unwrap()).unwrap();
    std::io::Write::write_all(&mut input, &bomb).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it compiles");
    drop(input);
    assert!(!child.wait().unwrap().success());
}

#[test]
fn loads_at_the_same_time_share_one_compilation() {
    let owner = owner();
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    // Counts how often it is started, and then is the usual child.
    let script = format!("echo x >> '{}'; exec \"$0\" \"$@\" 3>&1 1>&2", count.display());
    let name = format!("{}::child_process", module_path!().split_once("::").unwrap().1);
    let mut args: Vec<OsString> =
        vec!["-c".into(), script.into(), std::env::current_exe().unwrap().into()];
    args.extend(["--exact", &name, "--ignored", "--nocapture"].map(OsString::from));
    let loader = loader(Compiler::child("/bin/sh", args, CompileLimits::default()), None);
    let small = small();
    runtime().block_on(async {
        let load = || loader.load(Arc::clone(&small), Metering::None, &owner);
        let (a, b, c) = tokio::join!(load(), load(), load());
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        load().await.unwrap();
    });
    assert_eq!(fs::read_to_string(&count).unwrap(), "x\n");
}

#[test]
fn a_failed_load_is_tried_again_by_the_next() {
    let loader =
        loader(Compiler::child("/nonexistent", Vec::new(), CompileLimits::default()), None);
    for _ in 0..2 {
        assert!(matches!(compile_error(&loader, &small()), CompileError::Spawn { .. }));
    }
}

#[test]
fn what_was_compiled_once_is_loaded_from_the_cache() {
    let owner = owner();
    let small = small();
    let directory = filled(&small);
    load(&cache_only(cache(&directory)), &small).unwrap();
    // Code with fuel is other code.
    let loader = cache_only(cache(&directory));
    let with_fuel = runtime().block_on(loader.load(Arc::clone(&small), Metering::Fuel, &owner));
    assert!(matches!(with_fuel, Err(LoadError::Compile(CompileError::Spawn { .. }))));
}

#[test]
fn an_entry_that_was_changed_is_removed_and_made_again() {
    let small = small();
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 7] = [
        ("one bit of the code", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("one bit of the checksum", |bytes| bytes[8] ^= 0x80),
        ("the magic", |bytes| bytes[0] ^= 1),
        ("cut in the code", |bytes| bytes.truncate(bytes.len() / 2)),
        ("cut in the head", |bytes| bytes.truncate(20)),
        ("nothing left", Vec::clear),
        ("something behind it", |bytes| bytes.push(0)),
    ];
    for (what, damage) in damages {
        let directory = filled(&small);
        let entry = entries(&cache_path(&directory)).remove(0);
        let intact = fs::read(&entry).unwrap();
        let mut bytes = intact.clone();
        damage(&mut bytes);
        fs::write(&entry, bytes).unwrap();
        let compiled_again = load(&cache_only(cache(&directory)), &small);
        assert!(
            matches!(compiled_again, Err(LoadError::Compile(CompileError::Spawn { .. }))),
            "{what}"
        );
        assert!(!entry.exists(), "{what}");
        load(
            &loader(Compiler::in_process(CompileLimits::default()), Some(cache(&directory))),
            &small,
        )
        .unwrap();
        assert_eq!(fs::read(&entry).unwrap(), intact, "{what}");
    }
}

#[test]
fn an_entry_of_another_component_or_another_cache_is_not_loaded() {
    let (small, other) = (small(), component("(func (export \"g\"))"));
    let (directory, elsewhere) = (filled(&small), filled(&other));
    let entry = entries(&cache_path(&directory)).remove(0);

    // Written by us, in another cache with another key.
    let foreign = filled(&small);
    fs::copy(entries(&cache_path(&foreign)).remove(0), &entry).unwrap();
    assert!(load(&cache_only(cache(&directory)), &small).is_err());

    // With the same key, but for another component.
    fs::copy(cache_path(&elsewhere).join("key"), cache_path(&directory).join("key")).unwrap();
    fs::copy(entries(&cache_path(&elsewhere)).remove(0), &entry).unwrap();
    assert!(load(&cache_only(cache(&directory)), &small).is_err());
    assert!(!entry.exists());
}

#[test]
fn an_entry_that_is_no_file_is_neither_read_nor_waited_for() {
    let small = small();
    type Replace = fn(&Path, &Path);
    let replacements: [Replace; 3] = [
        |entry, _| fs::create_dir(entry).unwrap(),
        |entry, moved| symlink(moved, entry).unwrap(),
        |entry, _| {
            assert!(std::process::Command::new("mkfifo").arg(entry).status().unwrap().success())
        },
    ];
    for replace in replacements {
        let directory = filled(&small);
        let entry = entries(&cache_path(&directory)).remove(0);
        let moved = directory.path().join("moved");
        fs::rename(&entry, &moved).unwrap();
        replace(&entry, &moved);
        assert!(load(&cache_only(cache(&directory)), &small).is_err());
        // It is a nuisance, not an obstacle.
        load(
            &loader(Compiler::in_process(CompileLimits::default()), Some(cache(&directory))),
            &small,
        )
        .unwrap();
    }
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(cache(&directory));
    let path = cache_path(&directory);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(path.join("key")).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o770, 0o702, 0o777, 0o1777] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = Cache::open(&path, Cache::USUAL_BYTES).unwrap_err();
        assert!(matches!(error, CacheError::Exposed { .. }), "{mode:o}: {error}");
        assert!(Cache::open_or_warn(&path, Cache::USUAL_BYTES).is_none());
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Cache::open(&path, Cache::USUAL_BYTES).is_ok());
    fs::set_permissions(path.join("key"), fs::Permissions::from_mode(0o640)).unwrap();
    let error = Cache::open(&path, Cache::USUAL_BYTES).unwrap_err();
    assert!(matches!(error, CacheError::Exposed { .. }), "{error}");
}

#[test]
fn a_cache_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Cache::open(file.join("cache"), Cache::USUAL_BYTES).unwrap_err();
    assert!(matches!(error, CacheError::Unusable { .. }), "{error}");
}

#[test]
fn two_hosts_share_one_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = cache_path(&directory);
    // All of them make the key at the same time, and all end up with the same one.
    let caches: Vec<Cache> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| Cache::open(&path, Cache::USUAL_BYTES).unwrap()))
            .collect();
        opening.into_iter().map(|opening| opening.join().unwrap()).collect()
    });
    let small = small();
    let mut caches = caches.into_iter();
    let writer = loader(Compiler::in_process(CompileLimits::default()), caches.next());
    load(&writer, &small).unwrap();
    for cache in caches {
        load(&cache_only(cache), &small).unwrap();
    }
}

#[test]
fn the_entries_that_were_not_used_for_longest_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = cache_path(&directory);
    let components: Vec<_> =
        (0..4).map(|n| component(&format!("(func (export \"f{n}\"))"))).collect();
    let open = |most_bytes| Cache::open(&path, most_bytes).unwrap();
    let compiling =
        |most_bytes| loader(Compiler::in_process(CompileLimits::default()), Some(open(most_bytes)));
    let size = {
        load(&compiling(Cache::USUAL_BYTES), &components[0]).unwrap();
        fs::metadata(&entries(&path)[0]).unwrap().len()
    };
    load(&compiling(Cache::USUAL_BYTES), &components[1]).unwrap();
    load(&compiling(Cache::USUAL_BYTES), &components[2]).unwrap();
    // The first is used again, so the second is the oldest.
    load(&cache_only(open(Cache::USUAL_BYTES)), &components[0]).unwrap();
    load(&compiling(size * 7 / 2), &components[3]).unwrap();
    assert_eq!(entries(&path).len(), 3);
    assert!(load(&cache_only(open(Cache::USUAL_BYTES)), &components[1]).is_err());
    for kept in [0, 2, 3] {
        load(&cache_only(open(Cache::USUAL_BYTES)), &components[kept]).unwrap();
    }
}

#[test]
fn what_dead_processes_left_over_is_removed_in_the_end() {
    let directory = tempfile::tempdir().unwrap();
    drop(cache(&directory));
    let (old, new) =
        (cache_path(&directory).join(".new-1-a"), cache_path(&directory).join(".new-1-b"));
    let old_file = fs::File::create(&old).unwrap();
    old_file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
    fs::write(&new, "").unwrap();
    load(
        &loader(Compiler::in_process(CompileLimits::default()), Some(cache(&directory))),
        &small(),
    )
    .unwrap();
    assert!(!old.exists() && new.exists());
}

#[test]
fn never_more_compilations_at_one_time_than_allowed() {
    let owner = owner();
    let mark = "one-at-a-time";
    let limits =
        CompileLimits { jobs: 1, time: Duration::from_secs(60), ..CompileLimits::default() };
    let loader = loader(marked_compiler(limits, mark), None);
    let (large, small) = (bomb(20_000), small());
    runtime().block_on(async {
        let mut first = Box::pin(loader.load(Arc::clone(&large), Metering::None, &owner));
        until("the first is at work", async || {
            assert!(futures::poll!(&mut first).is_pending());
            processes(mark).len() == 1
        })
        .await;
        let mut second = Box::pin(loader.load(Arc::clone(&small), Metering::None, &owner));
        assert!(futures::poll!(&mut second).is_pending());
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!(processes(mark).len(), 1);
        drop(first);
        second.await.unwrap();
    });
}
