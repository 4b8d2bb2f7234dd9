//! JSON numbers as decimal digits: grammar, canonical spelling, comparison. No number is ever turned into a
//! float here.

use std::cmp::Ordering;

use super::{MAX_DIGITS, Reason};

/// The largest power of ten of a leading digit that Decimal128 holds: 9.999…E6144.
const MAX_LEADING_EXPONENT: i64 = 6144;
/// The smallest power of ten that Decimal128 counts in, so also the largest number of fraction digits.
const MAX_SCALE: i64 = 6176;
/// Where an exponent stops counting: beyond every limit, and far from overflow in the sums it goes into.
const EXPONENT_CAP: i64 = 1 << 40;

/// A number as written, taken apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    /// The whole spelling.
    pub(super) text: &'a str,
    negative: bool,
    int: &'a str,
    frac: &'a str,
    exponent: Option<i64>,
}

/// Reads the JSON number that `text` starts with. The rest of `text` is not looked at.
///
/// Fails with the offset in `text` and what is wrong there.
pub(super) fn read(text: &str) -> Result<Token<'_>, (usize, &'static str)> {
    let bytes = text.as_bytes();
    let negative = bytes.first() == Some(&b'-');
    let int_start = usize::from(negative);
    let int_end = skip_digits(bytes, int_start);
    if int_end == int_start {
        return Err((int_start, "expected a digit"));
    }
    if int_end > int_start + 1 && bytes.get(int_start) == Some(&b'0') {
        return Err((int_start, "number has a leading zero"));
    }
    let mut end = int_end;
    let mut frac = "";
    if bytes.get(end) == Some(&b'.') {
        let start = end + 1;
        end = skip_digits(bytes, start);
        if end == start {
            return Err((start, "expected a digit after the decimal point"));
        }
        frac = text.get(start..end).unwrap_or_default();
    }
    let mut exponent = None;
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = bytes.get(end + 1);
        let start = end + 1 + usize::from(matches!(sign, Some(b'+' | b'-')));
        end = skip_digits(bytes, start);
        if end == start {
            return Err((start, "expected a digit in the exponent"));
        }
        let size = bytes.get(start..end).unwrap_or_default().iter().fold(0_i64, |size, digit| {
            size.saturating_mul(10).saturating_add(i64::from(digit - b'0')).min(EXPONENT_CAP)
        });
        exponent = Some(if sign == Some(&b'-') { -size } else { size });
    }
    Ok(Token {
        text: text.get(..end).unwrap_or_default(),
        negative,
        int: text.get(int_start..int_end).unwrap_or_default(),
        frac,
        exponent,
    })
}

fn skip_digits(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    from + rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len())
}

/// Appends the canonical spelling of `token`: plain notation, scale kept, no minus sign on a zero.
///
/// More than 34 digits are accepted only where the surplus is zeros: the trailing zeros of a fraction are
/// dropped, just enough of them to fit; those of an integer stay, since plain notation needs them. A zero
/// keeps at most 6176 fraction digits.
///
/// Says whether the number is written without a fraction and fits an `i64`. On an error nothing is appended.
pub(super) fn canonical(token: &Token<'_>, out: &mut String) -> Result<bool, Reason> {
    if token.exponent.is_none() && token.int.len() + token.frac.len() <= MAX_DIGITS {
        let unsigned = token.text.strip_prefix('-');
        match unsigned {
            Some(unsigned) if token.is_zero() => out.push_str(unsigned),
            _ => out.push_str(token.text),
        }
        return Ok(token.frac.is_empty() && (token.int.len() <= 18 || token.text.parse::<i64>().is_ok()));
    }
    let exponent = token.exponent.unwrap_or(0);
    let frac_len = i64::try_from(token.frac.len()).unwrap_or(EXPONENT_CAP);
    let exponent = exponent.saturating_sub(frac_len);
    if token.is_zero() {
        plain(out, false, "", 0, exponent.saturating_neg().clamp(0, MAX_SCALE));
        return Ok(exponent >= 0);
    }

    let mut coefficient = String::with_capacity(token.int.len() + token.frac.len());
    coefficient.push_str(token.int);
    coefficient.push_str(token.frac);
    let coefficient = coefficient.trim_start_matches('0');
    let digits = length(coefficient);
    let significant = length(coefficient.trim_end_matches('0'));
    let zeros = digits - significant;
    if significant > length_of(MAX_DIGITS) {
        return Err(Reason::TooManyDigits { digits: usize::try_from(significant).unwrap_or(usize::MAX) });
    }
    // The exponent of the last digit that is not zero, and that of the first digit.
    let lowest = exponent.saturating_add(zeros);
    let leading = exponent.saturating_add(digits - 1);
    if lowest < -MAX_SCALE || leading > MAX_LEADING_EXPONENT {
        return Err(Reason::ExponentOutOfRange);
    }
    let scale = exponent.saturating_neg().max(0);
    let surplus = (digits - length_of(MAX_DIGITS)).max(scale - MAX_SCALE).clamp(0, scale);
    let kept = usize::try_from(digits - surplus).unwrap_or(usize::MAX);
    let kept = coefficient.get(..kept).unwrap_or(coefficient);
    let text_start = out.len();
    plain(out, token.negative, kept, exponent.max(0), scale - surplus);
    Ok(scale == surplus && out.get(text_start..).is_some_and(|text| text.parse::<i64>().is_ok()))
}

impl Token<'_> {
    fn is_zero(&self) -> bool {
        self.int == "0" && self.frac.bytes().all(|digit| digit == b'0')
    }
}

fn length(digits: &str) -> i64 {
    length_of(digits.len())
}

fn length_of(digits: usize) -> i64 {
    i64::try_from(digits).unwrap_or(EXPONENT_CAP)
}

/// Appends `coefficient × 10^trailing_zeros`, its last `scale` digits after the point.
pub(super) fn plain(out: &mut String, negative: bool, coefficient: &str, trailing_zeros: i64, scale: i64) {
    let scale = usize::try_from(scale).unwrap_or(0);
    let trailing_zeros = usize::try_from(trailing_zeros).unwrap_or(0);
    if negative {
        out.push('-');
    }
    let int_len = coefficient.len().saturating_sub(scale);
    let (int, frac) = coefficient.split_at_checked(int_len).unwrap_or((coefficient, ""));
    out.push_str(if int.is_empty() { "0" } else { int });
    zeros(out, trailing_zeros);
    if scale > 0 {
        out.push('.');
        zeros(out, scale.saturating_sub(frac.len()));
        out.push_str(frac);
    }
}

fn zeros(out: &mut String, count: usize) {
    out.extend(std::iter::repeat_n('0', count));
}

/// A number in canonical spelling, seen as a sign, the power of ten of its first digit, and its digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Magnitude<'a> {
    pub(super) negative: bool,
    pub(super) zero: bool,
    pub(super) leading: i64,
    int: &'a str,
    frac: &'a str,
}

impl<'a> Magnitude<'a> {
    pub(super) fn of(canonical: &'a str) -> Self {
        let (negative, unsigned) = match canonical.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, canonical),
        };
        let (int, frac) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let int = int.trim_start_matches('0');
        let leading_zeros = frac.len() - frac.trim_start_matches('0').len();
        let zero = int.is_empty() && leading_zeros == frac.len();
        let leading = if int.is_empty() { -length_of(leading_zeros) - 1 } else { length(int) - 1 };
        Self { negative: negative && !zero, zero, leading, int, frac }
    }

    /// The digits from the first that is not zero; trailing zeros included.
    pub(super) fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.int.bytes().chain(self.frac.bytes()).skip_while(|digit| *digit == b'0')
    }

    /// How many digits are after the point.
    pub(super) fn scale(&self) -> usize {
        self.frac.len()
    }

    fn cmp_unsigned(&self, other: &Self) -> Ordering {
        // A zero has no leading digit, so it is told apart before leading digits are compared.
        match (self.zero, other.zero) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        self.leading.cmp(&other.leading).then_with(|| {
            let (mut left, mut right) = (self.digits(), other.digits());
            loop {
                match (left.next(), right.next()) {
                    (None, None) => return Ordering::Equal,
                    (left, right) => {
                        let order = left.unwrap_or(b'0').cmp(&right.unwrap_or(b'0'));
                        if order.is_ne() {
                            return order;
                        }
                    }
                }
            }
        })
    }

    /// Compares by numeric value.
    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_unsigned(other),
            (true, true) => other.cmp_unsigned(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spell(text: &str) -> Result<String, Reason> {
        let token = read(text).unwrap();
        assert_eq!(token.text, text, "the whole text is the number");
        let mut out = String::new();
        let small = canonical(&token, &mut out)?;
        assert_eq!(small, out.parse::<i64>().is_ok(), "{text} -> {out}");
        // A canonical spelling is a fixed point.
        let mut again = String::new();
        canonical(&read(&out).unwrap(), &mut again)?;
        assert_eq!(again, out);
        Ok(out)
    }

    #[test]
    fn scale_is_kept_and_exponents_are_expanded() {
        for (written, canonical) in [
            ("0", "0"),
            ("1.10", "1.10"),
            ("6.67000", "6.67000"),
            ("1E2", "100"),
            ("1e+2", "100"),
            ("1.50E1", "15.0"),
            ("1.50E2", "150"),
            ("1.5E3", "1500"),
            ("-12.5e-3", "-0.0125"),
            ("100e-2", "1.00"),
            ("0.05", "0.05"),
            ("0.05e1", "0.5"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "9223372036854775808"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("-9223372036854775809", "-9223372036854775809"),
            ("92233720368547758070e-1", "9223372036854775807.0"),
        ] {
            assert_eq!(spell(written).as_deref(), Ok(canonical), "{written}");
        }
    }

    #[test]
    fn zeros_lose_their_sign_and_keep_a_sane_scale() {
        for (written, canonical) in [
            ("-0", "0"),
            ("-0.0", "0.0"),
            ("-0e5", "0"),
            ("0e400", "0"),
            ("0.00", "0.00"),
            ("0.0e1", "0"),
            ("0e-3", "0.000"),
            ("-0.00E-1", "0.000"),
            ("0e99999999999999999999999", "0"),
        ] {
            assert_eq!(spell(written).as_deref(), Ok(canonical), "{written}");
        }
        assert_eq!(spell("0e-99999999999999999999").unwrap().len(), 2 + 6176);
        assert_eq!(spell(&format!("0.{}", "0".repeat(7_000))).unwrap().len(), 2 + 6176);
    }

    #[test]
    fn at_most_34_significant_digits() {
        let thirty_four = "1".repeat(34);
        assert_eq!(spell(&thirty_four).as_deref(), Ok(thirty_four.as_str()));
        assert_eq!(spell(&"1".repeat(35)), Err(Reason::TooManyDigits { digits: 35 }));
        assert_eq!(spell("-10000000000000000000000000000000001"), Err(Reason::TooManyDigits { digits: 35 }));
        // 35 digits ending in zero: an integer stays as it is, a fraction loses just enough zeros.
        let padded = format!("{thirty_four}0");
        assert_eq!(spell(&padded).as_deref(), Ok(padded.as_str()));
        let fraction = format!("1.{}", "0".repeat(34));
        assert_eq!(spell(&fraction).as_deref(), Ok(&*format!("1.{}", "0".repeat(33))));
        let fraction = format!("1{}.00", "0".repeat(40));
        assert_eq!(spell(&fraction).as_deref(), Ok(&*format!("1{}", "0".repeat(40))));
        assert_eq!(spell(&format!("1{}.5", "0".repeat(33))), Err(Reason::TooManyDigits { digits: 35 }));
        assert_eq!(spell(&format!("0.{}", "3".repeat(40))), Err(Reason::TooManyDigits { digits: 40 }));
        // Leading zeros of a fraction are not significant.
        let small = format!("0.{}{thirty_four}", "0".repeat(50));
        assert_eq!(spell(&small).as_deref(), Ok(small.as_str()));
    }

    #[test]
    fn range_is_that_of_decimal128() {
        assert_eq!(spell("1e6144").unwrap().len(), 6145);
        assert_eq!(spell("1e6145"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell("9.999999999999999999999999999999999e6144").unwrap().len(), 6145);
        assert_eq!(spell("10e6144"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell("1e-6176").unwrap().len(), 2 + 6176);
        assert_eq!(spell("1e-6177"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell("10e-6177").unwrap(), spell("1e-6176").unwrap());
        assert_eq!(spell("1.5e-6176"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell("1e99999999999999999999"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell("1e-99999999999999999999"), Err(Reason::ExponentOutOfRange));
        assert_eq!(spell(&format!("1{}", "0".repeat(7_000))), Err(Reason::ExponentOutOfRange));
    }

    #[test]
    fn grammar_is_that_of_json() {
        for (text, at) in [
            ("", 0),
            ("-", 1),
            ("+1", 0),
            (".5", 0),
            ("1.", 2),
            ("1.e5", 2),
            ("01", 0),
            ("-01", 1),
            ("1e", 2),
            ("1e+", 3),
        ] {
            assert_eq!(read(text).unwrap_err().0, at, "{text}");
        }
        assert_eq!(read("12,3").unwrap().text, "12");
    }

    #[test]
    fn comparison_is_by_value() {
        let ascending = [
            "-1000",
            "-10.5",
            "-10.49",
            "-0.001",
            "0",
            "0.0009",
            "0.001",
            "9",
            "9.99",
            "10",
            "10.000001",
            "100",
        ];
        for (i, left) in ascending.iter().enumerate() {
            for (j, right) in ascending.iter().enumerate() {
                assert_eq!(Magnitude::of(left).cmp(&Magnitude::of(right)), i.cmp(&j), "{left} {right}");
            }
        }
        for (left, right) in [("1.10", "1.1"), ("0", "0.000"), ("100", "100.00"), ("-0.50", "-0.5")] {
            assert_eq!(Magnitude::of(left).cmp(&Magnitude::of(right)), Ordering::Equal);
        }
    }
}
