//! Tickets in requests (P8): what they are good for, where they stand, and how they are used up.

use axum::extract::Query;
use axum::http::{HeaderMap, Uri, header};

use super::app::App;
use super::gate::{Denied, Gate, Who};
use super::scope::{Target, Verb};
use crate::profile::BadTicket;
use crate::secret::Secret;

/// The parameter in an address, for clients that can set no header.
const PARAMETER: &str = "ticket";

/// What a ticket is good for, once, in one session. Each of them is one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Follow the events of the session.
    Follow,
    /// Send it a prompt.
    Prompt,
}

impl Purpose {
    /// The name.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Purpose::Follow => "follow",
            Purpose::Prompt => "prompt",
        }
    }

    /// The purpose as tickets are bound to it.
    pub(super) fn of(self, session: &str) -> String {
        format!("{} {session}", self.as_str())
    }

    /// Whether it may stand in the address: only where clients in browsers can set no header. Addresses get into the logs of
    /// whatever stands before the host.
    pub(super) fn stands_in_addresses(self) -> bool {
        match self {
            Purpose::Follow => true,
            Purpose::Prompt => false,
        }
    }
}

/// The ticket that a request shows, if it shows one. It counts whatever else the request shows: who has been handed a ticket
/// has no more than that, also behind somebody who may do everything.
pub(super) fn shown(
    headers: &HeaderMap,
    address: &Uri,
    purpose: Option<Purpose>,
) -> Option<Secret> {
    let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
    let in_headers = authorizations.find_map(|value| scheme(value.as_bytes()));
    let in_address = || {
        purpose.filter(|purpose| purpose.stands_in_addresses())?;
        // Read as the route reads it, so that what is a ticket there is one here, however it is spelled.
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(address).ok()?;
        let mut tickets = pairs.into_iter().filter(|(name, _)| name == PARAMETER);
        tickets.next().map(|(_, ticket)| Secret::new(ticket))
    };
    in_headers.or_else(in_address)
}

/// What stands after `Ticket` in a header `Authorization`; none where another word does.
fn scheme(value: &[u8]) -> Option<Secret> {
    let (word, rest) = value.trim_ascii_start().split_at_checked("ticket".len())?;
    let stands_alone = rest.first().is_none_or(u8::is_ascii_whitespace);
    let ticket = || Secret::new(String::from_utf8_lossy(rest.trim_ascii()));
    (word.eq_ignore_ascii_case(b"ticket") && stands_alone).then(ticket)
}

/// Uses up a ticket for the session in the path of a route. It is used up also when the request comes to nothing.
///
/// # Errors
///
/// [`Denied`] when the route takes no tickets, or this one is not good for it, or whoever had it made may not do that any more.
/// Whether there is such a profile is not told.
pub(super) fn redeem(
    (app, gate): (&App, &dyn Gate),
    (purpose, verb): (Option<Purpose>, Verb),
    (profile, session): (Option<&str>, Option<&str>),
    ticket: &Secret,
) -> Result<Who, Denied> {
    let (Some(purpose), Some(profile), Some(session)) = (purpose, profile, session) else {
        return Err(Denied::Forbidden("no ticket is good for this".to_owned()));
    };
    let bad = || Denied::Unauthenticated(BadTicket.to_string());
    let tickets = app.tickets(profile).map_err(|_| bad())?;
    let giver = tickets.redeem(ticket.expose(), &purpose.of(session)).map_err(|_| bad())?;
    let who = Who { name: "ticket".into(), token: giver.parse().ok() };
    gate.is_still_good(&who, Target::Profile(profile), verb).then_some(who).ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[&str], address: &str, purpose: Option<Purpose>) -> Option<String> {
        let values = headers.iter().map(|value| (header::AUTHORIZATION, value.parse().unwrap()));
        let (headers, address): (HeaderMap, Uri) = (values.collect(), address.parse().unwrap());
        shown(&headers, &address, purpose).map(|text| text.expose().to_owned())
    }

    #[test]
    fn a_ticket_is_found_where_it_may_stand_and_goes_before_all_else() {
        let (follow, prompt) = (Some(Purpose::Follow), Some(Purpose::Prompt));
        for (headers, address, purpose, expected) in [
            (&["Ticket crt_1"][..], "/e", follow, Some("crt_1")),
            (&["tICKET   crt_1 "], "/e", None, Some("crt_1")),
            (&["Ticket"], "/e", None, Some("")),
            (&["Ticket\tcrt_1"], "/e", None, Some("crt_1")),
            (&[], "/e?tic%6Bet=crt%5F2", follow, Some("crt_2")),
            (&[], "/e?ticket", follow, Some("")),
            (&["Ticketed crt_1"], "/e", follow, None),
            (&["Bearer crt_1"], "/e", follow, None),
            (&["Bearer x", "Ticket crt_1"], "/e", prompt, Some("crt_1")),
            (&[], "/e?after=1&ticket=crt_2", follow, Some("crt_2")),
            (&["Bearer x"], "/e?ticket=crt_2", follow, Some("crt_2")),
            (&["Ticket crt_1"], "/e?ticket=crt_2", follow, Some("crt_1")),
            (&[], "/e?ticket=crt_2", prompt, None),
            (&[], "/e?ticket=crt_2", None, None),
            (&[], "/e?xticket=crt_2", follow, None),
            (&[], "/e", follow, None),
        ] {
            let found = read(headers, address, purpose);
            assert_eq!(found.as_deref(), expected, "{headers:?} {address} {purpose:?}");
        }
    }
}
