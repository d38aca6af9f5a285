//! What a parent has left, split among the children of a call. Pure.

use std::time::Duration;

/// What a run may still use. All shares of a call together are never more than the parent had left (A10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Units of fuel; none for no bound.
    pub fuel: Option<u64>,
    /// Tokens of model requests and answers; none for no bound.
    pub model_tokens: Option<u64>,
    /// Time to the end of the run; none for no bound. It passes for parent and children alike, so it is a bound for
    /// each and is not split.
    pub wall_time: Option<Duration>,
}

/// What is wanted for one child; none where nothing was said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// See [`Budget::fuel`].
    pub fuel: Option<u64>,
    /// See [`Budget::model_tokens`].
    pub model_tokens: Option<u64>,
    /// See [`Budget::wall_time`].
    pub wall_time: Option<Duration>,
}

/// What the parent needs for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parent {
    /// It goes on beside its children, and keeps as much as a child for which nothing was said.
    GoesOn,
    /// It waits for them, and gets back what they leave over.
    Waits,
}

/// Who gets what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// One for each child, in task order.
    pub children: Vec<Budget>,
    /// What was not handed out.
    pub parent: Budget,
}

/// Splits what is left.
///
/// What is wanted comes first, up to what is left; when that is not enough, nobody gets less than another who wanted
/// at least as much. The rest is split evenly among those of whom nothing was said.
pub fn split(left: &Budget, wanted: &[Wanted], parent: Parent) -> Split {
    let column = |of: fn(&Wanted) -> Option<u64>| wanted.iter().map(of).collect::<Vec<_>>();
    let (fuel, fuel_kept) = bounded(left.fuel, &column(|child| child.fuel), parent);
    let (tokens, tokens_kept) =
        bounded(left.model_tokens, &column(|child| child.model_tokens), parent);
    let time = |wanted: Option<Duration>| match (wanted, left.wall_time) {
        (Some(wanted), Some(left)) => Some(wanted.min(left)),
        (one, other) => one.or(other),
    };
    let children = wanted.iter().zip(fuel).zip(tokens);
    Split {
        children: children
            .map(|((child, fuel), model_tokens)| Budget {
                fuel,
                model_tokens,
                wall_time: time(child.wall_time),
            })
            .collect(),
        parent: Budget { fuel: fuel_kept, model_tokens: tokens_kept, wall_time: left.wall_time },
    }
}

/// With no bound above, a child has the bound that was wanted for it, or none.
fn bounded(
    left: Option<u64>,
    wanted: &[Option<u64>],
    parent: Parent,
) -> (Vec<Option<u64>>, Option<u64>) {
    match left {
        None => (wanted.to_vec(), None),
        Some(left) => {
            let (children, kept) = shares(left, wanted, parent);
            (children.into_iter().map(Some).collect(), Some(kept))
        }
    }
}

fn shares(mut left: u64, wanted: &[Option<u64>], parent: Parent) -> (Vec<u64>, u64) {
    let mut given = vec![0; wanted.len()];
    // The smallest wishes first: what one does not need is there for the others.
    let mut wishes: Vec<(u64, usize)> = wanted
        .iter()
        .enumerate()
        .filter_map(|(child, wish)| wish.map(|wish| (wish, child)))
        .collect();
    wishes.sort_unstable();
    for (place, (wish, child)) in wishes.iter().enumerate() {
        let share = (*wish).min(left / count(wishes.len() - place));
        given[*child] = share;
        left -= share;
    }
    let silent = count(wanted.len() - wishes.len());
    let among = silent + u64::from(parent == Parent::GoesOn);
    if let Some(share) = left.checked_div(among) {
        for (child, _) in wanted.iter().enumerate().filter(|(_, wish)| wish.is_none()) {
            given[child] = share;
            left -= share;
        }
    }
    (given, left)
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn check(left: u64, wanted: &[Option<u64>], parent: Parent, expected: (&[u64], u64)) {
        let (given, kept) = shares(left, wanted, parent);
        assert_eq!((given.as_slice(), kept), expected, "{left} for {wanted:?}");
    }

    #[test]
    fn wishes_come_first_and_the_rest_is_split_evenly() {
        use Parent::{GoesOn, Waits};
        check(90, &[Some(80), None, None], Waits, (&[80, 5, 5], 0));
        check(90, &[None, None], GoesOn, (&[30, 30], 30));
        check(10, &[None, None, None], Waits, (&[3, 3, 3], 1));
        check(100, &[Some(10), Some(20)], Waits, (&[10, 20], 70));
        check(100, &[Some(90), Some(10), Some(90)], Waits, (&[45, 10, 45], 0));
        check(100, &[Some(u64::MAX), Some(u64::MAX), None], GoesOn, (&[50, 50, 0], 0));
        check(0, &[Some(1), None], GoesOn, (&[0, 0], 0));
        check(7, &[], Waits, (&[], 7));
    }

    #[test]
    fn time_is_a_bound_for_each_and_what_has_no_bound_stays_so() {
        let left =
            Budget { fuel: None, model_tokens: None, wall_time: Some(Duration::from_secs(10)) };
        let hour = Wanted {
            wall_time: Some(Duration::from_secs(3_600)),
            fuel: Some(5),
            ..Wanted::default()
        };
        let Split { children, parent } = split(&left, &[hour, Wanted::default()], Parent::GoesOn);
        assert_eq!(children[0].wall_time, left.wall_time);
        assert_eq!(
            (children[0].fuel, children[1].fuel, children[1].model_tokens),
            (Some(5), None, None)
        );
        assert_eq!((children[1].wall_time, parent.wall_time), (left.wall_time, left.wall_time));
    }

    fn sum(figures: impl Iterator<Item = u64>) -> u128 {
        figures.map(u128::from).sum()
    }

    /// Every run of a tree of three levels that asks for all it can get, with what each keeps for itself.
    fn three_levels(
        left: &Budget,
        wanted: &[Wanted],
        parent: Parent,
        depth: u32,
        kept: &mut Vec<Budget>,
    ) {
        if depth == 0 {
            kept.push(*left);
            return;
        }
        let Split { children, parent: rest } = split(left, wanted, parent);
        kept.push(rest);
        for child in &children {
            three_levels(child, wanted, parent, depth - 1, kept);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Rule A10: nothing is handed out that was not there, and nobody gets more than was wanted for it.
        #[test]
        fn shares_add_up_to_what_was_left(
            left in prop_oneof![0u64..200, any::<u64>()],
            wanted in proptest::collection::vec(
                proptest::option::of(prop_oneof![0u64..100, any::<u64>()]), 0..8),
            goes_on in any::<bool>(),
        ) {
            let parent = if goes_on { Parent::GoesOn } else { Parent::Waits };
            let (given, kept) = shares(left, &wanted, parent);
            prop_assert_eq!(sum(given.iter().copied()) + u128::from(kept), u128::from(left));
            for (given, wish) in given.iter().zip(&wanted) {
                prop_assert!(wish.is_none_or(|wish| *given <= wish));
            }
            if sum(wanted.iter().flatten().copied()) <= u128::from(left) {
                prop_assert!(given.iter().zip(&wanted).all(|(given, wish)| wish.is_none_or(|wish| *given == wish)));
            }
        }

        /// Rule A10: three levels that ask for as much as they can never use more than the root was given.
        #[test]
        fn a_tree_never_uses_more_than_its_root_was_given(
            fuel in 0u64..10_000, tokens in 0u64..10_000,
            children in 1usize..4, greed in proptest::option::of(0u64..10_000), goes_on in any::<bool>(),
        ) {
            let seconds = Some(Duration::from_secs(60));
            let root = Budget { fuel: Some(fuel), model_tokens: Some(tokens), wall_time: seconds };
            let wish = Wanted {
                fuel: greed, model_tokens: greed, wall_time: greed.map(Duration::from_secs),
            };
            let parent = if goes_on { Parent::GoesOn } else { Parent::Waits };
            let mut kept = Vec::new();
            three_levels(&root, &vec![wish; children], parent, 3, &mut kept);
            prop_assert!(sum(kept.iter().filter_map(|run| run.fuel)) <= u128::from(fuel));
            prop_assert!(sum(kept.iter().filter_map(|run| run.model_tokens)) <= u128::from(tokens));
            prop_assert!(kept.iter().all(|run| run.wall_time <= seconds && run.wall_time.is_some()));
        }
    }
}
