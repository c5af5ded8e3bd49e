//! Memory of the machine changes under us.

use anyhow::{Context, Result, ensure};
use ctlmgr_live::{Balloon, Container, Ctlmgr, eventually, install_hog, sh, status};

const MIB: u64 = 1 << 20;
const SET_MIB: u64 = 500;
/// Looks, one a second while memory is short, after which shares have settled but for what each feels.
const SETTLED: u64 = 10;

/// What protects two containers, look after look.
struct Shares<'a> {
    ctlmgr: &'a Ctlmgr,
    heavy: Container,
    light: Container,
}

impl Shares<'_> {
    fn now(&self) -> Result<[u64; 2]> {
        Ok([self.heavy.knob("memory.low")? / MIB, self.light.knob("memory.low")? / MIB])
    }

    /// `total` is all memory of the machine, `capacity` what there is to share out.
    fn account_mib(&self, of: &str) -> Result<u64> {
        Ok(self.ctlmgr.plan()?["account"][of].as_u64().unwrap_or(0) / MIB)
    }

    fn looks(&self) -> Result<u64> {
        Ok(self.ctlmgr.status()?["counters"]["cycles"].as_u64().unwrap_or(0))
    }

    /// All values that the share of the light one had, and what of it is hard, until so many looks are over.
    fn follow(&self, looks: u64) -> Result<[Vec<u64>; 2]> {
        let from = self.looks()?;
        let [mut shares, mut hard] = [Vec::new(), Vec::new()];
        eventually("so many looks are over", || {
            shares.push(self.now()?[1]);
            hard.push(self.light.knob("memory.min")? / MIB);
            Ok(self.looks()? >= from + looks)
        })?;
        Ok([shares, hard])
    }

    /// Fails if they do not follow a machine from which something takes much, and gives it back when it is dropped.
    fn expect_followed<T>(&self, take: impl FnOnce() -> Result<T>) -> Result<()> {
        let have_all = || Ok(self.now()?.iter().all(|low| *low > SET_MIB - 20));
        eventually("both have their share", have_all)?;
        let before = self.account_mib("total")?;
        let taken = take()?;
        let mut last = before;
        eventually("it has what it wants, or all that it can have now", || {
            let now = self.account_mib("total")?;
            Ok(now + 600 < before && std::mem::replace(&mut last, now) == now)
        })?;
        let [settling, hard] = self.follow(SETTLED)?;
        let [settled, _] = self.follow(SETTLED)?;
        let [heavy, light] = self.now()?;
        let seen = format!(
            "{settling:?}, hard {hard:?}; {settled:?}; {}",
            sh("ctlmgr memory top; ctlmgr why light")?
        );
        ensure!(heavy > SET_MIB - 20 && light < SET_MIB - 50, "the light one gives: {seen}");
        ensure!(heavy + light <= self.account_mib("capacity")?, "{seen}");
        ensure!(turns(&settling) <= 2 && turns(&hard) <= 2, "{seen}");
        let is_heeded = self.ctlmgr.plan()?["heeding"]["is_heeded"] == true;
        ensure!(is_heeded || hard.iter().any(|mib| *mib > 50), "{seen}");
        // What each feels goes on to correct it.
        ensure!(settled.iter().all(|low| low.abs_diff(light) <= SET_MIB / 10), "{seen}");
        drop(taken);
        eventually("all of it is back", || Ok(self.account_mib("total")? >= before))?;
        eventually("both have their share again", have_all)
    }
}

/// How often a value turned round, by more than what it breathes.
fn turns(seen: &[u64]) -> usize {
    let mut kept: Vec<u64> = Vec::new();
    for value in seen {
        if kept.last().is_none_or(|last| last.abs_diff(*value) > SET_MIB / 25) {
            kept.push(*value);
        }
    }
    let ways: Vec<bool> = kept.windows(2).map(|pair| pair[1] > pair[0]).collect();
    ways.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

/// Blocks of memory that the kernel has given up, as before they are unplugged; all are back when this is dropped.
struct Unplugged;

impl Unplugged {
    /// Leaves no more than this, less than a block below it. The kernel refuses blocks that hold what it cannot move just now.
    fn leave(mib: u64) -> Result<Unplugged> {
        let unplugged = Unplugged;
        let is_left = || {
            Ok(sh("awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo")?.parse::<u64>()?
                <= mib)
        };
        let blocks = sh("cd /sys/devices/system/memory; ls -d memory[0-9]* | sort -rV")?;
        eventually("so much of it is given up", || {
            for block in blocks.lines() {
                if is_left()? {
                    return Ok(true);
                }
                let state = format!("/sys/devices/system/memory/{block}/state");
                status(&format!("timeout 20 sh -c 'echo offline >{state}'"))?;
            }
            is_left()
        })?;
        Ok(unplugged)
    }
}

impl Drop for Unplugged {
    fn drop(&mut self) {
        let _ = sh(
            "for state in $(grep -l offline /sys/devices/system/memory/*/state); do echo online >$state; done",
        );
    }
}

#[test]
fn shares_follow_memory_that_goes_and_comes() -> Result<()> {
    install_hog()?;
    let ctlmgr = Ctlmgr::start("act")?;
    let start = |name: &str, weight: u32| {
        let arguments = format!(
            "--memory-reservation {SET_MIB}m --label ctlmgr.weight={weight} \
             lab-hog /hog --size {SET_MIB} --rate 5 --threads 2"
        );
        Container::run(name, &arguments)
    };
    let shares =
        Shares { ctlmgr: &ctlmgr, heavy: start("heavy", 400)?, light: start("light", 100)? };
    shares.expect_followed(|| Balloon::leave(1200)).context("a balloon")?;
    shares.expect_followed(|| Unplugged::leave(1200)).context("blocks that are unplugged")?;
    let Shares { heavy, light, .. } = shares;
    drop((heavy, light));
    ctlmgr.stop_and_expect_pristine()
}
