//! Writes what is kept, on a thread of its own, because a disk may hang.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tokio::sync::oneshot;

use super::record::write;
use crate::work::thread;

type Job = (Vec<u8>, oneshot::Sender<io::Result<()>>);

/// Where what is kept goes. The thread is started by the first write, and is gone with this.
pub(super) struct Writer {
    home: Arc<Path>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
}

/// What says that something is on the disk.
pub(super) struct Written(oneshot::Receiver<io::Result<()>>);

impl Writer {
    pub(super) fn new(home: &Path) -> Writer {
        Writer { home: home.into(), jobs: Mutex::default() }
    }

    /// Queues a write. Waits for nothing; what is queued later is on the disk later.
    pub(super) fn write(&self, text: io::Result<Vec<u8>>) -> Written {
        let (answer, written) = oneshot::channel();
        match text.and_then(|text| self.queue(text)) {
            Ok((jobs, text)) => {
                // A thread that is gone has dropped the answer, and that is the answer.
                jobs.send((text, answer)).ok();
            }
            Err(error) => {
                answer.send(Err(error)).ok();
            }
        }
        Written(written)
    }

    fn queue(&self, text: Vec<u8>) -> io::Result<(mpsc::Sender<Job>, Vec<u8>)> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(jobs) = &*jobs {
            return Ok((jobs.clone(), text));
        }
        let (sender, receiver) = mpsc::channel::<Job>();
        let home = Arc::clone(&self.home);
        thread("checkrein-schedules", move || {
            while let Ok((text, answer)) = receiver.recv() {
                // Whoever has lost interest does not hear of it.
                answer.send(write(&home, &text)).ok();
            }
        })?;
        *jobs = Some(sender.clone());
        Ok((sender, text))
    }
}

impl Written {
    pub(super) async fn done(self) -> io::Result<()> {
        self.0.await.unwrap_or_else(|_| Err(io::Error::other("the thread that writes is gone")))
    }
}
