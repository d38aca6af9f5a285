//! The functions of `wasi:http/types` by which a guest makes the host keep or copy something: charged and bounded here, then as
//! wasmtime-wasi-http has them.
//!
//! The types need no grant, and what they hold is not in the guest's memory. So all that one run can make them hold is bounded:
//!
//! ```text
//!   bodies    BODIES × 2 × CHUNK                            64 × 128 KiB =  8 MiB
//!   requests  each TARGET_BYTES, and less than 1 KiB      1,000 × 17 KiB = 17 MiB   1,000: the usual limit on handles
//!   fields    each FIELDS_BYTES                           1,000 × 16 KiB = 16 MiB   about half as much again for their tables
//! ```
//!
//! A handle is a request or its fields, so the three together stay under 40 MiB. Answers need a grant, and their bytes are charged.

use std::sync::Arc;

use http_body_util::BodyExt;
use wasmtime::StoreContextMut;
use wasmtime::component::{
    ComponentNamedList, ComponentType, Lift, LinkerInstance, Lower, Resource,
};
use wasmtime_wasi_http::FieldMap;
use wasmtime_wasi_http::p2::HeaderResult;
use wasmtime_wasi_http::p2::bindings::http::types::{
    self, HeaderError, HostFields as _, HostOutgoingRequest as _, Method,
};
use wasmtime_wasi_http::p2::body::HostOutgoingBody;
use wasmtime_wasi_http::p2::types::{HostOutgoingRequest, HostOutgoingResponse};

use super::super::link::HasWasi;
use super::super::state::WasiState;
use super::body::Placed;
use super::plan::TARGET_BYTES;

/// Bodies of requests of one run that bytes may wait in.
pub(in super::super) const BODIES: usize = 64;
/// Bytes of one write to such a body. Two such pieces wait in it at most.
pub(super) const CHUNK: usize = 64 << 10;
/// Bytes of one set of fields, as wasmtime-wasi-http counts: about 70 for each field beside its name and value. The interface has
/// no error for this, so a guest that wants more ends.
pub(in super::super) const FIELDS_BYTES: usize = 16 << 10;
/// Bytes of the name of a method.
const METHOD_BYTES: usize = 64;
/// Bytes of host and port.
const AUTHORITY_BYTES: usize = 512;

type Fields = Resource<FieldMap>;
type Request = Resource<HostOutgoingRequest>;
/// A result whose error says nothing.
type Plain<T> = Result<T, ()>;

/// Puts these functions in the place of those that the linker has.
pub(in super::super) fn bound<T: HasWasi + 'static>(
    l: &mut LinkerInstance<'_, T>,
) -> wasmtime::Result<()> {
    link(l, "[static]fields.from-list", |w, (entries,)| w.fields_from_list(entries))?;
    link(l, "[method]fields.get", |w, (fields, name)| w.get_field(fields, name))?;
    link(l, "[method]fields.has", |w, (fields, name)| w.has_field(fields, name))?;
    link(l, "[method]fields.set", |w, (fields, name, values)| w.set_field(fields, name, values))?;
    link(l, "[method]fields.delete", |w, (fields, name)| w.delete_field(fields, name))?;
    link(l, "[method]fields.append", |w, (fields, name, value)| {
        w.append_field(fields, name, value)
    })?;
    link(l, "[method]fields.entries", |w, (fields,)| w.entries(fields))?;
    link(l, "[method]outgoing-request.set-method", |w, (request, method)| {
        w.set_method(request, method)
    })?;
    link(l, "[method]outgoing-request.set-path-with-query", |w, (request, path)| {
        w.set_path(request, path)
    })?;
    link(l, "[method]outgoing-request.set-authority", |w, (request, authority)| {
        w.set_authority(request, authority)
    })?;
    link(l, "[method]outgoing-request.body", |w, (request,)| w.request_body(&request))?;
    link(l, "[method]outgoing-response.body", |w, (response,)| w.response_body(&response))
}

fn link<T, P, R>(
    l: &mut LinkerInstance<'_, T>,
    name: &str,
    call: impl Fn(&mut WasiState, P) -> wasmtime::Result<R> + Send + Sync + 'static,
) -> wasmtime::Result<()>
where
    T: HasWasi + 'static,
    P: ComponentNamedList + Lift + 'static,
    R: ComponentType + Lower + 'static,
{
    l.func_wrap(name, move |mut store: StoreContextMut<'_, T>, params: P| {
        Ok((call(store.data_mut().wasi().enter("wasi:http/types"), params)?,))
    })
}

/// What the guest reads of a result, apart from what ends it.
fn answer<T>(result: HeaderResult<T>) -> wasmtime::Result<Result<T, HeaderError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

impl WasiState {
    fn fields_from_list(
        &mut self,
        entries: Vec<(String, Vec<u8>)>,
    ) -> wasmtime::Result<Result<Fields, HeaderError>> {
        self.gate.charge(entries.iter().map(|(name, value)| name.len() + value.len()).sum())?;
        answer(self.http().from_list(entries))
    }

    fn get_field(&mut self, fields: Fields, name: String) -> wasmtime::Result<Vec<Vec<u8>>> {
        self.gate.charge(name.len())?;
        let values = self.http().get(fields, name)?;
        self.gate.charge(values.iter().map(Vec::len).sum())?;
        Ok(values)
    }

    fn has_field(&mut self, fields: Fields, name: String) -> wasmtime::Result<bool> {
        self.gate.charge(name.len())?;
        self.http().has(fields, name)
    }

    fn set_field(
        &mut self,
        fields: Fields,
        name: String,
        values: Vec<Vec<u8>>,
    ) -> wasmtime::Result<Result<(), HeaderError>> {
        self.gate.charge(name.len() + values.iter().map(Vec::len).sum::<usize>())?;
        answer(self.http().set(fields, name, values))
    }

    fn delete_field(
        &mut self,
        fields: Fields,
        name: String,
    ) -> wasmtime::Result<Result<(), HeaderError>> {
        self.gate.charge(name.len())?;
        answer(self.http().delete(fields, name))
    }

    fn append_field(
        &mut self,
        fields: Fields,
        name: String,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), HeaderError>> {
        self.gate.charge(name.len() + value.len())?;
        answer(self.http().append(fields, name, value))
    }

    fn entries(&mut self, fields: Fields) -> wasmtime::Result<Vec<(String, Vec<u8>)>> {
        let entries = self.http().entries(fields)?;
        self.gate.charge(entries.iter().map(|(name, value)| name.len() + value.len()).sum())?;
        Ok(entries)
    }

    fn set_method(&mut self, request: Request, method: Method) -> wasmtime::Result<Plain<()>> {
        if let Method::Other(name) = &method {
            self.gate.charge(name.len())?;
            if name.len() > METHOD_BYTES {
                return Ok(Err(()));
            }
        }
        self.http().set_method(request, method)
    }

    fn set_path(&mut self, request: Request, path: Option<String>) -> wasmtime::Result<Plain<()>> {
        let bytes = path.as_ref().map_or(0, String::len);
        self.gate.charge(bytes)?;
        if bytes > TARGET_BYTES {
            return Ok(Err(()));
        }
        self.http().set_path_with_query(request, path)
    }

    fn set_authority(
        &mut self,
        request: Request,
        authority: Option<String>,
    ) -> wasmtime::Result<Plain<()>> {
        let bytes = authority.as_ref().map_or(0, String::len);
        self.gate.charge(bytes)?;
        if bytes > AUTHORITY_BYTES {
            return Ok(Err(()));
        }
        self.http().set_authority(request, authority)
    }

    /// The body of a request, while the run has a place for one.
    pub(super) fn request_body(
        &mut self,
        request: &Request,
    ) -> wasmtime::Result<Plain<Resource<HostOutgoingBody>>> {
        let request = || Resource::new_borrow(request.rep());
        let Ok(place) = Arc::clone(self.bodies()).try_acquire_owned() else {
            self.gate.denied(&format!("http: a body of a request: {BODIES} are open"));
            return Ok(Err(()));
        };
        let Ok(ours) = types::HostOutgoingRequest::body(&mut self.http(), request())? else {
            return Ok(Err(()));
        };
        let kept: &mut HostOutgoingRequest = self.table.get_mut(&request())?;
        kept.body = kept.body.take().map(|body| Placed::new(body, place).boxed_unsync());
        Ok(Ok(ours))
    }

    /// No guest answers requests, so no answer of a guest has a body.
    fn response_body(
        &mut self,
        response: &Resource<HostOutgoingResponse>,
    ) -> wasmtime::Result<Plain<Resource<HostOutgoingBody>>> {
        self.table.get(response)?;
        Ok(Err(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::gate::Gate;
    use super::super::super::state::Outside;
    use super::super::super::testing::TestGate;
    use super::*;
    use crate::sandbox::reach::Reach;
    use std::sync::atomic::Ordering;

    fn guest() -> (Arc<TestGate>, WasiState) {
        let gate = TestGate::new();
        let shared: Arc<dyn Gate> = gate.clone();
        let outside = Arc::new(Outside::new().unwrap());
        (gate, WasiState::new(Arc::new(Reach::default()), Default::default(), shared, outside))
    }

    fn request(wasi: &mut WasiState) -> u32 {
        let fields = wasi.fields_from_list(Vec::new()).unwrap().unwrap();
        types::HostOutgoingRequest::new(&mut wasi.http(), fields).unwrap().rep()
    }

    #[test]
    fn bodies_are_bounded_and_places_come_back() {
        let (_gate, mut wasi) = guest();
        let requests: Vec<u32> = (0..=BODIES).map(|_| request(&mut wasi)).collect();
        let open = |wasi: &mut WasiState, request: u32| {
            wasi.request_body(&Resource::new_borrow(request)).unwrap().is_ok()
        };
        assert!(open(&mut wasi, requests[0]));
        assert!(!open(&mut wasi, requests[0]), "a request has one body");
        for request in &requests[1..BODIES] {
            assert!(open(&mut wasi, *request));
        }
        assert!(!open(&mut wasi, requests[BODIES]));
        types::HostOutgoingRequest::drop(&mut wasi.http(), Resource::new_own(requests[0])).unwrap();
        assert!(open(&mut wasi, requests[BODIES]));
    }

    #[test]
    fn what_a_request_names_is_short_and_charged() {
        let (gate, mut wasi) = guest();
        let request = request(&mut wasi);
        let r = || Resource::new_borrow(request);
        assert_eq!(
            wasi.set_method(r(), Method::Other("x".repeat(METHOD_BYTES + 1))).unwrap(),
            Err(())
        );
        assert_eq!(wasi.set_method(r(), Method::Other("PURGE".to_owned())).unwrap(), Ok(()));
        assert_eq!(wasi.set_path(r(), Some("/x".repeat(TARGET_BYTES))).unwrap(), Err(()));
        assert_eq!(wasi.set_path(r(), Some("/x".to_owned())).unwrap(), Ok(()));
        assert_eq!(
            wasi.set_authority(r(), Some("a".repeat(AUTHORITY_BYTES + 1))).unwrap(),
            Err(())
        );
        let sent = METHOD_BYTES + 1 + 5 + 2 * TARGET_BYTES + 2 + AUTHORITY_BYTES + 1;
        assert_eq!(gate.charged.load(Ordering::Relaxed), sent);
    }

    #[test]
    fn fields_are_bounded_and_charged_both_ways() {
        let (gate, mut wasi) = guest();
        let fields =
            wasi.fields_from_list(vec![("ab".to_owned(), b"cde".to_vec())]).unwrap().unwrap().rep();
        let f = || Resource::new_borrow(fields);
        assert_eq!(wasi.entries(f()).unwrap().len(), 1);
        assert_eq!(wasi.get_field(f(), "ab".to_owned()).unwrap(), [b"cde"]);
        assert_eq!(gate.charged.load(Ordering::Relaxed), 5 + 5 + 2 + 3);
        assert!(wasi.append_field(f(), "much".to_owned(), vec![b'x'; FIELDS_BYTES]).is_err());
        gate.allow(3);
        assert!(wasi.has_field(f(), "long".to_owned()).is_err());
    }
}
