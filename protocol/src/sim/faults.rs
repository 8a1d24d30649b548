//! Faults of a network and the dice that choose among them; the live link's fault injection uses them too.

use std::str::FromStr;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use thiserror::Error;

/// How often each fault happens, as a probability per frame.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Faults {
    /// The frame never arrives.
    pub loss: f64,
    /// The frame arrives twice.
    pub dup: f64,
    /// The frame arrives after later ones.
    pub reorder: f64,
    /// One bit of the frame is flipped.
    pub corrupt: f64,
    /// The seed of the dice.
    pub seed: u64,
}

/// Why a fault plan was not understood.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ParseFaultsError {
    /// Not of the form `name=value`.
    #[error("'{0}' is not of the form name=value")]
    Form(String),
    /// No such fault.
    #[error("unknown fault '{0}': known are loss, dup, reorder, corrupt, seed")]
    Name(String),
    /// Not a probability.
    #[error("{0}={1}: a probability lies between 0 and 1")]
    Probability(String, String),
    /// Not a seed.
    #[error("seed={0}: a seed is a whole number")]
    Seed(String),
    /// Named twice.
    #[error("'{0}' is given twice")]
    Twice(String),
}

impl FromStr for Faults {
    type Err = ParseFaultsError;

    /// Reads `loss=0.01,dup=0.01,reorder=0.01,corrupt=0.001,seed=7`; what is not named does not happen.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut faults = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| ParseFaultsError::Form(part.into()))?;
            if seen.contains(&name) {
                return Err(ParseFaultsError::Twice(name.into()));
            }
            seen.push(name);
            match name {
                "loss" => faults.loss = probability(name, value)?,
                "dup" => faults.dup = probability(name, value)?,
                "reorder" => faults.reorder = probability(name, value)?,
                "corrupt" => faults.corrupt = probability(name, value)?,
                "seed" => faults.seed = value.parse().map_err(|_| ParseFaultsError::Seed(value.into()))?,
                _ => return Err(ParseFaultsError::Name(name.into())),
            }
        }
        Ok(faults)
    }
}

fn probability(name: &str, value: &str) -> Result<f64, ParseFaultsError> {
    let parsed = value.parse().ok().filter(|p: &f64| (0.0..=1.0).contains(p));
    parsed.ok_or_else(|| ParseFaultsError::Probability(name.into(), value.into()))
}

/// What happens to one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It is lost.
    Lose,
    /// It passes twice.
    Duplicate,
    /// It is held back until this many later frames have passed.
    Hold(u8),
    /// The bit with this index, taken modulo the frame's length, is flipped.
    Corrupt(u32),
}

/// The dice.
#[derive(Clone, Debug)]
pub struct FaultInjector {
    faults: Faults,
    dice: StdRng,
}

impl FaultInjector {
    /// Dice for a plan; `stream` sets apart several injectors of one plan.
    pub fn new(faults: Faults, stream: u64) -> Self {
        let seed = faults.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { faults, dice: StdRng::seed_from_u64(seed) }
    }

    /// Throws for the next frame.
    pub fn throw(&mut self) -> Verdict {
        let mut point: f64 = self.dice.random();
        for (probability, fault) in [
            (self.faults.loss, Verdict::Lose),
            (self.faults.dup, Verdict::Duplicate),
            (self.faults.reorder, Verdict::Hold(0)),
            (self.faults.corrupt, Verdict::Corrupt(0)),
        ] {
            if point < probability {
                return match fault {
                    Verdict::Hold(_) => Verdict::Hold(self.dice.random_range(1..=8)),
                    Verdict::Corrupt(_) => Verdict::Corrupt(self.dice.random()),
                    other => other,
                };
            }
            point -= probability;
        }
        Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_refused_by_name() {
        let plan: Faults = "loss=0.01,seed=7".parse().expect("a good plan");
        assert_eq!(plan, Faults { loss: 0.01, seed: 7, ..Faults::default() });
        let refusal = |text: &str| text.parse::<Faults>().expect_err(text).to_string();
        assert_eq!(refusal("loss"), "'loss' is not of the form name=value");
        assert_eq!(refusal("los=1"), "unknown fault 'los': known are loss, dup, reorder, corrupt, seed");
        assert_eq!(refusal("dup=1.5"), "dup=1.5: a probability lies between 0 and 1");
        assert_eq!(refusal("dup=NaN"), "dup=NaN: a probability lies between 0 and 1");
        assert_eq!(refusal("seed=-1"), "seed=-1: a seed is a whole number");
        assert_eq!(refusal("dup=0.1,dup=0.2"), "'dup' is given twice");
    }

    #[test]
    fn each_fault_comes_as_often_as_asked() {
        let faults = Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.1, seed: 1 };
        let mut injector = FaultInjector::new(faults, 0);
        let passed = (0..10_000).filter(|_| injector.throw() == Verdict::Pass).count();
        assert!((5700..6300).contains(&passed), "{passed}");
    }
}
