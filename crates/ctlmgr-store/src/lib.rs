//! What must outlive the daemon: the undo journal, what every knob held before ctlmgr first wrote it,
//! and [`Profiles`], what was learned of starts.
//!
//! A row of the journal is on stable storage before the knob is written, so that after any crash every value of
//! ours is known. Rows carry the boot they belong to: cgroups do not survive a reboot, and neither
//! does what was written to them.
//!
//! SQLite, because it is atomic, durable, and reports a full disk instead of losing the file.

mod profiles;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ctlmgr_model::{Bytes, CgroupId, CgroupPath, Knob, Saved, Value};
use rusqlite::types;
use rusqlite::{Connection, params};

pub use profiles::{Profiles, ProfilesError};

/// Why the journal could not be used.
#[derive(Debug, thiserror::Error)]
#[error("failed to {operation} the undo journal {path}")]
pub struct JournalError {
    operation: &'static str,
    path: PathBuf,
    source: rusqlite::Error,
}

/// The journal of one boot.
#[derive(Debug)]
pub struct Journal {
    db: Connection,
    path: PathBuf,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS boot (id TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS knob (
        path TEXT NOT NULL, cgroup INTEGER NOT NULL, knob TEXT NOT NULL,
        prior ANY NOT NULL, ours ANY NOT NULL, before ANY NOT NULL,
        had_setting INTEGER NOT NULL, told ANY, asked ANY,
        PRIMARY KEY (path, knob)
    ) STRICT;";

impl Journal {
    /// Opens the journal at `path`, and empties it if it is of another boot.
    ///
    /// # Errors
    /// The file cannot be made, read or written, or is no journal.
    pub fn open(path: &Path, boot: &str) -> Result<Journal, JournalError> {
        let fail = |operation| move |source| JournalError { operation, path: path.into(), source };
        let db = Connection::open(path).map_err(fail("open"))?;
        let journal = Journal { db, path: path.into() };
        journal.prepare(boot).map_err(fail("prepare"))?;
        Ok(journal)
    }

    fn prepare(&self, boot: &str) -> rusqlite::Result<()> {
        self.db.busy_timeout(Duration::from_secs(5))?;
        // Not WAL: its index is a memory-mapped file, and touching a hole of that on a full
        // tmpfs is SIGBUS. A rollback journal reports a full disk as an error.
        self.db.pragma_update(None, "journal_mode", "TRUNCATE")?;
        self.db.pragma_update(None, "synchronous", "FULL")?;
        self.migrate()?;
        self.db.execute_batch(SCHEMA)?;
        if !self.has_column("told", "ANY")? {
            let add = "ALTER TABLE knob ADD COLUMN told ANY; ALTER TABLE knob ADD COLUMN asked ANY";
            self.db.execute_batch(add)?;
        }
        self.bring_over()?;
        let known: i64 =
            self.db.query_row("SELECT count(*) FROM boot WHERE id = ?1", [boot], |r| r.get(0))?;
        if known == 0 {
            let change = self.db.unchecked_transaction()?;
            change.execute_batch("DELETE FROM knob; DELETE FROM boot;")?;
            change.execute("INSERT INTO boot VALUES (?1)", [boot])?;
            change.commit()?;
        }
        Ok(())
    }

    /// An older daemon of this boot may have left its rows.
    fn migrate(&self) -> rusqlite::Result<()> {
        let has = |column| self.has_column(column, "INTEGER");
        if has("prior")? && !has("had_setting")? {
            let add = "ALTER TABLE knob ADD COLUMN had_setting INTEGER NOT NULL DEFAULT 0";
            self.db.execute_batch(add)?;
        }
        // Columns that could hold no list.
        match has("prior")? {
            true => self.db.execute_batch("ALTER TABLE knob RENAME TO knob_of_numbers"),
            false => Ok(()),
        }
    }

    fn has_column(&self, name: &str, kind: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT count(*) FROM pragma_table_info('knob') WHERE name = ?1 AND type = ?2";
        self.db.query_row(sql, [name, kind], |r| r.get::<_, i64>(0)).map(|n| n > 0)
    }

    /// The rows of an older table, all or none.
    fn bring_over(&self) -> rusqlite::Result<()> {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'knob_of_numbers'";
        if self.db.query_row(sql, [], |r| r.get::<_, i64>(0))? == 0 {
            return Ok(());
        }
        let change = self.db.unchecked_transaction()?;
        change.execute_batch(
            "INSERT OR IGNORE INTO knob (path, cgroup, knob, prior, ours, before, had_setting)
             SELECT path, cgroup, knob, prior, ours, before, had_setting FROM knob_of_numbers;
             DROP TABLE knob_of_numbers;",
        )?;
        change.commit()
    }

    /// Notes, durably, that `saved` is about to be written.
    ///
    /// Whether the unit had a setting of its own is kept from the first note of the same prior:
    /// after that the setting is ours. What the keeper was told ([`Journal::note_told`]) and asked for ([`Journal::note_asked`]) is
    /// kept while ours follow each other: it may write either.
    ///
    /// # Errors
    /// The note did not reach stable storage; the knob must not be written then.
    pub fn note(&self, saved: &Saved) -> Result<(), JournalError> {
        let sql = "INSERT INTO knob (path, cgroup, knob, prior, ours, before, had_setting)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                   ON CONFLICT (path, knob) DO UPDATE SET
                       had_setting = iif(prior = excluded.prior, had_setting, excluded.had_setting),
                       told = iif(cgroup = excluded.cgroup AND
                                  (ours = excluded.ours OR excluded.before IN (ours, before, told, asked)),
                                  coalesce(told, before), NULL),
                       asked = iif(cgroup = excluded.cgroup AND
                                   (ours = excluded.ours OR excluded.before IN (ours, before, told, asked)),
                                   asked, NULL),
                       before = excluded.before,
                       cgroup = excluded.cgroup, prior = excluded.prior, ours = excluded.ours";
        let row = params![
            saved.path.as_str(),
            signed(saved.id.0),
            saved.knob.file(),
            kept(&saved.prior),
            kept(&saved.ours),
            kept(&saved.before),
            saved.had_setting
        ];
        self.db.execute(sql, row).map(drop).map_err(self.fail("write"))
    }

    /// Notes that the keeper of `saved` is about to be asked to write it.
    ///
    /// # Errors
    /// The note did not reach stable storage; the keeper must not be asked then.
    pub fn note_asked(&self, saved: &Saved) -> Result<(), JournalError> {
        self.note_keeper(saved, "asked = ?3")
    }

    /// Notes that the keeper of `saved` has it, whatever came after it.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn note_told(&self, saved: &Saved) -> Result<(), JournalError> {
        self.note_keeper(saved, "before = iif(ours = ?3, ours, before), told = ?3, asked = NULL")
    }

    fn note_keeper(&self, saved: &Saved, what: &str) -> Result<(), JournalError> {
        let sql = format!("UPDATE knob SET {what} WHERE path = ?1 AND knob = ?2 AND cgroup = ?4");
        let (path, ours, cgroup) = (saved.path.as_str(), kept(&saved.ours), signed(saved.id.0));
        let row = params![path, saved.knob.file(), ours, cgroup];
        self.db.execute(&sql, row).map(drop).map_err(self.fail("write"))
    }

    /// Forgets a knob: it was put back, or its cgroup is gone. What was noted of it since `saved` was read stays: another process
    /// has written it.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn forget(&self, saved: &Saved) -> Result<(), JournalError> {
        let sql = "DELETE FROM knob WHERE path = ?1 AND knob = ?2 AND cgroup = ?3 AND ours = ?4";
        let (path, knob) = (saved.path.as_str(), saved.knob.file());
        let row = params![path, knob, signed(saved.id.0), kept(&saved.ours)];
        self.db.execute(sql, row).map(drop).map_err(self.fail("write"))
    }

    /// What is noted of a knob.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn find(&self, path: &CgroupPath, knob: Knob) -> Result<Option<Saved>, JournalError> {
        let is_it = |s: &Saved| s.path == *path && s.knob == knob;
        Ok(self.entries()?.into_iter().find(is_it))
    }

    /// Everything that is still to be put back, deepest cgroups first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn entries(&self) -> Result<Vec<Saved>, JournalError> {
        let sql =
            "SELECT path, cgroup, knob, prior, ours, before, had_setting, told, asked FROM knob
                   ORDER BY length(path) - length(replace(path, '/', '')) DESC, path, knob";
        let read = || {
            let mut statement = self.db.prepare(sql)?;
            let rows = statement.query_map([], saved)?;
            // A knob that this version does not know was written by another version: it stays.
            rows.filter_map(Result::transpose).collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.fail("read"))
    }

    fn fail(&self, operation: &'static str) -> impl FnOnce(rusqlite::Error) -> JournalError + '_ {
        move |source| JournalError { operation, path: self.path.clone(), source }
    }
}

fn saved(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Saved>> {
    let (path, knob): (String, String) = (row.get(0)?, row.get(2)?);
    let Some(knob) = Knob::from_file(&knob) else { return Ok(None) };
    let value = |column| value(row, column);
    let held = |column| match row.get_ref(column)? {
        types::ValueRef::Null => Ok(None),
        _ => value(column).map(Some),
    };
    Ok(Some(Saved {
        path: CgroupPath::new(&path),
        id: CgroupId(unsigned(row.get(1)?)),
        knob,
        prior: value(3)?,
        ours: value(4)?,
        before: value(5)?,
        had_setting: row.get(6)?,
        told: held(7)?,
        asked: held(8)?,
    }))
}

/// Lists are text, numbers are numbers.
fn kept(value: &Value) -> types::Value {
    match value {
        Value::Amount(Bytes(number)) => types::Value::Integer(signed(*number)),
        Value::List(list) => types::Value::Text(list.to_string()),
    }
}

fn value(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Value> {
    match row.get_ref(column)? {
        types::ValueRef::Text(text) => {
            let list = String::from_utf8_lossy(text).parse::<ctlmgr_model::Cpus>();
            let odd = |e| rusqlite::Error::FromSqlConversionFailure(column, types::Type::Text, e);
            list.map(Value::from).map_err(|e| odd(Box::new(e)))
        }
        _ => Ok(Bytes(unsigned(row.get(column)?)).into()),
    }
}

// SQLite integers are signed; the bits are what matters.
fn signed(value: u64) -> i64 {
    value.cast_signed()
}

fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(path: &str, prior: u64, ours: u64) -> Saved {
        Saved {
            path: CgroupPath::new(path),
            id: CgroupId(u64::MAX),
            knob: Knob::MemoryLow,
            prior: Bytes(prior).into(),
            ours: Bytes(ours).into(),
            before: Bytes(prior).into(),
            told: None,
            asked: None,
            had_setting: false,
        }
    }

    /// The system's manager writes all of a unit's values when it is told one.
    #[test]
    fn what_a_keeper_was_last_told_is_ours_until_it_is_told_more() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("undo.db"), "boot").unwrap();
        let write = |from: u64, to: u64| {
            let saved = Saved { before: Bytes(from).into(), ..note("a.service", 0, to) };
            journal.note(&saved).unwrap();
            saved
        };
        let is_ours = |amount: u64| {
            let path = CgroupPath::new("a.service");
            let saved = journal.find(&path, Knob::MemoryLow).unwrap().unwrap();
            saved.is_ours(&Bytes(amount).into())
        };
        journal.note_told(&write(0, 12)).unwrap();
        write(12, 30);
        write(30, 25);
        journal.note_told(&write(12, 30)).unwrap();
        write(30, 25);
        write(25, 20);
        let last = write(25, 20);
        assert!([20, 25, 30].iter().all(|ours| is_ours(*ours)) && !is_ours(12));
        journal.note_told(&last).unwrap();
        assert!(is_ours(20) && !is_ours(25) && !is_ours(30));
        let older = write(20, 60);
        write(60, 70);
        journal.note_told(&older).unwrap();
        assert!(is_ours(70) && is_ours(60) && !is_ours(20), "told while a newer one is in force");
        journal.note_asked(&write(60, 70)).unwrap();
        write(70, 80);
        write(80, 90);
        assert!([60, 70, 80, 90].iter().all(|ours| is_ours(*ours)), "it may do it later");
        journal.note_told(&write(80, 90)).unwrap();
        assert!(is_ours(90) && ![60, 70, 80].iter().any(|ours| is_ours(*ours)));
        // What was to be written never came through, and is asked for still.
        journal.note_asked(&write(90, 40)).unwrap();
        write(90, 200);
        assert!([200, 40, 90].iter().all(|ours| is_ours(*ours)));
        write(50, 95);
        assert!(!is_ours(90) && !is_ours(40), "another has written meanwhile");
    }

    #[test]
    fn a_setting_of_the_units_own_is_remembered_from_the_first_note() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("undo.db"), "boot").unwrap();
        let mut saved = note("a.slice", 5, 10);
        let had = |journal: &Journal| {
            journal.find(&CgroupPath::new("a.slice"), Knob::MemoryLow).unwrap().unwrap().had_setting
        };
        journal.note(&saved).unwrap();
        saved.had_setting = true;
        journal.note(&saved).unwrap();
        assert!(!had(&journal), "what is there now is our own");
        saved.prior = Bytes(6).into();
        journal.note(&saved).unwrap();
        assert!(had(&journal), "somebody else has set it since");
    }

    #[test]
    fn survives_reopening_and_orders_deepest_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo.db");
        let journal = Journal::open(&path, "boot-1").unwrap();
        journal.note(&note("a.slice", 0, 10)).unwrap();
        journal.note(&note("a.slice/x.scope", 5, 7)).unwrap();
        journal.note(&note("a.slice/x.scope", 5, 9)).unwrap();
        drop(journal);
        let journal = Journal::open(&path, "boot-1").unwrap();
        assert_eq!(
            journal.entries().unwrap(),
            [
                Saved { told: Some(Bytes(5).into()), ..note("a.slice/x.scope", 5, 9) },
                note("a.slice", 0, 10)
            ]
        );
        let last = note("a.slice", 0, 10);
        // As a process read it that puts values back while another goes on from them.
        for stale in [note("a.slice", 0, 9), Saved { id: CgroupId(7), ..last.clone() }] {
            journal.forget(&stale).unwrap();
            assert_eq!(journal.entries().unwrap().len(), 2);
        }
        journal.forget(&last).unwrap();
        assert_eq!(journal.entries().unwrap().len(), 1);
    }

    /// A journal that another version left, with one row.
    fn left_behind(columns: &str, values: &str) -> (tempfile::TempDir, Journal) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(&format!(
            "CREATE TABLE boot (id TEXT NOT NULL); INSERT INTO boot VALUES ('boot');
             CREATE TABLE knob (path TEXT NOT NULL, cgroup INTEGER NOT NULL, knob TEXT NOT NULL,
                {columns}, PRIMARY KEY (path, knob)) STRICT;
             INSERT INTO knob VALUES ('a.slice', -1, 'memory.low', {values});"
        ))
        .unwrap();
        drop(old);
        let journal = Journal::open(&path, "boot").unwrap();
        assert_eq!(journal.entries().unwrap(), [note("a.slice", 0, 10)]);
        (dir, journal)
    }

    #[test]
    fn rows_of_before_keepers_were_remembered_are_understood() {
        let columns = "prior ANY NOT NULL, ours ANY NOT NULL, before ANY NOT NULL, had_setting INTEGER NOT NULL";
        let (_dir, journal) = left_behind(columns, "0, 10, 0, 0");
        let saved = Saved { before: Bytes(10).into(), ..note("a.slice", 0, 20) };
        journal.note(&saved).unwrap();
        let told = Some(Bytes::ZERO.into());
        assert_eq!(journal.entries().unwrap(), [Saved { told, ..saved }]);
    }

    #[test]
    fn rows_of_an_older_version_are_understood() {
        let columns = "prior INTEGER NOT NULL, ours INTEGER NOT NULL, before INTEGER NOT NULL";
        let (_dir, journal) = left_behind(columns, "0, 10, 0");
        journal.note(&note("b.slice", 0, 20)).unwrap();
        assert_eq!(journal.entries().unwrap().len(), 2);
    }

    #[test]
    fn lists_are_kept_beside_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo.db");
        let list = |text: &str| Value::from(text.parse::<ctlmgr_model::Cpus>().unwrap());
        let pinned = Saved {
            knob: Knob::CpusetCpus,
            prior: list(""),
            ours: list("2-3,64"),
            before: list("0-1"),
            ..note("a.slice/x.scope", 0, 0)
        };
        let journal = Journal::open(&path, "boot").unwrap();
        journal.note(&pinned).unwrap();
        journal.note(&note("a.slice/x.scope", 5, u64::MAX)).unwrap();
        drop(journal);
        let journal = Journal::open(&path, "boot").unwrap();
        let all = journal.entries().unwrap();
        assert_eq!(all, [pinned, note("a.slice/x.scope", 5, u64::MAX)]);
    }

    #[test]
    fn another_boot_starts_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo.db");
        Journal::open(&path, "boot-1").unwrap().note(&note("a", 0, 1)).unwrap();
        assert_eq!(Journal::open(&path, "boot-2").unwrap().entries().unwrap(), []);
    }

    #[test]
    fn what_is_no_journal_is_refused_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("undo.db");
        std::fs::write(&path, "not a database, but long enough to be taken for one".repeat(50))
            .unwrap();
        let error = Journal::open(&path, "b").unwrap_err();
        assert!(error.to_string().contains("undo.db"), "{error}");
    }
}
