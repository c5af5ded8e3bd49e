use proptest::prelude::*;

use super::*;

fn scaled(value: u64, percent: u64) -> u64 {
    value * percent / 100
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn noise_changes_nothing(
        edges in prop::collection::vec((0_usize..8, 0_usize..8, 100_000_u64..50_000_000), 3..16),
        noise in prop::collection::vec(92_u64..108, 40),
    ) {
        let mut w = World::new(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        w.reading.traffic = edges.iter().copied().filter(|(a, b, _)| a != b).collect();
        w.turn();
        let calm = w.reading.clone();
        let mut noise = noise.into_iter().cycle();
        for _ in 0..10 {
            w.pass(700_000);
            for (t, was) in w.reading.tenants.iter_mut().zip(&calm.tenants) {
                t.use_milli = scaled(was.use_milli, noise.next().unwrap());
                t.peak_milli = scaled(was.peak_milli, noise.next().unwrap());
            }
            for (edge, was) in w.reading.traffic.iter_mut().zip(&calm.traffic) {
                edge.2 = scaled(was.2, noise.next().unwrap());
            }
            prop_assert_eq!(w.turn().steps, vec![]);
        }
    }

    #[test]
    fn whatever_is_seen_lists_are_sound_and_only_those_of_whom_may_be_placed(
        edges in prop::collection::vec((0_usize..10, 0_usize..10, 0_u64..80_000_000), 0..30),
        uses in prop::collection::vec(0_u64..12_000, 10),
        kinds in prop::collection::vec(0_u8..8, 10),
        exclusive in prop::collection::vec(0_u8..12, 10),
    ) {
        let mut w = World::new(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        w.reading.traffic = edges.into_iter().filter(|(a, b, _)| a != b).collect();
        for (i, t) in w.reading.tenants.iter_mut().enumerate() {
            (t.use_milli, t.peak_milli) = (uses[i] / 2, uses[i]);
            let wish = t.wish.as_mut().unwrap();
            wish.exclusive = exclusive[i] == 0;
            wish.group = (exclusive[i] == 1).then(|| "g".to_owned());
            match kinds[i] {
                0 => wish.managed = false,
                1 => t.cpus = "1-2".parse().unwrap(),
                2 => t.known_for = Millis(1000),
                3 => t.allowed = (4..8).collect(),
                _ => {}
            }
        }
        let before = w.reading.clone();
        let plan = w.turn();
        for step in &plan.steps {
            let Action::Pin { to, prior, .. } = &step.action else { panic!("nothing to give back") };
            prop_assert!(!to.is_empty() && to.without(&before.topology.online).is_empty());
            let (i, tenant) =
                before.tenants.iter().enumerate().find(|(_, t)| t.id == step.id).unwrap();
            prop_assert!(kinds[i] > 3, "{step:?}");
            prop_assert_eq!(prior, &tenant.cpus);
        }
        prop_assert!(plan.cut_planned <= plan.cut_now || exclusive.iter().any(|e| *e < 2), "{:?}", plan);
        prop_assert_eq!(w.turn().steps, vec![], "steady");
        let all = w.state.release_all();
        prop_assert_eq!(all.len(), plan.steps.len());
    }
}
