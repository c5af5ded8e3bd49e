//! `cargo xtask`: set-up, demo, tests, benches, guest, packages. See README.md.

mod bench;
mod demo;
mod dist;
mod fresh;
mod lab;
mod man;
mod picture;
mod record;
mod sh;
mod test;
mod tidy;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    about = "Set-up, demo, tests, benches, guest and packages of ctlmgr."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Do all set-up and run the main job in the guest: containers, pressure, observe against act.
    Demo(demo::Arguments),
    /// Do all set-up and run every test.
    Test(test::Arguments),
    /// Measure in the guest, side by side in one run.
    Bench(bench::Arguments),
    /// Run hosts in the guest and keep what ctlmgr saw and decided, for the tests that decide it again.
    Record(record::Arguments),
    /// The guest: a real kernel, systemd and dockerd under QEMU.
    Vm(vm::Arguments),
    /// Check sizes, crate edges and lints.
    Tidy,
    /// Write man pages, completions and the configuration reference from their sources.
    Man {
        /// Only say whether the committed ones are up to date.
        #[arg(long)]
        check: bool,
    },
    /// Build the .deb into target/dist.
    Dist,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    std::env::set_current_dir(sh::root())?;
    let done = match command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
        Command::Vm(arguments) => return vm::run(arguments).map(ExitCode::from),
        Command::Tidy => tidy::run(),
        Command::Man { check } => man::run(check),
        Command::Dist => dist::run().map(|path| println!("{}", path.display())),
    };
    done.map(|()| ExitCode::SUCCESS)
}
