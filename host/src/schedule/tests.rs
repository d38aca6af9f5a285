//! Tests of the plan: the clock is an argument, so nothing waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::{
    Decision, Due, Expression, Missed, Overlap, Passed, Planner, Schedule, Start, Timestamp, Why,
};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn schedule(cron: &str, zone: &str) -> Schedule {
    Schedule {
        cron: cron.parse().unwrap(),
        time_zone: zone.parse().unwrap(),
        missed: Missed::Skip,
        overlap: Overlap::Skip,
    }
}

/// A plan of one schedule, which was decided about until then.
fn planner(schedule: Schedule, decided: &str) -> Planner {
    let decided = BTreeMap::from([("it".to_owned(), at(decided))]);
    Planner::new([("it".to_owned(), schedule)], &decided, decided["it"])
}

fn starts(due: &Due) -> Vec<String> {
    due.start.iter().map(|start| start.what.scheduled.to_string()).collect()
}

fn passed(due: &Due) -> Vec<(Why, usize)> {
    due.passed.iter().map(|passed| (passed.what.why, passed.what.count)).collect()
}

/// The next so many scheduled times.
fn coming(cron: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let schedule = schedule(cron, zone);
    let mut all = Vec::new();
    let mut from = at(from);
    for _ in 0..count {
        from = schedule.cron.after(from, &schedule.time_zone).unwrap();
        all.push(from.to_string());
    }
    all
}

#[test]
fn a_schedule_follows_the_clock_of_its_zone() {
    let winter = coming("30 9 * * MON-FRI", "Europe/Berlin", "2026-01-02T12:00:00Z", 2);
    assert_eq!(winter, ["2026-01-05T08:30:00Z", "2026-01-06T08:30:00Z"]);
    let summer = coming("30 9 * * MON-FRI", "Europe/Berlin", "2026-07-03T00:00:00Z", 2);
    assert_eq!(summer, ["2026-07-03T07:30:00Z", "2026-07-06T07:30:00Z"]);
    let far = coming("0 0 29 2 *", "UTC", "2097-01-01T00:00:00Z", 1);
    assert_eq!(far, ["2104-02-29T00:00:00Z"], "2100 has no such day");
}

/// In 2026 clocks in Berlin go from 2:00 to 3:00 on 29 March, which is 1:00 UTC.
#[test]
fn a_run_at_a_fixed_time_in_a_gap_is_due_once_right_after_it() {
    let daily = coming("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3);
    assert_eq!(daily, ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    // Also when it is due at the gap's end anyway.
    let both = coming("30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3);
    assert_eq!(both, ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:30:00Z"]);
    let often = coming("*/15 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 2);
    assert_eq!(often, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // A whole day that is not there: Samoa went over 30 December 2011.
    let apia = coming("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 3);
    assert_eq!(apia, ["2011-12-29T22:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]);
    // Asked in the middle of the hour that is not there, and right at its end.
    for from in ["2026-03-29T00:59:59.999Z", "2026-03-29T00:30:00Z"] {
        assert_eq!(coming("30 2 * * *", "Europe/Berlin", from, 1), ["2026-03-29T01:00:00Z"]);
    }
    let after = coming("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", 1);
    assert_eq!(after, ["2026-03-30T00:30:00Z"]);
}

/// In 2026 clocks in Berlin go from 3:00 back to 2:00 on 25 October, which is 1:00 UTC.
#[test]
fn a_run_at_a_fixed_time_in_a_fold_is_due_once() {
    let daily = coming("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(daily, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let often = coming("*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3);
    assert_eq!(often, ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"]);
    // Asked between the two.
    let between = coming("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1);
    assert_eq!(between, ["2026-10-26T01:30:00Z"]);
}

#[test]
fn what_is_due_again_and_again_skips_the_gap_and_goes_on_through_the_fold() {
    let spring = coming("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:15:00Z", 3);
    assert_eq!(spring, ["2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"]);
    let autumn = coming("*/30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 5);
    let expected = [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T02:00:00Z",
    ];
    assert_eq!(autumn, expected);
}

#[test]
fn a_plan_says_when_to_wake_and_what_is_due_then() {
    let hourly = schedule("0 * * * *", "UTC");
    let daily = schedule("0 0 * * *", "UTC");
    let now = at("2026-05-01T22:10:00Z");
    let none = BTreeMap::new();
    let mut plan =
        Planner::new([("hourly".to_owned(), hourly), ("daily".to_owned(), daily)], &none, now);
    assert_eq!(plan.next(now), Some(at("2026-05-01T23:00:00Z")));
    assert_eq!(plan.due(at("2026-05-01T22:59:59.999Z"), |_| 0), Due::default());
    let due = plan.due(at("2026-05-01T23:00:00.004Z"), |_| 0);
    let what = Start { scheduled: at("2026-05-01T23:00:00Z"), makes_up: false };
    assert_eq!(due.start, [Decision { schedule: "hourly".to_owned(), what }]);
    let due = plan.due(at("2026-05-02T00:00:00Z"), |_| 0);
    let names: Vec<&str> = due.start.iter().map(|start| &*start.schedule).collect();
    assert_eq!(names, ["daily", "hourly"]);
    let empty = Planner::new([], &none, now);
    assert_eq!(empty.next(now), None);
}

/// Rule K1: at most once, also when the host died right after it had kept what was decided.
#[test]
fn nothing_is_due_twice_when_the_clock_goes_back_or_the_host_starts_anew() {
    let mut plan = planner(schedule("0 * * * *", "UTC"), "2026-05-01T11:30:00Z");
    let noon = at("2026-05-01T12:00:01Z");
    assert_eq!(starts(&plan.due(noon, |_| 0)), ["2026-05-01T12:00:00Z"]);
    for back in ["2026-05-01T11:59:59Z", "2026-05-01T12:00:00Z", "2026-04-30T12:00:00Z"] {
        assert_eq!(plan.due(at(back), |_| 0), Due::default());
        assert_eq!(plan.next(at(back)), Some(at("2026-05-01T13:00:00Z")));
    }
    let schedules = [("it".to_owned(), schedule("0 * * * *", "UTC"))];
    let mut anew = Planner::new(schedules, &plan.decided(), noon);
    assert_eq!(anew.due(noon, |_| 0), Due::default());
    assert_eq!(starts(&anew.due(at("2026-05-01T13:00:00Z"), |_| 0)), ["2026-05-01T13:00:00Z"]);
}

#[test]
fn what_was_missed_is_skipped_made_up_for_once_or_run_for_run() {
    let missed = |missed| {
        let mut plan =
            planner(Schedule { missed, ..schedule("0 * * * *", "UTC") }, "2026-05-01T00:30:00Z");
        plan.due(at("2026-05-01T06:30:00Z"), |_| 0)
    };
    let skip = missed(Missed::Skip);
    let (first, last) = (at("2026-05-01T01:00:00Z"), at("2026-05-01T06:00:00Z"));
    let expected = Passed { first, last, count: 6, more: false, why: Why::Missed };
    assert_eq!((starts(&skip), skip.passed[0].what), (vec![], expected));

    let once = missed(Missed::Once);
    assert_eq!(starts(&once), ["2026-05-01T06:00:00Z"]);
    assert!(once.start[0].what.makes_up);
    assert_eq!(passed(&once), [(Why::Missed, 5)]);

    let all = missed(Missed::All(2));
    assert_eq!(starts(&all), ["2026-05-01T05:00:00Z"], "the other one waits for this one");
    assert_eq!(passed(&all), [(Why::Missed, 4)]);
}

#[test]
fn runs_that_make_up_come_one_after_the_other_or_at_once_where_they_may_overlap() {
    let hourly =
        |overlap| Schedule { missed: Missed::All(3), overlap, ..schedule("0 * * * *", "UTC") };
    for overlap in [Overlap::Skip, Overlap::Queue] {
        let mut plan = planner(hourly(overlap), "2026-05-01T00:30:00Z");
        let now = at("2026-05-01T03:30:00Z");
        assert_eq!(starts(&plan.due(now, |_| 0)), ["2026-05-01T01:00:00Z"]);
        assert_eq!(plan.due(now, |_| 1), Due::default());
        assert_eq!(starts(&plan.due(now, |_| 0)), ["2026-05-01T02:00:00Z"]);
        // One that is on time meanwhile does not overtake them.
        let late = plan.due(at("2026-05-01T04:00:00Z"), |_| 1);
        assert_eq!((starts(&late).len(), late.passed.len()), (0, 1));
        assert_eq!(starts(&plan.due(now, |_| 0)), ["2026-05-01T03:00:00Z"]);
        assert_eq!(plan.due(now, |_| 0), Due::default());
    }
    let mut plan = planner(hourly(Overlap::Allow), "2026-05-01T00:30:00Z");
    assert_eq!(starts(&plan.due(at("2026-05-01T03:30:00Z"), |_| 5)).len(), 3);
}

#[test]
fn a_run_that_would_overlap_is_left_out_waits_or_starts() {
    let hourly = |overlap| Schedule { overlap, ..schedule("0 * * * *", "UTC") };
    let (one, two) = (at("2026-05-01T01:00:00Z"), at("2026-05-01T02:00:00Z"));

    let mut plan = planner(hourly(Overlap::Skip), "2026-05-01T00:30:00Z");
    assert_eq!(passed(&plan.due(one, |_| 1)), [(Why::Overlaps, 1)]);
    assert_eq!(starts(&plan.due(two, |_| 0)), ["2026-05-01T02:00:00Z"]);

    let mut plan = planner(hourly(Overlap::Allow), "2026-05-01T00:30:00Z");
    assert_eq!(starts(&plan.due(one, |_| 7)), ["2026-05-01T01:00:00Z"]);

    let mut plan = planner(hourly(Overlap::Queue), "2026-05-01T00:30:00Z");
    assert_eq!(plan.due(one, |_| 1), Due::default(), "it waits");
    assert_eq!(passed(&plan.due(two, |_| 1)), [(Why::LineIsFull, 1)]);
    let due = plan.due(at("2026-05-01T02:20:00Z"), |_| 0);
    assert_eq!(starts(&due), ["2026-05-01T01:00:00Z"]);
    assert!(!due.start[0].what.makes_up);
}

/// Rule K1: no time is decided about twice, and none by a schedule that was not there then.
#[test]
fn other_schedules_are_taken_over_without_a_run_too_many() {
    let hourly = || Schedule {
        missed: Missed::Once,
        overlap: Overlap::Queue,
        ..schedule("0 * * * *", "UTC")
    };
    let mut plan = planner(hourly(), "2026-05-01T00:30:00Z");
    let one = at("2026-05-01T01:00:00Z");
    assert_eq!(starts(&plan.due(one, |_| 0)).len(), 1);
    assert_eq!(plan.due(at("2026-05-01T02:00:00Z"), |_| 1), Due::default(), "it waits");
    // As it was, but for what becomes of overlaps: nothing comes twice, and what waits is not lost.
    let now = at("2026-05-01T02:10:00Z");
    let same = Schedule { overlap: Overlap::Skip, ..hourly() };
    plan.rebind([("it".to_owned(), same)], now);
    assert_eq!(plan.waiting("it"), 1);
    assert_eq!(starts(&plan.due(now, |_| 0)), ["2026-05-01T02:00:00Z"]);
    assert_eq!(plan.due(now, |_| 0), Due::default());
    // Other times, and a new one: both begin now.
    let often = Schedule { missed: Missed::Once, ..schedule("*/5 * * * *", "UTC") };
    let now = at("2026-05-01T02:33:00Z");
    plan.rebind([("it".to_owned(), often.clone()), ("new".to_owned(), often)], now);
    assert_eq!(plan.due(now, |_| 0), Due::default());
    assert_eq!(plan.next_of("new"), Some(at("2026-05-01T02:35:00Z")));
    plan.rebind([], now);
    assert_eq!((plan.next(now), plan.next_of("it")), (None, None));
}

/// The host was away for years, and a run a minute was missed: that takes no time and no memory to speak of.
#[test]
fn years_of_missed_runs_are_not_walked_through() {
    let missed = Missed::All(1000);
    let mut plan = planner(
        Schedule { missed, ..schedule("* * * * *", "Europe/Berlin") },
        "2000-01-01T00:00:00Z",
    );
    let began = Instant::now();
    let due = plan.due(at("2026-05-01T00:00:00Z"), |_| 0);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // The run that is on time is behind a thousand that make up, and may not overlap.
    assert_eq!((due.start.len(), passed(&due)), (1, vec![(Why::Overlaps, 1)]));
    assert_eq!(due.start[0].what.scheduled, at("2026-04-30T07:20:00Z"));
}

#[test]
fn a_schedule_is_read_from_a_table() {
    let read: Schedule = toml::from_str("cron = \"@daily\"").unwrap();
    assert_eq!(read, Schedule { cron: "@daily".parse().unwrap(), ..schedule("0 0 * * *", "UTC") });
    let all = "cron = \"0 2 * * *\"\ntime-zone = \"europe/berlin\"\nmissed = { all = 5 }\noverlap = \"queue\"";
    let read: Schedule = toml::from_str(all).unwrap();
    let expected = Schedule {
        missed: Missed::All(5),
        overlap: Overlap::Queue,
        ..schedule("0 2 * * *", "Europe/Berlin")
    };
    assert_eq!((read.time_zone.name(), &read), ("Europe/Berlin", &expected));
    let once: Schedule = toml::from_str("cron = \"0 2 * * *\"\nmissed = \"once\"").unwrap();
    assert_eq!(once.missed, Missed::Once);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_key_and_a_way_out() {
    for (table, words) in [
        (
            "cron = \"61 * * * *\"",
            ["`cron`: `61 * * * *` is not a cron expression", "write five fields"],
        ),
        ("cron = \"* * * *\"", ["it has 4 fields", "write five fields"]),
        ("cron = \"0 * * * * *\"", ["it has 6 fields", "write five fields"]),
        ("cron = \"\"", ["it has 0 fields", "write five fields"]),
        ("cron = \"@sometimes\"", ["`@sometimes` is not a cron expression", "@daily"]),
        ("cron = \"0 0 30 2 *\"", ["`0 0 30 2 *` never comes due", "check the day of the month"]),
        ("cron = \"0 0 31 4,6 *\"", ["never comes due", "check the day of the month"]),
        ("cron = \"\\u001b[2J * * * *\"", ["\\u{1b}[2J", "write five fields"]),
        (
            "cron = \"@daily\"\ntime-zone = \"Europe/Berlim\"",
            ["`time-zone`: there is no time zone `Europe/Berlim`", "such as \"Europe/Berlin\""],
        ),
        ("cron = \"@daily\"\nmissed = { all = 0 }", ["`missed`: 0 is no bound", "write 1 to 1000"]),
        ("cron = \"@daily\"\nmissed = { all = 100000 }", ["100000 is no bound", "write 1 to 1000"]),
        ("cron = \"@daily\"\nmissed = \"never\"", ["unknown variant `never`", "`skip`, `once`"]),
        (
            "cron = \"@daily\"\noverlap = \"no\"",
            ["unknown variant `no`", "`skip`, `allow`, `queue`"],
        ),
        ("cron = \"@daily\"\nzone = \"UTC\"", ["unknown field `zone`", "`time-zone`"]),
        ("missed = \"once\"", ["missing field `cron`", ""]),
    ] {
        let error = toml::from_str::<Schedule>(table).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{table}: {error}");
    }
}

/// What never comes due is found out quickly.
#[test]
fn an_expression_is_read_in_no_time() {
    for text in ["0 0 30 2 *", "0 0 29 2 *", "0 0 31 2,4,6,9,11 *", &"1,".repeat(200)] {
        let began = Instant::now();
        drop(text.parse::<Expression>());
        assert!(began.elapsed() < Duration::from_secs(1), "{text}: {:?}", began.elapsed());
    }
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let cron = prop::sample::select(vec![
        "* * * * *",
        "*/7 * * * *",
        "30 2 * * *",
        "0 * * * *",
        "15 2,3 * * SUN",
        "0 0 1 * *",
    ]);
    let zone = prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
    ]);
    let missed =
        prop_oneof![Just(Missed::Skip), Just(Missed::Once), (1..20_u32).prop_map(Missed::All)];
    let overlap = prop::sample::select(vec![Overlap::Skip, Overlap::Allow, Overlap::Queue]);
    (cron, zone, missed, overlap).prop_map(|(cron, zone, missed, overlap)| Schedule {
        missed,
        overlap,
        ..schedule(cron, zone)
    })
}

/// How the clock moves, in seconds; what runs; and whether the host starts anew.
fn steps() -> impl Strategy<Value = Vec<(i64, usize, bool)>> {
    let moves = prop_oneof![0..90_i64, 0..7_200_i64, 0..200_000_i64, -100_000..0_i64];
    prop::collection::vec((moves, 0..3_usize, prop::bool::weighted(0.1)), 1..40)
}

proptest! {
    /// Rule K1: whatever the clock does, a scheduled time is decided about once and run at most once, never before it.
    #[test]
    fn a_scheduled_time_is_decided_about_once_and_never_early(
        schedule in any_schedule(),
        begin in prop::sample::select(vec!["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z", "2026-06-01T00:00:00Z"]),
        steps in steps(),
    ) {
        let begin = at(begin);
        // A run that waited in line had its time by the clock that was furthest.
        let (mut now, mut furthest) = (begin, begin);
        let mut plan = Planner::new([("it".to_owned(), schedule.clone())], &BTreeMap::new(), begin);
        let (mut started, mut waits, mut left_out) = (BTreeSet::new(), 0_usize, 0_usize);
        for (seconds, running, anew) in steps {
            now = now.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap();
            furthest = furthest.max(now);
            if anew {
                waits += plan.waiting("it");
                plan = Planner::new([("it".to_owned(), schedule.clone())], &plan.decided(), now);
            }
            let due = plan.due(now, |_| running);
            for Decision { what, .. } in due.start {
                prop_assert!(what.scheduled <= furthest, "{} is early at {now}", what.scheduled);
                prop_assert!(what.scheduled > begin);
                prop_assert!(started.insert(what.scheduled), "{} again", what.scheduled);
            }
            for Decision { what, .. } in due.passed {
                prop_assert!(what.first <= what.last && what.last <= now);
                prop_assert!(!started.contains(&what.last));
                prop_assert!(!what.more || what.why == Why::Missed);
                left_out += what.count;
                if what.more {
                    return Ok(());
                }
            }
            prop_assert!(plan.next(now).is_some_and(|next| next >= now));
        }
        let (mut all, mut at) = (0, begin);
        while let Some(next) = schedule.cron.after(at, &schedule.time_zone)
            && next <= plan.decided()["it"]
        {
            (all, at) = (all + 1, next);
        }
        let waits = waits + plan.waiting("it");
        prop_assert_eq!(started.len() + left_out + waits, all);
    }

    /// Whatever stands there is read or refused.
    #[test]
    fn no_text_breaks_the_reading_of_an_expression(text in "[0-9*/,LW#@?A-Za-z -]{0,24}") {
        if let Ok(read) = text.parse::<Expression>() {
            let zone = "Europe/Berlin".parse().unwrap();
            prop_assert!(read.after(at("2026-03-29T00:59:00Z"), &zone).is_some(), "{}", text);
        }
    }
}
