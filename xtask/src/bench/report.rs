//! Tables and pictures of a bench.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::scene::{Kind, Member, POLICIES, STEPS, Scene};
use super::settling::{self, Settling};
use super::{directory, keep};
use crate::lab::{Record, mean};
use crate::picture::{Line, Panel, draw};
use crate::vm;

/// One run of one policy.
pub struct Run {
    pub policy: usize,
    pub record: Record,
}

/// Everything that was measured so far.
pub struct Results<'a> {
    pub scene: &'a Scene,
    pub step_secs: u32,
    pub swap: &'a str,
    pub kernel: &'a str,
    pub memory_mib: u32,
    pub runs: Vec<Run>,
}

/// One member in one step: means over its second half.
#[derive(Clone, Copy)]
struct Felt {
    /// Part of its set in memory.
    resident: f64,
    /// The same in MiB, beside what it was promised.
    of_promise: f64,
    /// Part of the wanted touches that were made.
    pace: f64,
    /// Latency of a touch, in microseconds.
    p50_us: f64,
    p99_us: f64,
    /// Working-set pages that came back since before the pressure.
    refaults: u64,
}

impl Felt {
    fn of(record: &Record, member: &Member, step: usize) -> Felt {
        let name = member.name;
        let of = || select(record, name, step);
        let set = mean(of(), "set_mib").max(1.0);
        let at = |step: usize, field: &str| -> u64 {
            let step = step.to_string();
            let wanted = [("of", name), ("step", step.as_str())];
            record.select(&wanted).next().and_then(|v| v[field].as_u64()).unwrap_or(0)
        };
        let held = if member.kind == Kind::Files {
            at(step, "cached_mib") as f64
        } else {
            mean(of(), "resident_mib")
        };
        Felt {
            resident: held / set,
            of_promise: held / f64::from(member.promise.max(1)),
            pace: mean(of(), "pace"),
            p50_us: mean(of(), "p50_us"),
            p99_us: mean(of(), "p99_us"),
            refaults: at(step, "refaults").saturating_sub(at(0, "refaults")),
        }
    }
}

fn select<'a>(record: &'a Record, name: &str, step: usize) -> impl Iterator<Item = &'a Value> {
    record.data.iter().filter(move |v| {
        v["name"].as_str() == Some(name) && v["step"].as_u64() == Some(step as u64)
    })
}

/// Two members that are compared.
type Pair = [&'static Member; 2];

/// Both of a pair in a step.
fn felt(pair: Pair, run: &Run, step: usize) -> [Felt; 2] {
    pair.map(|member| Felt::of(&run.record, member, step))
}

fn names([a, b]: Pair) -> String {
    format!("{} / {}", a.name, b.name)
}

/// Standard deviation of a sample; 0 for fewer than two.
fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// Largest standard deviation over runs, of either of a pair in any step.
fn spread(pair: Pair, runs: &[&Run], of: fn(&Felt) -> f64) -> f64 {
    let at = |which: usize, step: usize| {
        let values: Vec<f64> = runs.iter().map(|r| of(&felt(pair, r, step)[which])).collect();
        deviation(&values)
    };
    largest((0..2).flat_map(|which| (1..=STEPS).map(move |step| at(which, step))))
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::MIN, f64::max)
}

impl Results<'_> {
    /// Writes report and picture of what was measured so far.
    pub fn write(&self) -> Result<()> {
        let memory = self.memory_mib.to_string();
        let usual_memory = vm::MEMORY_MIB.to_string();
        let unusual = [(self.swap, "disk"), (self.kernel, vm::RELEASE), (&memory, &usual_memory)];
        let unusual = unusual.iter().filter(|(is, usual)| is != usual).map(|(is, _)| *is);
        let parts: Vec<&str> = ["memory", self.scene.name].into_iter().chain(unusual).collect();
        let name = parts.join("-");
        keep(&format!("{name}.md"), &self.report()?)?;
        self.picture(&directory().join(format!("{name}.svg")))
    }

    fn of(&self, policy: usize) -> Vec<&Run> {
        self.runs.iter().filter(|r| r.policy == policy).collect()
    }

    /// Policies that were measured, each with its runs.
    fn measured(&self) -> impl Iterator<Item = (&'static str, Vec<&Run>)> {
        let all = POLICIES.iter().enumerate().map(|(i, p)| (p.name, self.of(i)));
        all.filter(|(_, runs)| !runs.is_empty())
    }

    /// The pairs that are compared.
    fn pairs(&self) -> impl Iterator<Item = [&'static Member; 2]> {
        self.scene.members.chunks_exact(2).map(|pair| [&pair[0], &pair[1]])
    }

    /// Policies that were measured, each with each pair.
    fn compared(&self) -> impl Iterator<Item = (&'static str, Pair, Vec<&Run>)> {
        let pairs: Vec<Pair> = self.pairs().collect();
        self.measured().flat_map(move |(name, runs)| {
            pairs.clone().into_iter().map(move |pair| (name, pair, runs.clone()))
        })
    }

    pub fn report(&self) -> Result<String> {
        let mut out = String::new();
        writeln!(
            out,
            "{}. Kernel of {}, {} MiB, swap: {}. Steps of {} s; means over the second half of each; every run is shown.\n",
            self.scene.about, self.kernel, self.memory_mib, self.swap, self.step_secs
        )?;
        let step = self.scene.pressure.label();
        writeln!(
            out,
            "| policy | run | {step} | of | resident, of the set | of what was promised | pace | p50 µs | p99 µs | refaults | outside MiB | host stalls, some / full % | swapped in / out in the step, MiB |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for (name, pair, runs) in self.compared() {
            for (n, run) in runs.into_iter().enumerate() {
                let line = |s| self.line(&mut out, &format!("{name} | {}", n + 1), (pair, run), s);
                (1..=STEPS).try_for_each(line)?;
            }
        }
        self.verdicts(&mut out)?;
        self.totals(&mut out)?;
        self.counters(&mut out)?;
        self.settling(&mut out)?;
        Ok(out)
    }

    fn line(
        &self,
        out: &mut String,
        start: &str,
        (pair, run): (Pair, &Run),
        step: usize,
    ) -> Result<()> {
        let [a, b] = felt(pair, run, step);
        let outside = mean(select(&run.record, "pressure", step), "resident_mib");
        let host = |step: usize, field: &str| mean(select(&run.record, "host", step), field);
        // Pages of 4 KiB.
        let swapped = |field: &str| (host(step, field) - host(step - 1, field)) / 256.0;
        writeln!(
            out,
            "| {start} | {} | {} | {:.3} / {:.3} | {:.2} / {:.2} | {:.2} / {:.2} | {:.0} / {:.0} | {:.0} / {:.0} | {} / {} | {outside:.0} | {:.1} / {:.1} | {:.0} / {:.0} |",
            self.scene.pressure.steps()[step - 1],
            names(pair),
            a.resident,
            b.resident,
            a.of_promise,
            b.of_promise,
            a.pace,
            b.pace,
            a.p50_us,
            b.p50_us,
            a.p99_us,
            b.p99_us,
            a.refaults,
            b.refaults,
            host(step, "some_pct"),
            host(step, "full_pct"),
            swapped("swapped_in"),
            swapped("swapped_out")
        )?;
        Ok(())
    }

    /// The figures that the goals are about, worst over all runs and steps.
    fn verdicts(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "\n| policy | of | largest difference of resident parts | largest difference of slowdowns | least (pace of the second - of the first) | least pace of the second | largest deviation over runs of a resident part | of a pace |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|")?;
        for (name, pair, runs) in self.compared() {
            let all: Vec<[Felt; 2]> =
                runs.iter().flat_map(|r| (1..=STEPS).map(|s| felt(pair, r, s))).collect();
            let most = |f: fn(&[Felt; 2]) -> f64| largest(all.iter().map(f));
            let spread = |f: fn(&Felt) -> f64| spread(pair, &runs, f);
            writeln!(
                out,
                "| {name} | {} | {:.3} | {:.2} | {:+.2} | {:.2} | {:.3} | {:.2} |",
                names(pair),
                most(|[a, b]| (a.resident - b.resident).abs()),
                most(|[a, b]| (a.pace - b.pace).abs()),
                -most(|[a, b]| a.pace - b.pace),
                -most(|[_, b]| -b.pace),
                spread(|f| f.resident),
                spread(|f| f.pace),
            )?;
        }
        Ok(())
    }

    /// The mean of the paces of all in a step of some runs, each as `weight` says of its wanted touches and what it felt.
    fn pace(&self, runs: &[&Run], step: usize, weight: fn(f64, &Felt) -> f64) -> f64 {
        let each = runs.iter().flat_map(|run| self.scene.members.iter().map(move |m| (run, m)));
        let wanted = |m: &Member| f64::from(m.mib * m.rate);
        let all: Vec<_> =
            each.map(|(run, m)| (wanted(m), Felt::of(&run.record, m, step))).collect();
        let weights: f64 = all.iter().map(|(wanted, felt)| weight(*wanted, felt)).sum();
        let made: f64 = all.iter().map(|(wanted, felt)| weight(*wanted, felt) * felt.pace).sum();
        if weights > 0.0 { made / weights } else { 1.0 }
    }

    /// Touches made by all, as a part of those wanted: each step, and against the best policy.
    fn totals(&self, out: &mut String) -> Result<()> {
        let of_steps = |runs: &[&Run], weight| -> Vec<f64> {
            (1..=STEPS).map(|step| self.pace(runs, step, weight)).collect()
        };
        let total = |runs: &[&Run]| of_steps(runs, |wanted, _| wanted);
        // Hogs touch at random, so what they read back is by what is missing. With the same bytes missing and as much read, all
        // would do this if they were slowed down alike. Where one is hotter it depends on whose bytes are missing.
        let first = &self.scene.members[0];
        let is_even =
            self.scene.members.iter().all(|m| m.kind != Kind::Redis && m.rate == first.rate);
        let alike = |runs: &[&Run]| match is_even {
            true => of_steps(runs, |wanted, f| wanted * (1.0 - f.resident).max(0.0)),
            false => Vec::new(),
        };
        let rows: Vec<_> =
            self.measured().map(|(name, runs)| (name, total(&runs), alike(&runs))).collect();
        let best = |s: usize| largest(rows.iter().map(|(_, totals, _)| totals[s]));
        let shown = |steps: &[f64]| -> String {
            steps.iter().map(|t| format!("{t:.2}")).collect::<Vec<_>>().join(" ")
        };
        writeln!(
            out,
            "\n| policy | throughput of all, of what is wanted, at each step | mean | least part of the best policy's at a step | if all slowed down alike, with as many bytes missing and as much read back |"
        )?;
        writeln!(out, "|---|---|---|---|---|")?;
        for (name, totals, alike) in &rows {
            let least = -largest(totals.iter().enumerate().map(|(s, t)| -t / best(s).max(1e-9)));
            let mean = totals.iter().sum::<f64>() / STEPS as f64;
            writeln!(
                out,
                "| {name} | {} | {mean:.2} | {least:.2} | {} |",
                shown(totals),
                shown(alike)
            )?;
        }
        Ok(())
    }

    fn counters(&self, out: &mut String) -> Result<()> {
        writeln!(
            out,
            "\n| policy | run | pages by kswapd | by direct reclaim | swapped in | swapped out | ctlmgrd CPU s | docker ps after the last step, ms |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|")?;
        for (name, runs) in self.measured() {
            for (n, run) in runs.into_iter().enumerate() {
                let count = |counter| run.record.counter(counter).unwrap_or(0);
                let vm = ["pgsteal_kswapd", "pgsteal_direct", "pswpin", "pswpout"];
                let vm: Vec<String> = vm.iter().map(|c| count(c).to_string()).collect();
                let cpu = count("ctlmgr_cpu_nsec") / 1_000_000_000;
                let docker_ps = run.record.counter("docker_ps_msec");
                let docker_ps = docker_ps.map_or("no answer".to_owned(), |ms| ms.to_string());
                writeln!(out, "| {name} | {} | {} | {cpu} | {docker_ps} |", n + 1, vm.join(" | "))?;
            }
        }
        Ok(())
    }

    /// Of those who write protections: how soon they stand still after each step.
    fn settling(&self, out: &mut String) -> Result<()> {
        let mut rows = String::new();
        for (name, runs) in self.measured() {
            for (n, run) in runs.into_iter().enumerate() {
                let steps = settling::of(&run.record);
                if steps.iter().all(|s| s.writes == 0) {
                    continue;
                }
                let shown = |s: &Settling| {
                    let Settling { writes, last_secs, last_of, hard_secs, turns, .. } = s;
                    let hard_secs = hard_secs.unwrap_or_default();
                    format!("{writes} / {last_secs:.1} {last_of} / {hard_secs:.1} / {turns}")
                };
                let shown: Vec<String> = steps.iter().map(shown).collect();
                writeln!(rows, "| {name} | {} | {} |", n + 1, shown.join(", "))?;
            }
        }
        if !rows.is_empty() {
            writeln!(
                out,
                "\n| policy | run | after each step: writes of memory.low and memory.min / the last of a memory.low of more than 5 %, s, and whose / of a memory.min / most turns of one knob, memory.high among them, in ten seconds |\n|---|---|---|\n{rows}"
            )?;
        }
        Ok(())
    }

    fn picture(&self, path: &Path) -> Result<()> {
        let steps = self.scene.pressure.steps();
        let panels: Vec<Panel> = self
            .compared()
            .map(|(name, pair, runs)| {
                let line = |which: usize, field: fn(&Felt) -> f64, label: &str| {
                    let at = |s: usize| {
                        let sum: f64 = runs.iter().map(|r| field(&felt(pair, r, s)[which])).sum();
                        (f64::from(steps[s - 1]), sum / runs.len() as f64 * 100.0)
                    };
                    let points = (1..=STEPS).map(at).collect();
                    Line { name: format!("{} {label}", pair[which].name), points }
                };
                Panel {
                    title: match self.scene.members.len() {
                        2 => name.to_owned(),
                        _ => format!("{name}: {}", names(pair)),
                    },
                    unit: "per cent".to_owned(),
                    x: self.scene.pressure.label().to_owned(),
                    lines: vec![
                        line(0, |f| f.resident, "resident"),
                        line(1, |f| f.resident, "resident"),
                        line(0, |f| f.pace, "pace"),
                        line(1, |f| f.pace, "pace"),
                    ],
                    marks: Vec::new(),
                    top: 110.0,
                }
            })
            .collect();
        draw(path, &format!("{}: means over runs", self.scene.about), &panels, 2)
    }
}
