//! Parts that several kinds share: names, quantities, selectors, taints, tolerations, conditions.

use crate::cel::{self, rule, rule_at, says};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Declares a type for text with a schema of its own.
macro_rules! text {
    ($($(#[$doc:meta])* $name:ident: $schema:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                Schema::try_from($schema).expect("a mapping is a schema")
            }
        }
    )*};
}

/// Words of the reader for a name that isn't one.
const NAME_REMEDY: &str = "use lower-case letters, digits, `-` and `.`";
const VALUE_REMEDY: &str =
    "use at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit";
const KEY_REMEDY: &str = "use letters, digits, `-`, `_` and `.`, with at most one `/`";

text! {
    /// The name of another object. Rules say what is wrong with it in Meridian's words.
    Name: json!({
        "type": "string", "maxLength": 253,
        "x-kubernetes-validations": [cel::is(cel::NAME, "a name", NAME_REMEDY)],
    });
    /// As [`Name`], or empty for none.
    NameOrNone: json!({
        "type": "string", "maxLength": 253,
        "x-kubernetes-validations": [says(
            format!("self == '' || {}", cel::matches("self", cel::NAME)),
            format!("'`' + self + {}", cel::text(&format!("` is not a name; {NAME_REMEDY}"))),
        )],
    });
    /// As [`Name`], by pattern: rules of lists in lists cost too much.
    PlainName: json!({"type": "string", "maxLength": 253, "pattern": cel::NAME});
    /// The name of a pod set.
    PodSetName: json!({"type": "string", "maxLength": 63, "pattern": cel::DNS_LABEL});
    /// The name of a resource, such as `nvidia.com/gpu`.
    ResourceName: json!({"type": "string", "maxLength": 317, "pattern": cel::LABEL_KEY});
    /// The key of a label.
    LabelKey: json!({
        "type": "string", "minLength": 1, "maxLength": 317,
        "x-kubernetes-validations": [cel::is(cel::LABEL_KEY, "a label key", KEY_REMEDY)],
    });
    /// As [`LabelKey`], by pattern.
    PlainLabelKey: json!({"type": "string", "minLength": 1, "maxLength": 317, "pattern": cel::LABEL_KEY});
    /// The value of a label, by pattern.
    PlainLabelValue: json!({"type": "string", "maxLength": 63, "pattern": cel::LABEL_VALUE});
    /// A region or jurisdiction.
    Place: json!({
        "type": "string", "maxLength": 63,
        "x-kubernetes-validations": [cel::is(
            cel::PLACE, "a region or jurisdiction", "write one word, such as `europe-west4` or `EU`",
        )],
    });
    /// A length of time.
    Duration: json!({
        "type": "string", "maxLength": 32,
        "x-kubernetes-validations": [cel::is(
            cel::DURATION, "a duration",
            "write a positive number with a unit, such as `90s`, `15m` or `2h`",
        )],
    });
    /// A quantity: a whole number, or text such as `100m` or `64Gi`.
    Quantity: json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
        "maxLength": 64, "pattern": cel::QUANTITY,
    });
    /// A moment of RFC 3339.
    Moment: json!({"type": "string", "format": "date-time"});
    /// Anything, kept as it is.
    Anything: json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
}

/// Amounts per resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;
/// Labels or annotations.
pub(crate) type Strings = BTreeMap<String, String>;

/// Gives a field with labels its rules and bounds.
pub(crate) fn labels(schema: &mut Schema) {
    let keys = format!("self.all(k, {})", cel::matches("k", cel::LABEL_KEY));
    let rules = json!([rule(keys, &format!("a key is not a label key; {KEY_REMEDY}"))]);
    let value = json!({
        "type": "string", "maxLength": 63,
        "x-kubernetes-validations": [cel::is(cel::LABEL_VALUE, "a label value", VALUE_REMEDY)],
    });
    schema.insert("x-kubernetes-validations".to_owned(), rules);
    schema.insert("additionalProperties".to_owned(), value);
    schema.insert("maxProperties".to_owned(), json!(64));
}

/// A taint of nodes.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeTaint {
    /// Key of the taint.
    #[schemars(length(min = 1, max = 317))]
    key: String,
    /// Value of the taint.
    #[schemars(length(max = 63))]
    value: Option<String>,
    /// What happens to pods that don't tolerate the taint.
    effect: Effect,
    /// When the taint was added.
    time_added: Option<Moment>,
}

#[derive(JsonSchema)]
pub(crate) enum Effect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// A toleration of taints.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".operator", "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
        "must be `Exists` when there is no key; write `operator: Exists`, or name a key",
    ),
    rule_at(
        ".value",
        "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
        "must be empty with `operator: Exists`; remove the value, or write `operator: Equal`",
    ),
    rule_at(
        ".effect", "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        "must be `NoExecute` with `tolerationSeconds`; write `effect: NoExecute`, or remove \
            `tolerationSeconds`",
    ),
]))]
pub(crate) struct PodToleration {
    /// Key of the taint; without one, `operator` is `Exists` and every taint is tolerated.
    #[schemars(length(max = 317))]
    key: Option<String>,
    /// How the taint's value is compared. Without one it is `Equal`.
    operator: Option<TolerationOperator>,
    /// Value of the taint, for `Equal`.
    #[schemars(length(max = 63))]
    value: Option<String>,
    /// Effect of the taint; without one, every effect is tolerated.
    effect: Option<Effect>,
    /// How long a `NoExecute` taint is tolerated.
    toleration_seconds: Option<i64>,
}

#[derive(JsonSchema)]
pub(crate) enum TolerationOperator {
    Exists,
    Equal,
}

/// Labels that objects must have. An empty selector selects every object.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectSelector {
    /// Labels with these values.
    #[schemars(transform = labels)]
    match_labels: Option<Strings>,
    /// Requirements that all hold.
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    match_expressions: Option<Vec<LabelRequirement>>,
}

/// A requirement for one label.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".values", "!(self.operator in ['In', 'NotIn']) || (has(self.values) && size(self.values) > 0)",
        "needs at least one value; correct the values or the operator",
    ),
    rule_at(
        ".values", "!(self.operator in ['Exists', 'DoesNotExist']) || !has(self.values) || \
            size(self.values) == 0",
        "must be empty with this operator; correct the values or the operator",
    ),
]))]
pub(crate) struct LabelRequirement {
    /// Key of the label.
    key: PlainLabelKey,
    /// How the label's value is compared.
    operator: LabelOperator,
    /// Values, for `In` and `NotIn`.
    #[schemars(length(max = 500), extend("x-kubernetes-list-type" = "atomic"))]
    values: Option<Vec<PlainLabelValue>>,
}

#[derive(JsonSchema)]
pub(crate) enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

/// One fact about the object's state.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusCondition {
    /// What the condition is about, such as `Active`.
    #[schemars(length(min = 1, max = 316))]
    r#type: String,
    /// Whether it holds.
    status: Truth,
    /// Why, as one word.
    #[schemars(length(max = 1024))]
    reason: Option<String>,
    /// Why, as a sentence.
    #[schemars(length(max = 32768))]
    message: Option<String>,
    /// Since when the status is as it is.
    last_transition_time: Option<Moment>,
    /// Generation of the object that the condition is about.
    #[schemars(range(min = 0))]
    observed_generation: Option<i64>,
}

#[derive(JsonSchema)]
pub(crate) enum Truth {
    True,
    False,
    Unknown,
}

/// Conditions of an object, one of each type.
pub(crate) struct StatusConditions;

impl JsonSchema for StatusConditions {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StatusConditions".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<StatusCondition>();
        json_schema!({
            "type": "array", "maxItems": 16, "items": items,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        })
    }
}

/// The status of a kind that has only conditions.
#[derive(JsonSchema)]
pub(crate) struct ConditionsOnly {
    /// Facts about the object's state.
    conditions: Option<StatusConditions>,
}
