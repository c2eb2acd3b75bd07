//! JSON Schemas of tools, as all clients can read them.

use serde_json::{Map, Value};
use std::sync::Arc;

/// The same, in words that strict and simple readers know.
pub fn plain(schema: &Arc<Map<String, Value>>) -> Arc<Map<String, Value>> {
    let mut plain = Value::Object((**schema).clone());
    make_plain(&mut plain);
    match plain {
        Value::Object(plain) => Arc::new(plain),
        _ => schema.clone(),
    }
}

/// Says of what can be left out what it is when it is there: `null` is taken for left out, too, but nobody has to know,
/// and `["integer", "null"]` is more than some clients can read. Leaves out `uint64` and its like, which are no formats of
/// JSON Schema: strict validators stumble over them.
fn make_plain(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::Array(types)) = object.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [one] = types.as_slice() {
                    let one = one.clone();
                    object.insert("type".to_owned(), one);
                }
            }
            if object.get("format").is_some_and(Value::is_string) {
                object.remove("format");
            }
            if object.get("default") == Some(&Value::Null) {
                object.remove("default");
            }
            object.values_mut().for_each(make_plain);
        }
        Value::Array(values) => values.iter_mut().for_each(make_plain),
        _ => {}
    }
}
