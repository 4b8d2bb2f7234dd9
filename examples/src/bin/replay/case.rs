//! From a trace to an aggregate: what is stored of a case, and under which names.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, Commit, ContextName, ExpectedVersion, RecordedCommit, Version,
    payload::{Number, decimal},
};

use crate::{
    totals::Totals,
    xes::{Attribute, Trace, Value, XesError},
};

/// The attributes that are amounts of money, whether they are written as numbers or as strings: of loans, and of fines.
const AMOUNTS: [&str; 5] = ["AMOUNT_REQ", "amount", "expense", "paymentAmount", "totalPaymentAmount"];

/// What a name is where the file gives none.
const UNNAMED: &str = "unnamed";

/// The event before a case's first activity: what is known of the case itself.
const CASE_OPENED: &str = "CaseOpened";

/// The body of every event. What XES has standard keys for has fields here.
#[derive(Debug, Default, Serialize)]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifecycle: Option<String>,
    /// Exact decimals, in the log as in the file: `35.0` stays `35.0`.
    #[serde(with = "decimal::map", skip_serializing_if = "BTreeMap::is_empty")]
    amounts: BTreeMap<String, Decimal>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<String, Value>,
}

/// What is counted of a body: a reader names the fields it wants, and passes over the others.
#[derive(Debug, Deserialize)]
struct Amounts {
    #[serde(default, with = "decimal::map")]
    amounts: BTreeMap<String, Decimal>,
}

/// Counts a commit that was read from the log.
pub(crate) fn count(commit: &RecordedCommit, totals: &mut Totals) -> Result<()> {
    for (index, event) in commit.events.iter().enumerate() {
        // Told by its place, not by its name: an activity may be called anything.
        if commit.version == 1 && index == 0 {
            totals.cases += 1;
        } else {
            totals.add_activity(event.name.as_str());
        }
        let body: Amounts = event.body.decode().with_context(|| {
            format!("version {} of {} is no event of a case", commit.version, commit.aggregate_id)
        })?;
        totals.add_amounts(&body.amounts)?;
    }
    Ok(())
}

/// A case, ready to be stored.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) id: AggregateId,
    /// One for each event. They are checked here already, where the line of the file is known.
    pub(crate) commits: Vec<CheckedCommit>,
}

/// Makes cases of traces, and counts them.
#[derive(Debug)]
pub(crate) struct Cases {
    aggregate_type: AggregateType,
    /// How often each case name was given so far.
    names: HashMap<String, u64>,
    pub(crate) totals: Totals,
}

impl Cases {
    pub(crate) fn new(context: &ContextName) -> Result<Self> {
        let aggregate_type = AggregateType::new(context, "case")?;
        Ok(Self { aggregate_type, names: HashMap::new(), totals: Totals::default() })
    }

    pub(crate) fn case(&mut self, trace: Trace) -> Result<Case> {
        let line = trace.line;
        self.build(trace).map_err(|error| match error.downcast::<XesError>() {
            Ok(error) => error.into(),
            Err(error) => XesError::at(line, format!("this case cannot be stored: {error:#}")).into(),
        })
    }

    fn build(&mut self, trace: Trace) -> Result<Case> {
        let (name, opened) = split(trace.attributes)?;
        let id = AggregateId::of(self.aggregate_type.clone(), self.unique(name.unwrap_or_default()))?;
        self.totals.cases += 1;
        self.totals.add_amounts(&opened.amounts)?;

        let mut commits = Vec::with_capacity(trace.events.len());
        for (index, attributes) in (0..).zip(trace.events) {
            let (activity, body) = split(attributes)?;
            let activity = activity.unwrap_or_else(|| UNNAMED.to_owned());
            self.totals.add_activity(&activity);
            self.totals.add_amounts(&body.amounts)?;
            let mut commit = command(&id, index);
            if index == 0 {
                commit = commit.event(CASE_OPENED, 1, &opened)?;
            }
            commits.push(commit.event(&activity, 1, &body)?.check()?);
        }
        if commits.is_empty() {
            // A case in which nothing happened is a case all the same.
            commits.push(command(&id, 0).event(CASE_OPENED, 1, &opened)?.check()?);
        }
        Ok(Case { id, commits })
    }

    /// Names are for people: nothing keeps a log from giving one to two cases. The second one gets `#2`.
    fn unique(&mut self, name: String) -> String {
        let name = if name.is_empty() { UNNAMED.to_owned() } else { name };
        let mut unique = name.clone();
        while let Some(count) = self.names.get_mut(&unique) {
            *count += 1;
            unique = format!("{name}#{count}");
        }
        self.names.insert(unique.clone(), 1);
        unique
    }
}

/// The commit of the event with this index, from 0. Its name is the same in every run: appending it again is harmless.
/// It expects the events before it, so no event can be left out or change places.
fn command(id: &AggregateId, index: Version) -> Commit {
    Commit::new(id.clone(), format!("{}/{index}", id.id())).expect(ExpectedVersion::Exact(index))
}

/// Parts the attributes of a trace or an event into its name and the rest.
fn split(attributes: Vec<Attribute>) -> Result<(Option<String>, Body)> {
    let mut name = None;
    let mut body = Body::default();
    for Attribute { key, value } in attributes {
        if AMOUNTS.contains(&key.as_str())
            && let Some(amount) = exact(&key, &value)?
        {
            body.amounts.insert(key, amount);
            continue;
        }
        match (key.as_str(), value) {
            ("concept:name", Value::Text(text)) => name = Some(text).filter(|name| !name.is_empty()),
            ("time:timestamp", Value::Text(text)) => body.at = Some(text),
            ("org:resource", Value::Text(text)) => body.resource = Some(text),
            ("lifecycle:transition", Value::Text(text)) => body.lifecycle = Some(text),
            (_, value) => {
                body.attributes.insert(key, value);
            }
        }
    }
    Ok((name, body))
}

/// The amount, digit for digit as in the file; `None` if it is not one, e.g. `UNKNOWN`.
fn exact(key: &str, value: &Value) -> Result<Option<Decimal>> {
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::Text(text) => match text.trim().parse::<Number>() {
            Ok(number) => number,
            Err(_) => return Ok(None),
        },
        Value::Bool(_) => return Ok(None),
    };
    let amount = number.to_decimal();
    Ok(Some(
        amount
            .with_context(|| format!("{key:?} is {number}, which has too many digits for an exact amount"))?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Cases {
        Cases::new(&ContextName::new("log").expect("a name")).expect("a type")
    }

    fn trace(name: Option<&str>) -> Trace {
        let attributes = name.map(|name| text("concept:name", name)).into_iter().collect();
        Trace { line: 7, attributes, events: Vec::new() }
    }

    fn text(key: &str, value: &str) -> Attribute {
        Attribute { key: key.to_owned(), value: Value::Text(value.to_owned()) }
    }

    #[test]
    fn cases_with_one_name_are_two_aggregates() {
        let mut cases = cases();
        let names = [Some("a"), Some("a"), Some("a#2"), Some("a"), None, Some(""), Some("unnamed#2")];
        let ids: Vec<_> =
            names.map(|name| cases.case(trace(name)).expect("it is stored").id).into_iter().collect();
        let mut distinct = ids.clone();
        distinct.sort();
        distinct.dedup();
        // No two share one, whatever they are called.
        assert_eq!(distinct.len(), names.len(), "{ids:?}");
        // The first one of a name has it as it is.
        assert_eq!(ids[0].id(), "a");
    }

    #[test]
    fn a_case_that_cannot_be_stored_is_refused_with_its_line() {
        let error = cases().case(trace(Some(&"x".repeat(256)))).expect_err("the name is too long");
        // It is the file's fault, so it names the place.
        assert_eq!(error.downcast_ref::<XesError>().and_then(XesError::line), Some(7));
    }

    #[test]
    fn amounts_are_exact_or_no_amounts_at_all() {
        let amount = |value: &str| exact("amount", &Value::Text(value.to_owned()));
        // The scale is part of it.
        assert_eq!(
            amount("35.0").expect("it fits").map(|amount| amount.to_string()).as_deref(),
            Some("35.0")
        );
        // A placeholder is none.
        assert_eq!(amount("UNKNOWN").expect("no amount"), None);
        // One that would be rounded is refused.
        assert!(amount("0.12345678901234567890123456789012").is_err());
    }
}
