//! Numbers with their nouns, for messages: `1 pod`, `2 pods`.

use std::fmt::Display;

/// A number with its noun, whose plural ends in `s`.
pub fn counted(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Like [`counted`], with a verb: `1 pod fits`, `2 pods fit`.
pub fn counted_with(number: impl Display, noun: &str, one: &str, many: &str) -> String {
    let counted = counted(number, noun);
    let verb = if counted.starts_with("1 ") { one } else { many };
    format!("{counted} {verb}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_has_no_plural() {
        let all = [0_u32, 1, 2, 11].map(|number| counted(number, "pod"));
        assert_eq!(all, ["0 pods", "1 pod", "2 pods", "11 pods"]);
        let fitting = [1_u32, 21].map(|number| counted_with(number, "pod", "fits", "fit"));
        assert_eq!(fitting, ["1 pod fits", "21 pods fit"]);
    }
}
