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
}
