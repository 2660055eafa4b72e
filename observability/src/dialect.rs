//! Labels that a collector renames because its own labels have the same names.

/// How a collector stores labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// As Meridian serves them. Prometheus' operator does so with `honorLabels`.
    Prometheus,
    /// Managed Prometheus keeps `cluster` and `namespace` for the scraped pod, and puts `exported_` before
    /// Meridian's.
    Managed,
}

const RENAMED: [&str; 2] = ["cluster", "namespace"];

impl Dialect {
    /// A sentence in this dialect: only the labels that it names are renamed.
    pub(crate) fn sentence(self, text: &str) -> String {
        RENAMED.iter().fold(text.to_owned(), |text, label| match self {
            Self::Prometheus => text,
            Self::Managed => {
                text.replace(&format!("$labels.{label} "), &format!("$labels.exported_{label} "))
            }
        })
    }

    /// A query or a legend in this dialect.
    pub(crate) fn text(self, text: &str) -> String {
        match self {
            Self::Prometheus => text.to_owned(),
            Self::Managed => rename_words(text),
        }
    }
}

/// Renames whole words; `cluster_queue` and `$cluster` stay.
fn rename_words(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut renamed = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        let end = rest[start..].find(|c| !is_part(c)).map_or(rest.len(), |length| start + length);
        let word = &rest[start..end];
        renamed.push_str(&rest[..start]);
        if RENAMED.contains(&word) {
            renamed.push_str("exported_");
        }
        renamed.push_str(word);
        rest = &rest[end..];
    }
    renamed + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_with_names_of_the_collector_are_renamed() {
        let query = r#"sum by (cluster, cluster_queue) (x_cluster{cluster=~"$cluster",namespace="a"})"#;
        let managed = concat!(
            "sum by (exported_cluster, cluster_queue) ",
            r#"(x_cluster{exported_cluster=~"$cluster",exported_namespace="a"})"#
        );
        assert_eq!(Dialect::Managed.text(query), managed);
        assert_eq!(Dialect::Prometheus.text(query), query);
        let sentence = "No cluster like {{ $labels.cluster }} of {{ $labels.cluster_queue }}.";
        let managed = "No cluster like {{ $labels.exported_cluster }} of {{ $labels.cluster_queue }}.";
        assert_eq!(Dialect::Managed.sentence(sentence), managed);
        assert_eq!(Dialect::Prometheus.sentence(sentence), sentence);
    }
}
