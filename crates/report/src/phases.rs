//! Phases of the run: what each touched for the first time, held, and used.

use std::io::{self, Write};

use lowtide_model::bottom_line::PhaseUse;
use lowtide_model::phase::PhaseKind;
use serde::Serialize;

use super::text::{Grid, figure, whole_bytes};
use super::{Missing, Report, TABLES, View, pretty};

pub(super) const VIEW: View = View {
    name: "phases",
    help: "Start-up, growth and steady phases, with the memory of each",
    title: "Phases",
    meaning: "During start-up and growth memory is accessed for the first time; other phases are steady. Used: the working \
              set in that window of time, mean of the phase's readings that do not overlap.",
    formats: TABLES,
    damo: false,
    optional: true,
    make: |data, _| {
        let phases = data.summary().answer.phases;
        if phases.is_empty() {
            return Err(Missing::Other("this record is too short for phases".to_owned()));
        }
        Ok(Box::new(Phases { phases }))
    },
};

/// The view.
#[derive(Debug, PartialEq, Serialize)]
struct Phases {
    phases: Vec<PhaseUse>,
}

fn kind(phase: &PhaseUse) -> &'static str {
    match phase.phase.kind {
        PhaseKind::StartUp => "start-up",
        PhaseKind::Growth => "growth",
        PhaseKind::Steady => "steady",
    }
}

impl Report for Phases {
    fn grids(&self) -> Vec<Grid> {
        let head = ["phase", "from", "to", "resident", "first touched", "used", "window", "readings"];
        let row = |phase: &PhaseUse| {
            let used = &phase.used;
            [
                kind(phase).to_owned(),
                figure(Some(phase.phase.from_s), 1, " s"),
                figure(Some(phase.phase.to_s), 1, " s"),
                whole_bytes(phase.resident_bytes),
                whole_bytes(phase.first_touched_bytes),
                whole_bytes(used.used_bytes),
                figure(used.window_s.map(f64::from), 0, " s"),
                used.readings.to_string(),
            ]
        };
        vec![Grid::of("", &head, self.phases.iter().map(row))]
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        pretty(self, out)
    }

    fn csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record([
            "phase",
            "from_s",
            "to_s",
            "resident_bytes",
            "first_touched_bytes",
            "used_bytes",
            "window_s",
            "readings",
        ])?;
        for phase in &self.phases {
            csv.serialize((
                kind(phase),
                phase.phase.from_s,
                phase.phase.to_s,
                phase.resident_bytes,
                phase.first_touched_bytes,
                phase.used.used_bytes,
                phase.used.window_s,
                phase.used.readings,
            ))?;
        }
        csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use lowtide_model::bottom_line::Use;
    use lowtide_model::phase::Phase;

    use super::*;

    #[test]
    fn a_row_for_each_phase_in_every_format() {
        let phase = |kind, from_s, to_s, used: Option<u64>| PhaseUse {
            phase: Phase { kind, from_s, to_s },
            resident_bytes: Some(64 << 20),
            first_touched_bytes: Some(0),
            used: Use { used_bytes: used, window_s: used.map(|_| 10), readings: 3, ..Use::default() },
        };
        let view = Phases {
            phases: vec![phase(PhaseKind::StartUp, 0.0, 4.5, None), phase(PhaseKind::Steady, 4.5, 60.0, Some(8 << 20))],
        };
        let mut csv = Vec::new();
        view.csv(&mut csv).unwrap();
        let lines: Vec<String> = String::from_utf8(csv).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines[1..], ["start-up,0.0,4.5,67108864,0,,,3", "steady,4.5,60.0,67108864,0,8388608,10,3"]);
        let mut json = Vec::new();
        view.json(&mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(
            (&json["phases"][0]["kind"], &json["phases"][1]["used_bytes"]),
            (&"start-up".into(), &(8 << 20).into())
        );
        let text = view.grids()[0].text(super::super::Terminal::default());
        assert!(text.contains("8.00 MiB") && text.contains("4.5 s"), "{text}");
    }
}
