//! The guest: a real kernel, systemd and dockerd in QEMU.
//!
//! The image is built once and cached outside the repository, by a hash of what goes into it. A
//! machine of each shape is booted once; its state with dockerd up is saved and restored in
//! seconds for every run, on disposable overlays.

mod agent;
mod disk_model;
mod image;
mod json_socket;
mod machine;
mod saved;
mod shape;

use std::io::{BufRead, Write};
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;

pub use disk_model::Costs;
pub use machine::{Machine, OFTEN, SELDOM};
pub use saved::{Guests, prepare_image, restore, restore_with_disk};
pub use shape::{MEMORY_MIB, RELEASE, Shape};

use crate::{fresh, sh};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the image and save the state of a booted machine.
    Build(Shape),
    /// Run a shell command in a fresh guest; its output and exit status become ours.
    Run {
        #[command(flatten)]
        shape: Shape,
        /// Seconds that the command may take.
        #[arg(long, default_value_t = 600)]
        timeout: u64,
        /// Memory that a balloon leaves to the guest, in MiB.
        #[arg(long)]
        balloon: Option<u64>,
        /// Files to put into /run/in of the guest.
        #[arg(long)]
        put: Vec<std::path::PathBuf>,
        /// The command.
        command: String,
    },
    /// Read commands from standard input and run them in one guest.
    Shell(Shape),
    /// Print the console of the last guest.
    Log,
    /// Remove images and saved states.
    Clean,
}

/// Runs `cargo xtask vm`; returns the exit status.
pub fn run(arguments: Arguments) -> Result<u8> {
    let done = match arguments.command {
        Command::Build(shape) => {
            fresh::ensure_guest_tools()?;
            saved::prepare(&shape)
        }
        Command::Run { shape, timeout, balloon, put, command } => {
            fresh::ensure_guest_tools()?;
            let mut machine = restore(&shape, &put)?;
            balloon.map_or(Ok(()), |mib| machine.balloon(mib))?;
            let status = machine.run(&command, Duration::from_secs(timeout))?;
            return Ok(u8::try_from(status).unwrap_or(u8::MAX));
        }
        Command::Shell(shape) => shell(&shape),
        Command::Log => {
            print!("{}", String::from_utf8_lossy(&std::fs::read(saved::last_console()?)?));
            Ok(())
        }
        Command::Clean => {
            sh::run(&mut sh::privileged(&["rm", "-rf", &image::cache()?.to_string_lossy()]))
        }
    };
    done.map(|()| 0)
}

fn shell(shape: &Shape) -> Result<()> {
    fresh::ensure_guest_tools()?;
    let mut machine = restore(shape, &[])?;
    sh::say("type commands; end with Ctrl-D");
    loop {
        eprint!("guest# ");
        std::io::stderr().flush()?;
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        if let status @ 1.. = machine.run(line.trim(), Duration::from_secs(3600))? {
            eprintln!("[status {status}]");
        }
    }
}
