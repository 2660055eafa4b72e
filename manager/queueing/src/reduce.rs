//! Fewer pods, where fewer do: the largest total that fits.

/// Looks for the largest counts that `fits` accepts, between each set's full and least number of pods. The steps are as fine
/// as single pods; sets shrink in proportion.
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
    // The first step that fits, by halving; `best` is what was found at `high`.
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
