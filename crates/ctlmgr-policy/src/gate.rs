//! The gate: which of the containers that want to start may start now.
//!
//! # Problem
//! Containers that start together fight for the disk: some pairs ruin each other, others do not
//! (Bhimani et al., §5). Online nobody knows who will come next, and whoever waits has a client that
//! gives up sooner or later.
//!
//! # Approach
//! Those that start now are the batch of the paper; a start joins it if the penalty that it adds (Eq. 2)
//! and the capacities allow, and it leaves when it is over ([`is_settled`]). Later ones may overtake
//! one that does not fit; it still starts when its longest wait is over.
//!
//! # Terms
//! *Penalty*: what two characters cost each other ([`penalty`]), in hundredths. *Share*: to take from each other
//! only what each then has ([`Traits::shares`]); who does not share fights. *Behind*: those for whom a start waits.
//!
//! # Algorithm
//! In the order of weight, then of arrival, each is admitted if its longest wait is over (zero for
//! class critical) or the operator let it go; or else if nobody holds the gate, none of those that it
//! is to come after waits or starts (unless they wait for it in a circle), and either nobody starts, or
//! there is room for one more, the host is not under pressure that those who start do not explain, those that it
//! fights cost no more than `most_penalty` and all together no more than `most_sharing`, and processors and page cache
//! allow. Whoever is admitted counts for those after it.
//!
//! # Properties
//! Nobody waits longer than its longest wait, whatever depends on whom. Somebody always starts while
//! the gate is not held. Nobody waits because of something unknown. The result depends neither on the
//! order of the lists nor on anything but the arguments.

mod conflict;
mod lesson;
mod penalties;
mod settled;

use std::collections::BTreeSet;

use ctlmgr_model::{Bytes, Character, Millis, StartSettings, Weight};

pub use conflict::{Mix, Traits, Use};
pub use lesson::{
    busy_milli, classify, is_quiet, learn, learn_alone, learn_running, per_sec, traits,
};
pub use penalties::{Penalties, Slowdown};
pub use settled::{ENDED, NOT_STARTED, Progress, is_settled, is_whole};

/// Number of a start, given by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A start that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which one.
    pub ticket: Ticket,
    /// Name of the container.
    pub name: String,
    /// What it will do.
    pub traits: Traits,
    /// Heavier ones come first.
    pub weight: Weight,
    /// When it came.
    pub since: Millis,
    /// Its longest wait.
    pub longest: Millis,
    /// Containers whose start it is to come after.
    pub after: Vec<String>,
    /// Whether the operator let it go.
    pub is_released: bool,
}

/// A start under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starting {
    /// Name of the container.
    pub name: String,
    /// What it does.
    pub traits: Traits,
}

/// The machine, as far as starts care.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ground {
    /// Part of the last 10 s in which all tasks waited for the disk, in per cent.
    pub io_full_pct: Option<f32>,
    /// The same when the first of those that start now began: what others do to the disk.
    pub io_full_before_pct: Option<f32>,
    /// The same for memory.
    pub memory_full_pct: Option<f32>,
    /// Processors, in thousandths.
    pub cpu_milli: Option<u64>,
    /// Page cache and free memory.
    pub cache: Option<Bytes>,
}

/// Everything that deciding depends on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Queue {
    /// Who waits.
    pub waiting: Vec<Waiting>,
    /// Who starts.
    pub starting: Vec<Starting>,
    /// What characters cost each other.
    pub penalties: Penalties,
    /// The machine.
    pub ground: Ground,
    /// Whether the operator holds everybody.
    pub is_held: bool,
}

/// What becomes of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Which start.
    pub ticket: Ticket,
    /// Whether it may start now.
    pub may_start: bool,
    /// Why, for people.
    pub reason: String,
    /// For whom it waits.
    pub behind: Vec<String>,
}

/// What two characters cost each other when they start together, in hundredths: the paper's S with its
/// guidelines (§5) as prior. Sequential beside random of the same direction ruins one of them; like
/// beside like costs a little, reads beside writes nothing. What a host has learned is in [`Penalties`].
pub fn penalty(a: Character, b: Character) -> u32 {
    use Character::{Cpu, Mixed, Quiet, RandomRead, RandomWrite, SequentialRead, SequentialWrite};
    match (a.min(b), a.max(b)) {
        (Cpu | Quiet, _) | (_, Cpu | Quiet) => 0,
        (RandomRead, SequentialRead) | (RandomWrite, SequentialWrite) => 200,
        (Mixed, _) | (_, Mixed) => 100,
        (RandomRead, RandomRead) => 50,
        (a, b) if a == b => 100,
        _ => 0,
    }
}

/// Decides about everybody who waits, in the order in which they were looked at.
pub fn admit(settings: &StartSettings, queue: &Queue, now: Millis) -> Vec<Admission> {
    let mut order: Vec<&Waiting> = queue.waiting.iter().collect();
    order.sort_by_key(|w| (std::cmp::Reverse(w.weight), w.since, w.ticket));
    let mut starting = queue.starting.clone();
    let mut left: BTreeSet<Ticket> = order.iter().map(|w| w.ticket).collect();
    order
        .into_iter()
        .map(|w| {
            let look = Look { settings, queue, starting: &starting, left: &left, now };
            let verdict = look.at(w);
            let may_start = verdict.is_ok();
            if may_start {
                left.remove(&w.ticket);
                starting.push(Starting { name: w.name.clone(), traits: w.traits });
            }
            let (reason, behind) = verdict.map_or_else(|e| e, |reason| (reason, Vec::new()));
            Admission { ticket: w.ticket, may_start, reason, behind }
        })
        .collect()
}

/// What is known while one of them is looked at.
struct Look<'a> {
    settings: &'a StartSettings,
    queue: &'a Queue,
    starting: &'a [Starting],
    /// Those that are not admitted.
    left: &'a BTreeSet<Ticket>,
    now: Millis,
}

/// Why it starts, or why not and behind whom.
type Verdict = Result<String, (String, Vec<String>)>;

impl Look<'_> {
    fn at(&self, w: &Waiting) -> Verdict {
        let waited = self.now.since(w.since);
        if w.longest == Millis(0) {
            return Ok("its class never waits".to_owned());
        }
        if waited >= w.longest {
            return Ok(format!("waited its longest time of {} s", w.longest.0 / 1000));
        }
        if w.is_released {
            return Ok("let go by the operator".to_owned());
        }
        if self.queue.is_held {
            return Err(("the operator holds all starts".to_owned(), Vec::new()));
        }
        self.comes_in_order(w)?;
        if self.starting.is_empty() {
            return Ok("nobody else starts".to_owned());
        }
        self.has_room(w)?;
        self.is_calm(w)?;
        self.suits(w)
    }

    /// Whether none of those that it is to come after waits or starts.
    fn comes_in_order(&self, w: &Waiting) -> Result<(), (String, Vec<String>)> {
        let is_before = |name: &&String| {
            let starts = self.starting.iter().any(|s| s.name == **name);
            let other = self.left().find(|o| o.name == **name && o.ticket != w.ticket);
            starts || other.is_some_and(|o| !self.waits_for(o, w))
        };
        let before: Vec<String> = w.after.iter().filter(is_before).cloned().collect();
        match before.is_empty() {
            true => Ok(()),
            false => Err((format!("is to start after {}", before.join(", ")), before)),
        }
    }

    fn left(&self) -> impl Iterator<Item = &Waiting> {
        self.queue.waiting.iter().filter(|o| self.left.contains(&o.ticket))
    }

    /// Whether `from` is to come after `to`, through however many others that wait.
    fn waits_for(&self, from: &Waiting, to: &Waiting) -> bool {
        let (mut seen, mut open) = (BTreeSet::from([from.ticket]), vec![from]);
        while let Some(w) = open.pop() {
            for other in self.left().filter(|o| w.after.contains(&o.name)) {
                if other.ticket == to.ticket {
                    return true;
                }
                if seen.insert(other.ticket) {
                    open.push(other);
                }
            }
        }
        false
    }

    fn has_room(&self, w: &Waiting) -> Result<(), (String, Vec<String>)> {
        let counts = |t: &Traits| t.character != Some(Character::Quiet);
        let busy = self.starting.iter().filter(|s| counts(&s.traits)).count();
        let most = usize::try_from(self.settings.max_together).unwrap_or(usize::MAX);
        match counts(&w.traits) && busy >= most {
            true => {
                Err((format!("{busy} start now, no more than {most} may"), self.names(|_| true)))
            }
            false => Ok(()),
        }
    }

    /// Whether the machine has not too much to do already. One start that uses the disk makes everything wait
    /// for it for most of the time, where nothing else happens: what it costs others to join it is what
    /// penalties are for, and pressure since then tells nothing. Where everything waited for the disk before, starts go one
    /// after the other.
    fn is_calm(&self, w: &Waiting) -> Result<(), (String, Vec<String>)> {
        let ground = &self.queue.ground;
        let is_explained = self.starting.iter().any(|s| s.traits.may_use_disk());
        // What there was before them they do not explain either.
        let io = if is_explained { ground.io_full_before_pct } else { ground.io_full_pct };
        // What is unknown holds nobody up for what was before.
        let counts = w.traits.may_use_disk() && (w.traits.character.is_some() || !is_explained);
        let io = io.filter(|_| counts);
        let limits = [
            ("the disk", io, self.settings.io_full),
            ("memory", ground.memory_full_pct, self.settings.memory_full),
        ];
        for (what, pct, most) in limits {
            if let Some(pct) = pct.filter(|p| *p > f32::from(most.0)) {
                let text = format!("everything waits for {what} {pct:.0} % of the time");
                return Err((text, self.names(|_| true)));
            }
        }
        Ok(())
    }

    /// Whether penalty, processors and page cache allow one more.
    fn suits(&self, w: &Waiting) -> Verdict {
        self.gets_on(w)?;
        self.fits(w)?;
        match w.traits.character {
            Some(character) => Ok(format!("{character} suits those that start now")),
            None => Ok("nothing is known of its starts yet".to_owned()),
        }
    }

    /// Whether it ruins nobody, and shares with few enough. Who only shares is as soon done in company as one
    /// after the other, but each alone takes longer.
    fn gets_on(&self, w: &Waiting) -> Result<(), (String, Vec<String>)> {
        let penalties = &self.queue.penalties;
        let added = |s: &Starting| w.traits.conflict(&s.traits, penalties);
        let fights = |s: &Starting| !w.traits.shares(&s.traits, penalties);
        let is_within = |most: u32, is_meant: &dyn Fn(&Starting) -> bool| {
            let meant = self.starting.iter().filter(|s| is_meant(s));
            let cost = meant.map(added).fold(0, u32::saturating_add);
            if cost <= most {
                return Ok(());
            }
            let character = w.traits.character.unwrap_or(Character::Mixed);
            let (cost, most) = (hundredths(cost), hundredths(most));
            let text = format!("{character} beside those costs {cost}, more than {most}");
            Err((text, self.names(|s| is_meant(s) && added(s) > 0)))
        };
        let StartSettings { most_penalty, most_sharing, .. } = *self.settings;
        is_within(most_penalty, &fights)?;
        is_within(most_sharing.max(most_penalty), &|_| true)
    }

    /// Whether there are processors and page cache for it.
    fn fits(&self, w: &Waiting) -> Result<(), (String, Vec<String>)> {
        let all = |of: fn(&Traits) -> u64| {
            self.starting.iter().map(|s| of(&s.traits)).fold(of(&w.traits), u64::saturating_add)
        };
        // One that is too large by itself need not wait for those that use nothing of it.
        let is_over = |of: fn(&Traits) -> u64, most: Option<u64>| {
            let is_shared = self.starting.iter().any(|s| of(&s.traits) > 0);
            of(&w.traits) > 0 && is_shared && most.is_some_and(|most| all(of) > most)
        };
        let ground = &self.queue.ground;
        if is_over(|t| t.cpu_milli, ground.cpu_milli) {
            let text = "all processors are busy with starts".to_owned();
            return Err((text, self.names(|s| s.traits.cpu_milli > 0)));
        }
        if is_over(|t| t.cache.0, ground.cache.map(|b| b.0)) {
            let text = "what it reads does not fit into memory beside the others".to_owned();
            return Err((text, self.names(|s| s.traits.cache > Bytes::ZERO)));
        }
        Ok(())
    }

    fn names(&self, is_meant: impl Fn(&Starting) -> bool) -> Vec<String> {
        self.starting.iter().filter(|s| is_meant(s)).map(|s| s.name.clone()).collect()
    }
}

fn hundredths(value: u32) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

#[cfg(test)]
mod tests;
