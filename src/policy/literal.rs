//! Values written in a condition (`equals`, `in`), compared with an argument without building it.

use super::number;
use crate::jsonrpc::{Kind, Node};
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A value of the configuration, ready to be compared.
#[derive(Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    /// As text: a float in between would lose digits.
    Number(Box<str>),
    String(Box<str>),
    Array(Box<[Literal]>),
    Object(BTreeMap<Box<str>, Literal>),
}

impl Literal {
    /// Fails where a number cannot be the one that was written.
    pub(super) fn from_value(value: &Value) -> Result<Literal, &'static str> {
        Ok(match value {
            Value::Null => Literal::Null,
            Value::Bool(truth) => Literal::Bool(*truth),
            Value::Number(number) => Literal::Number(exact(number)?),
            Value::String(text) => Literal::String(text.as_str().into()),
            Value::Array(elements) => {
                Literal::Array(elements.iter().map(Literal::from_value).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => Literal::Object(
                members
                    .iter()
                    .map(|(key, value)| Ok((Box::from(key.as_str()), Literal::from_value(value)?)))
                    .collect::<Result<_, &'static str>>()?,
            ),
        })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Literal::Null => Kind::Null,
            Literal::Bool(_) => Kind::Bool,
            Literal::Number(_) => Kind::Number,
            Literal::String(_) => Kind::String,
            Literal::Array(_) => Kind::Array,
            Literal::Object(_) => Kind::Object,
        }
    }

    /// Numbers by decimal value, strings unescaped, objects in any order.
    pub(super) fn equals(&self, node: Node<'_>) -> bool {
        match self {
            Literal::Null => node.kind() == Kind::Null,
            Literal::Bool(truth) => node.as_bool() == Some(*truth),
            Literal::Number(text) => {
                node.as_number().is_some_and(|given| number::compare(given, text) == Some(Ordering::Equal))
            }
            Literal::String(text) => node.as_str().is_some_and(|given| *given == **text),
            Literal::Array(expected) => {
                let mut given = node.elements();
                node.kind() == Kind::Array
                    && expected.iter().all(|literal| given.next().is_some_and(|element| literal.equals(element)))
                    && given.next().is_none()
            }
            Literal::Object(expected) => {
                let mut n_members = 0_usize;
                // The parser refuses duplicate keys, so as many members, each of them expected, are the same members.
                node.kind() == Kind::Object
                    && node.members().all(|(key, member)| {
                        n_members = n_members.saturating_add(1);
                        expected.get(&*key).is_some_and(|literal| literal.equals(member))
                    })
                    && n_members == expected.len()
            }
        }
    }
}

/// The text of a number of the configuration.
///
/// It has been through a float where it was no 64-bit integer. Up to 15 digits come out of one as they went in; with
/// more, the value in force could differ from the one that stands in the file, and a limit must not.
pub(super) fn exact(number: &serde_json::Number) -> Result<Box<str>, &'static str> {
    const DIGITS_MAX: usize = 15;
    let text = number.to_string();
    let is_integer = number.is_i64() || number.is_u64();
    match super::number::significant_digits(&text) {
        Some(n) if is_integer || n <= DIGITS_MAX => Ok(text.into()),
        _ => Err("is a number that cannot be kept exactly: at most 15 digits, or an integer of 64 bits"),
    }
}
