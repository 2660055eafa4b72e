//! Amounts of resources in users' notation.

/// Whether the base unit of `resource` is a thousandth, as for `cpu`.
pub fn is_milli(resource: &str) -> bool {
    resource == "cpu"
}

fn is_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage" | "storage") || resource.starts_with("hugepages-")
}

/// The shortest usual text of `amount` base units of `resource`: `16`, `500m`, `512Mi`. Parsing the text
/// gives `amount`.
pub fn format(resource: &str, amount: i64) -> String {
    const SUFFIXES: [(&str, u32); 6] =
        [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    if is_milli(resource) {
        return if amount % 1_000 == 0 { (amount / 1_000).to_string() } else { format!("{amount}m") };
    }
    if is_bytes(resource) && amount != 0 {
        for (suffix, power) in SUFFIXES {
            if amount % (1_i64 << power) == 0 {
                return format!("{}{suffix}", amount >> power);
            }
        }
    }
    amount.to_string()
}
