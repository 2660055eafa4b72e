//! "Did you mean": the nearest of a few known words.

/// Longer words are not compared: the guess would cost more than it helps, and no known word is longer.
const MAX_WORD_CHARS: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be a likely slip.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
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

/// Optimal string alignment: Levenshtein's edit distance in which two neighbours that changed places count as one slip.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut next = vec![i];
        for j in 1..=b.len() {
            let replaced = row[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(above[j - 2] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
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
        assert_eq!((distance("kitten", "sitting"), distance("Jbo", "Job"), distance("", "ab")), (3, 1, 2));
        assert_eq!(nearest(&"x".repeat(100), words), None);
    }
}
