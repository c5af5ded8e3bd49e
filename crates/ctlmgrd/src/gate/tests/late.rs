//! Starts that nobody asked about.

use super::*;

/// Nobody was asked about it: it is frozen while it would wait, and runs on when it is its turn.
#[tokio::test]
async fn a_late_one_is_frozen_until_its_turn() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("boot", &[SCANNER])]);
    world.settings.send_modify(|s| s.starts.freeze = true);
    world.start(wants("db")).await;
    world.containers.send_modify(|c| {
        c.note_start(&id("boot"));
    });
    while world.queue().await.waiting.is_empty() {
        tokio::task::yield_now().await;
    }
    let mut orders = world.orders.lock().await;
    let order = orders.recv().await.unwrap();
    let reason = "sequential-read beside those costs 2.00, more than 1.25";
    assert!(matches!(order, Order::Freeze(who, why) if who == id("boot") && why.0 == reason));
    let cancel = QueueChange::Cancel("boot".into());
    let refused = world.ask(|reply| Question::Change(cancel, reply)).await.unwrap_err();
    assert_eq!(
        refused,
        Refused::Invalid("`boot` is started by dockerd itself; stop it instead".into())
    );
    let skip = QueueChange::Skip("boot".into());
    world.ask(|reply| Question::Change(skip, reply)).await.unwrap();
    assert!(
        matches!(orders.recv().await.unwrap(), Order::Thaw { id: who, is_paused: false } if who == id("boot"))
    );
    assert_eq!(world.queue().await.starting.len(), 2);
}

/// While dockerd boots it tells of nothing; what it tells later is the same start.
#[tokio::test]
async fn one_that_appears_is_frozen_before_dockerd_tells_and_is_one_start() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("boot", &[SCANNER])]);
    world.settings.send_modify(|s| s.starts.freeze = true);
    world.start(wants("db")).await;
    // The first has leave, of the last nobody knows anything, and the other appears twice.
    for name in ["db", "boot", "boot", "stranger"] {
        world.appears(name);
    }
    let mut orders = world.orders.lock().await;
    let frozen = orders.recv().await.unwrap();
    assert!(matches!(frozen, Order::Freeze(who, _) if who == id("boot")));
    world.containers.send_modify(|c| {
        c.ends.insert(id("boot"), 1);
        c.note_start(&id("boot"));
    });
    let skip = QueueChange::Skip("boot".into());
    world.ask(|reply| Question::Change(skip, reply)).await.unwrap();
    assert!(
        matches!(orders.recv().await.unwrap(), Order::Thaw { id: who, .. } if who == id("boot"))
    );
    let queue = world.queue().await;
    assert_eq!((queue.starting.len(), queue.waiting.len()), (2, 0), "{queue:?}");
    assert!(orders.try_recv().is_err());
    // The next one is another.
    world.containers.send_modify(|c| {
        c.ends.insert(id("boot"), 2);
    });
    while world.queue().await.starting.len() > 1 {
        tokio::task::yield_now().await;
    }
    world.containers.send_modify(|c| {
        c.note_start(&id("boot"));
    });
    let frozen = orders.recv().await.unwrap();
    assert!(matches!(frozen, Order::Freeze(who, _) if who == id("boot")));
}

/// One that crashes again and again has appeared anew before dockerd tells how it ended the last time.
#[tokio::test]
async fn how_it_ended_before_it_appeared_is_no_end_of_what_appeared() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("boot", &[SCANNER])]);
    world.settings.send_modify(|s| s.starts.freeze = true);
    world.start(wants("db")).await;
    world.appears("boot");
    let mut orders = world.orders.lock().await;
    assert!(matches!(orders.recv().await.unwrap(), Order::Freeze(who, _) if who == id("boot")));
    let skip = QueueChange::Skip("boot".into());
    world.ask(|reply| Question::Change(skip, reply)).await.unwrap();
    let told = |change: fn(&mut Containers)| world.containers.send_modify(change);
    told(|c| {
        c.ends.insert(id("boot"), 1);
    });
    assert_eq!(world.start(wants("boot")).await.reason, "was let go already");
    assert_eq!(world.queue().await.starting.len(), 2);
    told(|c| c.note_start(&id("boot")));
    assert_eq!(world.start(wants("boot")).await.reason, "was let go already");
    told(|c| {
        c.ends.insert(id("boot"), 2);
    });
    while world.queue().await.starting.len() > 1 {
        tokio::task::yield_now().await;
    }
}

/// Waits until a start has lasted for so long, with three looks in 3 s.
async fn lasts(world: &World, name: &str, ms: u64) {
    let has_lasted = |queue: &Queue| {
        let start = queue.starting.iter().find(|s| s.name == name);
        start.expect("it starts").lasted_ms >= ms
    };
    while !has_lasted(&world.queue().await) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One that has started by itself, runs, and is not over for an hour.
async fn with_one_that_starts() -> World {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("boot", &[SCANNER])]);
    world.settings.send_modify(|s| (s.starts.freeze, s.starts.settle) = (true, Millis(3_600_000)));
    world.start(wants("db")).await;
    world.appears("boot");
    expect_frozen(&world, "boot").await;
    let skip = QueueChange::Skip("boot".into());
    world.ask(|reply| Question::Change(skip, reply)).await.unwrap();
    assert!(matches!(world.orders.lock().await.recv().await, Some(Order::Thaw { .. })));
    world.runs("boot", 0, 0);
    lasts(&world, "boot", 3000).await;
    world
}

async fn expect_frozen(world: &World, name: &str) {
    let order = world.orders.lock().await.recv().await.unwrap();
    assert!(matches!(order, Order::Freeze(who, _) if who == id(name)));
}

/// A dockerd that stops may tell of no end, and starts its containers again soon.
#[tokio::test]
async fn one_that_was_gone_and_appears_again_starts_anew() {
    let world = with_one_that_starts().await;
    world.ends("boot");
    lasts(&world, "boot", 6000).await;
    // Its cgroup is there some looks before it runs its own program, which is when it is told of.
    world.runs("boot", 0, 0);
    lasts(&world, "boot", 9000).await;
    world.appears("boot");
    expect_frozen(&world, "boot").await;
}

/// It may be quicker than two looks.
#[tokio::test]
async fn one_that_appears_in_another_cgroup_starts_anew_and_stands_still_there() {
    let world = with_one_that_starts().await;
    for _ in 0..2 {
        world.ends("boot");
        world.runs("boot", 0, 0);
        world.appears("boot");
        expect_frozen(&world, "boot").await;
    }
    // dockerd tells of both: the first is over by then, and it is the second that runs.
    world.containers.send_modify(|c| {
        c.note_start(&id("boot"));
        c.ends.insert(id("boot"), 1);
    });
    world.queue().await;
    world.containers.send_modify(|c| c.note_start(&id("boot")));
    assert_eq!(world.queue().await.waiting.len(), 1);
    // Of a third it tells where no cgroup was seen to appear.
    world.containers.send_modify(|c| {
        c.ends.insert(id("boot"), 2);
        c.note_start(&id("boot"));
    });
    expect_frozen(&world, "boot").await;
    let skip = QueueChange::Skip("boot".into());
    world.ask(|reply| Question::Change(skip, reply)).await.unwrap();
    assert!(matches!(world.orders.lock().await.recv().await, Some(Order::Thaw { .. })));
    let queue = world.queue().await;
    assert_eq!((queue.waiting.len(), queue.starting.len()), (0, 2), "{queue:?}");
}

/// What dockerd asks through its runtime is about a start that is made now.
#[tokio::test]
async fn one_that_was_gone_and_is_asked_about_by_the_runtime_waits_for_its_turn() {
    let world = with_one_that_starts().await;
    world.ends("boot");
    lasts(&world, "boot", 6000).await;
    let request = StartRequest { source: "runc".into(), wait_ms: Some(0), ..wants(&id("boot")) };
    assert_eq!(world.start(request).await.decision, StartDecision::Wait);
}
