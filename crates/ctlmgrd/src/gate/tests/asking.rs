//! Who asks in which way, and who is gone before anybody looks.

use super::*;

/// dockerd tells of the start, the end and the removal of `docker run --rm true` at once.
#[tokio::test]
async fn who_has_ended_before_it_was_looked_at_makes_room_at_once() {
    let world = World::new(Mode::Act, vec![facts("job", &[]), facts("brief", &[])]);
    world.start(wants("job")).await;
    world.start(wants("brief")).await;
    assert_eq!(world.queue().await.starting.len(), 2);
    world.containers.send_modify(|c| {
        c.note_start(&id("job"));
        c.ends.insert(id("job"), 1);
        c.by_id.remove(&id("brief"));
    });
    while !world.queue().await.starting.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_cancel_between_two_questions_is_the_answer_to_the_next() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("scan", &[SCANNER])]);
    world.start(wants("db")).await;
    let scan = world.start(wants("scan")).await;
    assert_eq!(scan.decision, StartDecision::Wait);
    let cancel = QueueChange::Cancel("scan".into());
    world.ask(|reply| Question::Change(cancel, reply)).await.unwrap();
    let again = StartRequest { ticket: Some(scan.ticket), ..wants("scan") };
    assert_eq!(world.start(again).await.decision, StartDecision::Refuse);
    assert_eq!(world.queue().await.waiting, []);
}

#[tokio::test]
async fn a_mere_start_of_one_that_runs_is_no_start() {
    let running = ContainerFacts { is_running: true, ..facts("scan", &[SCANNER]) };
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), running]);
    world.start(wants("db")).await;
    let restart = world.start(wants("scan")).await;
    assert_eq!(restart.decision, StartDecision::Wait);
    let start = world.start(StartRequest { is_mere_start: true, ..wants("scan") }).await;
    assert_eq!((start.decision, start.reason.as_str()), (StartDecision::Start, "it runs already"));
    assert_eq!(world.queue().await.starting.len(), 1, "nothing starts by it");
}

#[tokio::test]
async fn image_and_labels_stand_for_a_container_that_is_not_there_yet() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER])]);
    world.start(wants("db")).await;
    let like = |label: (&str, &str)| StartRequest {
        image: Some("batch:1".into()),
        labels: BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]),
        ..wants("")
    };
    let scan = world.start(like(SCANNER)).await;
    assert_eq!(scan.decision, StartDecision::Wait);
    assert_eq!(world.queue().await.waiting[0].name, "batch:1");
    let quiet = ("ctlmgr.batch.class", "quiet");
    for _ in 0..2 {
        let answer = world.start(like(quiet)).await;
        let reason = "quiet suits those that start now";
        assert_eq!((answer.decision, answer.reason.as_str()), (StartDecision::Start, reason));
    }
    let nobody = world.ask(|reply| Question::Start(wants(""), reply)).await;
    assert!(matches!(nobody, Err(Refused::Invalid(_))));
}

#[tokio::test]
async fn a_start_that_came_to_nothing_keeps_nobody_waiting_and_teaches_nothing() {
    let world = World::new(Mode::Act, vec![facts("db", &[READER]), facts("scan", &[SCANNER])]);
    world.start(wants("db")).await;
    assert_eq!(world.start(wants("scan")).await.decision, StartDecision::Wait);
    let give_up = async |container: &str| {
        let failed = FailedStart { container: container.to_owned() };
        world.ask(|reply| Question::GiveUp(failed, reply)).await.unwrap()
    };
    assert!(!give_up("nobody").await);
    assert!(!give_up("scan").await, "it has not been let go");
    assert!(give_up(&id("db")[..12]).await);
    while world.start(wants("scan")).await.decision == StartDecision::Wait {}
    let queue = world.queue().await;
    assert_eq!((queue.starting.len(), queue.over.as_slice()), (1, &["db".to_owned()][..]));
    assert_eq!(world.ask(Question::Profiles).await.unwrap(), []);
    world.containers.send_modify(|c| {
        c.note_start(&id("scan"));
        c.by_id.get_mut(&id("scan")).unwrap().is_running = true;
    });
    assert!(!give_up("scan").await, "to start what runs already fails, too");
    assert_eq!(world.queue().await.starting.len(), 1);
}
