//! From the tasks of a call to its units.

/// What completes as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Grouping {
    /// The whole call.
    Whole,
    /// Each group, and each task without a group.
    Independent,
}

/// The units of a call, each as the places of its tasks. Units stand in the order of their first task, tasks in the
/// order of the call. `groups` has one entry for each task.
pub fn units<G: AsRef<str>>(groups: &[Option<G>], grouping: Grouping) -> Vec<Vec<u32>> {
    let tasks = (0_u32..).zip(groups);
    let mut units: Vec<(Option<&str>, Vec<u32>)> = Vec::new();
    for (task, group) in tasks {
        let group = match grouping {
            // One name for all makes one unit of all.
            Grouping::Whole => Some(""),
            Grouping::Independent => group.as_ref().map(AsRef::as_ref),
        };
        match units.iter_mut().find(|(name, _)| group.is_some() && *name == group) {
            Some((_, members)) => members.push(task),
            None => units.push((group, vec![task])),
        }
    }
    units.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn check(groups: &[Option<&str>], grouping: Grouping, expected: &[&[u32]]) {
        assert_eq!(units(groups, grouping), expected, "{groups:?}");
    }

    #[test]
    fn a_call_is_one_unit_unless_completions_are_independent() {
        check(&[None, Some("a"), None], Grouping::Whole, &[&[0, 1, 2]]);
        check(&[None, None], Grouping::Independent, &[&[0], &[1]]);
        check(
            &[Some("b"), None, Some("a"), Some("b"), None],
            Grouping::Independent,
            &[&[0, 3], &[1], &[2], &[4]],
        );
        check(&[Some(""), Some("")], Grouping::Independent, &[&[0, 1]]);
        check(&[], Grouping::Whole, &[]);
        check(&[], Grouping::Independent, &[]);
    }

    proptest! {
        #[test]
        fn every_task_is_in_exactly_one_unit(
            groups in proptest::collection::vec(proptest::option::of("[a-c]"), 0..20),
            independent in any::<bool>(),
        ) {
            let grouping = if independent { Grouping::Independent } else { Grouping::Whole };
            let units = units(&groups, grouping);
            let mut tasks = units.concat();
            tasks.sort_unstable();
            prop_assert_eq!(tasks, (0..u32::try_from(groups.len()).unwrap()).collect::<Vec<_>>());
            prop_assert!(units.iter().all(|unit| unit.is_sorted() && !unit.is_empty()));
            prop_assert!(units.iter().map(|unit| unit[0]).is_sorted());
        }
    }
}
