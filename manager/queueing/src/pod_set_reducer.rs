//! Partial admission: the largest number of pods that fits.

/// Searches the largest counts that `fits` accepts, between the full and the least number of pods of each
/// set. All sets are reduced in proportion, in steps of single pods.
pub fn search<R>(sets: &[(u32, u32)], fits: &mut dyn FnMut(&[u32]) -> Option<R>) -> Option<R> {
    let spare: Vec<u64> = sets.iter().map(|(full, least)| u64::from(full.saturating_sub(*least))).collect();
    let total: u64 = spare.iter().sum();
    if total == 0 {
        return None;
    }
    let counts = |step: u64| -> Vec<u32> {
        sets.iter()
            .zip(&spare)
            .map(|((full, _), spare)| {
                full - u32::try_from(spare * step / total).unwrap_or(u32::MAX).min(*full)
            })
            .collect()
    };
    // Binary search for the first step that fits. `best` is the result at `high`.
    let (mut low, mut high, mut best) = (0, total + 1, None);
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(&counts(middle)) {
            Some(found) => (high, best) = (middle, Some(found)),
            None => low = middle + 1,
        }
    }
    best
}
