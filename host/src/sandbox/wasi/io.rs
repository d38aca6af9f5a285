//! Streams and their errors: as wasmtime-wasi-io has them, and every byte that a guest reads or writes is charged here.

use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi_io::bindings::wasi::io::{error, streams};
use wasmtime_wasi_io::poll::DynPollable;
use wasmtime_wasi_io::streams::{
    DynInputStream, DynOutputStream, Error, StreamError, StreamResult,
};

use super::state::WasiState;

impl WasiState {
    fn charge_stream(&self, bytes: usize) -> StreamResult<()> {
        self.gate.charge(bytes).map_err(StreamError::Trap)
    }
}

impl error::Host for WasiState {}

impl error::HostError for WasiState {
    fn drop(&mut self, error: Resource<Error>) -> wasmtime::Result<()> {
        error::HostError::drop(&mut self.table, error)
    }

    /// The chain of the error, without the backtrace of the host that its debug form could carry.
    fn to_debug_string(&mut self, error: Resource<Error>) -> wasmtime::Result<String> {
        Ok(format!("{:#}", self.table.get(&error)?))
    }
}

impl streams::Host for WasiState {
    fn convert_stream_error(
        &mut self,
        error: StreamError,
    ) -> wasmtime::Result<streams::StreamError> {
        streams::Host::convert_stream_error(&mut self.table, error)
    }
}

impl streams::HostInputStream for WasiState {
    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        let bytes =
            <ResourceTable as streams::HostInputStream>::read(&mut self.table, stream, len)?;
        self.charge_stream(bytes.len())?;
        Ok(bytes)
    }

    async fn blocking_read(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<Vec<u8>> {
        let bytes = <ResourceTable as streams::HostInputStream>::blocking_read(
            &mut self.table,
            stream,
            len,
        )
        .await?;
        self.charge_stream(bytes.len())?;
        Ok(bytes)
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        let skipped =
            <ResourceTable as streams::HostInputStream>::skip(&mut self.table, stream, len)?;
        self.charge_stream(skipped as usize)?;
        Ok(skipped)
    }

    async fn blocking_skip(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let skipped = <ResourceTable as streams::HostInputStream>::blocking_skip(
            &mut self.table,
            stream,
            len,
        )
        .await?;
        self.charge_stream(skipped as usize)?;
        Ok(skipped)
    }

    fn subscribe(
        &mut self,
        stream: Resource<DynInputStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        <ResourceTable as streams::HostInputStream>::subscribe(&mut self.table, stream)
    }

    async fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        <ResourceTable as streams::HostInputStream>::drop(&mut self.table, stream).await
    }
}

impl streams::HostOutputStream for WasiState {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        <ResourceTable as streams::HostOutputStream>::check_write(&mut self.table, stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.charge_stream(bytes.len())?;
        <ResourceTable as streams::HostOutputStream>::write(&mut self.table, stream, bytes)
    }

    async fn blocking_write_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        bytes: Vec<u8>,
    ) -> StreamResult<()> {
        self.charge_stream(bytes.len())?;
        <ResourceTable as streams::HostOutputStream>::blocking_write_and_flush(
            &mut self.table,
            stream,
            bytes,
        )
        .await
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        <ResourceTable as streams::HostOutputStream>::flush(&mut self.table, stream)
    }

    async fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        <ResourceTable as streams::HostOutputStream>::blocking_flush(&mut self.table, stream).await
    }

    fn subscribe(
        &mut self,
        stream: Resource<DynOutputStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        <ResourceTable as streams::HostOutputStream>::subscribe(&mut self.table, stream)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        self.charge_stream(usize::try_from(len).unwrap_or(usize::MAX))?;
        <ResourceTable as streams::HostOutputStream>::write_zeroes(&mut self.table, stream, len)
    }

    async fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        len: u64,
    ) -> StreamResult<()> {
        self.charge_stream(usize::try_from(len).unwrap_or(usize::MAX))?;
        <ResourceTable as streams::HostOutputStream>::blocking_write_zeroes_and_flush(
            &mut self.table,
            stream,
            len,
        )
        .await
    }

    fn splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let moved =
            <ResourceTable as streams::HostOutputStream>::splice(&mut self.table, to, from, len)?;
        self.charge_stream(moved as usize)?;
        Ok(moved)
    }

    async fn blocking_splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let moved = <ResourceTable as streams::HostOutputStream>::blocking_splice(
            &mut self.table,
            to,
            from,
            len,
        )
        .await?;
        self.charge_stream(moved as usize)?;
        Ok(moved)
    }

    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        <ResourceTable as streams::HostOutputStream>::drop(&mut self.table, stream).await
    }
}
