//! Payloads: what is written is what is read, or it is refused before anything is written.

use std::{collections::BTreeMap, fmt::Write as _};

use rust_decimal::{Decimal, dec};
use serde::{Deserialize, Serialize};
use wow_store_api::{
    Commit, Error, ErrorKind, Event, MAX_COMMIT_BYTES, Outcome, Payload, ReadPage, StoreExt as _,
    TailRequest,
    payload::{MAX_PAYLOAD_BYTES, Reason, Value},
};

use super::tools::{json, load_all, read_all, refused, sound_log, stored, with_body};
use crate::{
    case::topic,
    env::{Env, append_many, commit, order, shop, soon},
};

topic! { "payload":
    integers_keep_every_digit [PAYLOAD],
    fractions_keep_every_digit_and_their_scale [PAYLOAD],
    numbers_keep_their_size_up_to_decimal128 [PAYLOAD],
    numbers_that_decimal128_cannot_hold_are_refused [PAYLOAD, ERRORS],
    floats_come_back_bit_by_bit [PAYLOAD],
    floats_that_are_no_numbers_are_refused [PAYLOAD, ERRORS],
    exact_decimals_come_back_with_their_scale [PAYLOAD],
    strings_are_left_alone [PAYLOAD],
    the_nul_character_is_refused [PAYLOAD, ERRORS],
    half_surrogate_pairs_are_refused [PAYLOAD, ERRORS],
    keys_of_every_kind_are_data [PAYLOAD],
    a_key_given_twice_is_refused [PAYLOAD, ERRORS],
    the_order_of_keys_is_free_and_that_of_elements_is_not [PAYLOAD],
    null_missing_and_empty_stay_apart [PAYLOAD],
    documents_that_are_no_objects_are_kept [PAYLOAD],
    sixty_four_levels_are_kept_and_more_refused [PAYLOAD, ERRORS],
    wide_and_long_documents_are_kept [PAYLOAD] is_heavy,
    the_largest_commit_is_taken_and_one_byte_more_refused [PAYLOAD, ERRORS] is_heavy,
    many_large_commits_are_read_whole [PAYLOAD, L9] is_heavy,
}

/// A document spelled so that equal means the same to the last digit, whatever the order of its keys.
fn spelled(payload: &Payload) -> String {
    fn spell(value: &Value, out: &mut String) {
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(value) => write!(out, "{value}").expect("a string"),
            Value::Number(number) => out.push_str(number.as_str()),
            Value::String(text) => write!(out, "{text:?}").expect("a string"),
            Value::Array(items) => {
                out.push('[');
                items.iter().for_each(|item| {
                    spell(item, out);
                    out.push(',');
                });
                out.push(']');
            }
            Value::Object(members) => {
                let sorted: BTreeMap<_, _> = members.iter().map(|(key, value)| (key, value)).collect();
                assert_eq!(sorted.len(), members.len(), "no key is there twice");
                out.push('{');
                for (key, value) in sorted {
                    write!(out, "{key:?}:").expect("a string");
                    spell(value, out);
                    out.push(',');
                }
                out.push('}');
            }
        }
    }
    let mut out = String::new();
    spell(&payload.to_value(), &mut out);
    out
}

/// Appends documents as bodies and as metadata and looks at them in a load, in a read, in a tail and after a reopen;
/// then once more what came back, which must not change any more.
async fn kept(env: &mut Env, documents: impl IntoIterator<Item = Payload>) {
    let documents: Vec<_> = documents.into_iter().collect();
    let mut written = documents.clone();
    for trip in 0..2 {
        let id = order(format!("trip-{trip}"));
        for (n, document) in written.iter().enumerate() {
            // A neighbour on both sides, so that nothing of one document runs into the next.
            let event = |body: &Payload| Event::new("Happened", 1, body.clone()).expect("a valid event");
            let commit = Commit::new(id.clone(), format!("c{n}")).with_event(event(&json("[1]")));
            let commit = commit.with_event(event(document)).with_event(event(&json("[2]")));
            let commit = commit.with_metadata(document.clone());
            env.store().append(commit).await.expect("the document is inside the profile");
        }
        let loaded = load_all(env.store(), &id).await;
        let partition = loaded[0].receipt().partition;
        let mut read = read_all(env.store(), ReadPage::new(partition.clone(), 0)).await;
        read.retain(|commit| commit.aggregate_id == id);
        let mut tailed = Vec::new();
        let request = TailRequest::new(shop()).after_positions([(partition.index(), 0)]);
        let mut tail = env.store().tail(request).await.expect("a tail");
        while tailed.len() < written.len() {
            tailed.extend(soon("a batch", tail.next()).await.expect("a batch").commits);
            tailed.retain(|commit| commit.aggregate_id == id);
        }
        drop(tail);
        env.reopen().await;
        let reopened = load_all(env.store(), &id).await;
        for (way, commits) in [("load", &loaded), ("read", &read), ("tail", &tailed), ("reopen", &reopened)] {
            assert_eq!(commits.len(), documents.len(), "every one comes back through a {way}");
            for (document, commit) in documents.iter().zip(commits) {
                let metadata = commit.metadata.as_ref().expect("there was metadata");
                assert_eq!(spelled(&commit.events[1].body), spelled(document), "as a body, through a {way}");
                assert_eq!(spelled(metadata), spelled(document), "as metadata, through a {way}");
                assert_eq!(commit.events[1].body, *document, "and equal by value");
                assert_eq!(
                    [commit.events[0].body.as_json(), commit.events[2].body.as_json()],
                    ["[1]", "[2]"],
                    "whole"
                );
            }
        }
        written = loaded.into_iter().map(|mut commit| commit.events.remove(1).body).collect();
    }
}

/// The documents of JSON texts, which must be spelled like this already.
fn canonical(texts: &[&str]) -> Vec<Payload> {
    let same = |text: &&str| {
        let payload = json(text);
        assert_eq!(payload.as_json(), *text, "this is how it is spelled");
        payload
    };
    texts.iter().map(same).collect()
}

/// Appends an event with a document that must be refused, and says what the refusal says.
async fn refusal<T: Serialize + Sync + ?Sized>(env: &Env, body: &T) -> (String, Reason) {
    let told = |error: Error, whose: &str| {
        assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
        let ErrorKind::Unrepresentable { what, pointer, reason } = error.kind() else { panic!("{error:?}") };
        assert!(what.contains(whose), "it says which document it is: {what}");
        (pointer.clone(), reason.clone())
    };
    let id = order("refused");
    let first = commit(&id, "c");
    let as_event = told(first.event("SecondOne", 1, body).expect_err("it is refused"), "SecondOne");
    let as_metadata = told(commit(&id, "c").metadata(body).expect_err("it is refused"), "metadata");
    assert_eq!(as_event, as_metadata, "wherever it stands");
    assert_eq!(env.store().head(&id).await.expect("the head"), 0, "nothing of that commit is stored");
    as_event
}

/// What the refusal of a JSON text says.
fn refused_text(text: &str) -> (String, Reason) {
    let refusal = Payload::from_json(text).expect_err("it is refused");
    let error = Error::unrepresentable("event", refusal.clone());
    assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
    (refusal.pointer().to_owned(), refusal.reason().clone())
}

async fn integers_keep_every_digit(mut env: Env) {
    let edges: [i128; 13] = [
        0,
        1,
        1 << 31,
        1 << 32,
        1 << 53,
        750_727_362_669_608_961,
        12_345_678_901_234_567_890,
        1 << 63,
        1 << 64,
        1 << 96,
        i128::from(u64::MAX),
        10_i128.pow(33),
        10_i128.pow(34) - 1,
    ];
    let near = edges.into_iter().flat_map(|edge| [edge - 1, edge, edge + 1, -edge - 1, -edge, -edge + 1]);
    let near: Vec<_> = near.filter(|it| it.abs() <= 10_i128.pow(34)).map(|it| it.to_string()).collect();
    let all = json(&format!("[{}]", near.join(",")));
    let alone = near.iter().map(|number| json(&format!("{{\"n\":{number},\"deep\":[{{\"n\":{number}}}]}}")));
    kept(&mut env, alone.chain([all]).collect::<Vec<_>>()).await;
    let numbers = (u64::MAX, i64::MIN, i64::MAX, u32::MAX, i8::MIN, u128::from(u64::MAX) + 1);
    let commit = Commit::new(order("types"), "c").event("Counted", 1, &numbers).expect("inside the profile");
    env.store().append(commit).await.expect("it succeeds");
    let body = load_all(env.store(), &order("types")).await.remove(0).events.remove(0).body;
    let back: (u64, i64, i64, u32, i8, u128) = body.decode().expect("the same types");
    assert_eq!(back, numbers, "as the types that they were written with");
}

async fn fractions_keep_every_digit_and_their_scale(mut env: Env) {
    let mut documents = canonical(&[
        "[1.10,1.1,1.0,1,100,10.00,0.0,0.00,0]",
        "{\"a\":1.10,\"b\":1.1,\"c\":1.100}",
        "[0.1,0.2,0.3,0.30000000000000004,0.1234567890123456789,-0.05]",
        "[6.67000,19.90,1234567890.123456789012345678901234,0.5000]",
        "[0.000000000000000000000000000000000000000001,3.141592653589793238462643383279502]",
        "[9999999999999999999999999999999.999,-0.9999999999999999999999999999999999]",
    ]);
    for (written, stored) in [
        ("[1E2,1e2,1E+2,100]", "[100,100,100,100]"),
        ("[1.50E1,150E-1,0.15E2]", "[15.0,15.0,15]"),
        ("[-0.0,-0,0E5,-0e5,0.00e1,-0.00]", "[0.0,0,0,0,0.0,0.00]"),
    ] {
        let document = json(written);
        assert_eq!(document.as_json(), stored, "one spelling for {written}");
        documents.push(document);
    }
    kept(&mut env, documents).await;
}

async fn numbers_keep_their_size_up_to_decimal128(mut env: Env) {
    let texts = [
        "1e34",
        "1e35",
        "1e100",
        "1e308",
        "1e309",
        "1e400",
        "-1e400",
        "1e6144",
        "-1e6144",
        "9.999999999999999999999999999999999e6144",
        "1e-30",
        "1e-308",
        "1e-324",
        "5e-400",
        "1e-6176",
        "-1e-6176",
        "1.5e-6175",
        "1234567890123456789012345678901234e-6176",
        "1234567890123456789012345678901234e6111",
    ];
    let numbers = texts.map(|text| json(&format!("{{\"n\":{text}}}")));
    kept(&mut env, numbers.into_iter().chain([json(&format!("[{}]", texts.join(",")))]).collect::<Vec<_>>())
        .await;
}

async fn numbers_that_decimal128_cannot_hold_are_refused(mut env: Env) {
    let digits = |digits| Reason::TooManyDigits { digits };
    for (number, reason) in [
        ("10000000000000000000000000000000001", digits(35)),
        ("-10000000000000000000000000000000001", digits(35)),
        ("1.0000000000000000000000000000000005", digits(35)),
        ("0.1234567890123456789012345678901234567890123", digits(43)),
        ("1234567890123456789012345678901234567890", digits(39)),
        ("1e6145", Reason::ExponentOutOfRange),
        ("-1e6145", Reason::ExponentOutOfRange),
        ("10e6144", Reason::ExponentOutOfRange),
        ("1e-6177", Reason::ExponentOutOfRange),
        ("1e999999999999", Reason::ExponentOutOfRange),
        ("1.5e-6176", Reason::ExponentOutOfRange),
    ] {
        let told = refused_text(&format!("{{\"a/b\":[0,{{\"n\":{number}}}]}}"));
        assert_eq!(told, ("/a~1b/1/n".to_owned(), reason), "{number}: where and why");
    }
    // At the very limit nothing is refused, nor where the surplus digits are zeros.
    let mut documents =
        canonical(&["[1234567890123456789012345678901234,0.1234567890123456789012345678901234]"]);
    documents.push(json("[10000000000000000000000000000000000,1.00000000000000000000000000000000000000]"));
    kept(&mut env, documents).await;
}

async fn floats_come_back_bit_by_bit(mut env: Env) {
    let floats = [
        0.0,
        1.0,
        -1.5,
        0.1,
        0.2 + 0.1,
        1.0 / 3.0,
        2_f64.powi(53) + 2.0,
        1e15,
        1e16,
        1e21,
        1e22,
        1.797e308,
        f64::MAX,
        f64::MIN,
        f64::MIN_POSITIVE,
        5e-324,
        f64::EPSILON,
        123_456_789.123_456_79,
    ];
    let document = Payload::from_serialize(&floats).expect("inside the profile");
    kept(&mut env, [document]).await;
    let body = load_all(env.store(), &order("trip-1")).await.remove(0).events.remove(1).body;
    let back: Vec<f64> = body.decode().expect("floats");
    let bits = |floats: &[f64]| floats.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&back), bits(&floats), "the same floats");
}

async fn floats_that_are_no_numbers_are_refused(env: Env) {
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let body = BTreeMap::from([("fine", vec![1.0]), ("list", vec![1.0, float])]);
        assert_eq!(refusal(&env, &body).await, ("/list/1".to_owned(), Reason::NotFinite), "never a null");
        assert_eq!(refusal(&env, &float).await, (String::new(), Reason::NotFinite), "alone neither");
    }
    let fine = Commit::new(order("refused"), "c").event("Measured", 1, &[1.0]).expect("inside the profile");
    assert_eq!(env.store().append(fine).await.expect("it succeeds").version, 1, "a number is fine");
    assert_eq!(stored(env.store(), &shop()).await, 1, "and all that is stored");
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Priced {
    Order {
        #[serde(with = "wow_store_api::payload::decimal")]
        total: Decimal,
        #[serde(flatten)]
        rest: Rest,
    },
    Gift {
        note: String,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Rest {
    #[serde(with = "wow_store_api::payload::decimal::option")]
    discount: Option<Decimal>,
    #[serde(with = "wow_store_api::payload::decimal::vec")]
    lines: Vec<Decimal>,
    quantity: u64,
    weight: f64,
}

async fn exact_decimals_come_back_with_their_scale(env: Env) {
    let lines = vec![
        dec!(1.10),
        dec!(1.1),
        dec!(1.100),
        dec!(100),
        dec!(0.00),
        dec!(-0.05),
        Decimal::MAX,
        Decimal::MIN,
        dec!(0.0000000000000000000000000001),
        dec!(-7.9228162514264337593543950335),
        dec!(12345678901234567890.12345678),
    ];
    let order_of = |total, discount| {
        let rest = Rest { discount, lines: lines.clone(), quantity: u64::MAX, weight: 0.1 };
        Priced::Order { total, rest }
    };
    let written = [
        order_of(dec!(19.90), Some(dec!(0.10))),
        order_of(dec!(19.9), None),
        Priced::Gift { note: "1.10".to_owned() },
    ];
    let store = env.store();
    for (n, body) in written.iter().enumerate() {
        let commit = Commit::new(order("1"), format!("c{n}")).event("Priced", 1, body).expect("exact");
        store.append(commit).await.expect("it succeeds");
    }
    let loaded = load_all(store, &order("1")).await;
    assert_eq!(loaded.len(), written.len(), "all are stored");
    for (commit, written) in loaded.iter().zip(&written) {
        let back: Priced = commit.events[0].body.decode().expect("exact");
        assert_eq!(back, *written, "equal by value");
        let (Priced::Order { total, rest }, Priced::Order { total: as_written, .. }) = (&back, written)
        else {
            continue;
        };
        assert_eq!(total.to_string(), as_written.to_string(), "digit for digit");
        let spelled: Vec<_> = rest.lines.iter().map(ToString::to_string).collect();
        assert!(spelled.into_iter().eq(lines.iter().map(ToString::to_string)), "with the scale of each");
    }
}

async fn strings_are_left_alone(mut env: Env) {
    let texts = [
        "",
        " ",
        "a ",
        " a",
        "2001-02-03T00:00:00.000+01:00",
        "2001-02-03",
        "2026-11-30T18:53:00Z",
        "12:00",
        "1.10",
        "1e400",
        "0x10",
        "NaN",
        "Infinity",
        "null",
        "true",
        "{\"a\":1}",
        "[1]",
        "\"",
        "\\",
        "\\\"",
        "/",
        "\\/",
        "\\u0000",
        "\\ud800",
        "\u{1}\u{1f}\u{7f}\u{80}",
        "\r\n\t\u{8}\u{c}",
        "\u{feff}bom",
        "é",
        "e\u{301}",
        "ﬁ",
        "ß",
        "İ",
        "\u{202e}abc",
        "\u{2028}\u{2029}",
        "\u{fffd}\u{ffff}\u{fdd0}",
        "😀👨‍👩‍👧",
        "\u{10ffff}",
        "日本語",
        "$where",
        "'; drop table t;--",
        "%s%n",
        "5f2f6e1c9d3b2a0001a1b2c3",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "AAECAw==",
        "<a>&amp;</a>",
    ];
    let as_values = Payload::from_serialize(&texts.as_slice()).expect("inside the profile");
    let as_keys: BTreeMap<&str, &str> = texts.iter().map(|text| (*text, *text)).collect();
    let as_keys = Payload::from_serialize(&as_keys).expect("inside the profile");
    kept(&mut env, [as_values, as_keys, json("[\"\\ud83d\\ude00\\u0041\\/\"]")]).await;
}

async fn the_nul_character_is_refused(mut env: Env) {
    let text = |text: &str| BTreeMap::from([("a", vec!["fine".to_owned(), text.to_owned()])]);
    for bad in ["\0", "x\0y", "x\0", "\0y"] {
        assert_eq!(refusal(&env, &text(bad)).await, ("/a/1".to_owned(), Reason::NulCharacter), "in a string");
        let (pointer, reason) = refusal(&env, &BTreeMap::from([("a", BTreeMap::from([(bad, 1)]))])).await;
        assert_eq!((pointer, reason), (format!("/a/{bad}"), Reason::NulCharacter), "in a key");
    }
    let told = refused_text("{\"a\\u0000b\":1,\"a\":2}");
    assert_eq!(told, ("/a\0b".to_owned(), Reason::NulCharacter), "it is not cut there");
    assert_eq!(refused_text("[[\"\\u0000\"]]").1, Reason::NulCharacter, "escaped");
    // What only looks like it is data, and so are its neighbours.
    kept(&mut env, [json("[\"\\\\u0000\",\"\\u0001\",\"\u{2400}\"]"), json("{\"a\":1,\"a\\\\0\":2}")]).await;
}

async fn half_surrogate_pairs_are_refused(mut env: Env) {
    for half in [
        "\\ud800",
        "\\udc00",
        "\\udfff",
        "\\udbff",
        "\\udc00\\ud800",
        "\\ud800\\ud800",
        "\\ud83dx",
        "x\\ude00",
        "\\ud83d\\n",
    ] {
        let told = refused_text(&format!("{{\"a\":[\"{half}\"]}}"));
        assert_eq!(told, ("/a/0".to_owned(), Reason::LoneSurrogate), "{half} as a value");
        let (pointer, reason) = refused_text(&format!("{{\"{half}\":1}}"));
        assert!(pointer.starts_with('/') && reason == Reason::LoneSurrogate, "{half} as a key");
    }
    kept(
        &mut env,
        [json("[\"\\ud83d\\ude00\"]"), json("{\"\\ud83d\\ude00\":1,\"\\udbff\\udfff\":\"\\ud800\\udc00\"}")],
    )
    .await;
}

async fn keys_of_every_kind_are_data(mut env: Env) {
    let documents = canonical(&[
        "{\"\":1}",
        "{\"a\":{\"\":2}}",
        "[{\"\":{}}]",
        "{\"foo.bar\":1}",
        "{\"a\":{\"b\":2},\"a.b\":3}",
        "{\".\":1,\"..\":2,\"a.\":3,\".a\":4}",
        "{\"$._sd\":1}",
        "{\"$set\":{\"x\":1},\"$unset\":1,\"$inc\":{\"n\":1}}",
        "{\"$ref\":\"c\",\"$id\":1,\"$db\":\"d\"}",
        "{\"\":{\"$\":1}}",
        "[{\"$numberDecimal\":\"1.0\"},{\"$numberLong\":\"1\"},{\"$oid\":\"5f2f6e1c9d3b2a0001a1b2c3\"},{\"$date\":\"x\"},{\"$binary\":{}}]",
        "{\"_id\":1,\"__proto__\":2,\"constructor\":3,\"toString\":4}",
        "{\"0\":\"a\",\"1\":\"b\",\"-1\":\"c\",\"01\":\"d\"}",
        "{\"a\":1,\"A\":2,\"á\":3,\"a\u{301}\":4,\"a \":5,\" a\":6}",
        "{\"a/b\":1,\"a~b\":2,\"a\\\"b\":3,\"a\\\\b\":4,\"a\\nb\":5,\"'\":6,\"[0]\":7,\"*\":8,\"%\":9}",
        "{\"$serde_json::private::Number\":\"1\"}",
        "{\"$serde_json::private::RawValue\":\"1\"}",
        "{\"type\":1,\"events\":[],\"body\":{\"name\":2},\"metadata\":null,\"version\":3}",
    ]);
    let long =
        Payload::from_serialize(&BTreeMap::from([("k".repeat(10_000), 1)])).expect("inside the profile");
    kept(&mut env, documents.into_iter().chain([long]).collect::<Vec<_>>()).await;
}

async fn a_key_given_twice_is_refused(mut env: Env) {
    for (text, pointer) in [
        ("{\"a\":1,\"a\":2}", "/a"),
        ("{\"a\":1,\"b\":2,\"a\":1}", "/a"),
        ("{\"a\":1,\"\\u0061\":2}", "/a"),
        ("{\"\":1,\"\":2}", "/"),
        ("[0,{\"x\":{\"é\":1,\"\\u00e9\":1}}]", "/1/x/é"),
    ] {
        assert_eq!(refused_text(text), (pointer.to_owned(), Reason::DuplicateKey), "{text}");
    }
    let documents =
        ["{\"a\":{\"a\":{\"a\":1}},\"b\":{\"a\":1}}", "[{\"a\":1},{\"a\":2}]", "{\"é\":1,\"e\u{301}\":2}"];
    kept(&mut env, canonical(&documents)).await;
}

async fn the_order_of_keys_is_free_and_that_of_elements_is_not(mut env: Env) {
    let [sorted, mixed] =
        [json("{\"a\":1,\"b\":{\"c\":2,\"d\":3}}"), json("{\"b\":{\"d\":3,\"c\":2},\"a\":1.0}")];
    assert_eq!(sorted, mixed, "equal by value");
    let elements = ["[3,1,2]", "[1,2,3]", "[\"b\",\"a\",\"b\"]", "[[2],[1],[]]", "[{\"b\":1},{\"a\":1}]"];
    kept(&mut env, [sorted, mixed].into_iter().chain(elements.map(json)).collect::<Vec<_>>()).await;
}

async fn null_missing_and_empty_stay_apart(mut env: Env) {
    let documents = canonical(&[
        "{}",
        "[]",
        "null",
        "{\"a\":null}",
        "{\"a\":{}}",
        "{\"a\":[]}",
        "{\"a\":\"\"}",
        "{\"a\":0}",
        "{\"a\":false}",
        "[null]",
        "[null,null]",
        "[[]]",
        "[{}]",
        "{\"a\":[null]}",
        "{\"a\":{\"b\":null}}",
        "{\"a\":[],\"b\":{},\"c\":null,\"d\":\"\"}",
    ]);
    kept(&mut env, documents).await;
    // And no metadata is not the same as metadata that is null.
    let store = env.store();
    let metadata = [None, Some(Payload::null()), Some(Payload::empty_object())];
    for (n, metadata) in metadata.iter().enumerate() {
        let bare = commit(&order("metadata"), format!("c{n}"));
        let commit = metadata.iter().cloned().fold(bare, Commit::with_metadata);
        store.append(commit).await.expect("it succeeds");
    }
    let back = load_all(store, &order("metadata")).await.into_iter().map(|commit| commit.metadata);
    assert!(back.eq(metadata), "none stays none, null stays null");
}

async fn documents_that_are_no_objects_are_kept(mut env: Env) {
    let texts = [
        "1",
        "0",
        "-1.50",
        "\"\"",
        "\"text\"",
        "true",
        "false",
        "null",
        "[1,\"a\",null,true,{}]",
        "18446744073709551615",
    ];
    kept(&mut env, canonical(&texts)).await;
}

/// `levels` of arrays, of objects, or of both in turn.
fn nested(levels: usize, kind: u8) -> String {
    let (mut open, mut close) = (String::new(), String::new());
    for level in 0..levels {
        let array = kind == 0 || (kind == 2 && level % 2 == 0);
        open.push_str(if array { "[" } else { "{\"a\":" });
        close.push(if array { ']' } else { '}' });
    }
    format!("{open}1{}", close.chars().rev().collect::<String>())
}

async fn sixty_four_levels_are_kept_and_more_refused(mut env: Env) {
    for kind in 0..3 {
        for levels in [65, 66, 100, 100_000] {
            let (pointer, reason) = refused_text(&nested(levels, kind));
            assert_eq!(reason, Reason::TooDeep, "{levels} levels are a refusal, not a crash");
            assert_eq!(pointer.split('/').count() - 1, 64, "where the first level too many is");
        }
    }
    kept(&mut env, (0..3).flat_map(|kind| [1, 63, 64].map(|levels| json(&nested(levels, kind))))).await;
}

async fn wide_and_long_documents_are_kept(mut env: Env) {
    let keys: BTreeMap<String, u32> = (0..5_000).map(|n| (format!("key-{}", n * 7_919 % 5_000), n)).collect();
    let elements: Vec<u32> = (0..70_000).rev().collect();
    let strings: Vec<String> = (0..2_000).map(|n| "é".repeat(n % 50)).collect();
    let long = ["x".repeat(70_000), "é\"\\\n".repeat(15_000)];
    let long_keys: BTreeMap<&String, usize> = long.iter().map(|text| (text, text.len())).collect();
    let of = |value: Result<Payload, _>| {
        value.map_err(|error: wow_store_api::Unrepresentable| error).expect("inside")
    };
    let documents = [
        of(Payload::from_serialize(&keys)),
        of(Payload::from_serialize(&elements)),
        of(Payload::from_serialize(&strings)),
        of(Payload::from_serialize(&long)),
        of(Payload::from_serialize(&long_keys)),
    ];
    kept(&mut env, documents).await;
}

async fn the_largest_commit_is_taken_and_one_byte_more_refused(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "before", 1).await;
    let of = |bytes: usize| {
        with_body(&id, "large", json(&format!("\"{}\"", "é".repeat(bytes / 2) + &"x".repeat(bytes % 2))))
    };
    let overhead = of(1_000).check().expect("small").encoded_size() - 1_000;
    let full = MAX_COMMIT_BYTES - overhead;
    let error = refused(store.append(of(full + 1)).await);
    let kind = ErrorKind::TooLarge { what: "commit", size: MAX_COMMIT_BYTES + 1, limit: MAX_COMMIT_BYTES };
    assert_eq!(*error.kind(), kind, "it says how large it is and may be");
    assert_eq!((error.outcome(), error.is_transient()), (Outcome::NotApplied, false), "for good");
    let payload = "x".repeat(MAX_PAYLOAD_BYTES + 1);
    let error = commit(&id, "large").event("Large", 1, &payload).expect_err("it is refused");
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "a document alone too: {error:?}");
    assert_eq!(store.head(&id).await.expect("the head"), 1, "nothing is stored of it");
    assert_eq!(store.append(of(full)).await.expect("the limit itself is fine").version, 2, "it is stored");
    let back = load_all(store, &id).await.remove(1).events.remove(0).body;
    assert_eq!(back.as_json(), of(full).check().expect("full").events()[0].body.as_json(), "whole");
    let mut tail = store.tail(TailRequest::new(shop())).await.expect("a tail");
    let mut tailed = Vec::new();
    while tailed.len() < 2 {
        tailed.extend(soon("a batch", tail.next()).await.expect("a batch").commits);
    }
    assert_eq!(tailed, load_all(store, &id).await, "what is taken is delivered, however large");
    let numbers: Vec<u32> = (0..700_000).collect();
    let in_bson = refused(commit(&id, "numbers").event("Numbers", 1, &numbers).map(|_| ()));
    assert!(
        matches!(in_bson.kind(), ErrorKind::TooLarge { .. }),
        "counted as every store has it: {in_bson:?}"
    );
    sound_log(store, &shop()).await;
}

async fn many_large_commits_are_read_whole(env: Env) {
    let (store, id) = (env.store(), order("1"));
    let body = |n: usize| json(&format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(3_000_000 + n)));
    for n in 0..8 {
        store.append(with_body(&id, &format!("c{n}"), body(n))).await.expect("it succeeds");
    }
    let loaded = load_all(store, &id).await;
    assert!(loaded.iter().enumerate().all(|(n, it)| it.events[0].body == body(n)), "24 MB through a load");
    let read = read_all(store, ReadPage::new(loaded[0].receipt().partition, 0)).await;
    assert_eq!(read, loaded, "and through pages, each of which is bounded");
}
