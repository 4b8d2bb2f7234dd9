//! Randomness that can be had again.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
};

/// The environment variable that sets the seed.
pub(crate) const VARIABLE: &str = "WOW_STORE_SEED";

/// Where all randomness of a test comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seed(u64);

impl Seed {
    /// The seed of a test: the same in every run, unless the environment says otherwise.
    pub(crate) fn from_env() -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok("random") => Self(RandomState::new().hash_one(0)),
            Ok(seed) => {
                Self(seed.parse().unwrap_or_else(|_| panic!("{VARIABLE}={seed}: a number, or `random`")))
            }
            Err(_) => Self(1),
        }
    }

    /// A seed that was written down.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A seed made of this one, for the part of a test that has this number.
    pub(crate) fn part(self, number: u64) -> Self {
        let mut dice = Dice::new(self);
        Self(dice.next().wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    /// As many bytes as random number generators want.
    pub(crate) fn bytes(self) -> [u8; 32] {
        let mut dice = Dice::new(self);
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&dice.next().to_le_bytes());
        }
        bytes
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A small random number generator (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: Seed) -> Self {
        Self(seed.0)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Yes in so many of a hundred throws.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// One of these.
    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let count = u64::try_from(choices.len()).expect("a count");
        &choices[usize::try_from(self.below(count)).expect("an index")]
    }
}
