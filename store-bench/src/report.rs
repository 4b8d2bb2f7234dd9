//! What comes out: a table for each leg, and one line for each goal.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets::NOTHING};

/// How a value has to stand to its goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    AtLeast,
    Above,
    AtMost,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtLeast => ">=",
            Self::Above => ">",
            Self::AtMost => "<=",
        })
    }
}

/// A goal and how it came out.
#[derive(Debug)]
pub(crate) struct Goal {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) op: Op,
    pub(crate) goal: f64,
}

impl Goal {
    pub(crate) fn is_met(&self) -> bool {
        match self.op {
            Op::AtLeast => self.value >= self.goal,
            Op::Above => self.value > self.goal,
            Op::AtMost => self.value <= self.goal,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cut, not rounded: what is printed as 0.80 is 0.80.
        let shown = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") };
        let outcome = if self.is_met() { "ok" } else { "SHORT" };
        write!(f, "ratio {} {} {} {} {outcome}", self.name, shown(self.value), self.op, shown(self.goal))
    }
}

/// All goals of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    goals: Vec<Goal>,
    notes: Vec<String>,
}

impl Report {
    /// Takes in a goal, and prints its line.
    pub(crate) fn goal(&mut self, name: &'static str, value: f64, op: Op, goal: f64) {
        let goal = Goal { name, value, op, goal };
        println!("{goal}");
        self.goals.push(goal);
    }

    /// Something that could not be measured: said here and again at the end.
    pub(crate) fn note(&mut self, note: String) {
        println!("{note}");
        self.notes.push(note);
    }

    pub(crate) fn is_short(&self) -> bool {
        self.goals.iter().any(|goal| !goal.is_met())
    }

    /// Prints all lines together.
    pub(crate) fn print(&self) {
        println!();
        for goal in &self.goals {
            println!("{goal}");
        }
        for note in &self.notes {
            println!("{note}");
        }
    }
}

/// A table: the first column to the left, figures to the right.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A count with its thousands set apart.
pub(crate) fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_line_has_the_agreed_form() {
        let goal = Goal { name: "bare-64", value: 0.8, op: Op::AtLeast, goal: 0.8 };
        assert_eq!(goal.to_string(), "ratio bare-64 0.80 >= 0.80 ok");
        let goal = Goal { name: "rate", value: 50_000.0, op: Op::Above, goal: 50_000.0 };
        assert_eq!(goal.to_string(), "ratio rate 50000 > 50000 SHORT");
        let goal = Goal { name: "lone", value: 1.31, op: Op::AtMost, goal: 1.3 };
        assert_eq!(goal.to_string(), "ratio lone 1.31 <= 1.30 SHORT");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(count(7.0), "7");
        assert_eq!(count(1234.4), "1,234");
        assert_eq!(count(1_000_000.0), "1,000,000");
    }
}
