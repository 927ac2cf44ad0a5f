//! In which order runs are made: in rounds, so that slow changes of the machine meet all alike, and at random within one.

use lowtide_model::random::Random;

/// One run to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRun {
    /// Which program.
    pub program: usize,
    /// In which configuration.
    pub config: usize,
    /// In which round; the first is the warm-up, and has one configuration only.
    pub round: u32,
}

/// All runs: a warm-up of each program (round 0), then as many rounds as were asked for. A program's configurations come
/// one after the other, so that what is compared lies close together.
#[must_use]
pub fn order(programs: usize, configs: usize, rounds: u32, seed: u64) -> Vec<PlannedRun> {
    let mut random = Random::new(seed);
    let mut turns: Vec<PlannedRun> = (0..programs).map(|program| PlannedRun { program, config: 0, round: 0 }).collect();
    for round in 1..=rounds {
        let mut of_round: Vec<usize> = (0..programs).collect();
        random.shuffle(&mut of_round);
        for program in of_round {
            let mut of_program: Vec<usize> = (0..configs).collect();
            random.shuffle(&mut of_program);
            turns.extend(of_program.into_iter().map(|config| PlannedRun { program, config, round }));
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_run_is_made_once(programs in 1usize..6, configs in 1usize..6, rounds in 0u32..5, seed: u64) {
            let turns = order(programs, configs, rounds, seed);
            prop_assert_eq!(turns.len(), programs + programs * configs * rounds as usize);
            for round in 1..=rounds {
                for program in 0..programs {
                    let mut found: Vec<usize> = turns
                        .iter()
                        .filter(|turn| turn.round == round && turn.program == program)
                        .map(|turn| turn.config)
                        .collect();
                    found.sort_unstable();
                    prop_assert_eq!(found, (0..configs).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(order(programs, configs, rounds, seed), turns);
        }
    }
}
