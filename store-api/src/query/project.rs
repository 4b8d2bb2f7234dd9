//! The projection: only some paths of a body.

use std::collections::BTreeMap;

use super::path::{MAX_QUERY_STRING_BYTES, Path};
use crate::{
    error::{Error, Result},
    payload::{Payload, Value},
};

/// Most paths of a projection (inclusive).
pub const MAX_PROJECTION_PATHS: usize = 256;

pub(super) fn check(paths: &[Path]) -> Result<()> {
    if paths.len() > MAX_PROJECTION_PATHS {
        return Err(Error::invalid_input(format!(
            "the projection has {} paths, at most {MAX_PROJECTION_PATHS} are allowed",
            paths.len()
        )));
    }
    if paths.iter().map(Path::bytes).sum::<usize>() > MAX_QUERY_STRING_BYTES {
        return Err(Error::invalid_input(format!(
            "the paths of the projection have more than {MAX_QUERY_STRING_BYTES} bytes together"
        )));
    }
    Ok(())
}

/// The paths of a projection as a tree.
#[derive(Debug, Default)]
pub(super) struct Projection<'a>(BTreeMap<&'a str, Node<'a>>);

#[derive(Debug)]
enum Node<'a> {
    Whole,
    Part(Projection<'a>),
}

impl<'a> Projection<'a> {
    pub(super) fn new(paths: &'a [Path]) -> Self {
        let mut root = Self::default();
        for path in paths {
            root.add(path.segments());
        }
        root
    }

    fn add(&mut self, segments: &'a [String]) {
        let Some((first, rest)) = segments.split_first() else {
            return;
        };
        if rest.is_empty() {
            // It covers every longer path.
            self.0.insert(first, Node::Whole);
            return;
        }
        match self.0.entry(first).or_insert_with(|| Node::Part(Self::default())) {
            Node::Whole => {}
            Node::Part(part) => part.add(rest),
        }
    }

    /// What is left of a body: an object with the paths and nothing else.
    pub(super) fn of(&self, body: &Payload) -> Result<Payload> {
        let kept = Value::Object(self.keep(body.to_value()).unwrap_or_default());
        // A part of what is in the profile is in the profile.
        Payload::from_value(&kept)
            .map_err(|error| Error::internal("a part of a payload is unrepresentable").with_source(error))
    }

    /// The entries that are asked for; `None` if there are none.
    fn keep(&self, value: Value) -> Option<Vec<(String, Value)>> {
        let Value::Object(entries) = value else {
            return None;
        };
        let kept: Vec<_> = entries
            .into_iter()
            .filter_map(|(key, value)| {
                let value = match self.0.get(key.as_str())? {
                    Node::Whole => value,
                    Node::Part(part) => Value::Object(part.keep(value)?),
                };
                Some((key, value))
            })
            .collect();
        (!kept.is_empty()).then_some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(body: &str, paths: &[&str]) -> String {
        let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
        check(&paths).unwrap();
        let body = Payload::from_json(body).unwrap();
        Projection::new(&paths).of(&body).unwrap().as_json().to_owned()
    }

    const BODY: &str = r#"{"z":1,"a":{"b":{"c":1.10,"d":null},"e":[1,{"c":2}]},"a.b":"dot","$x":true,"":{"":"empty"},"o":{}}"#;

    #[test]
    fn keeps_only_the_paths_in_stored_order() {
        assert_eq!(project(BODY, &["/a/b/c", "/z"]), r#"{"z":1,"a":{"b":{"c":1.10}}}"#);
        assert_eq!(project(BODY, &["/a/e"]), r#"{"a":{"e":[1,{"c":2}]}}"#);
        assert_eq!(project(BODY, &["/a/b/d"]), r#"{"a":{"b":{"d":null}}}"#, "a null is there");
        assert_eq!(project(BODY, &["/o"]), r#"{"o":{}}"#, "an empty object is there");
    }

    #[test]
    fn a_path_covers_what_is_below_it() {
        let both = r#"{"a":{"b":{"c":1.10,"d":null}}}"#;
        assert_eq!(project(BODY, &["/a/b"]), both);
        assert_eq!(project(BODY, &["/a/b", "/a/b/c"]), both);
        assert_eq!(project(BODY, &["/a/b/c", "/a/b"]), both);
        assert_eq!(project(BODY, &["/a/b/c", "/a/b/d", "/a/b/c"]), both);
    }

    #[test]
    fn keys_are_data() {
        assert_eq!(project(BODY, &["/a.b"]), r#"{"a.b":"dot"}"#);
        assert_eq!(project(BODY, &["/$x", "/"]), r#"{"$x":true,"":{"":"empty"}}"#);
        assert_eq!(project(BODY, &["//"]), r#"{"":{"":"empty"}}"#);
    }

    #[test]
    fn what_is_missing_leaves_nothing() {
        for path in ["/A", "/a/x", "/a/b/c/d", "/a/e/0", "/a/e/1/c", "/o/x", "/z/z"] {
            assert_eq!(project(BODY, &[path]), "{}", "{path}");
        }
        assert_eq!(project(BODY, &[]), "{}");
        for body in ["null", "1", "\"a\"", "[1]", "{}"] {
            assert_eq!(project(body, &["/a"]), "{}", "{body}");
        }
    }

    #[test]
    fn is_limited() {
        let path = |length: usize| Path::key("x".repeat(length)).unwrap();
        assert!(check(&vec![path(1); MAX_PROJECTION_PATHS]).is_ok());
        assert!(check(&vec![path(1); MAX_PROJECTION_PATHS + 1]).is_err());
        assert!(check(&vec![path(MAX_QUERY_STRING_BYTES / 2); 2]).is_ok());
        assert!(check(&vec![path(MAX_QUERY_STRING_BYTES / 2); 3]).is_err());
    }
}
