//! `meta.k8s.io/v1` tables: the columns that `kubectl get` shows for each kind, and their cells.
//!
//! Cells are read from objects in the storage version, so that all API versions show the same.

use super::rendered::RenderedObject;
use jiff::Timestamp;
use meridian_objects::Kind;
use meridian_objects::columns::{CellContent, Column, Content, columns};
use serde_json::{Value, json};

/// Content of a row besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    /// The whole object.
    Object,
}

/// The columns of a kind.
pub(crate) struct Table(Vec<Column>);

impl Table {
    pub(crate) fn new(kind: Kind) -> Self {
        Self(columns(kind))
    }

    pub(crate) fn definitions(&self) -> Vec<Value> {
        let definition = |column: &Column| {
            json!({
                "name": column.name,
                "type": if matches!(column.content, Content::Number(_)) { "integer" } else { "string" },
                "format": if column.name == "Name" { "name" } else { "" },
                "description": "",
                "priority": u8::from(column.wide),
            })
        };
        self.0.iter().map(definition).collect()
    }

    /// The row of one object, in the storage version and as it is to be sent.
    pub(crate) fn row(
        &self,
        stored: &Value,
        shown: &RenderedObject<'_>,
        include: Include,
        now: Timestamp,
    ) -> Value {
        let cells: Vec<Value> = self.0.iter().map(|column| cell(column, stored, now)).collect();
        let mut row = json!({"cells": cells});
        match include {
            Include::None => {}
            Include::Metadata => row["object"] = shown.metadata_only(),
            Include::Object => row["object"] = shown.clone().into_value(),
        }
        row
    }
}

/// A table of `rows`: each object in the storage version, and as it is to be sent.
pub(crate) fn table(
    kind: Kind,
    rows: &[(&Value, RenderedObject<'_>)],
    metadata: Value,
    include: Include,
    now: Timestamp,
) -> Value {
    let table = Table::new(kind);
    let rows: Vec<Value> =
        rows.iter().map(|(stored, shown)| table.row(stored, shown, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": table.definitions(), "rows": rows,
    })
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match column.cell(object, now) {
        CellContent::Text(text) => json!(text),
        CellContent::State(word) => json!(word),
        CellContent::Number(number) => number.map_or_else(|| json!(""), |number| json!(number)),
        CellContent::Age(age) => json!(age.as_deref().unwrap_or("<unknown>")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_type_of_their_column() {
        let table = Table::new(Kind::LocalQueue);
        let types: Vec<Value> =
            table.definitions().into_iter().map(|column| column["type"].clone()).collect();
        assert_eq!(types, ["string", "string", "integer", "integer", "string"]);
        let queue = json!({"metadata": {"name": "q"}, "status": {"pendingWorkloads": 2}});
        let cells: Vec<Value> =
            table.0.iter().map(|column| cell(column, &queue, Timestamp::UNIX_EPOCH)).collect();
        assert_eq!(json!(cells), json!(["q", "", 2, "", "<unknown>"]));
    }
}
