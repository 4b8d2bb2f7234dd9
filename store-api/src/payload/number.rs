//! An exact decimal number.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use rust_decimal::Decimal;

use super::digits::{self, Magnitude};
use super::{MAX_DIGITS, Reason};

/// An exact decimal number of at most [`MAX_DIGITS`] significant digits, within the range of Decimal128.
///
/// Spelled in plain notation (no exponent), scale kept: `1.10` stays `1.10`. A zero has no sign. Two numbers
/// are equal, ordered and hashed by **value**, whatever their scale: `1.10 == 1.1`.
///
/// As a field of an event it serialises as a JSON number and comes back digit for digit, like a
/// [`Decimal`] with the helper [`decimal`](super::decimal); see there for what happens in other formats.
///
/// ```
/// # use wow_store_api::payload::Number;
/// let price: Number = "1.10".parse()?;
/// assert_eq!(price.as_str(), "1.10");
/// assert_eq!(price, "11E-1".parse()?);
/// # Ok::<(), wow_store_api::payload::Reason>(())
/// ```
#[derive(Clone)]
pub struct Number {
    text: Box<str>,
}

/// A number as Decimal128 holds it: `(-1)^negative × coefficient × 10^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Below zero. Never set on a zero.
    pub negative: bool,
    /// At most [`MAX_DIGITS`] digits.
    pub coefficient: u128,
    /// From -6176 to 6111, both included.
    pub exponent: i32,
}

impl Number {
    /// The canonical spelling: plain notation, scale kept.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number, if it is an integer in value (`1.0` counts) and fits.
    #[must_use]
    pub fn to_i64(&self) -> Option<i64> {
        self.integer_text()?.parse().ok()
    }

    /// The number, if it is an integer in value (`1.0` counts) and fits.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        self.integer_text()?.parse().ok()
    }

    /// The number with its scale, if a [`Decimal`] holds both: at most 28 fraction digits and a coefficient
    /// below 2^96. Never rounded.
    #[must_use]
    pub fn to_decimal(&self) -> Option<Decimal> {
        parse_decimal(&self.text)
    }

    /// The nearest double; infinite beyond the range of doubles.
    #[must_use]
    pub fn to_f64_lossy(&self) -> f64 {
        self.text.parse().unwrap_or(f64::NAN)
    }

    /// Whether it is written without a fraction and fits an `i64`: what MongoDB stores as Int64, and counts 8
    /// bytes instead of 16.
    #[must_use]
    pub fn is_integer_i64(&self) -> bool {
        is_integer_i64(&self.text)
    }

    /// The number as Decimal128 holds it, scale kept: the exponent is minus the count of fraction digits, and
    /// above zero only where an integer has more than [`MAX_DIGITS`] digits.
    #[must_use]
    pub fn parts(&self) -> Parts {
        let magnitude = Magnitude::of(&self.text);
        let mut coefficient = 0_u128;
        let mut kept = 0_usize;
        let mut dropped = 0_i32;
        for digit in magnitude.digits() {
            // Past the 34th digit there are only zeros, all before the decimal point: that is what makes the
            // number representable.
            if kept == MAX_DIGITS {
                dropped = dropped.saturating_add(1);
            } else {
                coefficient =
                    coefficient.saturating_mul(10).saturating_add(u128::from(digit.saturating_sub(b'0')));
                kept += 1;
            }
        }
        let scale = i32::try_from(magnitude.scale()).unwrap_or(i32::MAX);
        Parts { negative: magnitude.negative, coefficient, exponent: dropped.saturating_sub(scale) }
    }

    /// The number that [`Parts`] stand for.
    ///
    /// # Errors
    /// [`Reason::TooManyDigits`] or [`Reason::ExponentOutOfRange`] if it is outside the profile; the exponent
    /// may be anything as long as the value is inside.
    pub fn from_parts(parts: Parts) -> Result<Self, Reason> {
        let sign = if parts.negative { "-" } else { "" };
        format!("{sign}{}E{}", parts.coefficient, parts.exponent).parse()
    }

    /// Wraps what is known to be canonical.
    pub(super) fn from_canonical(text: &str) -> Self {
        Self { text: text.into() }
    }

    /// The digits before the point, if those behind it are all zero.
    fn integer_text(&self) -> Option<&str> {
        match self.text.split_once('.') {
            None => Some(&self.text),
            // "-0.00" is no canonical spelling, so the part before the point is never "-0".
            Some((int, frac)) => frac.bytes().all(|digit| digit == b'0').then_some(int),
        }
    }
}

/// Whether a canonical spelling has no fraction and fits an `i64`.
pub(super) fn is_integer_i64(canonical: &str) -> bool {
    !canonical.contains('.') && (canonical.len() <= 18 || canonical.parse::<i64>().is_ok())
}

/// The decimal that a canonical spelling stands for, scale kept, if it fits.
pub(super) fn parse_decimal(canonical: &str) -> Option<Decimal> {
    let (negative, unsigned) = match canonical.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, canonical),
    };
    let mut coefficient = 0_i128;
    let mut scale = None;
    for byte in unsigned.bytes() {
        match (byte, &mut scale) {
            (b'0'..=b'9', scale) => {
                coefficient = coefficient.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
                if let Some(scale) = scale {
                    *scale += 1;
                }
            }
            (b'.', None) => scale = Some(0_u32),
            _ => return None,
        }
    }
    let coefficient = if negative { -coefficient } else { coefficient };
    Decimal::try_from_i128_with_scale(coefficient, scale.unwrap_or(0)).ok()
}

impl FromStr for Number {
    type Err = Reason;

    /// Reads any JSON spelling: `1.10`, `-11E-1`.
    ///
    /// # Errors
    /// [`Reason::NotJson`] if it is not one, [`Reason::TooManyDigits`] or [`Reason::ExponentOutOfRange`] if
    /// it is outside the profile.
    fn from_str(text: &str) -> Result<Self, Reason> {
        let token = digits::read(text).map_err(|(at, problem)| Reason::NotJson { at, problem })?;
        if token.text.len() < text.len() {
            return Err(Reason::NotJson { at: token.text.len(), problem: "expected the end of the number" });
        }
        let mut canonical = String::with_capacity(text.len());
        digits::canonical(&token, &mut canonical)?;
        Ok(Self { text: canonical.into() })
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self { text: value.to_string().into() }
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self { text: value.to_string().into() }
    }
}

impl From<Decimal> for Number {
    /// Exact, scale kept; a zero loses its sign.
    fn from(value: Decimal) -> Self {
        let coefficient = value.mantissa().unsigned_abs().to_string();
        let coefficient = if coefficient == "0" { "" } else { &coefficient };
        let mut text = String::with_capacity(32);
        digits::plain(&mut text, value.mantissa() < 0, coefficient, 0, i64::from(value.scale()));
        Self { text: text.into() }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Number({})", self.text)
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        Magnitude::of(&self.text).cmp(&Magnitude::of(&other.text))
    }
}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let magnitude = Magnitude::of(&self.text);
        magnitude.negative.hash(state);
        if magnitude.zero {
            return;
        }
        magnitude.leading.hash(state);
        // Trailing zeros do not count, so zeros are held back until another digit follows.
        let mut zeros = 0_usize;
        for digit in magnitude.digits() {
            if digit == b'0' {
                zeros += 1;
            } else {
                for _ in 0..zeros {
                    state.write_u8(b'0');
                }
                zeros = 0;
                state.write_u8(digit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn equality_and_hash_go_by_value() {
        let set: HashSet<Number> =
            ["1.10", "1.1", "11E-1", "110e-2", "0", "-0.00", "0E7", "100", "1E2", "-100"].map(number).into();
        assert_eq!(set.len(), 4);
        assert!(number("9.99") < number("10"));
        assert!(number("-1E6144") < number("1E-6176"));
    }

    #[test]
    fn integers_convert_only_when_exact() {
        assert_eq!(number("9223372036854775807").to_i64(), Some(i64::MAX));
        assert_eq!(number("-9223372036854775808").to_i64(), Some(i64::MIN));
        assert_eq!(number("9223372036854775808").to_i64(), None);
        assert_eq!(number("18446744073709551615").to_u64(), Some(u64::MAX));
        assert_eq!(number("18446744073709551616").to_u64(), None);
        assert_eq!(number("-1").to_u64(), None);
        assert_eq!(number("-7.00").to_i64(), Some(-7));
        assert_eq!(number("7.5").to_i64(), None);
        assert!(number("1E2").is_integer_i64());
        assert!(!number("1.0").is_integer_i64());
        assert!(!number("9223372036854775808").is_integer_i64());
    }

    #[test]
    fn decimals_convert_both_ways_with_their_scale() {
        for text in [
            "1.10",
            "-0.05",
            "0",
            "0.00",
            "79228162514264337593543950335",
            "-7.9228162514264337593543950335",
            "0.0000000000000000000000000001",
        ] {
            let decimal = number(text).to_decimal().unwrap();
            assert_eq!(decimal.to_string(), text);
            assert_eq!(Number::from(decimal).as_str(), text);
        }
        for text in [
            "79228162514264337593543950336",
            "0.00000000000000000000000000001",
            "1.00000000000000000000000000000",
        ] {
            assert_eq!(number(text).to_decimal(), None, "{text}");
        }
        assert_eq!(Number::from(-Decimal::new(0, 2)).as_str(), "0.00");
    }

    #[test]
    fn parts_are_those_of_decimal128() {
        for (text, negative, coefficient, exponent) in [
            ("1.10", false, 110, -2),
            ("-0.05", true, 5, -2),
            ("0.00", false, 0, -2),
            ("0", false, 0, 0),
            ("100", false, 100, 0),
            ("1E34", false, 10_u128.pow(33), 1),
            ("1E6144", false, 10_u128.pow(33), 6111),
            ("1E-6176", false, 1, -6176),
            ("-9999999999999999999999999999999999", true, 10_u128.pow(34) - 1, 0),
        ] {
            let parts = Parts { negative, coefficient, exponent };
            assert_eq!(number(text).parts(), parts, "{text}");
            assert_eq!(Number::from_parts(parts).unwrap().as_str(), number(text).as_str());
        }
        let minus_zero = Parts { negative: true, coefficient: 0, exponent: -1 };
        assert_eq!(Number::from_parts(minus_zero).unwrap().as_str(), "0.0");
        let wide = Parts { negative: false, coefficient: u128::MAX, exponent: 0 };
        assert!(matches!(Number::from_parts(wide), Err(Reason::TooManyDigits { .. })));
        let high = Parts { negative: false, coefficient: 1, exponent: i32::MAX };
        assert_eq!(Number::from_parts(high), Err(Reason::ExponentOutOfRange));
    }

    /// Against another implementation, on numbers that both hold.
    #[test]
    fn order_agrees_with_decimal() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mantissa = i64::try_from(state >> 33).unwrap() % 2_000 - 1_000;
            Decimal::new(mantissa, u32::try_from((state >> 8) % 5).unwrap())
        };
        for _ in 0..20_000 {
            let (left, right) = (random(), random());
            let numbers = (Number::from(left), Number::from(right));
            assert_eq!(numbers.0.cmp(&numbers.1), left.cmp(&right), "{left} {right}");
            assert_eq!(numbers.0.to_decimal().unwrap().to_string().parse(), Ok(numbers.0));
        }
    }

    #[test]
    fn only_json_numbers_parse() {
        for text in ["", "+1", "1 ", " 1", "0x1", "NaN", "inf", "1_000", "١"] {
            assert!(matches!(text.parse::<Number>(), Err(Reason::NotJson { .. })), "{text:?}");
        }
    }
}
