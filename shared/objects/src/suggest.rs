//! "Did you mean": the nearest of a few known words.

/// Longer words are not compared: the guess would cost more than it helps, and no known word is longer.
const MAX_WORD_CHARS: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be a likely slip.
pub(crate) fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    if length > MAX_WORD_CHARS {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's edit distance, with one row kept.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_slips_and_leaves_strangers_alone() {
        let words = ["ClusterQueue", "LocalQueue", "Cohort"];
        assert_eq!(nearest("ClusterQue", words), Some("ClusterQueue"));
        assert_eq!(nearest("clusterqueue", words), Some("ClusterQueue"));
        assert_eq!(nearest("Deployment", words), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(nearest(&"x".repeat(100), words), None);
    }
}
