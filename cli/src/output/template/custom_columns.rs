//! `-o custom-columns=NAME:.metadata.name,QUEUE:.spec.queueName`.

use super::path::Path;
use super::plain;
use crate::output::table::{Cell, Table};
use serde_json::Value;

#[derive(Clone, Debug)]
pub(crate) struct CustomColumns {
    paths: Vec<Path>,
    table: Table,
    /// A watch prints one object after another under the same headers.
    has_headers: bool,
}

impl CustomColumns {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (mut headers, mut paths) = (Vec::new(), Vec::new());
        for column in split(text) {
            let (header, path) = column
                .split_once(':')
                .filter(|(header, path)| !header.trim().is_empty() && !path.trim().is_empty())
                .ok_or_else(|| format!("`{column}` must be HEADER:PATH, such as NAME:.metadata.name"))?;
            headers.push(header.trim());
            paths.push(Path::parse(path)?);
        }
        Ok(Self { paths, table: Table::new(headers), has_headers: false })
    }

    /// A row per item of a list, or one row.
    pub(super) fn show(&mut self, document: &Value) -> String {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        match document["items"].as_array().filter(|_| is_list) {
            Some(items) => items.iter().for_each(|item| self.push(item)),
            None => self.push(document),
        }
        if std::mem::replace(&mut self.has_headers, true) {
            self.table.rows_text(false)
        } else {
            self.table.text(false)
        }
    }

    fn push(&mut self, object: &Value) {
        let cell = |path: &Path| {
            let found: Vec<String> = path.find(object, object).into_iter().map(plain).collect();
            Cell::new(if found.is_empty() { "<none>".to_owned() } else { found.join(",") })
        };
        self.table.push(self.paths.iter().map(cell).collect());
    }
}

/// Splits at commas outside of brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let (mut columns, mut from, mut depth, mut quote) = (Vec::new(), 0, 0_i32, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '(') => depth += 1,
            (None, ']' | ')') => depth -= 1,
            (None, ',') if depth == 0 => {
                columns.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    columns.push(&text[from..]);
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_show_a_row_per_item() {
        let mut columns = CustomColumns::parse(
            r#"NAME:.metadata.name,READY:.conditions[?(@.type=="Ready",@.x)].status,N:{.n}"#,
        );
        assert!(columns.is_err(), "a filter has one condition: {columns:?}");
        columns = CustomColumns::parse(
            r#"NAME:.metadata.name,READY:.conditions[?(@.type=="Ready")].status,PARTS:['n','m']"#,
        );
        let mut columns = columns.unwrap();
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let first = json!({"metadata": {"name": "a\u{1b}"}, "conditions": conditions, "n": 1, "m": 2});
        let list = json!({"kind": "List", "items": [first, {"metadata": {"name": "b"}}]});
        assert_eq!(
            columns.show(&list),
            "NAME    READY    PARTS\na\\x1b   True     1,2\nb       <none>   <none>\n"
        );
        assert_eq!(columns.show(&json!({"metadata": {"name": "c"}})), "c       <none>   <none>\n");
        for wrong in ["", "NAME", "NAME:", ":.a", "A:.a,,B:.b", "A:.a["] {
            assert!(CustomColumns::parse(wrong).is_err(), "{wrong}");
        }
    }
}
