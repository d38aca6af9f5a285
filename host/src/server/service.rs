//! The profiles of a service, as routes ask for them.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};

use super::served::{Listed, NotServed, Reconciled, Served};
use crate::host::{Profile, Service};
use crate::profile::{self, Tickets};

/// Why a profile that is being retired is not served.
const RETIRING: &str = "it is being retired: what runs in it has not ended yet";

impl Served for Service {
    fn list(&self) -> Vec<Listed> {
        let profiles = self.profiles();
        let served = profiles.served().into_iter().filter_map(|authority| {
            let held = authority.held()?;
            let profile = held.profile().clone();
            let (name, home) = (authority.name().to_owned(), authority.home().to_owned());
            Some(Listed { name, home, state: Ok(profile) })
        });
        let retiring = profiles.retiring().into_iter().map(|authority| Listed {
            name: authority.name().to_owned(),
            home: authority.home().to_owned(),
            state: Err(RETIRING.to_owned()),
        });
        let parked = profiles.parked().into_iter().map(|(name, why)| Listed {
            home: self.directory().join(&name),
            name,
            state: Err(why.to_string()),
        });
        let mut all: Vec<Listed> = served.chain(retiring).chain(parked).collect();
        // One that is parked because its old authority still retires is there once, as what it is.
        all.sort_by(|one, other| {
            (&one.name, one.state.is_err()).cmp(&(&other.name, other.state.is_err()))
        });
        all.dedup_by(|next, first| next.name == first.name);
        all
    }

    fn get(&self, name: &str) -> Result<Profile, NotServed> {
        self.profile(name).ok_or_else(|| not_served(self, name))
    }

    fn tickets(&self, name: &str) -> Result<Arc<Tickets>, NotServed> {
        let authority = self.profiles().get(name).ok_or_else(|| not_served(self, name))?;
        Ok(Arc::clone(authority.tickets()))
    }

    fn recorded(&self) -> BoxFuture<'static, ()> {
        let service = self.clone();
        async move { Service::recorded(&service).await }.boxed()
    }

    fn unrecorded(&self) -> Vec<String> {
        Service::unrecorded(self)
    }

    fn reconcile(&self) -> BoxFuture<'static, Reconciled> {
        let service = self.clone();
        async move {
            match Service::reconcile(&service).await {
                Ok(done) => done.into(),
                Err(error) => {
                    let directory = service.directory().display().to_string();
                    let mut done = Reconciled::default();
                    done.parked.insert(directory, error.to_string());
                    done
                }
            }
        }
        .boxed()
    }
}

/// Why no profile of that name can be asked.
fn not_served(service: &Service, name: &str) -> NotServed {
    let why = match service.profiles().parked().get(name) {
        Some(parked) => Some(parked.to_string()),
        None => {
            let retiring = service.profiles().retiring();
            retiring.iter().any(|authority| authority.name() == name).then(|| RETIRING.to_owned())
        }
    };
    match why {
        Some(why) => NotServed::Parked { name: name.to_owned(), why },
        None => NotServed::Unknown(name.to_owned()),
    }
}

impl From<profile::Reconciled> for Reconciled {
    fn from(done: profile::Reconciled) -> Reconciled {
        let shown = |why: &dyn std::fmt::Display| why.to_string();
        let not_reloaded = done.not_reloaded.iter().map(|(name, why)| (name.clone(), shown(why)));
        let parked = done.parked.iter().map(|(name, why)| (name.clone(), shown(why)));
        Reconciled {
            added: done.added,
            kept: done.kept,
            reloaded: done.reloaded,
            changed: done.changed,
            removed: done.removed,
            released: done.released,
            not_released: done.not_released,
            not_reloaded: not_reloaded.collect(),
            parked: parked.collect(),
        }
    }
}
