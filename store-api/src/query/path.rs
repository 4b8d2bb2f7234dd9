//! Which value is meant: a path through objects, or a field of the envelope.

use std::{fmt, str::FromStr};

use crate::error::{Error, Result};

/// Most segments of a [`Path`] (inclusive): as many as a payload has levels.
pub const MAX_PATH_DEPTH: usize = 64;

/// Most bytes of one string in a query (inclusive), and of the segments of one [`Path`] together: 64 KiB.
pub const MAX_QUERY_STRING_BYTES: usize = 64 * 1024;

/// The keys that lead from the root of a document to a value: 1 to [`MAX_PATH_DEPTH`] (inclusive) segments.
///
/// Every segment is the key of an **object**; it is plain data, so it may be empty, contain `.` or start with `$`. A
/// step into an array or a scalar leads nowhere (the value is *missing*), also with a segment like `0`.
///
/// As text it is an RFC 6901 pointer. There is no dotted form: `a.b` is one key.
///
/// ```
/// use wow_store_api::query::Path;
///
/// assert_eq!(Path::new(["address", "city"])?, "/address/city".parse()?);
/// assert_eq!(Path::key("a.b")?.to_string(), "/a.b");
/// assert_eq!(Path::key("a/b")?.to_string(), "/a~1b");
/// assert!("address.city".parse::<Path>().is_err());
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(Vec<String>);

impl Path {
    /// Checks and takes the segments.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for no segment or more than [`MAX_PATH_DEPTH`], for U+0000 in
    /// one, or for more than [`MAX_QUERY_STRING_BYTES`] together.
    pub fn new<I>(segments: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut taken: Vec<String> = Vec::new();
        let mut bytes = 0_usize;
        for segment in segments {
            if taken.len() == MAX_PATH_DEPTH {
                return Err(Error::invalid_input(format!(
                    "the path has more than {MAX_PATH_DEPTH} segments, deeper than any payload"
                )));
            }
            let segment = segment.into();
            if segment.contains('\0') {
                return Err(Error::invalid_input("a segment of the path contains U+0000, which no key can"));
            }
            bytes = bytes.saturating_add(segment.len());
            if bytes > MAX_QUERY_STRING_BYTES {
                return Err(Error::invalid_input(format!(
                    "the path has more than {MAX_QUERY_STRING_BYTES} bytes"
                )));
            }
            taken.push(segment);
        }
        if taken.is_empty() {
            return Err(Error::invalid_input("the path is empty: give it at least one segment"));
        }
        Ok(Self(taken))
    }

    /// The path of one key at the root.
    ///
    /// # Errors
    /// As for [`Path::new`].
    pub fn key(key: impl Into<String>) -> Result<Self> {
        Self::new([key.into()])
    }

    /// The segments, at least one.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }

    /// The bytes of all segments.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(String::len).sum()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| {
            f.write_str("/")?;
            segment.chars().try_for_each(|c| match c {
                '~' => f.write_str("~0"),
                '/' => f.write_str("~1"),
                other => fmt::Write::write_char(f, other),
            })
        })
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl FromStr for Path {
    type Err = Error;

    /// Reads an RFC 6901 pointer, e.g. `/address/city`.
    fn from_str(pointer: &str) -> Result<Self> {
        let Some(rest) = pointer.strip_prefix('/') else {
            return Err(Error::invalid_input(
                "a path is written as a pointer that starts with `/`, e.g. /address/city",
            ));
        };
        let segments: Result<Vec<String>> = rest.split('/').map(unescape).collect();
        Self::new(segments?)
    }
}

fn unescape(segment: &str) -> Result<String> {
    let mut pieces = segment.split('~');
    let mut plain = String::from(pieces.next().unwrap_or_default());
    for piece in pieces {
        let (c, rest) = match (piece.strip_prefix('0'), piece.strip_prefix('1')) {
            (Some(rest), _) => ('~', rest),
            (None, Some(rest)) => ('/', rest),
            (None, None) => {
                return Err(Error::invalid_input("a `~` in a pointer is written `~0`, a `/` in a key `~1`"));
            }
        };
        plain.push(c);
        plain.push_str(rest);
    }
    Ok(plain)
}

/// What a query runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The snapshots of an aggregate type.
    Snapshots,
    /// The events of an aggregate type.
    Events,
}

/// A value of an item that a query can look at.
///
/// The fields of the envelope have a fixed kind and are never null; all but [`Field::Tenant`] are always present.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Field {
    /// A value in the state of a snapshot, or in the body of an event: of any kind, or missing.
    Body(Path),
    /// The id of the aggregate: a string.
    Id,
    /// The tenant of the aggregate: a string; missing if it has none.
    Tenant,
    /// The version of the snapshot, or of the commit that holds the event: a number.
    Version,
    /// The revision of the snapshot's state, or of the event's body: a number.
    Revision,
    /// When the snapshot was saved, or the event was committed: an instant. Like a string, it is compared with a
    /// [`Timestamp`](crate::Timestamp) or its text.
    At,
    /// Events only: the name of the event: a string.
    EventName,
    /// Events only: the command that produced the commit: a string.
    CommandId,
    /// Events only: the index of the partition, from 0: a number.
    Partition,
    /// Events only: the position of the commit in the partition, from 1: a number.
    Position,
    /// Events only: the index of the event in its commit, from 0: a number.
    EventIndex,
    /// Events only: a value in the commit's metadata: of any kind, or missing.
    Metadata(Path),
}

/// The kind of value that a field can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    Any,
    Text,
    Number,
    Instant,
}

impl Field {
    /// A value in the state or body.
    ///
    /// # Errors
    /// As for [`Path::new`].
    pub fn body<I>(segments: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Path::new(segments).map(Self::Body)
    }

    /// A value in the metadata of an event's commit.
    ///
    /// # Errors
    /// As for [`Path::new`].
    pub fn metadata<I>(segments: I) -> Result<Self>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Path::new(segments).map(Self::Metadata)
    }

    pub(super) fn kind(&self) -> FieldKind {
        match self {
            Self::Body(_) | Self::Metadata(_) => FieldKind::Any,
            Self::Id | Self::Tenant | Self::EventName | Self::CommandId => FieldKind::Text,
            Self::Version | Self::Revision | Self::Partition | Self::Position | Self::EventIndex => {
                FieldKind::Number
            }
            Self::At => FieldKind::Instant,
        }
    }

    /// Whether items of the target have this field at all.
    #[must_use]
    pub fn is_of(&self, target: Target) -> bool {
        match self {
            Self::Body(_) | Self::Id | Self::Tenant | Self::Version | Self::Revision | Self::At => true,
            Self::EventName
            | Self::CommandId
            | Self::Partition
            | Self::Position
            | Self::EventIndex
            | Self::Metadata(_) => target == Target::Events,
        }
    }

    pub(super) fn check(&self, target: Target) -> Result<()> {
        if self.is_of(target) {
            return Ok(());
        }
        Err(Error::invalid_input(format!("snapshots have no {self}: only a query of events can use it")))
    }

    /// The bytes that the field counts in a query.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Body(path) | Self::Metadata(path) => path.bytes(),
            Self::Id
            | Self::Tenant
            | Self::Version
            | Self::Revision
            | Self::At
            | Self::EventName
            | Self::CommandId
            | Self::Partition
            | Self::Position
            | Self::EventIndex => 0,
        }
    }
}

impl From<Path> for Field {
    fn from(path: Path) -> Self {
        Self::Body(path)
    }
}

impl From<&Self> for Field {
    fn from(field: &Self) -> Self {
        field.clone()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(path) => write!(f, "body {path}"),
            Self::Metadata(path) => write!(f, "metadata {path}"),
            Self::Id => f.write_str("id"),
            Self::Tenant => f.write_str("tenant"),
            Self::Version => f.write_str("version"),
            Self::Revision => f.write_str("revision"),
            Self::At => f.write_str("instant"),
            Self::EventName => f.write_str("event name"),
            Self::CommandId => f.write_str("command id"),
            Self::Partition => f.write_str("partition"),
            Self::Position => f.write_str("position"),
            Self::EventIndex => f.write_str("event index"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_pointer_round_trip() {
        for segments in [
            vec!["a"],
            vec![""],
            vec!["", ""],
            vec!["a.b", "$x"],
            vec!["a/b", "c~d", "~1", "~0"],
            vec!["0", "-", "%", "ключ"],
        ] {
            let path = Path::new(segments.clone()).unwrap();
            assert_eq!(path.to_string().parse::<Path>().unwrap(), path, "{segments:?}");
            assert_eq!(path.segments(), segments);
        }
    }

    #[test]
    fn path_is_checked() {
        assert!(Path::new(Vec::<String>::new()).is_err());
        assert!(Path::new(vec!["a"; MAX_PATH_DEPTH]).is_ok());
        assert!(Path::new(vec!["a"; MAX_PATH_DEPTH + 1]).is_err());
        assert!(Path::key("a\0").is_err());
        assert!(Path::key("a".repeat(MAX_QUERY_STRING_BYTES)).is_ok());
        assert!(Path::key("a".repeat(MAX_QUERY_STRING_BYTES + 1)).is_err());
        for pointer in ["", "a", "a/b", "/~", "/~2", "/a~"] {
            assert!(pointer.parse::<Path>().is_err(), "{pointer:?}");
        }
        assert_eq!("/".parse::<Path>().unwrap(), Path::key("").unwrap());
    }
}
