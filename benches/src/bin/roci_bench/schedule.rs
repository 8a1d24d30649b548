//! Rounds over all cells, until the time is up.
//!
//! Every round runs every cell once, so that what disturbs the machine for a while disturbs all of them.

use std::time::{Duration, Instant};

use crate::failure::CellFailure;
use crate::plan::Cell;
use crate::reading::Topology;
use crate::results::Results;
use crate::runner::{self, Printed};
use crate::stage::{RunSetup, find, free_port, word};

/// More rounds say nothing new.
const MOST_ROUNDS: usize = 15;
/// A cell that fails so often in a row is given up.
const MOST_FAILURES: usize = 2;

const INTERRUPTED: &str = "the run was interrupted";

/// The outcome of a cell of the schedule.
#[derive(Clone, Debug)]
pub(crate) struct CellOutcome {
    pub(crate) name: String,
    pub(crate) place: Topology,
    /// What a reader types to do the same.
    pub(crate) line: String,
    /// Rounds that gave figures.
    pub(crate) rounds: usize,
    /// Why there are none, or fewer.
    pub(crate) trouble: Option<String>,
    /// How long it took the last time.
    took: Duration,
    failures: usize,
}

impl CellOutcome {
    /// What became of a cell of so many rounds.
    pub(crate) fn new(name: &str, place: Topology, line: &str, rounds: usize, trouble: Option<&str>) -> Self {
        let (name, line, trouble) = (name.to_owned(), line.to_owned(), trouble.map(str::to_owned));
        Self { name, place, line, rounds, trouble, took: Duration::ZERO, failures: 0 }
    }

    fn is_over(&self, most_rounds: usize) -> bool {
        self.failures >= MOST_FAILURES || self.rounds >= most_rounds
    }

    fn fail(&mut self, trouble: String) {
        self.trouble = Some(trouble);
        self.failures += 1;
    }

    /// A round without it is no loss where there were others, and whatever failed before is the better reason.
    fn lacks(&mut self, why: &str) {
        if self.rounds == 0 {
            self.trouble.get_or_insert_with(|| why.to_owned());
        }
    }
}

/// Who looks on.
pub(crate) trait Audience {
    /// What is done, and what fails.
    fn hear(&mut self, text: &str);

    /// Whether the run is to end early.
    fn is_leaving(&self) -> bool {
        false
    }

    /// All that there is after a round.
    fn round_ended(&mut self, _results: &Results, _outcomes: &[CellOutcome]) {}
}

impl<F: FnMut(&str)> Audience for F {
    fn hear(&mut self, text: &str) {
        self(text);
    }
}

/// Runs the cells, and says what it does.
pub(crate) fn run(
    cells: &[Cell],
    stage: &RunSetup,
    budget: Duration,
    audience: &mut impl Audience,
) -> (Results, Vec<CellOutcome>) {
    let begun = Instant::now();
    let mut results = Results::default();
    let mut outcomes: Vec<CellOutcome> = cells.iter().map(|cell| outcome(cell, stage)).collect();
    for round in 1..=MOST_ROUNDS {
        let left = budget.saturating_sub(begun.elapsed());
        let expected: Duration = due(cells, &mut outcomes).map(|(_, outcome)| outcome.took).sum();
        if round > 1 && (expected > left || expected.is_zero()) {
            break;
        }
        for (cell, outcome) in due(cells, &mut outcomes) {
            let left = budget.saturating_sub(begun.elapsed());
            if let Some(why) = why_over(left, audience) {
                outcome.lacks(why);
                continue;
            }
            audience.hear(&format!("round {round}: {}", outcome.name));
            match run_cell(cell, outcome, stage, round, left, &mut results) {
                Ok(()) => (outcome.rounds, outcome.failures) = (outcome.rounds + 1, 0),
                Err(_) if audience.is_leaving() => outcome.lacks(INTERRUPTED),
                // A round that is not whole is no loss where there were others.
                Err(_) if left < cell.patience && outcome.rounds > 0 => {}
                Err(trouble) => {
                    audience.hear(&format!("round {round}: {}: {trouble}", outcome.name));
                    outcome.fail(trouble.to_string());
                }
            }
        }
        if audience.is_leaving() {
            break;
        }
        audience.round_ended(&results, &outcomes);
    }
    (results, outcomes)
}

/// Why nothing more is begun.
fn why_over(left: Duration, audience: &impl Audience) -> Option<&'static str> {
    if audience.is_leaving() { Some(INTERRUPTED) } else { left.is_zero().then_some("the time was up") }
}

/// The cells that go on.
fn due<'a>(
    cells: &'a [Cell],
    outcomes: &'a mut [CellOutcome],
) -> impl Iterator<Item = (&'a Cell, &'a mut CellOutcome)> {
    cells.iter().zip(outcomes).filter(|(cell, outcome)| !outcome.is_over(cell.most_rounds))
}

/// A cell that cannot run here is over before it begins.
fn outcome(cell: &Cell, stage: &RunSetup) -> CellOutcome {
    let lines = cell.tool.lines(stage, cell.place, "PORT");
    let line = stage.show(cell.place, &lines);
    let trouble = obstacle(cell, stage);
    let failures = if trouble.is_some() { MOST_FAILURES } else { 0 };
    CellOutcome { failures, ..CellOutcome::new(&cell.name(), cell.place, &line, 0, trouble.as_deref()) }
}

fn obstacle(cell: &Cell, stage: &RunSetup) -> Option<String> {
    if cell.place.is_between_namespaces()
        && let Err(why) = stage.namespaces_of(cell.place)
    {
        return Some(why.to_string());
    }
    if let (Topology::Guests, Err(why)) = (cell.place, &stage.lab) {
        return Some(why.clone());
    }
    let missing = |need: &crate::tools::Need| find(&word(&need.program)).is_none();
    let need = cell.tool.needs(stage).into_iter().find(missing)?;
    let program = need.program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Some(format!("{program} is not installed: {}", need.remedy))
}

fn run_cell(
    cell: &Cell,
    outcome: &mut CellOutcome,
    stage: &RunSetup,
    round: usize,
    left: Duration,
    results: &mut Results,
) -> Result<(), CellFailure> {
    let begun = Instant::now();
    let readings = free_port().and_then(|port| {
        let lines = cell.tool.lines(stage, cell.place, &port.to_string());
        let Printed { stdout, failure } = runner::run(stage, cell.place, &lines, port, cell.patience.min(left))?;
        match failure.filter(|_| !cell.tool.excuses(&stdout)) {
            Some(failure) => Err(failure),
            None => Ok(cell.tool.parse(&stdout)?),
        }
    });
    outcome.took = begun.elapsed();
    for reading in readings? {
        results.add_of(&outcome.name, round, cell.place, reading);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandLine, Lines, Side};
    use crate::failure::NoReadings;
    use crate::reading::{Metric, Point, Reading};
    use crate::tools::{Need, Tool};

    /// Prints a number, or fails.
    struct Shell {
        script: &'static str,
        need: &'static str,
    }

    impl Tool for Shell {
        fn needs(&self, _stage: &RunSetup) -> Vec<Need> {
            vec![Need::package(self.need, "some-package")]
        }

        fn lines(&self, _stage: &RunSetup, _place: Topology, _port: &str) -> Lines {
            Lines::alone(CommandLine::new(Side::Both, ["sh", "-c", self.script]))
        }

        fn parse(&self, stdout: &str) -> Result<Vec<Reading>, NoReadings> {
            let value = stdout.trim().parse().map_err(|_| NoReadings::OddRow(stdout.into()))?;
            Ok(vec![Reading::new("shell", Metric::Latency, Point::Size(1), value)])
        }
    }

    fn cell(script: &'static str, need: &'static str, place: Topology, most_rounds: usize) -> Cell {
        let tool = Box::new(Shell { script, need });
        Cell { group: "test", label: script.to_owned(), place, tool, patience: Duration::from_mins(1), most_rounds }
    }

    #[test]
    fn every_round_runs_every_cell_that_works_and_the_others_say_why_not() {
        let cells = [
            cell("echo 1", "sh", Topology::Host, usize::MAX),
            cell("echo 2", "sh", Topology::Host, 2),
            cell("exit 7", "sh", Topology::Host, usize::MAX),
            cell("echo x", "sh", Topology::Host, usize::MAX),
            cell("echo 3", "no-such-program", Topology::Host, usize::MAX),
            cell("echo 4", "sh", Topology::Veth, usize::MAX),
            cell("echo 5", "sh", Topology::Guests, usize::MAX),
        ];
        let mut said = Vec::new();
        let (results, outcomes) =
            run(&cells, &RunSetup::bare(), Duration::from_mins(10), &mut |text: &str| said.push(text.to_owned()));
        let rounds: Vec<_> = outcomes.iter().map(|outcome| outcome.rounds).collect();
        assert_eq!(rounds, [MOST_ROUNDS, 2, 0, 0, 0, 0, 0], "{outcomes:?}");
        let trouble = |which: usize| outcomes[which].trouble.as_deref().unwrap_or_default();
        assert_eq!(trouble(0), "");
        assert_eq!(trouble(2), "ended with exit status: 7: said nothing");
        assert_eq!(trouble(3), "an odd row: x\n");
        assert_eq!(trouble(4), "no-such-program is not installed: apt-get install some-package");
        assert_eq!((trouble(5), trouble(6)), ("needs root", "no lab"));
        let failing = said.iter().filter(|text| text.contains("exit 7:")).count();
        assert_eq!(failing, MOST_FAILURES, "given up: {said:?}");
        assert_eq!(results.keys().count(), 1);
    }

    #[test]
    fn a_run_ends_in_its_time_whatever_hangs() {
        let cells = [cell("echo 1", "sh", Topology::Host, 9), cell("sleep 600", "sh", Topology::Host, 9)];
        let begun = Instant::now();
        let (_, outcomes) = run(&cells, &RunSetup::bare(), Duration::from_secs(10), &mut |_: &str| ());
        assert!(begun.elapsed() < Duration::from_secs(50), "patience alone is a minute: {:?}", begun.elapsed());
        assert_eq!(outcomes[0].rounds, 1);
        let trouble = outcomes[1].trouble.as_deref().unwrap_or_default();
        assert!(trouble.contains("was killed"), "{trouble}");
    }

    #[test]
    fn no_time_is_a_reason() {
        let cells = [cell("echo 1", "sh", Topology::Host, usize::MAX)];
        let (results, outcomes) = run(&cells, &RunSetup::bare(), Duration::ZERO, &mut |_: &str| ());
        assert_eq!(results.keys().count(), 0);
        assert_eq!(outcomes[0].trouble.as_deref(), Some("the time was up"));
    }

    /// Leaves when the so-many-th command begins.
    struct Guest {
        stays_for: usize,
        received: usize,
        rounds: Vec<usize>,
    }

    impl Audience for Guest {
        fn hear(&mut self, _text: &str) {
            self.received += 1;
        }

        fn is_leaving(&self) -> bool {
            self.received >= self.stays_for
        }

        fn round_ended(&mut self, _results: &Results, outcomes: &[CellOutcome]) {
            self.rounds.push(outcomes.iter().map(|outcome| outcome.rounds).sum());
        }
    }

    #[test]
    fn an_interruption_keeps_what_was_measured_and_is_no_failure() {
        let cells = ["echo 1", "echo 2", "exit 7"].map(|script| cell(script, "sh", Topology::Host, usize::MAX));
        let watched = |stays_for| {
            let mut guest = Guest { stays_for, received: 0, rounds: Vec::new() };
            let (results, outcomes) = run(&cells, &RunSetup::bare(), Duration::from_mins(10), &mut guest);
            let rounds: Vec<_> = outcomes.iter().map(|outcome| outcome.rounds).collect();
            let troubles: Vec<_> = outcomes.into_iter().map(|outcome| outcome.trouble).collect();
            (results.keys().count(), rounds, troubles, guest.rounds)
        };
        let interrupted = || Some(INTERRUPTED.to_owned());
        assert_eq!(watched(0), (0, vec![0, 0, 0], vec![interrupted(), interrupted(), interrupted()], vec![]));
        assert_eq!(watched(1), (1, vec![1, 0, 0], vec![None, interrupted(), interrupted()], vec![]));
        assert_eq!(watched(3), (1, vec![1, 1, 0], vec![None, None, interrupted()], vec![]), "it failed meanwhile");
        let failed = Some("ended with exit status: 7: said nothing".to_owned());
        assert_eq!(watched(5), (1, vec![2, 1, 0], vec![None, None, failed], vec![2]));
    }
}
