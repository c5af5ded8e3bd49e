//! Floors: who gets memory.min for its floor, and who is refused.
//!
//! # Problem
//! memory.min holds even where the kernel has to kill for it, so floors are made hard only as far as the host, and each
//! slice with a limit of its own, can truly cover them. One floor too many must not cost everybody else theirs.
//!
//! # Algorithm
//! In the order of weight, then of age, each floor is made hard if it fits beside those before it into
//! [`PART`] of the capacity that can be taken from somebody (what cannot be taken of its own covers a floor, too), of the host's and of every limited slice's above it; one that is hard already may be within
//! [`PART_AT_MOST`], so that a capacity that breathes does not make it flap. Who does not fit is refused, by name, with what
//! would have to give where it is tightest; the next one may still fit.
//!
//! # Properties
//! Beyond what cannot be taken what is hard is no more than [`PART_AT_MOST`] of the rest of the capacity, on the host and in each slice; whoever is refused would
//! not fit beside those of more weight that are hard; a newcomer of the same weight or less takes the floor of nobody, but by what it locks; a
//! slice that is tight costs nobody outside of it a floor.

use ctlmgr_model::{
    Bytes, CapacityAccount, CgroupPath, Group, Knob, Percent, SliceAccount, Weight, WorkloadName,
};

use crate::state::State;

/// Hard protection is given for floors up to this part of the capacity …
const PART: Percent = Percent(80);
/// … and taken away above this one.
const PART_AT_MOST: Percent = Percent(90);

/// A floor that somebody was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor<'a> {
    pub group: &'a Group,
    pub name: &'a WorkloadName,
    pub weight: Weight,
    pub amount: Bytes,
    /// Where it was asked for.
    pub from: &'a str,
}

impl Floor<'_> {
    /// What of it others have to give up: what of its own cannot be taken is there already.
    fn wanted(&self) -> Bytes {
        self.amount - self.group.memory.unreclaimable()
    }
}

/// A floor that cannot be hard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused<'a> {
    pub floor: Floor<'a>,
    /// The slice that cannot cover it; `None` is the host.
    pub slice: Option<&'a CgroupPath>,
    /// What those before it have there.
    pub given: Bytes,
    /// What can be covered there in all.
    pub most: Bytes,
}

/// Where floors have to fit: the host, or a slice with a limit.
struct Room<'a> {
    slice: Option<&'a SliceAccount>,
    capacity: Bytes,
    given: Bytes,
}

impl Room<'_> {
    fn holds(&self, group: &Group) -> bool {
        self.slice.is_none_or(|slice| slice.holds(&group.path))
    }
}

/// Those that are made hard, and those that are not.
///
/// `all` is who holds something: what cannot be taken of others covers no floor.
pub(crate) fn grant<'a>(
    state: &State,
    (account, slices): (&CapacityAccount, &'a [SliceAccount]),
    all: &[&Group],
    mut floors: Vec<Floor<'a>>,
) -> (Vec<Floor<'a>>, Vec<Refused<'a>>) {
    floors.retain(|f| f.amount > Bytes::ZERO);
    let stuck = |slice: Option<&SliceAccount>| -> Bytes {
        let inside = all.iter().filter(|g| slice.is_none_or(|slice| slice.holds(&g.path)));
        inside.map(|g| g.memory.unreclaimable()).sum()
    };
    // Ids of cgroups grow with time.
    let order = |f: &Floor<'_>| (std::cmp::Reverse(f.weight), f.group.id);
    floors.sort_by_key(order);
    let host = Room { slice: None, capacity: account.capacity - stuck(None), given: Bytes::ZERO };
    let of_slice = |s: &'a SliceAccount| Room {
        slice: Some(s),
        capacity: s.capacity - stuck(Some(s)),
        given: Bytes::ZERO,
    };
    let mut rooms: Vec<Room<'a>> = slices.iter().map(of_slice).chain([host]).collect();
    let (mut hard, mut refused) = (Vec::new(), Vec::new());
    for floor in floors {
        let ours = state.ours(floor.group, Knob::MemoryMin);
        let has_it = ours.is_some_and(|ours| ours >= floor.amount.page_floor());
        let part = if has_it { PART_AT_MOST } else { PART };
        let mut above: Vec<_> = rooms.iter_mut().filter(|r| r.holds(floor.group)).collect();
        let left = |room: &&mut Room<'a>| room.capacity.scaled(part) - room.given;
        let wanted = floor.wanted();
        match above.iter().min_by_key(|room| left(room)).filter(|r| left(r) < wanted) {
            Some(room) => refused.push(Refused {
                floor,
                slice: room.slice.map(|slice| &slice.path),
                given: room.given,
                most: room.capacity.scaled(part),
            }),
            None => {
                above.iter_mut().for_each(|room| room.given = room.given + wanted);
                hard.push(floor);
            }
        }
    }
    (hard, refused)
}

impl Refused<'_> {
    /// For the operator.
    pub fn words(&self) -> String {
        let Refused { floor, slice, given, most } = *self;
        let Floor { name, amount, from, .. } = floor;
        let left = most - given;
        let place = slice.map_or_else(String::new, |slice| format!(" in {slice}"));
        let others = match given {
            Bytes::ZERO => String::new(),
            given => format!(", and floors of more weight or age have {given} of it"),
        };
        format!(
            "{name}: a floor of {amount} ({from}) is refused as hard protection: {most} can be covered{place}{others}; it or they would \
             have to give {}; until then memory.low keeps it as far as it can",
            floor.wanted() - left
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::group;
    use proptest::prelude::*;

    fn account(capacity: Bytes) -> CapacityAccount {
        let (host, headroom, demand) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        CapacityAccount { total: capacity, host, headroom, capacity, demand }
    }

    fn granted(list: &[(u64, u16)], capacity: u64) -> (Vec<String>, Vec<String>) {
        let list: Vec<_> = list.iter().map(|(mib, weight)| ("a.slice", *mib, *weight)).collect();
        granted_below(&list, capacity, &[])
    }

    /// The same, each in a slice, where slices can share out so much.
    fn granted_below(
        list: &[(&str, u64, u16)],
        capacity: u64,
        slices: &[(&str, u64)],
    ) -> (Vec<String>, Vec<String>) {
        let names: Vec<WorkloadName> =
            (0..list.len()).map(|i| WorkloadName(format!("w{i}"))).collect();
        let groups: Vec<Group> = (0u64..)
            .zip(list)
            .map(|(i, (slice, mib, _))| group(&format!("{slice}/{i}"), 10 + i, Bytes::mib(*mib)))
            .collect();
        let floors =
            groups.iter().zip(&names).zip(list).map(|((group, name), (_, mib, weight))| {
                let weight = Weight::new(i64::from(*weight)).unwrap();
                Floor { group, name, weight, amount: Bytes::mib(*mib), from: "rule at t:1" }
            });
        let account = account(Bytes::mib(capacity));
        let slice = |(path, mib): &(&str, u64)| {
            let (path, capacity) = (CgroupPath::new(path), Bytes::mib(*mib));
            SliceAccount { path, most: capacity, capacity, demand: Bytes::ZERO }
        };
        let slices: Vec<SliceAccount> = slices.iter().map(slice).collect();
        let (hard, refused) = grant(&State::default(), (&account, &slices), &[], floors.collect());
        let hard = hard.iter().map(|f| f.name.0.clone()).collect();
        (hard, refused.iter().map(Refused::words).collect())
    }

    #[test]
    fn one_too_many_is_refused_by_name_and_costs_nobody_else_its_own() {
        let (hard, refused) = granted(&[(500, 100), (200, 1000), (200, 100), (90, 25)], 1000);
        assert_eq!(hard, ["w1", "w0", "w3"]);
        assert_eq!(
            refused,
            [
                "w2: a floor of 200 MiB (rule at t:1) is refused as hard protection: 800 MiB can be covered, and floors of more weight \
              or age have 700 MiB of it; it or they would have to give 100 MiB; until then memory.low keeps it as far \
              as it can"
            ]
        );
        let (hard, refused) = granted(&[(900, 1000), (300, 5)], 1000);
        assert_eq!(hard, ["w1"], "it would not fit alone");
        assert!(
            refused[0].starts_with("w0: a floor of 900 MiB (")
                && !refused[0].contains("of more weight")
        );
    }

    /// Two of 300 MiB in a slice of 400 would leave the kernel nothing but to kill.
    #[test]
    fn a_slice_covers_no_more_than_it_may_hold() {
        let list = [("a", 300, 100), ("a", 300, 400), ("a/i", 50, 100), ("b", 900, 100)];
        let (hard, refused) = granted_below(&list, 8000, &[("a/i", 40), ("a", 400)]);
        assert_eq!(hard, ["w1", "w3"]);
        assert_eq!(
            refused[0],
            "w0: a floor of 300 MiB (rule at t:1) is refused as hard protection: 320 MiB can be covered in /a, and floors of \
             more weight or age have 300 MiB of it; it or they would have to give 280 MiB; until then memory.low keeps it as \
             far as it can"
        );
        assert!(refused[1].contains("can be covered in /a, and"), "{refused:?}");
        let (hard, refused) = granted_below(&[("a/i", 50, 100)], 8000, &[("a/i", 40), ("a", 400)]);
        assert_eq!(hard.len(), 0);
        assert!(refused[0].contains("32 MiB can be covered in /a/i; "), "{refused:?}");
    }

    /// Of 1000 MiB 600 are locked by one that asks for a floor itself: 320 are to be had.
    #[test]
    fn what_others_have_locked_covers_no_floor() {
        let names = ["locked", "web"].map(|n| WorkloadName(n.to_owned()));
        let granted = |own: u64, web: u64| {
            let mut groups = [group("a/1", 11, Bytes::mib(600)), group("a/2", 12, Bytes::mib(900))];
            groups[0].memory.locked = Bytes::mib(600);
            let weight = Weight::DEFAULT;
            let floor = |i: usize, mib| {
                let (group, name, amount) = (&groups[i], &names[i], Bytes::mib(mib));
                Floor { group, name, weight, amount, from: "rule at t:1" }
            };
            let account = account(Bytes::mib(1000));
            let (all, floors) = (groups.each_ref(), vec![floor(0, own), floor(1, web)]);
            let (hard, _) = grant(&State::default(), (&account, &[]), &all, floors);
            hard.iter().map(|f| f.group.id.0).collect::<Vec<_>>()
        };
        assert_eq!(granted(0, 320), [12]);
        assert_eq!(granted(0, 330).len(), 0);
        // Its own is covered by what it has, whether it asks for it or not.
        assert_eq!(granted(600, 320), [11, 12]);
        assert_eq!(granted(650, 320), [11]);
    }

    proptest! {
        #[test]
        fn what_is_hard_can_be_covered_in_each_slice_and_costs_nobody_outside(
            list in proptest::collection::vec((0usize..4, 1u64..600, 1u16..1000), 1..12),
            limits in [1u64..1500, 1u64..1500, 1u64..1500], capacity in 1u64..3000
        ) {
            let (places, names) = (["o/i", "o", "p", "q"], ["o/i", "o", "p"]);
            let list: Vec<_> = list.iter().map(|(at, mib, w)| (places[*at], *mib, *w)).collect();
            let slices: Vec<_> = names.into_iter().zip(limits).collect();
            let (hard, refused) = granted_below(&list, capacity, &slices);
            prop_assert_eq!(hard.len() + refused.len(), list.len());
            let of = |name: &String| list[name[1..].parse::<usize>().unwrap()];
            for (slice, limit) in slices {
                let below = |at: &str| format!("{at}/").starts_with(&format!("{slice}/"));
                let given: u64 = hard.iter().map(of).filter(|(at, ..)| below(at)).map(|(_, mib, _)| mib).sum();
                prop_assert!(given * 100 <= limit * 80);
            }
            // On a host with room for all, whoever is in no limited slice has its own.
            let (hard, _) = granted_below(&list, 100_000, &[("o", 1)]);
            let outside = list.iter().filter(|(at, ..)| !at.starts_with('o')).count();
            prop_assert_eq!(hard.len(), outside);
        }

        #[test]
        fn what_is_hard_can_be_covered_and_a_lighter_newcomer_takes_from_nobody(
            list in proptest::collection::vec((1u64..600, 1u16..1000), 1..12), more in 1u64..600, capacity in 1u64..2000
        ) {
            let (hard, _) = granted(&list, capacity);
            let amount = |name: &String| list[name[1..].parse::<usize>().unwrap()].0;
            prop_assert!(hard.iter().map(amount).sum::<u64>() * 100 <= capacity * 80);
            let longer: Vec<_> = list.iter().copied().chain([(more, 1)]).collect();
            let (after, _) = granted(&longer, capacity);
            prop_assert!(hard.iter().all(|name| after.contains(name)));
        }
    }
}
