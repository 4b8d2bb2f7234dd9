//! Numbers and Decimal128, by its bits: nothing is rounded, and the scale is kept.

use mongodb::bson::Decimal128;
use wow_store_api::payload::{Number, Parts};

/// What is added to an exponent.
const BIAS: i32 = 6176;
/// Where the exponent starts; below it are the coefficient's bits.
const EXPONENT_AT: u32 = 113;
const SIGN: u128 = 1 << 127;
/// Both bits set: not a plain coefficient, but infinity, NaN, or a coefficient that is out of range and stands for 0.
const SPECIAL: u128 = 0b11 << 125;
/// All of these set: infinity or NaN.
const NOT_A_NUMBER: u128 = 0b1_1110 << 122;

/// A number of the portable profile, digit for digit.
pub(super) fn encode(number: &Number) -> Decimal128 {
    let Parts { negative, coefficient, exponent } = number.parts();
    let exponent = u128::from((exponent + BIAS).unsigned_abs());
    let sign = if negative { SIGN } else { 0 };
    Decimal128::from_bytes((sign | exponent << EXPONENT_AT | coefficient).to_le_bytes())
}

/// The number; `None` for NaN and infinities, and outside the portable profile.
pub(super) fn decode(decimal: Decimal128) -> Option<Number> {
    let bits = u128::from_le_bytes(decimal.bytes());
    if bits & NOT_A_NUMBER == NOT_A_NUMBER {
        return None;
    }
    let negative = bits & SIGN != 0;
    let (exponent, coefficient) = if bits & SPECIAL == SPECIAL {
        // A coefficient of more than 34 digits: by the standard, 0.
        ((bits >> 111) & 0x3fff, 0)
    } else {
        ((bits >> EXPONENT_AT) & 0x3fff, bits & ((1 << EXPONENT_AT) - 1))
    };
    let exponent = i32::try_from(exponent).ok()? - BIAS;
    // The same for one that has the plain form and yet too many digits.
    let coefficient = if coefficient < 10_u128.pow(34) { coefficient } else { 0 };
    Number::from_parts(Parts { negative, coefficient, exponent }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_digit_for_digit() {
        for text in [
            "0",
            "0.00",
            "1.10",
            "-0.05",
            "100",
            "9223372036854775808",
            "-9999999999999999999999999999999999",
            "1E34",
            "9.999999999999999999999999999999999E6144",
            "-1E-6176",
        ] {
            let number: Number = text.parse().unwrap();
            let found = decode(encode(&number)).unwrap();
            assert_eq!(found.as_str(), number.as_str(), "{text}");
        }
    }

    #[test]
    fn bits_are_those_of_the_driver() {
        for text in ["0", "1.10", "-0.05", "-9999999999999999999999999999999999", "1E-6176", "1E+34"] {
            let number: Number = text.replace('+', "").parse().unwrap();
            let theirs: Decimal128 = text.parse().unwrap();
            assert_eq!(decode(theirs), Some(number), "{text}");
        }
        assert_eq!(encode(&"1.10".parse().unwrap()), "1.10".parse().unwrap());
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in ["NaN", "Infinity", "-Infinity"] {
            assert_eq!(decode(text.parse().unwrap()), None, "{text}");
        }
    }
}
