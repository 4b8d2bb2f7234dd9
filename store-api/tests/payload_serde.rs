//! Types through payloads: the layout of serde_json, exact decimals wherever serde buffers, typed errors.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests are tests too")]

use std::collections::{BTreeMap, HashMap};

use rust_decimal::Decimal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use wow_store_api::payload::{Number, Payload, Reason, decimal};

fn dec(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Payload {
    let payload = Payload::from_serialize(value).unwrap();
    assert_eq!(Payload::from_json(payload.as_json()).unwrap().as_json(), payload.as_json());
    payload
}

/// Reads from text as if it had been stored.
fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    Payload::from_json(text).unwrap().decode().map_err(|error| error.to_string())
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Everything {
    unit: (),
    flag: bool,
    small: i8,
    wide: u64,
    big: i128,
    float: f64,
    single: f32,
    letter: char,
    text: String,
    maybe: Option<u8>,
    nothing: Option<u8>,
    bytes: Vec<u8>,
    pair: (u8, String),
    array: [i16; 3],
    map: BTreeMap<i32, Option<bool>>,
    newtype: Newtype,
    tuple: Tuple,
    marker: Marker,
    plain: Vec<Plain>,
    internal: Vec<Internal>,
    adjacent: Vec<Adjacent>,
    untagged: Vec<Untagged>,
    #[serde(flatten)]
    flat: Flat,
    nested: Result<Box<Newtype>, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Newtype(u32);
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Tuple(u8, f64);
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Marker;
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    flat_a: f64,
    flat_b: Option<i64>,
    flat_c: f32,
    flat_d: u64,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Plain {
    Unit,
    New(f64),
    Tuple(u8, i64),
    Struct { a: f64, b: Option<Newtype> },
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t")]
enum Internal {
    Unit,
    New(Flat),
    Struct { a: i32, b: f64, c: u64 },
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    Unit,
    New(f64),
    Tuple(u8, f64),
    Struct { a: f64 },
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Struct { zz: f64 },
    Integer(i64),
    Float(f64),
    Text(String),
    Unit,
}

fn everything() -> Everything {
    let flat = Flat { flat_a: 0.1, flat_b: Some(-1), flat_c: 0.25, flat_d: u64::MAX };
    Everything {
        unit: (),
        flag: true,
        small: i8::MIN,
        wide: u64::MAX,
        big: i128::from(i64::MIN) * 1000,
        float: 1.5e-9,
        single: 0.1,
        letter: 'ß',
        text: "a\"b\\\n\u{1}\u{2028}😀/".into(),
        maybe: Some(0),
        nothing: None,
        bytes: vec![0, 255],
        pair: (1, String::new()),
        array: [-1, 0, 1],
        map: [(-5, None), (7, Some(false))].into(),
        newtype: Newtype(9),
        tuple: Tuple(1, 2.0),
        marker: Marker,
        plain: vec![
            Plain::Unit,
            Plain::New(1.0),
            Plain::Tuple(1, i64::MIN),
            Plain::Struct { a: 0.5, b: Some(Newtype(1)) },
            Plain::Struct { a: -0.5, b: None },
        ],
        internal: vec![
            Internal::Unit,
            Internal::New(flat.clone()),
            Internal::Struct { a: -1, b: 2.5, c: u64::MAX },
        ],
        adjacent: vec![
            Adjacent::Unit,
            Adjacent::New(2.0),
            Adjacent::Tuple(1, 0.1),
            Adjacent::Struct { a: 3.25 },
        ],
        untagged: vec![
            Untagged::Struct { zz: 1.5 },
            Untagged::Integer(-3),
            Untagged::Float(0.75),
            Untagged::Text("t".into()),
            Untagged::Unit,
        ],
        flat,
        nested: Ok(Box::new(Newtype(3))),
    }
}

#[test]
fn layout_is_that_of_serde_json() {
    let value = everything();
    let ours = encode(&value);
    assert_eq!(ours, Payload::from_json(&serde_json::to_string(&value).unwrap()).unwrap());
    assert_eq!(ours.decode::<Everything>().unwrap(), value);
    match serde_json::from_str::<Everything>(ours.as_json()) {
        Ok(theirs) => assert_eq!(theirs, value),
        // Under arbitrary_precision serde_json itself cannot read numbers in tagged or flattened parts; we can.
        Err(error) => assert!(error.to_string().contains("invalid type: map, expected f64"), "{error}"),
    }
    let err = encode(&Err::<u8, _>("x"));
    assert_eq!(err.as_json(), r#"{"Err":"x"}"#);
}

#[test]
fn bytes_are_arrays() {
    struct Bytes;
    impl Serialize for Bytes {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&[1, 2, 255])
        }
    }
    assert_eq!(encode(&Bytes).as_json(), "[1,2,255]");
}

#[test]
fn serde_json_values_serialise_exactly() {
    for text in [r#"{"a":[1,-2,18446744073709551615,0.1,"x",null,true,{}]}"#, "1.5", "-9223372036854775808"] {
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(encode(&value).as_json(), text);
        assert_eq!(Payload::from_json(text).unwrap().decode::<serde_json::Value>().unwrap(), value);
        #[derive(Serialize, Deserialize)]
        struct Flat {
            #[serde(flatten)]
            rest: HashMap<String, serde_json::Value>,
            number: serde_json::Number,
        }
        let flat = Flat { rest: [("value".to_owned(), value.clone())].into(), number: 5.into() };
        let payload = encode(&flat);
        let back: Flat = payload.decode().unwrap();
        assert_eq!(back.rest["value"], value);
        assert_eq!(back.number, 5.into());
    }
    // The nearest double is all that serde_json::Value takes.
    let value: serde_json::Value = read("1.10").unwrap();
    assert_eq!(value.as_f64(), Some(1.1));
}

#[test]
fn integers() {
    assert_eq!(read("100"), Ok(100_u8));
    assert_eq!(read("1E2"), Ok(100_u8));
    assert_eq!(read("-0"), Ok(0_u64));
    assert_eq!(read("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(read("-9223372036854775808"), Ok(i64::MIN));
    assert_eq!(read("18446744073709551616"), Ok(u128::from(u64::MAX) + 1));
    assert_eq!(
        read("-1234567890123456789012345678901234"),
        Ok(-1_234_567_890_123_456_789_012_345_678_901_234_i128)
    );
    for text in ["256", "-1", "1.0", "1.5", "\"1\"", "null", "true", "[]", "18446744073709551616"] {
        assert!(read::<u8>(text).is_err(), "{text}");
    }
    assert!(read::<i64>("9223372036854775808").is_err());
    assert!(read::<u64>("18446744073709551616").is_err());
    assert!(read::<u128>("-1").is_err());
    assert!(read::<i128>("1.0").is_err());
    assert_eq!(
        read::<i64>("1.0").unwrap_err(),
        "payload does not decode: invalid type: number with a fraction, expected i64"
    );
    assert_eq!(
        Payload::from_serialize(&u128::MAX).unwrap_err().reason(),
        &Reason::TooManyDigits { digits: 39 }
    );
    assert_eq!(encode(&(10_u128.pow(34) - 1)).as_json(), "9".repeat(34));
}

#[test]
fn floats() {
    assert_eq!(read("1.10"), Ok(1.1_f64));
    assert_eq!(read("7"), Ok(7.0_f64));
    assert_eq!(read("9007199254740993"), Ok(9_007_199_254_740_992.0_f64));
    assert_eq!(read("1e-400"), Ok(0.0_f64));
    assert!(read::<f64>("1e309").is_err());
    assert!(read::<f32>("1e39").is_err());
    assert!(read::<serde_json::Value>("1e309").is_err());
    assert!(read::<f64>("\"1\"").is_err());
}

#[test]
fn strings_borrow() {
    #[derive(Deserialize)]
    struct Borrowed<'a> {
        text: &'a str,
        list: Vec<&'a str>,
    }
    let payload = Payload::from_json(r#"{"text":"é","list":["","b"]}"#).unwrap();
    let borrowed: Borrowed<'_> = payload.decode().unwrap();
    assert_eq!((borrowed.text, borrowed.list), ("é", vec!["", "b"]));
    assert!(Payload::from_json(r#"{"text":"\n","list":[]}"#).unwrap().decode::<Borrowed<'_>>().is_err());
}

#[test]
fn errors_have_a_place_and_no_values() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only ever fails to decode")]
    struct Order {
        lines: Vec<Plain>,
        tags: BTreeMap<u8, bool>,
    }
    let place = |text: &str| {
        let payload = Payload::from_json(text).unwrap();
        let error = payload.decode::<Order>().unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        error.pointer().to_owned()
    };
    assert_eq!(place(r#"{"lines":["Unit",{"New":"secret"}],"tags":{}}"#), "/lines/1/New");
    assert_eq!(place(r#"{"lines":[{"Struct":{"a":1,"b":"secret"}}],"tags":{}}"#), "/lines/0/Struct/b");
    assert_eq!(place(r#"{"lines":["secret"],"tags":{}}"#), "/lines/0");
    assert_eq!(place(r#"{"lines":[{"Tuple":[1,2,3]}],"tags":{}}"#), "/lines/0/Tuple");
    assert_eq!(place(r#"{"lines":[{"Tuple":[1]}],"tags":{}}"#), "/lines/0/Tuple");
    assert_eq!(place(r#"{"lines":[{"Unit":null,"New":1}],"tags":{}}"#), "/lines/0");
    assert_eq!(place(r#"{"lines":[],"tags":{"x":true}}"#), "/tags/x");
    assert_eq!(place(r#"{"lines":[],"tags":{"1":"secret"}}"#), "/tags/1");
    assert_eq!(place(r#"{"lines":[]}"#), "");
    assert_eq!(place("\"secret\""), "");
}

#[test]
fn endless_types_do_not_overflow_the_stack() {
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only ever fails to decode")]
    struct Endless(Option<Box<Self>>);
    assert!(read::<Endless>("1").unwrap_err().contains("nests too many"));
    #[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
    struct EndlessKey(Option<Box<Self>>);
    assert!(read::<HashMap<EndlessKey, u8>>("{\"a\":1}").unwrap_err().contains("nests too many"));
    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only ever fails to decode")]
    struct Deep(Vec<Self>);
    let deep = Payload::from_stored("[".repeat(1_000_000));
    assert!(deep.decode::<Deep>().is_err());
    assert!(deep.decode::<serde_json::Value>().is_err());
    assert!(deep.decode::<serde::de::IgnoredAny>().is_err());
}

// --- decimals
// ------------------------------------------------------------------------------------------------------

/// Spellings that a double does not tell apart, or rounds.
const HARD: [&str; 12] = [
    "1.10",
    "1.1",
    "1.0",
    "1",
    "0.00",
    "-0.05",
    "100",
    "12345678901234567890",
    "79228162514264337593543950335",
    "0.1234567890123456789012345678",
    "0.30000000000000004",
    "9007199254740993.0",
];

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Price {
    #[serde(with = "decimal")]
    price: Decimal,
    #[serde(with = "decimal::option", default)]
    maybe: Option<Decimal>,
    #[serde(with = "decimal::option", default)]
    nothing: Option<Decimal>,
    #[serde(with = "decimal::vec")]
    list: Vec<Decimal>,
    #[serde(with = "decimal::map")]
    map: HashMap<String, Decimal>,
    #[serde(with = "decimal::map")]
    sorted: BTreeMap<String, Decimal>,
    number: Number,
    float: f64,
    single: f32,
    integer: i64,
    wide: u64,
}

impl Price {
    fn of(text: &str) -> Self {
        let price = dec(text);
        Self {
            price,
            maybe: Some(price),
            nothing: None,
            list: vec![price, price],
            map: [("k".to_owned(), price)].into(),
            sorted: [("-1".to_owned(), price)].into(),
            number: text.parse().unwrap(),
            float: 0.1,
            single: 0.25,
            integer: -1,
            wide: u64::MAX,
        }
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum External {
    New(#[serde(with = "decimal")] Decimal),
    Tuple(#[serde(with = "decimal")] Decimal, f64),
    Struct {
        #[serde(with = "decimal")]
        price: Decimal,
    },
    Wrapped(Price),
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    Struct {
        #[serde(with = "decimal")]
        price: Decimal,
        float: f64,
    },
    Wrapped(Price),
    Nested {
        inner: Box<Self>,
        external: External,
    },
}
/// serde's derive does not take `with` on the only field of an adjacently tagged variant, unless the type
/// itself is `Deserialize`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Money(#[serde(with = "decimal")] Decimal);
/// With the content first, serde has to buffer it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "content")]
enum Beside {
    New(Money),
    Tuple(#[serde(with = "decimal")] Decimal, f64),
    Wrapped(Price),
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Bare {
    Text(String),
    New(#[serde(with = "decimal")] Decimal),
    Wrapped(Price),
}
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Flattened {
    id: u8,
    #[serde(flatten)]
    price: Price,
    #[serde(flatten)]
    event: External,
}

fn round_trip<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let payload = encode(value);
    let back: T = payload.decode().unwrap_or_else(|error| panic!("{}: {error}", payload.as_json()));
    // Decimals are equal whatever their scale, so the texts are compared too.
    assert_eq!(&back, value);
    assert_eq!(encode(&back).as_json(), payload.as_json());
}

#[test]
fn decimals_come_back_digit_for_digit_in_all_shapes() {
    for text in HARD {
        let price = dec(text);
        assert!(
            encode(&Price::of(text)).as_json().starts_with(&format!("{{\"price\":{text},\"maybe\":{text},"))
        );
        round_trip(&Price::of(text));
        round_trip(&vec![
            External::New(price),
            External::Tuple(price, 1.1),
            External::Struct { price },
            External::Wrapped(Price::of(text)),
        ]);
        round_trip(&Tagged::Struct { price, float: 0.5 });
        round_trip(&Tagged::Wrapped(Price::of(text)));
        round_trip(&Tagged::Nested {
            inner: Box::new(Tagged::Wrapped(Price::of(text))),
            external: External::Tuple(price, 0.5),
        });
        round_trip(&vec![
            Beside::New(Money(price)),
            Beside::Tuple(price, 0.5),
            Beside::Wrapped(Price::of(text)),
        ]);
        round_trip(&vec![Bare::New(price), Bare::Wrapped(Price::of(text)), Bare::Text(text.into())]);
        round_trip(&Flattened { id: 1, price: Price::of(text), event: External::New(price) });
        round_trip(&HashMap::from(
            [("k", Tagged::Struct { price, float: 0.5 })].map(|(k, v)| (k.to_owned(), v)),
        ));

        let content_first = format!("{{\"content\":{text},\"type\":\"New\"}}");
        assert_eq!(
            encode(&read::<Beside>(&content_first).unwrap()).as_json(),
            format!("{{\"type\":\"New\",\"content\":{text}}}")
        );
    }
}

#[test]
fn spellings_of_one_double_are_told_apart() {
    // All in one buffer, in any order, next to floats.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Event {
        Placed {
            lines: Vec<Line>,
            rate: f64,
            #[serde(with = "decimal")]
            total: Decimal,
            rates: Vec<f64>,
        },
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Line {
        #[serde(with = "decimal")]
        price: Decimal,
        #[serde(deserialize_with = "sane")]
        rate: f64,
    }
    /// A float that is checked: the probe must not upset it.
    fn sane<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let rate = f64::deserialize(deserializer)?;
        if (1.05..1.15).contains(&rate) { Ok(rate) } else { Err(serde::de::Error::custom("out of range")) }
    }
    let line = |text: &str, rate| Line { price: dec(text), rate };
    round_trip(&Event::Placed {
        lines: HARD.iter().map(|text| line(text, 1.1)).collect(),
        rate: 1.1,
        total: dec("1.1000"),
        rates: vec![0.0, 1.1, 1.0, 0.30000000000000004, 0.123_456_789_012_345_68],
    });
    round_trip(&vec![
        Tagged::Struct { price: dec("1.10"), float: 1.1 },
        Tagged::Struct { price: dec("1.1"), float: 1.1 },
    ]);
    round_trip(&vec![Bare::New(dec("1.10")), Bare::New(dec("1.1")), Bare::New(dec("1.100"))]);
    round_trip(&Flattened { id: 1, price: Price::of("1.10"), event: External::Tuple(dec("1.1"), 1.1) });
    // Same nearest double, different values.
    round_trip(&vec![
        Bare::New(dec("0.1234567890123456789012345678")),
        Bare::New(dec("0.1234567890123456789012345679")),
    ]);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Pair { a: Number, b: Number },
    }
    round_trip(&Either::Pair {
        a: "0.1234567890123456789012345678901234".parse().unwrap(),
        b: "0.1234567890123456789012345678901235".parse().unwrap(),
    });
}

#[test]
fn one_place_read_two_ways_is_an_error_not_a_guess() {
    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "only ever fails to decode")]
    enum Both {
        Strict {
            #[serde(with = "decimal")]
            a: Decimal,
            #[serde(with = "decimal")]
            b: Decimal,
            missing: u8,
        },
        Loose(HashMap<String, f64>),
    }
    let error = read::<Both>(r#"{"a":1.10,"b":1.1}"#).unwrap_err();
    assert!(error.contains("ambiguous"), "{error}");
    // With one spelling there is nothing to confuse.
    assert!(matches!(read(r#"{"a":1.10,"b":1.10}"#), Ok(Both::Loose(_))));
}

#[test]
fn decimals_are_exact_or_an_error() {
    for text in [
        "79228162514264337593543950336",
        "0.00000000000000000000000000001",
        "1e29",
        "\"1.10\"",
        "null",
        "true",
        "[]",
        "{}",
        "{\"$serde_json::private::Number\":\"1\"}",
    ] {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only ever fails to decode")]
        struct Direct {
            #[serde(with = "decimal")]
            v: Decimal,
        }
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "only ever fails to decode")]
        struct Buffered {
            #[serde(flatten)]
            inner: Direct,
        }
        let document = format!("{{\"v\":{text}}}");
        assert!(read::<Direct>(&document).is_err(), "{text}");
        assert!(read::<Buffered>(&document).is_err(), "{text}");
    }
}

#[test]
fn a_document_decoded_inside_another_does_not_mix_with_it() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        #[serde(with = "decimal")]
        v: Decimal,
    }
    #[derive(Debug)]
    struct Outer(Flat, Result<Flat, String>);
    impl<'de> Deserialize<'de> for Outer {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            #[derive(Deserialize)]
            #[serde(untagged)]
            enum Buffered {
                Flat(Flat),
            }
            // The inner document is decoded while the outer one is, and is left again even if it panics.
            let inner = Payload::from_json("[{\"v\":1.1},{\"v\":2.0}]").unwrap();
            let [Buffered::Flat(one), _]: [Buffered; 2] = inner.decode().unwrap();
            assert_eq!(one.v.to_string(), "1.1");
            #[derive(Debug)]
            struct Panics;
            impl<'de> Deserialize<'de> for Panics {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    serde_json::Value::deserialize(deserializer)?;
                    panic!("on purpose")
                }
            }
            let panicked = std::panic::catch_unwind(|| inner.decode::<Vec<Panics>>().map(drop));
            assert!(panicked.is_err());
            let Buffered::Flat(flat) = Buffered::deserialize(deserializer)?;
            // A double from another format is no double of ours, though the bits are the same.
            #[derive(Debug, Deserialize)]
            struct Foreign(#[serde(with = "decimal")] Decimal);
            let foreign = serde_json::from_value::<Foreign>(serde_json::json!(1.1));
            Ok(Self(flat, foreign.map(|Foreign(v)| Flat { v }).map_err(|error| error.to_string())))
        }
    }
    let payload = Payload::from_json("[{\"v\":1.10}]").unwrap();
    let [Outer(flat, foreign)]: [Outer; 1] = payload.decode().unwrap();
    assert_eq!(flat.v.to_string(), "1.10");
    if let Ok(exact) = foreign {
        // Under arbitrary_precision serde_json does hand over the exact spelling.
        assert_eq!(exact.v.to_string(), "1.1");
    }
}

#[test]
fn other_formats_see_a_string() {
    let price = Price::of("1.10");
    let text = serde_json::to_string(&price).unwrap();
    assert!(
        text.starts_with(r#"{"price":"1.10","maybe":"1.10","nothing":null,"list":["1.10","1.10"]"#),
        "{text}"
    );
    let back: Price = serde_json::from_str(&text).unwrap();
    assert_eq!(encode(&back).as_json(), encode(&price).as_json());

    #[derive(Debug, Deserialize)]
    struct Foreign(#[serde(with = "decimal")] Decimal);
    assert_eq!(serde_json::from_str::<Foreign>("7").unwrap().0, dec("7"));
    assert_eq!(serde_json::from_str::<Foreign>("\"1.5E1\"").unwrap().0, dec("15"));
    match serde_json::from_str::<Foreign>("1.10") {
        Ok(exact) => assert_eq!(exact.0.to_string(), "1.10"),
        Err(error) => assert!(error.to_string().contains("double"), "{error}"),
    }
}

#[test]
fn decimal_keys_are_their_spelling() {
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    struct Key(#[serde(with = "decimal")] Decimal);
    let payload = encode(&BTreeMap::from([(Key(dec("1.10")), 1)]));
    assert_eq!(payload.as_json(), r#"{"1.10":1}"#);
    let back: BTreeMap<Key, u8> = payload.decode().unwrap();
    assert_eq!(encode(&back).as_json(), payload.as_json());
}

#[test]
fn negative_zero_decimals_lose_their_sign() {
    assert_eq!(
        encode(&Price { price: -Decimal::new(0, 1), ..Price::of("1") }).as_json().split(',').next(),
        Some(r#"{"price":0.0"#)
    );
}
