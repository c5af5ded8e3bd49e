//! The ctlmgr command.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match ctlmgr::run(ctlmgr::Cli::parse()) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("ctlmgr: {failure}");
            if failure.status == 3 {
                eprintln!("Is it running? Try: systemctl start ctlmgr");
            }
            ExitCode::from(failure.status)
        }
    }
}
