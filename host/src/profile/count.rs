//! The count of a profile's live work, kept in a file for readers in other processes (N1, N2, N3).
//!
//! ```text
//!   idle ──a change──► counting ──► as written: idle
//!                         │
//!                         └──► else: writing ──► resting ──a while──► idle
//! ```
//!
//! A change that comes while the writer counts, writes or rests is seen after the rest, so each change is followed by a
//! count, and the last one by the last count. The writer is a thread of its own, because a disk may hang.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::identity::{Life, ProcessIdentity};
use super::lock::{HomeLock, unix_ms};
use crate::ids::WorkId;
use crate::work::{Tree, Watch, Work, thread};

/// The name of the file in a home, and that of the next one while it is being written.
const FILE: &str = "work.json";
const NEXT: &str = "work.json.next";

/// The least time between two writes. A host starts tens of thousands of runs in a second.
const REST: Duration = Duration::from_millis(10);

/// How long until a write that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// How much live work a profile has, as it stands in its home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct WorkCount {
    /// The process that wrote it.
    pub process: ProcessIdentity,
    /// How many pieces of work were live.
    pub count: usize,
    /// The same by kind.
    pub kinds: BTreeMap<String, usize>,
    /// When it was written, in milliseconds since 1970. For people: it says nothing of who lives.
    pub written_unix_ms: u64,
}

/// What a reader finds in a home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Reading {
    /// What stands there.
    #[serde(flatten)]
    pub written: WorkCount,
    /// Whether the process that wrote it still runs. Of a dead one no work is left, whatever the count says (N3).
    pub writer: Life,
}

impl WorkCount {
    /// Reads the count of a home, from whatever process. None where no host has ever served that home.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is not such a count.
    pub fn read(home: &Path) -> io::Result<Option<Reading>> {
        let text = match fs::read(home.join(FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let written: WorkCount = serde_json::from_slice(&text)?;
        let writer = written.process.life();
        Ok(Some(Reading { written, writer }))
    }
}

/// Keeps the count of one node's work written, until it is dropped or finished.
pub struct CountWriter {
    bell: Arc<Bell>,
    _watch: Watch,
}

impl CountWriter {
    /// Starts to write down the pieces of work below `work` in the home of that lock. The thread that writes has a share
    /// of the lock, so nobody else can have the home while a write is under way.
    ///
    /// # Errors
    ///
    /// When the system gives no thread. That a write fails is no error: it is reported, and tried again.
    pub fn start(work: &Work, lock: Arc<HomeLock>) -> io::Result<CountWriter> {
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        let watch = work.watch(move || rung.ring());
        let writer = Writer { tree: work.tree(), id: work.id(), lock, last: None, complaint: None };
        let heard = Arc::clone(&bell);
        let over = Over(heard);
        thread("checkrein-count", move || {
            // Locals go in reverse order: whoever is told finds the share of the lock gone, also after a panic.
            let over = over;
            let mut writer = writer;
            writer.run(&over.0);
        })?;
        Ok(CountWriter { bell, _watch: watch })
    }

    /// Waits until the count was written, or found as it stands, after this call. It does not say that the write went well.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn settled(&self) {
        // Without an answer the thread is gone, after its last write.
        let _gone = self.bell.ask(Ask::Settle).await;
    }

    /// How often the count was written.
    pub fn writes(&self) -> u64 {
        self.bell.writes.load(Ordering::Relaxed)
    }

    /// Writes the count a last time and waits until the thread, and its share of the lock, are gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the thread ends all the same, and this can be called again.
    pub async fn finish(&self) {
        let _gone = self.bell.ask(Ask::Finish).await;
    }
}

impl Drop for CountWriter {
    fn drop(&mut self) {
        self.bell.end();
    }
}

impl fmt::Debug for CountWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountWriter").finish_non_exhaustive()
    }
}

/// What the tree and the owner tell the thread.
#[derive(Default)]
struct Bell {
    told: Mutex<Told>,
    rung: Condvar,
    writes: AtomicU64,
}

#[derive(Default)]
struct Told {
    changed: bool,
    /// No more counts are wanted after one last.
    ending: bool,
    /// The thread is gone.
    over: bool,
    /// Answered after the next count.
    settling: Vec<oneshot::Sender<()>>,
    /// Answered when the thread is gone.
    finishing: Vec<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Settle,
    Finish,
}

/// Why the thread woke.
enum Woken {
    Count(Vec<oneshot::Sender<()>>),
    Last,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A few instructions when the thread knows already that there is something to count.
    fn ring(&self) {
        if !std::mem::replace(&mut self.lock().changed, true) {
            self.rung.notify_one();
        }
    }

    fn end(&self) {
        self.lock().ending = true;
        self.rung.notify_one();
    }

    async fn ask(&self, ask: Ask) -> Result<(), oneshot::error::RecvError> {
        let (sender, answer) = oneshot::channel();
        {
            let mut told = self.lock();
            if told.over {
                return Ok(());
            }
            match ask {
                Ask::Settle => told.settling.push(sender),
                Ask::Finish => {
                    told.ending = true;
                    told.finishing.push(sender);
                }
            }
        }
        self.rung.notify_one();
        answer.await
    }

    /// Sleeps until there is something to count; after a write not before `rested`, unless somebody waits; and not
    /// beyond `again`.
    fn wait(&self, rested: Instant, again: Option<Instant>) -> Woken {
        let mut told = self.lock();
        loop {
            if told.ending {
                return Woken::Last;
            }
            let now = Instant::now();
            let due = told.changed && now >= rested || again.is_some_and(|again| now >= again);
            if due || !told.settling.is_empty() {
                told.changed = false;
                return Woken::Count(std::mem::take(&mut told.settling));
            }
            let until = if told.changed { Some(rested) } else { again };
            told = match until {
                Some(until) => {
                    let left = until.saturating_duration_since(now);
                    self.rung.wait_timeout(told, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.rung.wait(told).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The thread has nothing any more.
    fn is_over(&self) {
        let (settling, finishing) = {
            let mut told = self.lock();
            told.over = true;
            (std::mem::take(&mut told.settling), std::mem::take(&mut told.finishing))
        };
        for waiting in settling.into_iter().chain(finishing) {
            let _nobody_waits = waiting.send(());
        }
    }
}

/// The end of the thread.
struct Over(Arc<Bell>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.is_over();
    }
}

/// What the thread has.
struct Writer {
    tree: Tree,
    id: WorkId,
    lock: Arc<HomeLock>,
    /// What stands in the file, as far as this thread wrote it.
    last: Option<BTreeMap<String, usize>>,
    /// What was reported of the writes that failed since the last that went well.
    complaint: Option<String>,
}

impl Writer {
    fn run(&mut self, bell: &Bell) {
        self.count(bell);
        loop {
            let rested = Instant::now() + REST;
            let again = self.complaint.as_ref().map(|_| Instant::now() + AGAIN);
            match bell.wait(rested, again) {
                Woken::Count(waiting) => {
                    self.count(bell);
                    for waiting in waiting {
                        let _nobody_waits = waiting.send(());
                    }
                }
                Woken::Last => return self.count(bell),
            }
        }
    }

    /// Counts, and writes what is not written yet.
    fn count(&mut self, bell: &Bell) {
        let pieces = self.tree.pieces_by_kind(self.id);
        let kinds: BTreeMap<String, usize> =
            pieces.into_iter().map(|(kind, count)| (kind.as_str().to_owned(), count)).collect();
        if self.last.as_ref() == Some(&kinds) {
            return;
        }
        match write(self.lock.home(), &self.written(&kinds)) {
            Ok(()) => {
                bell.writes.fetch_add(1, Ordering::Relaxed);
                self.last = Some(kinds);
                if self.complaint.take().is_some() {
                    tracing::info!(file = %self.path().display(), "the count of work is written again");
                }
            }
            Err(error) => {
                // What stands there is unknown now: the same count as the last has to be written again.
                self.last = None;
                let words = error.to_string();
                if self.complaint.as_ref() != Some(&words) {
                    tracing::warn!(
                        file = %self.path().display(), error = %words,
                        "the count of work cannot be written; it is tried again"
                    );
                    self.complaint = Some(words);
                }
            }
        }
    }

    fn written(&self, kinds: &BTreeMap<String, usize>) -> WorkCount {
        WorkCount {
            process: self.lock.holder().process.clone(),
            count: kinds.values().sum(),
            kinds: kinds.clone(),
            written_unix_ms: unix_ms(SystemTime::now()),
        }
    }

    fn path(&self) -> PathBuf {
        self.lock.home().join(FILE)
    }
}

/// A reader finds the file before or the file after. It is not forced to the disk: after a loss of power the boot is
/// another, and then the count means nothing.
fn write(home: &Path, count: &WorkCount) -> io::Result<()> {
    let next = home.join(NEXT);
    let mut text = serde_json::to_vec(count)?;
    text.push(b'\n');
    let mut file = File::create(&next)?;
    file.write_all(&text)?;
    drop(file);
    fs::rename(&next, home.join(FILE))
}
