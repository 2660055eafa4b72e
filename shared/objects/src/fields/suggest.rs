//! "Did you mean": the nearest of a few known words.

use strsim::osa_distance;

/// Longest word that is compared. No known word is longer, and comparing costs the square of the length.
const MAX_WORD_CHARS: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be a likely typing mistake.
///
/// The distance is optimal string alignment: two swapped neighbouring letters count as one mistake.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let length = word.chars().count();
    if length > MAX_WORD_CHARS {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (osa_distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found_and_other_words_are_not() {
        let words = ["ClusterQueue", "LocalQueue", "Cohort"];
        assert_eq!(nearest("ClusterQue", words), Some("ClusterQueue"));
        assert_eq!(nearest("clusterqueue", words), Some("ClusterQueue"));
        assert_eq!(nearest("Deployment", words), None);
        assert_eq!(nearest("Jbo", ["Job"]), Some("Job"), "two letters that changed places");
        assert_eq!(nearest(&"x".repeat(100), words), None);
    }
}
