//! Faults of payloads: documents that come back different, or are taken though they cannot be kept.

use wow_store_api::{
    CheckedCommit, Error, ErrorKind, MAX_COMMIT_BYTES, Payload, RecordedCommit, Result,
    payload::{Number, Value},
};

use super::{Mutant, mutants, rewrite::rewrite};

mutants! { PayloadFault in "payload":
    /// Numbers go through a double.
    NumbersAreDoubles => [
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::documents_that_are_no_objects_are_kept",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// An integer beyond 64 bits becomes a string.
    LargeIntegersAreStrings => [
        "payload::integers_keep_every_digit",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::documents_that_are_no_objects_are_kept",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::ranges_of_numbers_go_by_value",
        "query::ranges_of_strings_go_by_bytes",
        "query::contains_looks_into_arrays_and_strings",
        "query::starts_with_looks_at_bytes",
        "query::not_and_or_combine",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// Zeros at the end of a fraction are dropped.
    DropsScale => [
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::documents_that_are_no_objects_are_kept",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query_pages::projection_keeps_only_what_is_asked_for",
    ],
    /// A fraction is rounded to 28 digits.
    RoundsFractions => [
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::ranges_of_numbers_go_by_value",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// A number beyond the range of doubles becomes null.
    HugeNumbersAreNull => [
        "payload::numbers_keep_their_size_up_to_decimal128",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// A number too small for a double becomes zero.
    TinyNumbersAreZero => [
        "payload::numbers_keep_their_size_up_to_decimal128",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// Fractions keep fifteen digits.
    FractionsKeepFifteenDigits => [
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "query::long_numbers_are_exact",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// Blanks around a string are cut off.
    TrimsStrings => ["payload::strings_are_left_alone"],
    /// A date loses milliseconds that are zero.
    RewritesDates => ["payload::strings_are_left_alone"],
    /// A string that looks like a number becomes one.
    StringsBecomeNumbers => [
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::strings_are_left_alone",
    ],
    /// Control characters are taken out of strings.
    DropsControlCharacters => [
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
        "query::text_that_looks_like_code_is_data",
    ],
    /// What looks like an escape in a string is taken for one.
    UnescapesTwice => [
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
    ],
    /// Characters beyond the first plane are replaced.
    ReplacesEmoji => [
        "payload::strings_are_left_alone",
        "payload::half_surrogate_pairs_are_refused",
    ],
    /// Long strings are cut.
    CutsStrings => [
        "append_all::thirty_two_mebibytes_are_taken_and_more_refused",
        "payload::wide_and_long_documents_are_kept",
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
        "payload::many_large_commits_are_read_whole",
        "snapshot::the_largest_state_is_kept",
    ],
    /// Empty keys are dropped.
    DropsEmptyKeys => [
        "payload::keys_of_every_kind_are_data",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::keys_are_data",
        "query_pages::projection_keeps_only_what_is_asked_for",
        "payload::strings_are_left_alone",
    ],
    /// Keys that start with `$` are dropped.
    DropsDollarKeys => [
        "payload::keys_of_every_kind_are_data",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::keys_are_data",
        "query::metadata_of_events",
        "query_pages::projection_keeps_only_what_is_asked_for",
        "payload::strings_are_left_alone",
    ],
    /// A dot in a key is a level.
    DotsAreLevels => [
        "payload::keys_of_every_kind_are_data",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query::keys_are_data",
        "query_pages::projection_keeps_only_what_is_asked_for",
    ],
    /// Keys are normalised, and the last of those that become one wins.
    NormalisesKeys => [
        "payload::keys_of_every_kind_are_data",
        "payload::a_key_given_twice_is_refused",
        "payload::strings_are_left_alone",
    ],
    /// Fields that are null are dropped.
    DropsNulls => [
        "log::recorded_commit_is_what_was_appended",
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::keys_of_every_kind_are_data",
        "payload::null_missing_and_empty_stay_apart",
        "snapshot::state_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::ne_is_all_the_rest",
        "query::in_is_any_of_them",
        "query::exists_sees_nulls",
        "query_pages::order_of_all_kinds_of_values",
        "query_pages::projection_keeps_only_what_is_asked_for",
    ],
    /// An empty array becomes an empty object.
    EmptyArraysAreObjects => [
        "log::recorded_commit_is_what_was_appended",
        "payload::keys_of_every_kind_are_data",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// An empty object becomes null.
    EmptyObjectsAreNull => [
        "payload::keys_of_every_kind_are_data",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "snapshot::state_comes_back_exactly",
        "query::eq_needs_kind_and_value",
        "query::ne_is_all_the_rest",
        "query::in_is_any_of_them",
        "query_pages::order_of_all_kinds_of_values",
    ],
    /// Arrays are sorted.
    SortsArrays => [
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::exact_decimals_come_back_with_their_scale",
        "payload::strings_are_left_alone",
        "payload::keys_of_every_kind_are_data",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::wide_and_long_documents_are_kept",
        "timer::body_comes_back_exactly",
    ],
    /// What is no object is put into one.
    WrapsScalars => [
        "payload::documents_that_are_no_objects_are_kept",
        "snapshot::same_version_is_replaced",
        "snapshot::state_comes_back_exactly",
        "timer::body_comes_back_exactly",
        "timer::replacing_takes_over_and_voids_the_claim",
        "query::snapshots_are_found_as_they_are",
    ],
    /// What is deeper than sixty levels is cut off.
    CutsDepth => [
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "snapshot::state_comes_back_exactly",
    ],
    /// Arrays are cut after 65,535 elements.
    CutsArrays => ["payload::wide_and_long_documents_are_kept"],
    /// Metadata is dropped.
    DropsMetadata => [
        "log::recorded_commit_is_what_was_appended",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
        "payload::half_surrogate_pairs_are_refused",
        "payload::keys_of_every_kind_are_data",
        "payload::a_key_given_twice_is_refused",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "payload::wide_and_long_documents_are_kept",
        "query::metadata_of_events",
    ],
    /// No metadata becomes empty metadata.
    InventsMetadata => [
        "log::recorded_commit_is_what_was_appended",
        "payload::null_missing_and_empty_stay_apart",
    ],
    /// The last event's body of a commit takes the place of all.
    BodiesRunTogether => [
        "log::recorded_commit_is_what_was_appended",
        "log::seventy_thousand_events_fit_in_one_commit",
        "payload::integers_keep_every_digit",
        "payload::fractions_keep_every_digit_and_their_scale",
        "payload::numbers_keep_their_size_up_to_decimal128",
        "payload::numbers_that_decimal128_cannot_hold_are_refused",
        "payload::floats_come_back_bit_by_bit",
        "payload::strings_are_left_alone",
        "payload::the_nul_character_is_refused",
        "payload::half_surrogate_pairs_are_refused",
        "payload::keys_of_every_kind_are_data",
        "payload::a_key_given_twice_is_refused",
        "payload::the_order_of_keys_is_free_and_that_of_elements_is_not",
        "payload::null_missing_and_empty_stay_apart",
        "payload::documents_that_are_no_objects_are_kept",
        "payload::sixty_four_levels_are_kept_and_more_refused",
        "payload::wide_and_long_documents_are_kept",
        "query::events_are_found_one_by_one",
    ],
    /// A commit of the largest size is refused.
    RefusesTheLargest => ["payload::the_largest_commit_is_taken_and_one_byte_more_refused"],
    /// A page leaves out commits that would not fit into it whole.
    LargeCommitsAreLeftOut => [
        "payload::the_largest_commit_is_taken_and_one_byte_more_refused",
        "payload::many_large_commits_are_read_whole",
    ],
}

/// How a document is changed.
enum Change {
    /// Every value in it, from the inside out; `None` drops it.
    Each(fn(Value) -> Option<Value>),
    /// The document as a whole.
    Whole(fn(Value) -> Value),
}
use Change::{Each, Whole};

type Row = (PayloadFault, fn(&str) -> bool, Change);

/// Each fault, which canonical texts it may change, and how.
const CHANGES: &[Row] = &[
    (PayloadFault::NumbersAreDoubles, |text| has_digits(text, 16), Each(doubles)),
    (PayloadFault::LargeIntegersAreStrings, |text| has_digits(text, 19), Each(large_integers)),
    (PayloadFault::DropsScale, |text| text.contains('.'), Each(without_scale)),
    (PayloadFault::RoundsFractions, |text| has_digits(text, 28), Each(rounded)),
    (PayloadFault::HugeNumbersAreNull, |text| has_digits(text, 300), Each(without_huge)),
    (PayloadFault::TinyNumbersAreZero, |text| text.contains("0.00000"), Each(without_tiny)),
    (PayloadFault::FractionsKeepFifteenDigits, |text| text.contains('.'), Each(fifteen_digits)),
    (PayloadFault::TrimsStrings, |text| text.contains(" \"") || text.contains("\" "), Each(trimmed)),
    (PayloadFault::RewritesDates, |text| text.contains(".000"), Each(dates)),
    (PayloadFault::StringsBecomeNumbers, |text| text.contains(".10\""), Each(numbers)),
    (PayloadFault::DropsControlCharacters, |text| text.contains("\\u00"), Each(without_controls)),
    (PayloadFault::UnescapesTwice, |text| text.contains("\\\\u0000"), Each(unescaped)),
    (PayloadFault::ReplacesEmoji, |text| text.contains('😀'), Each(without_emoji)),
    (PayloadFault::CutsStrings, |text| text.len() > 65_535, Each(cut_strings)),
    (PayloadFault::DropsEmptyKeys, |text| text.contains("\"\":"), Each(without_empty_keys)),
    (PayloadFault::DropsDollarKeys, |text| text.contains("\"$"), Each(without_dollar_keys)),
    (PayloadFault::DotsAreLevels, |text| text.contains("a.b"), Each(dots_are_levels)),
    (PayloadFault::NormalisesKeys, |text| text.contains('\u{301}'), Each(normalised_keys)),
    (PayloadFault::DropsNulls, |text| text.contains(":null"), Each(without_nulls)),
    (PayloadFault::EmptyArraysAreObjects, |text| text.contains("[]"), Each(empty_arrays)),
    (PayloadFault::EmptyObjectsAreNull, |text| text.contains("{}"), Each(empty_objects)),
    (PayloadFault::SortsArrays, |text| text.contains('['), Each(sorted)),
    (PayloadFault::WrapsScalars, |text| text.starts_with(['"', 't', 'f']), Whole(wrapped)),
    (
        PayloadFault::CutsDepth,
        |text| text.contains("[[[[") || text.contains("{\"a\":{\"a\":{\"a\":{"),
        Whole(cut_depth),
    ),
    (PayloadFault::CutsArrays, |text| text.len() > 200_000, Each(cut_arrays)),
];

/// From how many bytes on a document is looked at for [`OF_LARGE`] only.
const LARGE: usize = 400_000;
const OF_LARGE: &[PayloadFault] = &[PayloadFault::CutsStrings, PayloadFault::CutsArrays];

/// Whether a number of so many digits may be in it.
fn has_digits(text: &str, digits: usize) -> bool {
    text.split(|c: char| !c.is_ascii_digit() && c != '.').any(|number| number.len() >= digits)
}

fn number(value: &Value, change: impl Fn(&Number) -> Option<Value>) -> Option<Value> {
    match value {
        Value::Number(number) => change(number).or_else(|| Some(value.clone())),
        _ => Some(value.clone()),
    }
}

fn parsed(text: &str) -> Option<Value> {
    text.parse().ok().map(Value::Number)
}

fn doubles(value: Value) -> Option<Value> {
    number(&value, |it| {
        let double = it.to_f64_lossy();
        let same = format!("{double}") == it.as_str();
        if same || !double.is_finite() || double == 0.0 { None } else { parsed(&format!("{double}")) }
    })
}

fn large_integers(value: Value) -> Option<Value> {
    number(&value, |it| {
        let large = !it.as_str().contains('.') && it.to_i64().is_none();
        large.then(|| Value::String(it.as_str().to_owned()))
    })
}

fn without_scale(value: Value) -> Option<Value> {
    number(&value, |it| {
        let fraction = it.as_str().contains('.');
        fraction.then(|| parsed(it.as_str().trim_end_matches('0').trim_end_matches('.'))).flatten()
    })
}

fn rounded(value: Value) -> Option<Value> {
    number(&value, |it| {
        let (whole, fraction) = it.as_str().split_once('.')?;
        let kept = 28_usize.saturating_sub(whole.len());
        (fraction.len() > kept).then(|| parsed(&format!("{whole}.{}0", &fraction[..kept]))).flatten()
    })
}

fn without_huge(value: Value) -> Option<Value> {
    number(&value, |it| it.to_f64_lossy().is_infinite().then_some(Value::Null))
}

fn without_tiny(value: Value) -> Option<Value> {
    number(&value, |it| {
        let tiny = it.to_f64_lossy() == 0.0 && it.as_str().contains(|c: char| ('1'..='9').contains(&c));
        tiny.then(|| parsed("0")).flatten()
    })
}

fn fifteen_digits(value: Value) -> Option<Value> {
    number(&value, |it| {
        let digits = it.as_str().trim_start_matches(['-', '0', '.']).len();
        let fraction = it.as_str().contains('.');
        (fraction && digits > 16).then(|| parsed(&format!("{:.14e}", it.to_f64_lossy()))).flatten()
    })
}

fn string(value: Value, change: impl Fn(String) -> Value) -> Option<Value> {
    match value {
        Value::String(text) => Some(change(text)),
        other => Some(other),
    }
}

fn trimmed(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.trim().to_owned()))
}

fn dates(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.replace(".000", "")))
}

fn numbers(value: Value) -> Option<Value> {
    string(value, |text| parsed(&text).unwrap_or(Value::String(text)))
}

fn without_controls(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.chars().filter(|c| !c.is_control()).collect()))
}

fn unescaped(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.replace("\\u0000", "\u{2400}")))
}

fn without_emoji(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.replace('😀', "\u{fffd}")))
}

fn cut_strings(value: Value) -> Option<Value> {
    string(value, |text| Value::String(text.chars().take(65_535).collect()))
}

fn members(value: Value, change: impl FnOnce(Vec<(String, Value)>) -> Vec<(String, Value)>) -> Option<Value> {
    match value {
        Value::Object(members) => Some(Value::Object(change(members))),
        other => Some(other),
    }
}

fn without_empty_keys(value: Value) -> Option<Value> {
    members(value, |all| all.into_iter().filter(|(key, _)| !key.is_empty()).collect())
}

fn without_dollar_keys(value: Value) -> Option<Value> {
    members(value, |all| all.into_iter().filter(|(key, _)| !key.starts_with('$')).collect())
}

fn dots_are_levels(value: Value) -> Option<Value> {
    members(value, |all| {
        let level = |(key, value): (String, Value)| match key.split_once('.') {
            Some((first, rest)) if !first.is_empty() && !rest.is_empty() => {
                (first.to_owned(), Value::Object(vec![(rest.to_owned(), value)]))
            }
            _ => (key, value),
        };
        last_wins(all.into_iter().map(level).collect())
    })
}

fn normalised_keys(value: Value) -> Option<Value> {
    let composed = |key: String| key.replace("e\u{301}", "é").replace("a\u{301}", "á");
    members(value, |all| last_wins(all.into_iter().map(|(key, value)| (composed(key), value)).collect()))
}

fn last_wins(members: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let is_last = |n: usize| !members[n + 1..].iter().any(|(key, _)| *key == members[n].0);
    (0..members.len()).filter(|n| is_last(*n)).map(|n| members[n].clone()).collect()
}

fn without_nulls(value: Value) -> Option<Value> {
    members(value, |all| all.into_iter().filter(|(_, value)| *value != Value::Null).collect())
}

fn empty_arrays(value: Value) -> Option<Value> {
    let empty = matches!(&value, Value::Array(items) if items.is_empty());
    Some(if empty { Value::Object(Vec::new()) } else { value })
}

fn empty_objects(value: Value) -> Option<Value> {
    let empty = matches!(&value, Value::Object(members) if members.is_empty());
    Some(if empty { Value::Null } else { value })
}

fn sorted(value: Value) -> Option<Value> {
    match value {
        Value::Array(mut items) => {
            items.sort_by_cached_key(|item| format!("{item:?}"));
            Some(Value::Array(items))
        }
        other => Some(other),
    }
}

fn wrapped(value: Value) -> Value {
    Value::Object(vec![("value".to_owned(), value)])
}

fn cut_depth(value: Value) -> Value {
    fn cut(value: Value, levels: usize) -> Value {
        match value {
            Value::Array(_) | Value::Object(_) if levels == 0 => Value::Null,
            Value::Array(items) => Value::Array(items.into_iter().map(|it| cut(it, levels - 1)).collect()),
            Value::Object(all) => {
                Value::Object(all.into_iter().map(|(key, value)| (key, cut(value, levels - 1))).collect())
            }
            other => other,
        }
    }
    cut(value, 60)
}

fn cut_arrays(value: Value) -> Option<Value> {
    match value {
        Value::Array(mut items) => {
            items.truncate(65_535);
            Some(Value::Array(items))
        }
        other => Some(other),
    }
}

/// Changes every value, from the inside out.
fn each(value: Value, change: fn(Value) -> Option<Value>) -> Option<Value> {
    match value {
        Value::Array(items) => {
            change(Value::Array(items.into_iter().filter_map(|it| each(it, change)).collect()))
        }
        Value::Object(members) => {
            let inside = |(key, value)| each(value, change).map(|value| (key, value));
            change(Value::Object(members.into_iter().filter_map(inside).collect()))
        }
        other => change(other),
    }
}

impl Mutant {
    /// A document on its way in: an event's body, metadata, a snapshot's state, a timer's body.
    pub(super) fn stored_payload(&self, payload: Payload) -> Payload {
        // Few of them care for a large document, and looking through it takes its time.
        let large = payload.as_json().len() > LARGE;
        for (fault, touches, change) in
            CHANGES.iter().filter(|(fault, ..)| !large || OF_LARGE.contains(fault))
        {
            if touches(payload.as_json()) && self.is(*fault) {
                let value = payload.to_value();
                let value = match change {
                    Each(change) => each(value, *change).unwrap_or(Value::Null),
                    Whole(change) => change(value),
                };
                return Payload::from_value(&value).unwrap_or(payload);
            }
        }
        payload
    }

    /// A document on its way out.
    pub(super) fn served_payload(&self, payload: Payload) -> Payload {
        payload
    }

    /// A commit on its way in: its names and its documents.
    pub(super) fn stored_commit(&self, commit: CheckedCommit) -> CheckedCommit {
        let run_together = commit.events().len() > 1
            && commit.events()[0].body != commit.events()[commit.events().len() - 1].body
            && self.is(PayloadFault::BodiesRunTogether);
        let metadata = commit.metadata().is_some();
        let dropped = metadata && self.is(PayloadFault::DropsMetadata);
        let invented = !metadata && self.is(PayloadFault::InventsMetadata);

        rewrite(&commit, |parts| {
            parts.aggregate_id = self.stored_id(&parts.aggregate_id);
            if let Ok(command_id) = parts.command_id.parse() {
                parts.command_id = self.stored_command_id(&command_id).to_string();
            }
            let last = parts.events.last().map(|event| event.body.clone());
            for event in &mut parts.events {
                event.body = self.stored_payload(event.body.clone());
                self.stored_event(event);
                if let Some(last) = last.as_ref().filter(|_| run_together) {
                    event.body = last.clone();
                }
            }
            parts.metadata = parts.metadata.take().map(|it| self.stored_payload(it)).filter(|_| !dropped);
            if invented {
                parts.metadata = Some(Payload::empty_object());
            }
        })
    }

    /// Refuses what may just be stored.
    pub(super) fn refused_size(&self, commit: &CheckedCommit) -> Result<()> {
        let size = commit.encoded_size();
        if size > MAX_COMMIT_BYTES - 1_000 && self.is(PayloadFault::RefusesTheLargest) {
            let kind = ErrorKind::TooLarge { what: "commit", size, limit: MAX_COMMIT_BYTES - 1_000 };
            return Err(Error::not_applied(kind));
        }
        Ok(())
    }

    /// What becomes of commits on their way out.
    pub(super) fn serving(
        &self,
    ) -> impl Fn(Result<RecordedCommit>) -> Result<RecordedCommit> + Send + Sync + use<> {
        |commit| commit
    }

    /// What becomes of the commits of a page.
    pub(super) fn served_page(&self, commits: &mut Vec<RecordedCommit>) {
        let large = |commit: &RecordedCommit| commit.events[0].body.as_json().len() > 2_000_000;
        if commits.iter().any(large) && self.is(PayloadFault::LargeCommitsAreLeftOut) {
            commits.retain(|commit| !large(commit));
        }
    }
}
