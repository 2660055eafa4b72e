//! Problems in files of settings, and where values came from.

use super::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    term: Option<String>,
    #[expect(dead_code, reason = "only whether it can be read matters")]
    nodes: Vec<SyntaxNode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SyntaxNode {
    #[expect(dead_code, reason = "only whether it can be read matters")]
    count: u32,
    #[expect(dead_code, reason = "only whether it can be read matters")]
    #[serde(default)]
    ready: bool,
}

#[test]
fn mistakes_have_a_position_a_field_and_a_remedy() {
    for (text, says) in [
        ("nodes: [{count: 2x}]", "1:17: nodes[0].count: this is not a whole number from 0 to 4294967295"),
        ("nodes:\n- count: -1\n", "2:10: nodes[0].count: this is not a whole number from 0 to 4294967295"),
        ("nodes:\n- cuont: 1\n", "2:3: nodes[0].cuont: `cuont` is not known here; did you mean `count`?"),
        ("term: a\nterm: b\n", "2:1: the key `term` appears twice; write the key once"),
        ("nodes: 7", "1:8: nodes: this is not a list"),
        ("nodes: [{count: 1, ready: perhaps}]", "1:27: nodes[0].ready: this is not `true` or `false`"),
    ] {
        assert_eq!(read::<File>(text).unwrap_err().to_string(), says, "{text}");
    }
    let missing = read::<File>("term: a\n").unwrap_err().to_string();
    assert!(missing.ends_with("`nodes` is missing; add it"), "{missing}");
}

#[test]
fn errors_name_where_a_value_came_from() {
    let origins = Origins {
        said: vec!["hold", "speed"],
        variable: |flag| (flag == "hold").then(|| "HOLD".to_owned()),
        file: Some(("s.yaml", "a: 1\nterm-min: 5\nfairSharing: x\n")),
    };
    for (flag, from) in [
        ("hold", "`--hold` or `HOLD`"),
        ("speed", "`--speed`"),
        ("term-min", "s.yaml:2:11: term-min"),
        ("fair-sharing", "s.yaml:3:14: fair-sharing"),
        ("term", "`--term`"),
    ] {
        assert_eq!(origins.of(flag), from);
    }
}
