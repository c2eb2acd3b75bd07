//! The JSON Schema of `gateway.yaml`: for editors, for `form`, and for the generated docs.

use super::Config;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::sync::LazyLock;

static SCHEMA: LazyLock<Value> = LazyLock::new(generate);

/// The contents of `gateway.schema.json`.
pub fn schema() -> String {
    let mut text = serde_json::to_string_pretty(value()).expect("a schema is JSON");
    text.push('\n');
    text
}

/// The same as a value.
pub(super) fn value() -> &'static Value {
    &SCHEMA
}

/// A part of the schema, with a reference to a definition followed.
pub(super) fn follow(schema: &'static Value) -> &'static Value {
    match reference(schema) {
        Some(name) => definition(name).unwrap_or(schema),
        None => schema,
    }
}

/// The name of the definition that a part of the schema refers to.
pub(super) fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

/// The definition called `name`.
pub(super) fn definition(name: &str) -> Option<&'static Value> {
    value().get("$defs")?.get(name)
}

fn generate() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Config>().to_value();
    without_null(&mut schema);
    if let Value::Object(root) = &mut schema {
        root.insert("title".to_owned(), "gateway.yaml".into());
    }
    schema
}

/// An optional key may be left out; it may not be written with nothing behind it. A `who:` whose lines were lost would
/// otherwise be a rule for everyone.
fn without_null(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            drop_null_type(members);
            drop_null_branch(members);
            if members.get("default").is_some_and(Value::is_null) {
                members.remove("default");
            }
            members.values_mut().for_each(without_null);
        }
        Value::Array(elements) => elements.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// `"type": ["string", "null"]` → `"type": "string"`.
fn drop_null_type(members: &mut Map<String, Value>) {
    let Some(Value::Array(types)) = members.get_mut("type") else {
        return;
    };
    types.retain(|kind| kind != "null");
    if let [one] = types.as_slice() {
        let one = one.clone();
        members.insert("type".to_owned(), one);
    }
}

/// `"anyOf": [{ "$ref": … }, { "type": "null" }]` → `"$ref": …`.
fn drop_null_branch(members: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = members.get_mut("anyOf") else {
        return;
    };
    branches.retain(|branch| branch.get("type").is_none_or(|kind| kind != "null"));
    if let [Value::Object(one)] = branches.as_mut_slice() {
        let mut one = std::mem::take(one);
        members.remove("anyOf");
        members.append(&mut one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&Map<String, Value>, &str)) {
        match schema {
            Value::Object(members) => {
                visit(members, path);
                for (key, part) in members {
                    walk(part, &format!("{path}/{key}"), visit);
                }
            }
            Value::Array(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    walk(part, &format!("{path}/{at}"), visit);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_object_is_closed() {
        let mut n_closed = 0;

        walk(value(), "", &mut |members, path| {
            if members.contains_key("properties") && members.get("type") == Some(&"object".into()) {
                assert_eq!(members.get("additionalProperties"), Some(&false.into()), "{path} is open");
                n_closed += 1;
            }
        });

        assert!(n_closed > 20, "{n_closed}");
    }

    #[test]
    fn every_key_says_what_it_means() {
        walk(value(), "", &mut |members, path| {
            let Some(Value::Object(properties)) = members.get("properties") else {
                return;
            };
            for (key, property) in properties {
                // The one key of an enum's form is described with the form.
                let described = if members.contains_key("description") {
                    members.get("description")
                } else {
                    property.get("description")
                };
                let has_text = described.is_some() || reference(property).is_some();
                assert!(has_text, "{path}/{key} has no description");
            }
        });
    }

    #[test]
    fn nothing_may_be_null_except_free_values() {
        assert!(!schema().contains("\"null\""), "{}", schema());
    }

    #[test]
    fn defaults_are_shown() {
        let limits = definition("Limits").expect("limits");

        assert_eq!(limits["properties"]["body"]["default"], "4MiB");
        assert_eq!(value()["properties"]["listen"]["default"], "127.0.0.1:8080");
    }
}
