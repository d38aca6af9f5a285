//! Tickets of a profile.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::{BadTicket, MOST_TICKETS, NoTicket, TICKET_LIFE, Tickets};

/// Tickets by a clock that stands still until it is moved.
fn tickets() -> (Tickets, impl Fn(Duration)) {
    let clock = Arc::new(Mutex::new(Instant::now()));
    let read = Arc::clone(&clock);
    (Tickets::new(move || *read.lock().unwrap()), move |time| *clock.lock().unwrap() += time)
}

/// Rule P8: single use, and for one purpose; a wrong one uses it up, because somebody has seen it.
#[test]
fn a_ticket_is_good_once_and_for_its_purpose() {
    let (tickets, _) = tickets();
    let ticket = tickets.issue("attach", "giver", TICKET_LIFE).unwrap();
    assert_eq!(tickets.redeem(ticket.reveal(), "attach"), Ok("giver".into()));
    assert_eq!(tickets.redeem(ticket.reveal(), "attach"), Err(BadTicket));
    let ticket = tickets.issue("attach", "giver", TICKET_LIFE).unwrap();
    assert_eq!(tickets.redeem(ticket.reveal(), "stop"), Err(BadTicket));
    assert_eq!(tickets.redeem(ticket.reveal(), "attach"), Err(BadTicket));
    assert_eq!(tickets.redeem("", "attach"), Err(BadTicket));
}

/// Rule P8: bound to one profile.
#[test]
fn a_ticket_of_another_profile_is_unknown() {
    let ((one, _), (other, _)) = (tickets(), tickets());
    let ticket = one.issue("attach", "giver", TICKET_LIFE).unwrap();
    assert_eq!(other.redeem(ticket.reveal(), "attach"), Err(BadTicket));
    assert_eq!(
        one.redeem(ticket.reveal(), "attach"),
        Ok("giver".into()),
        "nobody else has used it up"
    );
}

/// Rule P8: short-lived.
#[test]
fn a_ticket_runs_out() {
    let (tickets, pass) = tickets();
    let (early, late) = (
        tickets.issue("attach", "giver", TICKET_LIFE).unwrap(),
        tickets.issue("attach", "giver", TICKET_LIFE).unwrap(),
    );
    pass(TICKET_LIFE - Duration::from_nanos(1));
    assert_eq!(tickets.redeem(early.reveal(), "attach"), Ok("giver".into()));
    pass(Duration::from_nanos(1));
    assert_eq!(tickets.redeem(late.reveal(), "attach"), Err(BadTicket));
}

/// Rule P8: who asks for one can make its life shorter, down to nothing, and not longer. What has run out is forgotten.
#[test]
fn a_ticket_has_the_life_that_was_asked_for_and_not_more() {
    let (tickets, pass) = tickets();
    let nothing = tickets.issue("attach", "giver", Duration::ZERO).unwrap();
    assert_eq!(tickets.redeem(nothing.reveal(), "attach"), Err(BadTicket));
    let short = tickets.issue("attach", "giver", Duration::from_secs(1)).unwrap();
    let long = tickets.issue("attach", "giver", Duration::MAX).unwrap();
    pass(Duration::from_secs(1));
    assert_eq!(tickets.redeem(short.reveal(), "attach"), Err(BadTicket));
    assert!(format!("{tickets:?}").contains("live: 1"), "{tickets:?}");
    pass(TICKET_LIFE - Duration::from_secs(1));
    assert_eq!(tickets.redeem(long.reveal(), "attach"), Err(BadTicket));
    assert!(format!("{tickets:?}").contains("live: 0"), "{tickets:?}");
}

/// Rule P8: kept hashed, not shown, and no more than so many.
#[test]
fn tickets_are_few_and_not_shown() {
    let (tickets, pass) = tickets();
    let all: Vec<_> =
        (0..MOST_TICKETS).map(|_| tickets.issue("attach", "giver", TICKET_LIFE).unwrap()).collect();
    pass(Duration::from_secs(1));
    let full = NoTicket::TooMany { retry_after: TICKET_LIFE - Duration::from_secs(1) };
    assert_eq!(tickets.issue("attach", "giver", TICKET_LIFE).unwrap_err(), full);
    let different: std::collections::BTreeSet<_> = all.iter().map(|one| one.reveal()).collect();
    assert_eq!(different.len(), MOST_TICKETS);
    for ticket in &all {
        assert_eq!(ticket.reveal().len(), 4 + 64);
        assert!(!format!("{ticket:?} {tickets:?}").contains(&ticket.reveal()[4..]));
    }
    pass(TICKET_LIFE);
    tickets.issue("attach", "giver", TICKET_LIFE).expect("those that have run out make room");
}

/// Rules P2, P8: revoked once; then there are none and no more are made.
#[test]
fn revoked_tickets_are_gone_and_none_follow() {
    let (tickets, _) = tickets();
    let ticket = tickets.issue("attach", "giver", TICKET_LIFE).unwrap();
    assert_eq!((tickets.revoke(), tickets.revoke()), (1, 0));
    assert_eq!(tickets.redeem(ticket.reveal(), "attach"), Err(BadTicket));
    assert_eq!(tickets.issue("attach", "giver", TICKET_LIFE).unwrap_err(), NoTicket::NotServed);
}
