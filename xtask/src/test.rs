//! `cargo xtask test`: everything that must hold, on a machine that has only
//! Rust, a C compiler and Python.
//!
//! Each step passes, fails, or is left out with the reason; all of them run,
//! and only a failure makes the exit code non-zero. Everything is compiled
//! once, by the step `build`; what waits for nothing else runs beside it.

mod binaries;
mod emulated;
mod notebooks;
mod outcome;
mod plan;
mod steps;
mod times;

pub use emulated::ensure_target;

use crate::{environment::ALL, files, tools::succeed, workspace::target};
use outcome::StepOutcome;
use plan::{STEPS, Step};
use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::Instant,
};
use times::Times;

/// A child says here what became of its step.
const REPORT: &str = "TRINITY_STEP_REPORT";

/// Runs every step, or those that are named; `--all` runs the slow tests, too.
pub fn run(options: &[&str]) -> Result<(), String> {
    let (modes, names): (Vec<&str>, Vec<&str>) = options.iter().partition(|word| word.starts_with("--"));
    if let Some(unknown) = modes.iter().find(|mode| !["--all", "--plan"].contains(mode)) {
        return Err(format!("no option is called `{unknown}`; --all runs what is slow, --plan runs nothing"));
    }
    // By the environment, which tests see too.
    if modes.contains(&"--all") && env::var_os(ALL).is_none() {
        let this = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        return succeed(Command::new(this).arg("test").args(options).env(ALL, "1"));
    }
    let chosen = plan::choose(&names)?;
    let mut times = Times::read();
    if let ([step], Some(report)) = (&chosen[..], env::var_os(REPORT)) {
        // In a process of its own, whose words go to a log.
        return files::write(Path::new(&report), (step.run)().written());
    }
    eprint!("{}", plan::printed(&chosen, &times));
    if modes.contains(&"--plan") {
        return Ok(());
    }
    let start = Instant::now();
    let done = match &chosen[..] {
        // With its words on the terminal as it says them.
        [step] => vec![(*step, (step.run)(), start.elapsed().as_secs())],
        _ => all_of(&chosen, &times)?,
    };
    let seconds = start.elapsed().as_secs();
    for (step, outcome, seconds) in &done {
        if *outcome == StepOutcome::Passed {
            times.keep(step.name, *seconds);
        }
    }
    if names.is_empty() && done.iter().all(|(_, outcome, _)| !matches!(outcome, StepOutcome::Failed(_))) {
        times.keep(times::WHOLE, seconds);
    }
    times.write();
    summary(&done, seconds)
}

/// A step, what became of it, and its seconds.
type Done = (&'static Step, StepOutcome, u64);

/// Runs steps two at a time, each when those it waits for are done.
fn all_of(chosen: &[&'static Step], times: &Times) -> Result<Vec<Done>, String> {
    let logs = target().join("xtask");
    files::folder(&logs)?;
    let queue = Mutex::new(Queue { waiting: chosen.to_vec(), running: Vec::new(), done: Vec::new() });
    let changed = Condvar::new();
    // Compilers and tests have threads of their own; a second worker fills what single-threaded steps leave.
    let workers = thread::available_parallelism().map_or(1, |cores| cores.get().min(2));
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| work(&queue, &changed, &logs, times));
        }
    });
    let mut done = queue.into_inner().unwrap_or_else(PoisonError::into_inner).done;
    done.sort_by_key(|(step, ..)| STEPS.iter().position(|own| own.name == step.name));
    Ok(done)
}

struct Queue {
    waiting: Vec<&'static Step>,
    running: Vec<&'static str>,
    done: Vec<Done>,
}

impl Queue {
    /// The first step that waits for nothing any more.
    fn next(&mut self) -> Option<&'static Step> {
        let unfinished: Vec<&str> =
            self.waiting.iter().map(|step| step.name).chain(self.running.iter().copied()).collect();
        let ready = |step: &&'static Step| step.after.iter().all(|name| !unfinished.contains(name));
        let at = self.waiting.iter().position(ready)?;
        let step = self.waiting.remove(at);
        self.running.push(step.name);
        Some(step)
    }

    /// Why this step is left out: one that it cannot do without did not pass.
    fn lacks(&self, step: &Step) -> Option<String> {
        let needed = step.after.iter().filter(|name| plan::NEEDED.contains(name));
        let mut done = needed.filter_map(|name| self.done.iter().find(|(own, ..)| own.name == *name));
        done.find_map(|(own, outcome, _)| match outcome {
            StepOutcome::Passed => None,
            StepOutcome::Failed(_) => Some(format!("`{}` failed", own.name)),
            StepOutcome::LeftOut(why) => Some(why.clone()),
        })
    }
}

fn work(queue: &Mutex<Queue>, changed: &Condvar, logs: &Path, times: &Times) {
    let mut held = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(step) = held.next() else {
            if held.waiting.is_empty() {
                return;
            }
            held = changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let lacks = held.lacks(step);
        drop(held);
        let start = Instant::now();
        let outcome = match lacks {
            Some(why) => StepOutcome::LeftOut(why),
            None => {
                let before =
                    times.of(step.name).map_or(String::new(), |seconds| format!(" (last {seconds} s)"));
                eprintln!("── {}{before}", step.name);
                apart(step, logs)
            }
        };
        let seconds = start.elapsed().as_secs();
        eprintln!("   {:<12} {seconds:>4} s  {}", step.name, outcome.written());
        held = queue.lock().unwrap_or_else(PoisonError::into_inner);
        held.running.retain(|name| *name != step.name);
        held.done.push((step, outcome, seconds));
        changed.notify_all();
    }
}

/// Runs a step in a process of its own; what it says is kept, and shown where it fails.
fn apart(step: &Step, logs: &Path) -> StepOutcome {
    let (log, report) =
        (logs.join(format!("{}.log", step.name)), logs.join(format!("{}.outcome", step.name)));
    let _ = fs::remove_file(&report);
    let ran = || -> std::io::Result<std::process::ExitStatus> {
        let out = fs::File::create(&log)?;
        let mut child = Command::new(env::current_exe()?);
        child.args(["test", step.name]).env(REPORT, &report).stdin(Stdio::null());
        child.stdout(out.try_clone()?).stderr(out).status()
    };
    let status = match ran() {
        Ok(status) => status,
        Err(error) => return StepOutcome::Failed(format!("cannot run the step: {error}")),
    };
    let said = fs::read_to_string(&report).ok().and_then(|line| StepOutcome::read(line.trim()));
    let outcome = said.unwrap_or_else(|| StepOutcome::Failed(format!("it ended with {status}")));
    if matches!(outcome, StepOutcome::Failed(_)) {
        eprint!("{}", String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()));
    }
    outcome
}

fn summary(done: &[Done], seconds: u64) -> Result<(), String> {
    eprintln!("──");
    for (step, outcome, seconds) in done {
        eprintln!("{:<12} {seconds:>4} s  {}", step.name, outcome.written());
        if matches!(outcome, StepOutcome::Failed(_)) {
            eprintln!("{:<20} again alone: cargo xtask test {}", "", step.name);
        }
    }
    eprintln!("{:<12} {seconds:>4} s  what each step said is in target/xtask/STEP.log", "all");
    let failed: Vec<&str> = done
        .iter()
        .filter(|(_, outcome, _)| matches!(outcome, StepOutcome::Failed(_)))
        .map(|(step, ..)| step.name)
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_starts_when_those_it_waits_for_are_done() {
        let named = |name| STEPS.iter().find(|step| step.name == name).unwrap();
        let (build, tests) = (named("build"), named("tests"));
        let mut queue = Queue { waiting: vec![tests, build], running: Vec::new(), done: Vec::new() };
        assert_eq!(queue.next().map(|step| step.name), Some("build"));
        assert!(queue.next().is_none(), "the tests began before they were built");
        queue.running.clear();
        queue.done.push((build, StepOutcome::Failed("x".into()), 0));
        assert_eq!(queue.next().map(|step| step.name), Some("tests"));
        assert_eq!(queue.lacks(tests).as_deref(), Some("`build` failed"));
    }
}
