//! How fast the processor is now.

use std::hint::black_box;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};

use crate::worker::Random;

/// Some milliseconds of an emulated processor.
const ROUNDS: u32 = 100_000;

/// Processor time that the same arithmetic takes this thread, in microseconds.
pub fn work_us() -> Result<f64> {
    let now = || {
        let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        used.map(std::time::Duration::from).context("failed to read this thread's clock")
    };
    let began = now()?;
    let mut random = Random::new(1);
    for _ in 0..ROUNDS {
        black_box(random.next());
    }
    Ok((now()? - began).as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        assert!(work_us().unwrap() > 0.0);
    }
}
