//! Names and ids: what may be called what, checked once, up front, the same on every backend.
//!
//! Two families:
//!
//! - **Names** ([`ContextName`], [`AggregateName`]) become parts of collection, table and index names. They are
//!   plain identifiers, and so short that every name derived from them fits [`MAX_IDENTIFIER_BYTES`] without
//!   truncation (PostgreSQL cuts silently after 63 bytes; two names that differ in byte 64 would share a table).
//! - **Ids** ([`CommandId`], [`EventName`], [`SubscriptionName`], [`MemberId`], …) are data. Any UTF-8 text of 1 to
//!   [`MAX_ID_BYTES`] bytes without U+0000, compared byte by byte: no collation, no case folding, no Unicode
//!   normalisation.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// Longest identifier, in bytes, that every supported database keeps whole (PostgreSQL's `NAMEDATALEN - 1`).
pub const MAX_IDENTIFIER_BYTES: usize = 63;

/// Longest context name and aggregate name **together**, in bytes (inclusive).
///
/// The longest name derived from both is `wow_snapshot__<context>__<aggregate>` with an index suffix of up to five
/// bytes: 14 + 2 + 5 = 21 bytes beside the two names, which leaves 42 of [`MAX_IDENTIFIER_BYTES`].
pub const MAX_QUALIFIED_NAME_BYTES: usize = 42;

/// Longest context name or aggregate name alone, in bytes (inclusive): its partner needs at least one byte.
pub const MAX_NAME_BYTES: usize = MAX_QUALIFIED_NAME_BYTES - 1;

/// Longest id, in bytes (inclusive).
pub const MAX_ID_BYTES: usize = 255;

/// The aggregate name that no aggregate can have: `wow_log__<context>__partition` holds a context's counters.
pub const RESERVED_AGGREGATE_NAME: &str = "partition";

fn refuse(what: &'static str, value: &str, reason: impl fmt::Display) -> Error {
    const SHOWN: usize = 80;
    let mut shown: String = value.chars().take(SHOWN).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    Error::not_applied(ErrorKind::InvalidName { what, reason: format!("{shown:?} {reason}") })
}

fn check_name(what: &'static str, name: &str) -> Result<()> {
    let refuse = |reason: &str| Err(refuse(what, name, reason));
    if name.is_empty() {
        return refuse("is empty: give it at least one letter");
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(self::refuse(
            what,
            name,
            format_args!("has {} bytes: at most {MAX_NAME_BYTES} are allowed", name.len()),
        ));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return refuse("must start with an ASCII letter");
    }
    if let Some(bad) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '_' || *c == '-')) {
        return Err(self::refuse(
            what,
            name,
            format_args!("contains {bad:?}: only ASCII letters, digits, `_` and `-` are allowed"),
        ));
    }
    if name.contains("__") {
        return refuse("contains `__`, which separates the parts of a table's name: use a single `_`");
    }
    if name.ends_with('_') || name.ends_with('-') {
        return refuse("must not end with `_` or `-`");
    }
    Ok(())
}

fn check_id(what: &'static str, id: &str) -> Result<()> {
    if id.is_empty() {
        return Err(refuse(what, id, "is empty: give it at least one byte"));
    }
    if id.len() > MAX_ID_BYTES {
        return Err(refuse(
            what,
            id,
            format_args!("has {} bytes: at most {MAX_ID_BYTES} are allowed", id.len()),
        ));
    }
    if id.contains('\0') {
        return Err(refuse(what, id, "contains U+0000, which the databases cannot store"));
    }
    Ok(())
}

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks and takes the text.
            ///
            /// # Errors
            /// [`ErrorKind::InvalidName`] with the rule that it breaks.
            pub fn new(text: impl AsRef<str>) -> Result<Self> {
                let text = text.as_ref();
                $check($what, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                &*self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                &*self.0 == *other
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;

            fn try_from(text: &str) -> Result<Self> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0.as_ref().to_owned()
            }
        }

        impl From<&$name> for $name {
            fn from(text: &$name) -> Self {
                text.clone()
            }
        }
    };
}

text_type! {
    /// A bounded context, e.g. `shop`. It owns one partitioned log per store.
    ///
    /// `[A-Za-z][A-Za-z0-9_-]*`, 1 to [`MAX_NAME_BYTES`] bytes, no `__`, no trailing `_` or `-`. Case counts: `a` and
    /// `A` are two contexts and never share a table.
    ContextName, "context name", check_name
}
text_type! {
    /// The part of an [`AggregateType`] after the context, e.g. `order`.
    ///
    /// The same rule as for a [`ContextName`]; and never `partition` ([`RESERVED_AGGREGATE_NAME`]), which the
    /// [`AggregateType`] checks.
    AggregateName, "aggregate name", check_name
}
text_type! {
    /// Names the command that produced a commit: the idempotency key within one aggregate (L3).
    CommandId, "command id", check_id
}
text_type! {
    /// The name of an event, e.g. `OrderPlaced`.
    EventName, "event name", check_id
}
text_type! {
    /// A named reader of a context's log with its own checkpoints, leases and failure ledger. Its members form the
    /// *group* of the lease contract.
    SubscriptionName, "subscription name", check_id
}
text_type! {
    /// The scope of a reservation, e.g. `user.email`: a key is unique in its scope.
    ReservationScope, "reservation scope", check_id
}
text_type! {
    /// A key that is unique in its [`ReservationScope`], e.g. an e-mail address.
    ReservationKey, "reservation key", check_id
}
text_type! {
    /// Who holds a reservation, e.g. the id of the aggregate that wants the key.
    OwnerId, "owner id", check_id
}
text_type! {
    /// Names a timer in its context.
    TimerId, "timer id", check_id
}
text_type! {
    /// One **run** of one node: it must be different after every start.
    ///
    /// Two processes that use one member id can both believe that they own a lease. [`MemberId::generate`] makes one
    /// that nobody else has.
    MemberId, "member id", check_id
}

impl MemberId {
    /// A member id of this run: `<node>-<random UUID>`. A node name that would not fit is cut at a character
    /// boundary, U+0000 is left out; the random part makes it unique.
    #[must_use]
    pub fn generate(node: &str) -> Self {
        let id = uuid::Uuid::new_v4();
        let mut text = String::with_capacity(MAX_ID_BYTES);
        for c in node.chars().filter(|c| *c != '\0') {
            if text.len() + c.len_utf8() + 37 > MAX_ID_BYTES {
                break;
            }
            text.push(c);
        }
        if !text.is_empty() {
            text.push('-');
        }
        text.push_str(&id.to_string());
        Self(Arc::from(text))
    }
}

/// `<context>.<aggregate>`, e.g. `shop.order`. Cheap to clone.
///
/// ```
/// use wow_store_api::AggregateType;
///
/// let order: AggregateType = "shop.order".parse()?;
/// assert_eq!(order.context().as_str(), "shop");
/// assert_eq!(order.to_string(), "shop.order");
/// assert!(AggregateType::new("shop", "partition").is_err(), "that table holds the counters");
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AggregateType(Arc<(ContextName, AggregateName)>);

impl AggregateType {
    /// Checks both names, and that together they have at most [`MAX_QUALIFIED_NAME_BYTES`] bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn new(context: impl AsRef<str>, aggregate: impl AsRef<str>) -> Result<Self> {
        Self::from_names(ContextName::new(context)?, AggregateName::new(aggregate)?)
    }

    /// The same from names that are already checked by themselves.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if they are too long together, or the aggregate's name is reserved.
    pub fn from_names(context: ContextName, aggregate: AggregateName) -> Result<Self> {
        if aggregate == RESERVED_AGGREGATE_NAME {
            return Err(refuse(
                "aggregate name",
                aggregate.as_str(),
                "is reserved for a context's counters: choose another",
            ));
        }
        let length = context.as_str().len() + aggregate.as_str().len();
        if length > MAX_QUALIFIED_NAME_BYTES {
            return Err(refuse(
                "aggregate type",
                &format!("{context}.{aggregate}"),
                format_args!(
                    "is too long: context and aggregate name together have {length} bytes, at most \
                     {MAX_QUALIFIED_NAME_BYTES} are allowed"
                ),
            ));
        }
        Ok(Self(Arc::new((context, aggregate))))
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &ContextName {
        &self.0.0
    }

    /// The aggregate's name in its context.
    #[must_use]
    pub fn name(&self) -> &AggregateName {
        &self.0.1
    }
}

impl fmt::Display for AggregateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.context(), self.name())
    }
}

impl fmt::Debug for AggregateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for AggregateType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('.') {
            Some((context, aggregate)) => Self::new(context, aggregate),
            None => Err(refuse("aggregate type", text, "has no `.`: write it as <context>.<aggregate>")),
        }
    }
}

impl TryFrom<String> for AggregateType {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<AggregateType> for String {
    fn from(aggregate_type: AggregateType) -> Self {
        aggregate_type.to_string()
    }
}

/// One aggregate: its type, an optional tenant, and its id. Cheap to clone.
///
/// The tenant is part of the identity: the same id under two tenants, or with and without one, names different
/// aggregates. Id and tenant are 1 to [`MAX_ID_BYTES`] bytes each, without U+0000.
///
/// ```
/// use wow_store_api::AggregateId;
///
/// let id = AggregateId::new("shop", "order", "42")?;
/// let acme = id.clone().with_tenant("acme")?;
/// assert_ne!(id, acme);
/// assert_eq!(id.to_string(), "shop.order/42");
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "AggregateIdParts", into = "AggregateIdParts")]
pub struct AggregateId {
    aggregate_type: AggregateType,
    tenant: Option<Arc<str>>,
    id: Arc<str>,
}

/// How an [`AggregateId`] is written by serde.
#[derive(Serialize, Deserialize)]
struct AggregateIdParts {
    #[serde(rename = "type")]
    aggregate_type: AggregateType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
    id: String,
}

impl TryFrom<AggregateIdParts> for AggregateId {
    type Error = Error;

    fn try_from(parts: AggregateIdParts) -> Result<Self> {
        let id = Self::of(parts.aggregate_type, parts.id)?;
        match parts.tenant {
            Some(tenant) => id.with_tenant(tenant),
            None => Ok(id),
        }
    }
}

impl From<AggregateId> for AggregateIdParts {
    fn from(id: AggregateId) -> Self {
        Self {
            tenant: id.tenant.as_deref().map(str::to_owned),
            id: id.id.as_ref().to_owned(),
            aggregate_type: id.aggregate_type,
        }
    }
}

impl AggregateId {
    /// Checks the names and the id.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn new(context: impl AsRef<str>, aggregate: impl AsRef<str>, id: impl AsRef<str>) -> Result<Self> {
        Self::of(AggregateType::new(context, aggregate)?, id)
    }

    /// The aggregate of a known type.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if the id breaks its rule.
    pub fn of(aggregate_type: AggregateType, id: impl AsRef<str>) -> Result<Self> {
        let id = id.as_ref();
        check_id("aggregate id", id)?;
        Ok(Self { aggregate_type, tenant: None, id: Arc::from(id) })
    }

    /// The same id under a tenant: another aggregate.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if the tenant breaks the rule of ids.
    pub fn with_tenant(mut self, tenant: impl AsRef<str>) -> Result<Self> {
        let tenant = tenant.as_ref();
        check_id("tenant", tenant)?;
        self.tenant = Some(Arc::from(tenant));
        Ok(self)
    }

    /// The type.
    #[must_use]
    pub fn aggregate_type(&self) -> &AggregateType {
        &self.aggregate_type
    }

    /// The context.
    #[must_use]
    pub fn context(&self) -> &ContextName {
        self.aggregate_type.context()
    }

    /// The tenant, if it has one.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The id in its type and tenant.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for AggregateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tenant {
            Some(tenant) => write!(f, "{}/{} (tenant {})", self.aggregate_type, self.id, tenant),
            None => write!(f, "{}/{}", self.aggregate_type, self.id),
        }
    }
}

impl fmt::Debug for AggregateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
