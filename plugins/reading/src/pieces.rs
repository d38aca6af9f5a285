//! Opening regular files and reading them in pieces.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use crate::paths;

/// A good length for a piece.
pub const CHUNK: usize = 256 << 10;

/// A regular file, open for reading. It ends where it ended when it was opened, so that reading one that grows all the
/// time ends, too.
#[derive(Debug)]
pub struct Regular {
    file: File,
    /// Where it ended. Files that the system makes up say 0 and are read to whatever end they have.
    length: u64,
    position: u64,
}

impl Regular {
    /// Opens a file and says how large it is, once it is clear that it is one: opening a pipe would wait for whoever
    /// writes into it.
    ///
    /// # Errors
    /// When it is something else than a file, or the system refuses.
    pub fn open(path: &Path) -> Result<(Regular, u64), Unreadable> {
        let metadata = fs::metadata(path).map_err(|error| Unreadable::of(path, &error))?;
        if metadata.is_dir() {
            return Err(Unreadable::Directory);
        }
        if !metadata.is_file() {
            return Err(Unreadable::Special);
        }
        let file = Regular::found(path)?;
        let length = file.length;
        Ok((file, length))
    }

    /// Opens a path that was just seen to be a file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn found(path: &Path) -> Result<Regular, Unreadable> {
        let refused = |error: io::Error| Unreadable::of(path, &error);
        let file = File::open(path).map_err(refused)?;
        let length = file.metadata().map_err(refused)?.len();
        Ok(Regular { file, length, position: 0 })
    }

    /// Reads until the buffer is full or the file ends, and says how much came.
    ///
    /// # Errors
    /// When the system does not read on.
    pub fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        let left = match self.length {
            0 => u64::MAX,
            length => length.saturating_sub(self.position),
        };
        let wanted = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = &mut buffer[..wanted];
        while filled < buffer.len() {
            match self.file.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.position += filled as u64;
        Ok(filled)
    }

    /// How large the file is now.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn size(&self) -> io::Result<u64> {
        self.file.metadata().map(|metadata| metadata.len())
    }

    /// Goes to that byte of the file.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn seek(&mut self, position: u64) -> io::Result<()> {
        self.position = self.file.seek(SeekFrom::Start(position))?;
        Ok(())
    }
}

/// Why a path is not a file to read.
#[derive(Debug)]
pub enum Unreadable {
    /// It is a directory.
    Directory,
    /// It is a device, a pipe or a socket.
    Special,
    /// The system refused, for this reason.
    Refused(String),
}

impl Unreadable {
    fn of(path: &Path, error: &io::Error) -> Unreadable {
        Unreadable::Refused(paths::reason_at(path, error))
    }

    /// The reason in words.
    pub fn reason(&self) -> String {
        match self {
            Unreadable::Directory => "is a directory".to_owned(),
            Unreadable::Special => "is a device, a pipe or a socket, and left alone".to_owned(),
            Unreadable::Refused(why) => why.clone(),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        Unreadable::Refused(paths::reason(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_the_buffer_until_the_end() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a");
        fs::write(&path, b"0123456789").expect("written");
        let (mut file, size) = Regular::open(&path).expect("opened");
        let mut buffer = [0; 4];
        assert_eq!((size, file.fill(&mut buffer).expect("read"), &buffer), (10, 4, b"0123"));
        file.seek(8).expect("sought");
        assert_eq!((file.fill(&mut buffer).expect("read"), &buffer[..2]), (2, &b"89"[..]));
        assert_eq!(file.fill(&mut buffer).expect("read"), 0);
    }

    #[test]
    fn a_file_ends_where_it_ended_when_it_was_opened() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("a");
        fs::write(&path, b"0123").expect("written");
        let mut file = Regular::found(&path).expect("opened");
        let mut growing = File::options().append(true).open(&path).expect("opened");
        growing.write_all(b"4567").expect("written");
        let mut buffer = [0; 8];
        assert_eq!(file.fill(&mut buffer).expect("read"), 4);
        assert_eq!(file.fill(&mut buffer).expect("read"), 0);
        file.seek(2).expect("sought");
        assert_eq!(file.fill(&mut buffer).expect("read"), 2);
        assert_eq!(file.size().expect("known"), 8);
    }

    #[test]
    fn what_is_no_file_is_told_apart() {
        let folder = tempfile::tempdir().expect("a directory");
        let reason = |path: &Path| Regular::open(path).expect_err("no file").reason();
        assert_eq!(reason(folder.path()), "is a directory");
        assert_eq!(reason(&folder.path().join("gone")), "does not exist");
    }
}
