//! Floors: who gets memory.min for its floor, and who is refused.
//!
//! # Problem
//! memory.min holds even where the kernel has to kill for it, so floors are made hard only as far as the host can
//! truly cover them. One floor too many must not cost everybody else theirs.
//!
//! # Algorithm
//! In the order of weight, then of age, each floor is made hard if it fits beside those before it into
//! [`PART`] of the capacity; one that is hard already may be within [`PART_AT_MOST`], so that a capacity that breathes
//! does not make it flap. Who does not fit is refused, by name, with what would have to give; the next one may still fit.
//!
//! # Properties
//! What is hard is no more than [`PART_AT_MOST`] of the capacity; whoever is refused would not fit beside those of
//! more weight that are hard; a newcomer of the same weight or less takes the floor of nobody.

use ctlmgr_model::{Bytes, CapacityAccount, Group, Knob, Percent, Weight, WorkloadName};

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

/// A floor that cannot be hard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused<'a> {
    pub floor: Floor<'a>,
    /// What those before it have.
    pub given: Bytes,
    /// What can be covered in all.
    pub most: Bytes,
}

/// Those that are made hard, and those that are not.
pub(crate) fn grant<'a>(
    state: &State,
    account: &CapacityAccount,
    mut floors: Vec<Floor<'a>>,
) -> (Vec<Floor<'a>>, Vec<Refused<'a>>) {
    floors.retain(|f| f.amount > Bytes::ZERO);
    // Ids of cgroups grow with time.
    let order = |f: &Floor<'_>| (std::cmp::Reverse(f.weight), f.group.id);
    floors.sort_by_key(order);
    let (mut hard, mut refused, mut given) = (Vec::new(), Vec::new(), Bytes::ZERO);
    for floor in floors {
        let ours = state.ours(floor.group, Knob::MemoryMin);
        let has_it = ours.is_some_and(|ours| ours >= floor.amount.page_floor());
        let most = account.capacity.scaled(if has_it { PART_AT_MOST } else { PART });
        if given + floor.amount <= most {
            given = given + floor.amount;
            hard.push(floor);
        } else {
            refused.push(Refused { floor, given, most });
        }
    }
    (hard, refused)
}

impl Refused<'_> {
    /// For the operator.
    pub fn words(&self) -> String {
        let Refused { floor: Floor { name, amount, from, .. }, given, most } = *self;
        let left = most - given;
        let others = match given {
            Bytes::ZERO => String::new(),
            given => format!(", and floors of more weight or age have {given} of it"),
        };
        format!(
            "{name}: a floor of {amount} ({from}) is refused as hard protection: {most} can be covered{others}; it or they would \
             have to give {}; until then memory.low keeps it as far as it can",
            amount - left
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
        let names: Vec<WorkloadName> =
            (0..list.len()).map(|i| WorkloadName(format!("w{i}"))).collect();
        let groups: Vec<Group> = (0u64..)
            .zip(list)
            .map(|(i, (mib, _))| group(&format!("a.slice/{i}"), 10 + i, Bytes::mib(*mib)))
            .collect();
        let floors = groups.iter().zip(&names).zip(list).map(|((group, name), (mib, weight))| {
            let weight = Weight::new(i64::from(*weight)).unwrap();
            Floor { group, name, weight, amount: Bytes::mib(*mib), from: "rule at t:1" }
        });
        let account = account(Bytes::mib(capacity));
        let (hard, refused) = grant(&State::default(), &account, floors.collect());
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

    proptest! {
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
