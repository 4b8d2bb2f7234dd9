//! The portable profile: what is accepted, in which form it comes out, and what is refused where.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests too"
)]

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use wow_store_api::payload::{MAX_DEPTH, MAX_PAYLOAD_BYTES, Number, Payload, Reason, Value};

fn canonical(text: &str) -> String {
    let payload = Payload::from_json(text).unwrap_or_else(|refusal| panic!("{text:.80}: {refusal}"));
    let again = Payload::from_json(payload.as_json()).unwrap();
    assert_eq!(again.as_json(), payload.as_json(), "canonical form is a fixed point");
    assert_eq!(again.size(), payload.size());
    assert_eq!(
        Payload::from_stored(payload.as_json()).size(),
        payload.size(),
        "size is a function of the text"
    );
    assert_eq!(Payload::from_value(&payload.to_value()).unwrap().as_json(), payload.as_json());
    payload.as_json().to_owned()
}

#[track_caller]
fn refused(text: &str, pointer: &str, reason: Reason) {
    let refusal = Payload::from_json(text).expect_err("refused");
    assert_eq!((refusal.pointer(), refusal.reason()), (pointer, &reason), "{text:.80}");
}

fn not_json(text: &str) -> usize {
    match Payload::from_json(text).expect_err(text).reason() {
        Reason::NotJson { at, .. } => *at,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn white_space_goes_and_key_order_stays() {
    assert_eq!(canonical(" { \"b\" : [ 1 , 2 ] ,\r\n\t\"a\" : { } } "), r#"{"b":[1,2],"a":{}}"#);
    for text in ["null", "true", "false", "0", "\"\"", "[]", "{}", "[null,{},[],\"\",0]"] {
        assert_eq!(canonical(text), text);
    }
}

#[test]
fn numbers_keep_digits_and_scale() {
    for text in [
        "0.1",
        "0.30000000000000004",
        "0.1234567890123456789",
        "12345678901234567890",
        "750727362669608961",
        "6.67000",
        "10.00",
        "9007199254740993",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "9999999999999999999999999999999999",
    ] {
        assert_eq!(canonical(text), text);
    }
    assert_eq!(
        canonical("[1.10,1.1,1.0,1,100,1E2,10.00,0.0,0.00]"),
        "[1.10,1.1,1.0,1,100,100,10.00,0.0,0.00]"
    );
    assert_eq!(canonical("[-0.0,-0,0,0.0,-0e5,0E400,-0.00]"), "[0.0,0,0,0.0,0,0,0.00]");
    assert_eq!(canonical("1e6144").len(), 6145);
    refused("{\"a\":[1,1e6145]}", "/a/1", Reason::ExponentOutOfRange);
    refused("[1e-6177]", "/0", Reason::ExponentOutOfRange);
    refused("{\"n\":-10000000000000000000000000000000001}", "/n", Reason::TooManyDigits { digits: 35 });
}

#[test]
fn strings_and_keys_are_any_text_without_nul() {
    assert_eq!(canonical(r#""\u0041\/\u00e9\ud83d\ude00\u001f\n""#), "\"A/é😀\\u001f\\n\"");
    assert_eq!(canonical("\"2001-02-03T00:00:00.000+01:00\""), "\"2001-02-03T00:00:00.000+01:00\"");
    for text in [
        r#"{"":1}"#,
        r#"{"a":{"":2}}"#,
        r#"[{"":{}}]"#,
        r#"{"$set":{"x":1}}"#,
        r#"{"$ref":"c","$id":1,"$db":"d"}"#,
        r#"{"a":{"b":2},"a.b":3}"#,
        r#"{".":1,"a.":1}"#,
        "{\"\u{e9}\":1,\"e\u{301}\":2}",
    ] {
        assert_eq!(canonical(text), text);
    }
    refused(r#"{"a":"x\u0000y"}"#, "/a", Reason::NulCharacter);
    refused(r#"[[{"k":["\u0000"]}]]"#, "/0/0/k/0", Reason::NulCharacter);
    refused(r#"{"o":{"a\u0000b":1}}"#, "/o/a\0b", Reason::NulCharacter);
    assert_eq!(not_json("\"a\0b\""), 2);
}

#[test]
fn lone_surrogates_are_refused() {
    for lone in [
        r"\ud800",
        r"\udc00",
        r"\udc00\ud800",
        r"\ud800x",
        r"\ud800\n",
        r"\ud800\u0041",
        r"\ud800\ud800",
        r"\uDBFF",
    ] {
        refused(&format!("{{\"a\":\"{lone}\"}}"), "/a", Reason::LoneSurrogate);
        let refusal = Payload::from_json(&format!("{{\"a\":{{\"x{lone}\":1}}}}")).unwrap_err();
        assert_eq!(refusal.reason(), &Reason::LoneSurrogate);
        assert!(refusal.pointer().starts_with("/a/x\u{fffd}"), "{}", refusal.pointer());
    }
    assert_eq!(canonical(r#""\uD800\uDC00\udbff\udfff""#), "\"\u{10000}\u{10ffff}\"");
    assert_eq!(canonical(r#""\ufffd\uffff""#), "\"\u{fffd}\u{ffff}\"");
}

#[test]
fn no_key_twice() {
    refused(r#"{"a":1,"a":2}"#, "/a", Reason::DuplicateKey);
    refused(r#"{"a":1,"\u0061":2}"#, "/a", Reason::DuplicateKey);
    refused(r#"{"\/":1,"/":2}"#, "/~1", Reason::DuplicateKey);
    refused(r#"[{"x":{"":1,"b":2,"":3}}]"#, "/0/x/", Reason::DuplicateKey);
    refused(r#"{"a":1,"b":{"a":1,"c":[{"a":1}]},"a":2}"#, "/a", Reason::DuplicateKey);
    assert_eq!(canonical(r#"{"a":1,"A":{"a":1},"\ta":2}"#), r#"{"a":1,"A":{"a":1},"\ta":2}"#);

    let members: Vec<String> = (0..100_000).map(|key| format!("\"{key}\":0")).collect();
    canonical(&format!("{{{}}}", members.join(",")));
    refused(&format!("{{{},\"77\":1}}", members.join(",")), "/77", Reason::DuplicateKey);
}

#[test]
fn pointers_are_escaped() {
    refused(r#"{"a/b":{"m~n":[0,{"":"\u0000"}]}}"#, "/a~1b/m~0n/1/", Reason::NulCharacter);
    refused(r#"{"~1":"\u0000"}"#, "/~01", Reason::NulCharacter);
}

#[test]
fn at_most_64_levels() {
    let nested = |levels: usize| {
        [
            format!("{}{}", "[".repeat(levels), "]".repeat(levels)),
            format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels)),
        ]
    };
    for text in nested(MAX_DEPTH) {
        canonical(&text);
        let value: serde_json::Value = Payload::from_json(&text).unwrap().decode().unwrap();
        assert_eq!(Payload::from_serialize(&value).unwrap().as_json(), text);
        assert_eq!(Payload::from_json(&text).unwrap(), Payload::from_json(&format!(" {text}")).unwrap());
    }
    let [arrays, objects] = nested(MAX_DEPTH + 1);
    refused(&arrays, &"/0".repeat(64), Reason::TooDeep);
    refused(&objects, &"/a".repeat(64), Reason::TooDeep);
    for levels in [10_000, 1_000_000] {
        for text in nested(levels) {
            assert_eq!(Payload::from_json(&text).unwrap_err().reason(), &Reason::TooDeep);
            // Not closed, so not JSON either: whatever is met first is refused.
            assert!(Payload::from_json(&text[..levels]).is_err());
        }
    }
}

#[test]
fn depth_of_a_type_is_counted_while_it_serialises() {
    /// Nests for ever; only the refusal ends it.
    struct Endless;
    impl Serialize for Endless {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq([Self])
        }
    }
    let refusal = Payload::from_serialize(&Endless).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), (&*"/0".repeat(64), &Reason::TooDeep));

    struct EndlessVariant;
    impl Serialize for EndlessVariant {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_newtype_variant("E", 0, "v", self)
        }
    }
    let refusal = Payload::from_serialize(&EndlessVariant).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), (&*"/v".repeat(64), &Reason::TooDeep));

    struct EndlessNewtype;
    impl Serialize for EndlessNewtype {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_newtype_struct("N", &Some(Self))
        }
    }
    assert_eq!(Payload::from_serialize(&EndlessNewtype).unwrap_err().reason(), &Reason::TooDeep);

    struct EndlessKey;
    impl Serialize for EndlessKey {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry(&EndlessNewtype, &1)?;
            map.end()
        }
    }
    assert_eq!(Payload::from_serialize(&EndlessKey).unwrap_err().reason(), &Reason::TooDeep);
}

#[test]
fn malformed_text_is_refused_with_its_place() {
    for (text, at) in [
        ("", 0),
        ("   ", 3),
        ("\u{feff}1", 0),
        ("nul", 0),
        ("nulll", 4),
        ("True", 0),
        ("NaN", 0),
        ("Infinity", 0),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1", 2),
        ("[", 1),
        ("]", 0),
        ("{\"a\":1,}", 7),
        ("{,}", 1),
        ("{\"a\"}", 4),
        ("{\"a\":}", 5),
        ("{\"a\" 1}", 5),
        ("{a:1}", 1),
        ("{1:1}", 1),
        ("{\"a\":1", 6),
        ("{\"a\":1]", 6),
        ("{", 1),
        ("+1", 0),
        (".5", 0),
        ("1.", 2),
        ("01", 0),
        ("-", 1),
        ("-01", 1),
        ("1e", 2),
        ("0x1", 1),
        ("1 1", 2),
        ("{} x", 3),
        ("\"", 1),
        ("\"abc", 4),
        ("\"a\\", 3),
        ("\"\\x\"", 2),
        ("\"\\u12\"", 3),
        ("\"\\u12g4\"", 3),
        ("\"\\u+123\"", 3),
        ("\"a\nb\"", 2),
        ("\"a\tb\"", 2),
        ("'a'", 0),
        ("// x\n1", 0),
        ("1\u{a0}", 1),
        ("[\"a\"\u{b}]", 4),
    ] {
        assert_eq!(not_json(text), at, "{text:?}");
    }
    for bytes in [&b"\"\xff\""[..], b"\"\xed\xa0\x80\"", b"\"\xc0\xaf\"", b"\"\xf4\x90\x80\x80\""] {
        let refusal = Payload::from_json_bytes(bytes).unwrap_err();
        assert_eq!(refusal.reason(), &Reason::NotJson { at: 1, problem: "invalid UTF-8" });
    }
    assert_eq!(Payload::from_json_bytes("\"é\"".as_bytes()).unwrap().as_json(), "\"é\"");
}

#[test]
fn size_counts_text_and_bson() {
    for (text, size) in [
        ("null", 8),
        ("true", 9),
        ("1", 16),
        ("1.0", 24),
        ("9223372036854775808", 24),
        ("\"\"", 13),
        ("\"\\u0001\"", 14),
        ("[]", 5),
        ("{}", 5),
        // 4 + (1 + 2 + 8) + 1
        (r#"{"a":1}"#, 16),
        (r#"{"":null}"#, 9),
        (r#"{"abc":"de"}"#, 4 + (1 + 4 + 4 + 2 + 1) + 1),
        (r#"{"a":{"b":[1.5,true]}}"#, 5 + 3 + 5 + 3 + 5 + (3 + 16) + (3 + 1)),
        ("[0,0,0,0,0,0,0,0,0,0,0]", 5 + 10 * 11 + 12),
        // The text is longer: many escapes.
        (r#"["\u0001\u0001\u0001\u0001\u0001"]"#, 34),
    ] {
        assert_eq!(Payload::from_json(text).unwrap().size(), size, "{text}");
        canonical(text);
    }
}

#[test]
fn size_limit_is_exact() {
    // {"a":"…"}: 4 + (1 + 2 + 4 + n + 1) + 1
    let fits = "x".repeat(MAX_PAYLOAD_BYTES - 13);
    let payload = Payload::from_serialize(&HashMap::from([("a", &fits)])).unwrap();
    assert_eq!(payload.size(), MAX_PAYLOAD_BYTES);
    let text = format!("{{\"a\":\"{fits}\"}}");
    assert_eq!(Payload::from_json(&text).unwrap().size(), MAX_PAYLOAD_BYTES);

    let too_large = Reason::TooLarge { size: MAX_PAYLOAD_BYTES + 1, limit: MAX_PAYLOAD_BYTES };
    let over = Payload::from_serialize(&HashMap::from([("a", format!("{fits}x"))])).unwrap_err();
    assert_eq!((over.pointer(), over.reason()), ("", &too_large));
    refused(&format!("{{\"a\":\"{fits}x\"}}"), "", too_large);

    // Expansion does not get far past the limit.
    let numbers = format!("[{}]", vec!["1e6144"; 100_000].join(","));
    let refusal = Payload::from_json(&numbers).unwrap_err();
    let Reason::TooLarge { size, .. } = refusal.reason() else { panic!("{refusal}") };
    assert!(*size < MAX_PAYLOAD_BYTES + 10_000);
    // A text over the limit that is under it in canonical form is fine.
    assert_eq!(canonical(&format!("[1{}]", " ".repeat(MAX_PAYLOAD_BYTES))), "[1]");

    let huge = "y".repeat(3 * MAX_PAYLOAD_BYTES);
    assert!(matches!(Payload::from_serialize(&huge).unwrap_err().reason(), Reason::TooLarge { .. }));
    // Integers take 8 bytes, their index and key bookkeeping more than their text.
    let million = vec![0_u8; 1_000_000];
    assert!(matches!(Payload::from_serialize(&million).unwrap_err().reason(), Reason::TooLarge { .. }));
}

#[test]
fn floats_that_are_not_finite_are_refused_with_their_path() {
    #[derive(Serialize)]
    struct Reading {
        name: &'static str,
        values: Vec<f64>,
    }
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let reading = Reading { name: "t", values: vec![1.0, bad] };
        let refusal = Payload::from_serialize(&reading).unwrap_err();
        assert_eq!((refusal.pointer(), refusal.reason()), ("/values/1", &Reason::NotFinite));
    }
    let refusal = Payload::from_serialize(&Some(("a", f32::NAN))).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/1", &Reason::NotFinite));
    let refusal = Payload::from_serialize(&BTreeMap::from([("k", Err::<u8, _>(f64::NAN))])).unwrap_err();
    assert_eq!(refusal.pointer(), "/k/Err");
}

#[test]
fn floats_are_their_shortest_decimal() {
    for (float, text) in [
        (1.0, "1.0"),
        (-0.0, "0.0"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e16, "10000000000000000.0"),
        (1e33, &*format!("1{}", "0".repeat(33))),
        (1e32, &*format!("1{}.0", "0".repeat(32))),
        (1.5e-7, "0.00000015"),
    ] {
        assert_eq!(Payload::from_serialize(&float).unwrap().as_json(), text);
    }
    assert_eq!(Payload::from_serialize(&0.1_f32).unwrap().as_json(), "0.1");
    for float in [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, f64::EPSILON, 1e22, 123_456_789.123_456_79] {
        let payload = Payload::from_serialize(&float).unwrap();
        assert_eq!(payload.decode::<f64>().unwrap().to_bits(), float.to_bits(), "{float}");
    }
    for float in [f32::MAX, f32::MIN_POSITIVE, 1.0e-45, 0.3, 16_777_216.0] {
        let payload = Payload::from_serialize(&float).unwrap();
        assert_eq!(payload.decode::<f32>().unwrap().to_bits(), float.to_bits(), "{float}");
    }
}

#[test]
fn keys_of_maps_are_strings_or_become_ones() {
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    enum Unit {
        A,
        B(u8),
    }
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Wrapped(i128);
    fn text<K: Serialize + Ord>(key: K) -> String {
        Payload::from_serialize(&BTreeMap::from([(key, 1)])).unwrap().as_json().to_owned()
    }
    assert_eq!(text("k"), r#"{"k":1}"#);
    assert_eq!(text('"'), r#"{"\"":1}"#);
    assert_eq!(text(-5_i8), r#"{"-5":1}"#);
    assert_eq!(text(u64::MAX), r#"{"18446744073709551615":1}"#);
    assert_eq!(text(Wrapped(i128::MAX)), format!("{{\"{}\":1}}", i128::MAX));
    assert_eq!(text(true), r#"{"true":1}"#);
    assert_eq!(text(Unit::A), r#"{"A":1}"#);
    assert_eq!(text(Some("s")), r#"{"s":1}"#);
    fn refusal<K: Serialize + Ord>(key: K) -> Reason {
        let map = BTreeMap::from([("m", BTreeMap::from([(key, 1)]))]);
        let refusal = Payload::from_serialize(&map).unwrap_err();
        assert_eq!(refusal.pointer(), "/m");
        refusal.reason().clone()
    }
    assert_eq!(refusal(Unit::B(1)), Reason::KeyNotString);
    assert_eq!(refusal((1, 2)), Reason::KeyNotString);
    assert_eq!(refusal([1]), Reason::KeyNotString);
    assert_eq!(refusal(()), Reason::KeyNotString);
    assert_eq!(refusal(None::<u8>), Reason::KeyNotString);
}

#[test]
fn duplicate_and_nul_keys_of_types_are_refused() {
    #[derive(Serialize)]
    struct Flat {
        id: u8,
        #[serde(flatten)]
        more: BTreeMap<&'static str, u8>,
    }
    let refusal = Payload::from_serialize(&[Flat { id: 1, more: [("x", 1), ("id", 2)].into() }]).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/0/id", &Reason::DuplicateKey));

    // A number and its spelling are one key.
    struct Twice;
    impl Serialize for Twice {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry(&1, "a")?;
            map.serialize_entry("1", "b")?;
            map.end()
        }
    }
    let refusal = Payload::from_serialize(&Twice).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/1", &Reason::DuplicateKey));

    let refusal =
        Payload::from_serialize(&BTreeMap::from([("o", BTreeMap::from([("a\0b", 1)]))])).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/o/a\0b", &Reason::NulCharacter));
    let refusal = Payload::from_serialize(&vec!["ok", "a\0"]).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/1", &Reason::NulCharacter));
    assert_eq!(Payload::from_serialize(&'\0').unwrap_err().reason(), &Reason::NulCharacter);
}

#[test]
fn a_type_cannot_hide_a_refusal_or_leave_half_a_value() {
    struct Ignores;
    impl Serialize for Ignores {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut seq = serializer.serialize_seq(None)?;
            let _ = seq.serialize_element(&(1, f64::NAN));
            seq.serialize_element(&2)?;
            seq.end()
        }
    }
    let refusal = Payload::from_serialize(&[Ignores]).unwrap_err();
    assert_eq!(refusal.reason(), &Reason::NotFinite);

    struct KeyAlone;
    impl Serialize for KeyAlone {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            map.serialize_key("k")?;
            map.end()
        }
    }
    assert!(matches!(Payload::from_serialize(&KeyAlone).unwrap_err().reason(), Reason::Custom(_)));

    struct Fails;
    impl Serialize for Fails {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no luck"))
        }
    }
    let refusal = Payload::from_serialize(&BTreeMap::from([("f", Fails)])).unwrap_err();
    assert_eq!((refusal.pointer(), refusal.reason()), ("/f", &Reason::Custom("no luck".into())));
}

#[test]
fn equality_is_by_value() {
    let payload = |text| Payload::from_json(text).unwrap();
    let object = payload(r#"{"a":[1.10,{"x":1,"y":"é"}],"b":null}"#);
    assert_eq!(object, payload(r#"{"b":null,"a":[11E-1,{"y":"\u00e9","x":1.0}]}"#));
    for other in [
        r#"{"a":[{"x":1,"y":"é"},1.10],"b":null}"#,
        r#"{"a":[1.11,{"x":1,"y":"é"}],"b":null}"#,
        r#"{"a":[1.10,{"x":1,"y":"é"}]}"#,
        r#"{"a":[1.10,{"x":1,"z":"é"}],"b":null}"#,
        r#"{"a":[1.10,{"x":"1","y":"é"}],"b":null}"#,
        r#"{"a":[1.10,{"x":1,"y":"é"}],"b":false}"#,
    ] {
        assert_ne!(object, payload(other), "{other}");
    }
    for (left, right) in [("null", "{}"), ("{}", "[]"), ("\"\"", "null"), ("0", "false"), ("[null]", "[]")] {
        assert_ne!(payload(left), payload(right));
    }
}

#[test]
fn debug_and_errors_show_no_content() {
    let payload = Payload::from_json(r#"{"card":"4111-secret"}"#).unwrap();
    assert_eq!(format!("{payload:?}"), "Payload { size: 27, .. }");
    let error = payload.decode::<BTreeMap<String, u8>>().unwrap_err();
    assert_eq!(error.to_string(), "payload does not decode at \"/card\": invalid type: string, expected u8");
    let refusal = Payload::from_json(r#"{"card":"4111-secret\u0000"}"#).unwrap_err();
    assert!(!format!("{refusal} {refusal:?}").contains("4111"));
}

#[test]
fn trees_are_walked_and_rebuilt() {
    let text = r#"{"a":[{"b~/":1.10},"x"],"":{"01":true}}"#;
    let payload = Payload::from_json(text).unwrap();
    let value = payload.to_value();
    assert_eq!(Payload::from_value(&value).unwrap().as_json(), text);
    for (path, found) in [
        (&["a", "0", "b~/"][..], Some(Value::Number("1.1".parse::<Number>().unwrap()))),
        (&["a", "1"], Some(Value::String("x".into()))),
        (&["", "01"], Some(Value::Bool(true))),
        (&["a", "01"], None),
        (&["a", "+1"], None),
        (&["a", "2"], None),
        (&["a", "-1"], None),
        (&["a", ""], None),
        (&["a", "1", "x"], None),
        (&["z"], None),
        (&[], Some(value.clone())),
    ] {
        assert_eq!(payload.at(path), found, "{path:?}");
        assert_eq!(value.at(path).cloned(), found, "{path:?}");
    }
    let twice = Value::Object(vec![("k".into(), Value::Null), ("k".into(), Value::Null)]);
    assert_eq!(Payload::from_value(&twice).unwrap_err().reason(), &Reason::DuplicateKey);
    let nul = Value::Array(vec![Value::String("\0".into())]);
    assert_eq!(Payload::from_value(&nul).unwrap_err().pointer(), "/0");
}

/// Small deterministic noise: no input may panic, and what is accepted is a fixed point.
#[test]
fn noise_never_panics() {
    let seeds = [
        r#"{"a":[1.10,-0.0,1e5,true,null,"x\u0041\n\ud83d\ude00"],"b":{"c":{}}}"#,
        r#"[[[]],{"":"é"},12345678901234567890.12345E-3]"#,
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % below
    };
    let alphabet = b"{}[]\",:\\u0eE+-.1d8 \x00\x7f\xc3tfn";
    for _ in 0..40_000 {
        let mut bytes = seeds[random(2)].as_bytes().to_vec();
        for _ in 0..=random(4) {
            let at = random(bytes.len());
            match random(3) {
                0 => bytes[at] = alphabet[random(alphabet.len())],
                1 => {
                    bytes.remove(at);
                }
                _ => bytes.insert(at, alphabet[random(alphabet.len())]),
            }
        }
        if let Ok(payload) = Payload::from_json_bytes(&bytes) {
            canonical(payload.as_json());
            let _: serde_json::Value = payload.decode().unwrap();
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let accepted = Payload::from_json(text).is_ok();
            let serde: Result<serde_json::Value, _> = serde_json::from_str(text);
            assert!(!accepted || serde.is_ok(), "{text}");
            let stored = Payload::from_stored(text);
            let _ = (stored.to_value(), stored.size(), stored.at(["a", "0"]), stored == Payload::null());
            let _ = stored.decode::<serde_json::Value>();
            let _ = stored.decode::<HashMap<String, Vec<f64>>>();
            let _ = stored.decode::<Result<Vec<Option<i64>>, ()>>();
        }
    }
}
