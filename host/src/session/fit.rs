//! Makes the outputs of several tasks fit together, at the cost of the longest.

use crate::delegation::TaskOutcome;
use crate::sandbox::TaskResult;

/// Something with an output that can be cut, and a place to say so.
pub(super) trait Cuttable {
    fn parts(&mut self) -> (&mut String, &mut String);
}

impl Cuttable for TaskOutcome {
    fn parts(&mut self) -> (&mut String, &mut String) {
        (&mut self.output, &mut self.detail)
    }
}

impl Cuttable for TaskResult {
    fn parts(&mut self) -> (&mut String, &mut String) {
        (&mut self.output, &mut self.detail)
    }
}

/// Cuts outputs so that all together have at most `most` bytes. Nobody is cut who has less than an even share, and
/// whoever is cut says how much it had. Details, which are short, are not counted.
pub(super) fn fit<T: Cuttable>(entries: &mut [T], most: usize) {
    let mut sizes: Vec<usize> = entries.iter_mut().map(|entry| entry.parts().0.len()).collect();
    if sizes.iter().sum::<usize>() <= most {
        return;
    }
    sizes.sort_unstable();
    // The level up to which everybody is served: the smallest take what they have, the rest share what is left.
    let (mut left, mut level) = (most, 0);
    for (place, size) in sizes.iter().enumerate() {
        level = left / (sizes.len() - place);
        if *size > level {
            break;
        }
        left -= size;
    }
    for entry in entries {
        let (output, detail) = entry.parts();
        let had = output.len();
        if had > level {
            output.truncate(output.floor_char_boundary(level));
            if !detail.is_empty() {
                detail.push_str("; ");
            }
            detail.push_str(&format!("the output was cut to {} of {had} bytes", output.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn results(outputs: &[&str]) -> Vec<TaskResult> {
        let result =
            |output: &&str| TaskResult { output: (*output).to_owned(), ..TaskResult::default() };
        outputs.iter().map(result).collect()
    }

    #[test]
    fn the_longest_are_cut_and_say_so() {
        let mut entries = results(&["aa", "bbbbbbbb", "ccccccccc"]);
        entries[2].detail = "it failed".to_owned();
        fit(&mut entries, 12);
        assert_eq!(
            [&*entries[0].output, &*entries[1].output, &*entries[2].output],
            ["aa", "bbbbb", "ccccc"]
        );
        assert_eq!(entries[0].detail, "");
        assert_eq!(entries[1].detail, "the output was cut to 5 of 8 bytes");
        assert_eq!(entries[2].detail, "it failed; the output was cut to 5 of 9 bytes");
    }

    proptest! {
        #[test]
        fn all_together_fit_and_nobody_is_cut_without_need(outputs in proptest::collection::vec("[aé]{0,40}", 0..8), most in 0usize..200) {
            let whole: usize = outputs.iter().map(String::len).sum();
            let mut entries = results(&outputs.iter().map(String::as_str).collect::<Vec<_>>());
            fit(&mut entries, most);
            let cut: usize = entries.iter().map(|entry| entry.output.len()).sum();
            prop_assert!(cut <= most || whole <= most);
            prop_assert!(whole > most || cut == whole);
            for (entry, output) in entries.iter().zip(&outputs) {
                prop_assert!(output.starts_with(&entry.output));
                prop_assert_eq!(entry.detail.is_empty(), entry.output == *output);
            }
        }
    }
}
