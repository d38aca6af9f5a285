//! The interface itself: checks what a guest may do, then asks `quick`, then the pool.

use std::io;
use std::sync::Arc;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::filesystem::{preopens, types};
use wasmtime_wasi::p2::{FsError, FsResult};
use wasmtime_wasi_io::streams::{DynInputStream, DynOutputStream};

use super::super::gate::{FilePermit, in_pool};
use super::super::state::WasiState;
use super::attributes;
use super::code::{code, failed};
use super::descriptor::{Descriptor, Directory, File, OpenDirectory, OpenFile};
use super::listing::Listing;
use super::open::{self, Opened, Request};
use super::quick;
use super::stream::{self, CHUNK, FileInput, FileOutput, Place};
use types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, Filesize,
    MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};

/// What a listed entry costs beside its name.
const ENTRY: usize = 16;

// The generated bindings fix their own types for the two resources. Ours are in the table under the same numbers.

fn descriptor(theirs: &Resource<types::Descriptor>) -> Resource<Descriptor> {
    Resource::new_borrow(theirs.rep())
}

fn listing(theirs: &Resource<types::DirectoryEntryStream>) -> Resource<Listing> {
    Resource::new_borrow(theirs.rep())
}

impl WasiState {
    fn descriptor(&self, theirs: &Resource<types::Descriptor>) -> FsResult<&Descriptor> {
        Ok(self.table.get(&descriptor(theirs))?)
    }

    fn file(&self, theirs: &Resource<types::Descriptor>) -> FsResult<File> {
        Ok(self.descriptor(theirs)?.file()?.clone())
    }

    fn directory(&self, theirs: &Resource<types::Descriptor>) -> FsResult<Directory> {
        Ok(self.descriptor(theirs)?.directory()?.clone())
    }

    /// The directory, when things may be changed below it.
    fn writable_directory(&self, theirs: &Resource<types::Descriptor>) -> FsResult<Directory> {
        let directory = self.directory(theirs)?;
        directory.check_write()?;
        Ok(directory)
    }

    fn file_permit(&self) -> FsResult<FilePermit> {
        // "Too many open files" has no code of its own; this one reads "quota exceeded".
        self.permit().ok_or_else(|| ErrorCode::Quota.into())
    }

    fn charge_file(&self, bytes: usize) -> FsResult<()> {
        self.gate.charge(bytes).map_err(FsError::trap)
    }

    // The futures below hold the state exclusively: it is not made for shared references on several threads.

    async fn on_pool<R: Send + 'static>(
        &mut self,
        what: &'static str,
        job: impl FnOnce() -> io::Result<R> + Send + 'static,
    ) -> FsResult<R> {
        in_pool(&self.gate, what, job).await.map_err(failed)
    }

    async fn facts_of(&mut self, fd: &Resource<types::Descriptor>) -> FsResult<attributes::Facts> {
        let descriptor = self.descriptor(fd)?;
        if let Some(facts) = quick::stat(descriptor) {
            return Ok(facts);
        }
        let handle = descriptor.handle();
        self.on_pool("reads the attributes of a file", move || attributes::of_handle(&handle)).await
    }

    async fn facts_at(
        &mut self,
        fd: &Resource<types::Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<attributes::Facts> {
        self.charge_file(path.len())?;
        let directory = self.directory(fd)?;
        if let Some(facts) = quick::look(&directory, &path, flags) {
            return facts.map_err(failed);
        }
        self.on_pool("reads the attributes of a file", move || {
            attributes::of_path(&directory.open.dir, &path, flags)
        })
        .await
    }

    fn push_descriptor(&mut self, ours: Descriptor) -> FsResult<Resource<types::Descriptor>> {
        Ok(Resource::new_own(self.table.push(ours)?.rep()))
    }
}

impl preopens::Host for WasiState {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<types::Descriptor>, String)>> {
        let mut all = Vec::new();
        for granted in self.directories.0.iter().flat_map(|granted| granted.iter()) {
            self.gate.charge(granted.mount.len())?;
            let ours = self.table.push(Descriptor::Directory(granted.directory.clone()))?;
            all.push((Resource::new_own(ours.rep()), granted.mount.clone()));
        }
        Ok(all)
    }
}

impl types::Host for WasiState {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        Ok(self.table.get(&error)?.downcast_ref::<io::Error>().map(code))
    }
}

impl types::HostDescriptor for WasiState {
    fn read_via_stream(
        &mut self,
        fd: Resource<types::Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        let file = self.file(&fd)?;
        file.check_read()?;
        let stream: DynInputStream = Box::new(FileInput::new(file.open, self.gate.clone(), offset));
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<types::Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.output(&fd, Place::At(offset))
    }

    fn append_via_stream(
        &mut self,
        fd: Resource<types::Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.output(&fd, Place::End)
    }

    /// Advice is heard and not passed on: it can make the operating system read ahead as much as a guest likes.
    async fn advise(
        &mut self,
        fd: Resource<types::Descriptor>,
        _offset: Filesize,
        _length: Filesize,
        _advice: Advice,
    ) -> FsResult<()> {
        self.file(&fd)?;
        Ok(())
    }

    async fn sync_data(&mut self, fd: Resource<types::Descriptor>) -> FsResult<()> {
        self.sync_file(&fd, "writes file contents to the disk", std::fs::File::sync_data).await
    }

    async fn get_flags(&mut self, fd: Resource<types::Descriptor>) -> FsResult<DescriptorFlags> {
        Ok(self.descriptor(&fd)?.flags())
    }

    async fn get_type(&mut self, fd: Resource<types::Descriptor>) -> FsResult<DescriptorType> {
        Ok(match self.descriptor(&fd)? {
            Descriptor::File(_) => DescriptorType::RegularFile,
            Descriptor::Directory(_) => DescriptorType::Directory,
        })
    }

    async fn set_size(&mut self, fd: Resource<types::Descriptor>, size: Filesize) -> FsResult<()> {
        let file = self.file(&fd)?;
        file.check_write()?;
        self.on_pool("sets the size of a file", move || file.open.file.set_len(size)).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<types::Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        let descriptor = self.descriptor(&fd)?;
        descriptor.check_change()?;
        let times = attributes::timestamps(accessed, modified)?;
        let handle = descriptor.handle();
        self.on_pool("sets the times of a file", move || attributes::set_times(&handle, &times))
            .await
    }

    async fn read(
        &mut self,
        fd: Resource<types::Descriptor>,
        length: Filesize,
        offset: Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        let file = self.file(&fd)?;
        file.check_read()?;
        let size = usize::try_from(length).unwrap_or(CHUNK).min(CHUNK);
        let chunk = match stream::read_at_once(&file.open, offset, size) {
            Some(chunk) => chunk.map_err(failed)?,
            None => {
                self.on_pool("reads a file", move || stream::read(&file.open.file, offset, size))
                    .await?
            }
        };
        self.charge_file(chunk.bytes.len())?;
        Ok((chunk.bytes.into(), chunk.end))
    }

    async fn write(
        &mut self,
        fd: Resource<types::Descriptor>,
        bytes: Vec<u8>,
        offset: Filesize,
    ) -> FsResult<Filesize> {
        let file = self.file(&fd)?;
        file.check_write()?;
        self.charge_file(bytes.len())?;
        let length = bytes.len() as u64;
        self.on_pool("writes a file", move || {
            stream::write(&file.open.file, &bytes, Place::At(offset))
        })
        .await?;
        Ok(length)
    }

    async fn read_directory(
        &mut self,
        fd: Resource<types::Descriptor>,
    ) -> FsResult<Resource<types::DirectoryEntryStream>> {
        let directory = self.directory(&fd)?;
        let permit = self.file_permit()?;
        let ours = self
            .on_pool("lists a directory", move || Listing::start(&directory.open, permit))
            .await?;
        Ok(Resource::new_own(self.table.push(ours)?.rep()))
    }

    async fn sync(&mut self, fd: Resource<types::Descriptor>) -> FsResult<()> {
        self.sync_file(&fd, "writes a file to the disk", std::fs::File::sync_all).await
    }

    async fn create_directory_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.charge_file(path.len())?;
        let directory = self.writable_directory(&fd)?;
        self.on_pool("makes a directory", move || directory.open.dir.create_dir(path)).await
    }

    async fn stat(&mut self, fd: Resource<types::Descriptor>) -> FsResult<DescriptorStat> {
        Ok(self.facts_of(&fd).await?.stat())
    }

    async fn stat_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        Ok(self.facts_at(&fd, flags, path).await?.stat())
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.charge_file(path.len())?;
        let directory = self.writable_directory(&fd)?;
        let times = attributes::timestamps(accessed, modified)?;
        let set = move || attributes::set_times_at(&directory.open.dir, &path, flags, &times);
        self.on_pool("sets the times of a file", set).await
    }

    async fn link_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        flags: PathFlags,
        old_path: String,
        new_fd: Resource<types::Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.charge_file(old_path.len() + new_path.len())?;
        let old = self.writable_directory(&fd)?;
        let new = self.writable_directory(&new_fd)?;
        if flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Err(ErrorCode::Invalid.into());
        }
        let link = move || old.open.dir.hard_link(old_path, &new.open.dir, new_path);
        self.on_pool("links a file", link).await
    }

    async fn open_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<types::Descriptor>> {
        self.charge_file(path.len())?;
        let directory = self.directory(&fd)?;
        let sync = DescriptorFlags::FILE_INTEGRITY_SYNC
            | DescriptorFlags::DATA_INTEGRITY_SYNC
            | DescriptorFlags::REQUESTED_WRITE_SYNC;
        if flags & sync != DescriptorFlags::empty() {
            return Err(ErrorCode::Unsupported.into());
        }
        let mode = flags & (DescriptorFlags::READ | DescriptorFlags::WRITE);
        let request = Request { path, path_flags, open_flags, mode };
        if !request.is_valid() {
            return Err(ErrorCode::Invalid.into());
        }
        if request.writes() {
            directory.check_write()?;
        }
        let permit = self.file_permit()?;
        let Directory { access, local, .. } = directory;
        if let Some(file) = quick::open(&directory, &request) {
            let open = Arc::new(OpenFile { file: file.map_err(failed)?, quick: true, permit });
            return self.push_descriptor(Descriptor::File(File { open, access, mode }));
        }
        let opened = self
            .on_pool("opens a file", move || open::open(&directory.open.dir, local, &request))
            .await?;
        let ours = match opened {
            Opened::File(file, quick) => {
                let open = Arc::new(OpenFile { file, quick, permit });
                Descriptor::File(File { open, access, mode })
            }
            Opened::Directory(dir, device) => {
                let open = Arc::new(OpenDirectory { dir, permit: Some(permit) });
                Descriptor::Directory(Directory {
                    open,
                    access,
                    local: local.filter(|local| *local == device),
                })
            }
        };
        self.push_descriptor(ours)
    }

    async fn readlink_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<String> {
        self.charge_file(path.len())?;
        let directory = self.directory(&fd)?;
        let target =
            self.on_pool("reads a link", move || directory.open.dir.read_link(path)).await?;
        self.charge_file(target.as_os_str().len())?;
        target.into_os_string().into_string().map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    async fn remove_directory_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.charge_file(path.len())?;
        let directory = self.writable_directory(&fd)?;
        self.on_pool("removes a directory", move || directory.open.dir.remove_dir(path)).await
    }

    async fn rename_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        old_path: String,
        new_fd: Resource<types::Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.charge_file(old_path.len() + new_path.len())?;
        let old = self.writable_directory(&fd)?;
        let new = self.writable_directory(&new_fd)?;
        self.on_pool("renames a file", move || {
            old.open.dir.rename(old_path, &new.open.dir, new_path)
        })
        .await
    }

    async fn symlink_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        target: String,
        link_path: String,
    ) -> FsResult<()> {
        self.charge_file(target.len() + link_path.len())?;
        let directory = self.writable_directory(&fd)?;
        if !stays_below(&link_path, &target) {
            return Err(ErrorCode::NotPermitted.into());
        }
        self.on_pool("makes a link", move || directory.open.dir.symlink(target, link_path)).await
    }

    async fn unlink_file_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        path: String,
    ) -> FsResult<()> {
        self.charge_file(path.len())?;
        let directory = self.writable_directory(&fd)?;
        self.on_pool("removes a file", move || directory.open.dir.remove_file(path)).await
    }

    async fn is_same_object(
        &mut self,
        one: Resource<types::Descriptor>,
        other: Resource<types::Descriptor>,
    ) -> wasmtime::Result<bool> {
        // The interface has no error for this; of what cannot be looked at nothing is known, so it is not the same.
        let (one, other) = (self.facts_of(&one).await, self.facts_of(&other).await);
        match (one, other) {
            (Ok(one), Ok(other)) => Ok(one.is_same(&other)),
            (Err(error), _) | (_, Err(error)) => error.downcast().map(|_: ErrorCode| false),
        }
    }

    async fn metadata_hash(
        &mut self,
        fd: Resource<types::Descriptor>,
    ) -> FsResult<MetadataHashValue> {
        Ok(self.facts_of(&fd).await?.hash())
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<types::Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        Ok(self.facts_at(&fd, flags, path).await?.hash())
    }

    fn drop(&mut self, fd: Resource<types::Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Descriptor>::new_own(fd.rep()))?;
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for WasiState {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<types::DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let ours = self.table.get_mut(&listing(&stream))?;
        let entry = ours.next(&self.gate).await.map_err(failed)?;
        if let Some(entry) = &entry {
            self.charge_file(ENTRY + entry.name.len())?;
        }
        Ok(entry)
    }

    fn drop(&mut self, stream: Resource<types::DirectoryEntryStream>) -> wasmtime::Result<()> {
        self.table.delete(Resource::<Listing>::new_own(stream.rep()))?;
        Ok(())
    }
}

impl WasiState {
    fn output(
        &mut self,
        fd: &Resource<types::Descriptor>,
        place: Place,
    ) -> FsResult<Resource<DynOutputStream>> {
        let file = self.file(fd)?;
        file.check_write()?;
        let stream: DynOutputStream =
            Box::new(FileOutput::new(file.open, self.gate.clone(), place));
        Ok(self.table.push(stream)?)
    }

    /// Only what was opened for writing has anything to bring to the disk; for the rest this succeeds at once.
    async fn sync_file(
        &mut self,
        fd: &Resource<types::Descriptor>,
        what: &'static str,
        sync: fn(&std::fs::File) -> io::Result<()>,
    ) -> FsResult<()> {
        match self.descriptor(fd)? {
            Descriptor::File(file) if file.check_write().is_ok() => {
                let open = file.open.clone();
                self.on_pool(what, move || sync(&open.file)).await
            }
            Descriptor::File(_) | Descriptor::Directory(_) => Ok(()),
        }
    }
}

/// Whether a link with this target, made at this path, leads to a place below the directory that the path is relative to. Our own
/// lookups do not need this; other programs that come across the link do.
fn stays_below(link_path: &str, target: &str) -> bool {
    let folder = link_path.trim_end_matches('/').rsplit_once('/').map_or("", |(folder, _)| folder);
    if target.starts_with('/') || link_path.starts_with('/') {
        return false;
    }
    let steps = folder.split('/').chain(target.split('/')).map(|step| match step {
        "" | "." => 0,
        ".." => -1,
        _ => 1,
    });
    let mut depth = 0;
    steps.into_iter().all(|step| {
        depth += step;
        depth >= 0
    })
}

#[cfg(test)]
mod tests {
    use super::stays_below;

    #[test]
    fn links_may_only_lead_below_their_directory() {
        for (path, target) in [
            ("link", "file"),
            ("link", "a/../b"),
            ("a/link", "../file"),
            ("a/b/link", "../../x"),
            ("link", "."),
            ("./link", "x"),
        ] {
            assert!(stays_below(path, target), "{path} -> {target}");
        }
        for (path, target) in [
            ("link", "/etc/passwd"),
            ("link", "../x"),
            ("link", "a/../../x"),
            ("a/link", "../../x"),
            ("a/link/", "../../x"),
            ("../link", "x"),
            ("/link", "x"),
            ("a/../link", "../x"),
        ] {
            assert!(!stays_below(path, target), "{path} -> {target}");
        }
    }
}
