//! Samples in Prometheus' text format.

/// The sum of the samples of `name` with `label` among their labels; zero without such samples.
pub(super) fn sum(text: &str, name: &str, label: &str) -> u64 {
    let samples =
        text.lines().filter_map(|line| line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' '])));
    samples
        .filter(|rest| rest.contains(label))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let text = "# HELP a x\na{s=\"R\",c=\"1\"} 3\na{s=\"R\",c=\"2\"} 4\na{s=\"F\"} 10\na_count 9\nb 5\n";
        let of = |name, label| sum(text, name, label);
        assert_eq!(
            (of("a", "s=\"R\""), of("a", ""), of("a_count", ""), of("b", ""), of("c", "")),
            (7, 17, 9, 5, 0)
        );
    }
}
