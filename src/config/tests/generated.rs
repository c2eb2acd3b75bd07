//! The files in the repository that are written from the structs.

use crate::config::{reference, schema};
use std::fs;
use std::path::Path;

/// Compares, or with `UPDATE=1` writes.
#[track_caller]
fn is_up_to_date(file: &str, contents: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("a file stands in a directory")).unwrap();
        fs::write(&path, contents).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == contents, "{file} is out of date: run `UPDATE=1 cargo test config`");
}

#[test]
fn gateway_schema_json_is_up_to_date() {
    is_up_to_date("gateway.schema.json", &schema());
}

#[test]
fn configuration_md_is_up_to_date() {
    is_up_to_date("docs/configuration.md", &reference());
}
