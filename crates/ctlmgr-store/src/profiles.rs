//! What was learned of starts and of processor use, over reboots.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ctlmgr_model::{CpuUse, PairPenalty, Profile, Remembered};
use rusqlite::{Connection, params};
use serde::de::DeserializeOwned;

/// Why profiles could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("failed to {operation} the profiles in {path}")]
pub struct ProfilesError {
    operation: &'static str,
    path: PathBuf,
    source: rusqlite::Error,
}

/// Profiles by key. A profile that this version does not understand is as good as none.
#[derive(Debug)]
pub struct Profiles {
    db: Connection,
    path: PathBuf,
}

impl Profiles {
    /// Opens the store at `path`, making it and its directory.
    ///
    /// # Errors
    /// It cannot be made or read.
    pub fn open(path: &Path) -> Result<Profiles, ProfilesError> {
        let fail = |operation| move |source| ProfilesError { operation, path: path.into(), source };
        if let Some(directory) = path.parent() {
            // Opening says what is wrong, with a path.
            let _ = std::fs::create_dir_all(directory);
        }
        let db = Connection::open(path).map_err(fail("open"))?;
        let prepare = || {
            db.busy_timeout(Duration::from_secs(5))?;
            // As the undo journal: no memory-mapped index that a full disk turns into SIGBUS.
            db.pragma_update(None, "journal_mode", "TRUNCATE")?;
            let schema = "CREATE TABLE IF NOT EXISTS profile (key TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT;
                CREATE TABLE IF NOT EXISTS penalty (pair TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT;
                CREATE TABLE IF NOT EXISTS cpu_use (key TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT;
                CREATE TABLE IF NOT EXISTS container (id TEXT PRIMARY KEY, json TEXT NOT NULL) STRICT";
            db.execute_batch(schema)
        };
        prepare().map_err(fail("prepare"))?;
        Ok(Profiles { db, path: path.into() })
    }

    /// All of them.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn all(&self) -> Result<BTreeMap<String, Profile>, ProfilesError> {
        self.rows("SELECT key, json FROM profile")
    }

    /// What was learned of pairs of characters.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn penalties(&self) -> Result<Vec<PairPenalty>, ProfilesError> {
        Ok(self.rows("SELECT pair, json FROM penalty")?.into_values().collect())
    }

    /// Keeps what was learned of a pair.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn put_penalty(&self, penalty: &PairPenalty) -> Result<(), ProfilesError> {
        let json = serde_json::to_string(penalty).unwrap_or_default();
        let pair = format!("{}+{}", penalty.a, penalty.b);
        let sql = "INSERT OR REPLACE INTO penalty VALUES (?1, ?2)";
        self.db.execute(sql, params![pair, json]).map(drop).map_err(self.fail("write"))
    }

    /// The history of processor use, by profile key.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn cpu_uses(&self) -> Result<BTreeMap<String, CpuUse>, ProfilesError> {
        self.rows("SELECT key, json FROM cpu_use")
    }

    /// Keeps histories of processor use, or forgets them where there is none; all or nothing.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn put_cpu_uses<'a>(
        &self,
        all: impl Iterator<Item = (&'a str, Option<&'a CpuUse>)>,
    ) -> Result<(), ProfilesError> {
        let write = || {
            let change = self.db.unchecked_transaction()?;
            for (key, known) in all {
                match known.map(|known| serde_json::to_string(known).unwrap_or_default()) {
                    Some(json) => change
                        .execute("INSERT OR REPLACE INTO cpu_use VALUES (?1, ?2)", [key, &json])?,
                    None => change.execute("DELETE FROM cpu_use WHERE key = ?1", [key])?,
                };
            }
            change.commit()
        };
        write().map_err(self.fail("write"))
    }

    /// Containers that were seen, by id.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn remembered(&self) -> Result<BTreeMap<String, Remembered>, ProfilesError> {
        self.rows("SELECT id, json FROM container")
    }

    /// Remembers a container, and forgets others; all or nothing.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn remember(&self, seen: &Remembered, gone: &[String]) -> Result<(), ProfilesError> {
        let json = serde_json::to_string(seen).unwrap_or_default();
        let write = || {
            let change = self.db.unchecked_transaction()?;
            for id in gone {
                change.execute("DELETE FROM container WHERE id = ?1", [id])?;
            }
            let sql = "INSERT OR REPLACE INTO container VALUES (?1, ?2)";
            change.execute(sql, [&seen.facts.id, &json])?;
            change.commit()
        };
        write().map_err(self.fail("write"))
    }

    fn rows<T: DeserializeOwned>(&self, sql: &str) -> Result<BTreeMap<String, T>, ProfilesError> {
        let read = || {
            let mut statement = self.db.prepare(sql)?;
            let rows =
                statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(String, String)>>>()
        };
        let rows = read().map_err(self.fail("read"))?;
        let parse = |(key, json): (String, String)| Some((key, serde_json::from_str(&json).ok()?));
        Ok(rows.into_iter().filter_map(parse).collect())
    }

    /// Keeps profiles; all or nothing.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn put<'a>(
        &self,
        all: impl IntoIterator<Item = (&'a str, &'a Profile)>,
    ) -> Result<(), ProfilesError> {
        let write = || {
            let change = self.db.unchecked_transaction()?;
            for (key, profile) in all {
                let json = serde_json::to_string(profile).unwrap_or_default();
                let sql = "INSERT OR REPLACE INTO profile VALUES (?1, ?2)";
                change.execute(sql, params![key, json])?;
            }
            change.commit()
        };
        write().map_err(self.fail("write"))
    }

    /// Forgets a profile.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn forget(&self, key: &str) -> Result<(), ProfilesError> {
        let sql = "DELETE FROM profile WHERE key = ?1";
        self.db.execute(sql, [key]).map(drop).map_err(self.fail("write"))
    }

    fn fail(&self, operation: &'static str) -> impl FnOnce(rusqlite::Error) -> ProfilesError + '_ {
        move |source| ProfilesError { operation, path: self.path.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctlmgr_model::{Bytes, Character, Io, Millis};

    #[test]
    fn profiles_survive_reopening_and_garbage_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("var/lib/ctlmgr/profiles.db");
        let profile = Profile {
            confidence: ctlmgr_model::Percent(50),
            alone: Some(Millis(900)),
            character: Character::RandomRead,
            starts: 2,
            io: Io { read: Bytes::mib(3), reads: 768, ..Io::default() },
            lasts: Millis(1500),
            steady_per_sec: Bytes(7),
            learned_unix: 9,
            running: None,
        };
        let store = Profiles::open(&path).unwrap();
        store.put([("shop/db", &profile), ("gone", &profile)]).unwrap();
        store.forget("gone").unwrap();
        store.db.execute("INSERT INTO profile VALUES ('odd', '{')", []).unwrap();
        let pair = |hundredths| PairPenalty {
            a: Character::RandomRead,
            b: Character::Mixed,
            hundredths,
            seen: 3,
            learned_unix: 7,
        };
        store.put_penalty(&pair(50)).unwrap();
        store.put_penalty(&pair(60)).unwrap();
        drop(store);
        let store = Profiles::open(&path).unwrap();
        assert_eq!(store.penalties().unwrap(), [pair(60)]);
        let all = store.all().unwrap();
        assert_eq!(all, BTreeMap::from([("shop/db".to_owned(), profile)]));
    }

    #[test]
    fn histories_of_processor_use_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let store = Profiles::open(&dir.path().join("profiles.db")).unwrap();
        let known = CpuUse { steps: vec![0, 3], samples: 3, learned_unix: 5 };
        store.put_cpu_uses([("web", Some(&known)), ("db", Some(&known))].into_iter()).unwrap();
        store.put_cpu_uses([("db", None)].into_iter()).unwrap();
        assert_eq!(store.cpu_uses().unwrap(), BTreeMap::from([("web".to_owned(), known)]));
    }

    #[test]
    fn containers_are_remembered_without_their_commands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profiles.db");
        let store = Profiles::open(&path).unwrap();
        let seen = |id: &str| Remembered {
            key: format!("{id}#1"),
            facts: ctlmgr_model::ContainerFacts {
                id: id.to_owned(),
                command: Some("with a secret".to_owned()),
                ..Default::default()
            },
        };
        store.remember(&seen("a"), &[]).unwrap();
        store.remember(&seen("b"), &["a".to_owned()]).unwrap();
        let mut expected = seen("b");
        expected.facts.command = None;
        assert_eq!(store.remembered().unwrap(), BTreeMap::from([("b".to_owned(), expected)]));
        drop(store);
        let bytes = std::fs::read(path).unwrap();
        assert!(!bytes.windows(6).any(|w| w == b"secret"));
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = Profiles::open(&dir.path().join("file/profiles.db")).unwrap_err();
        assert!(error.to_string().contains("profiles.db"), "{error}");
    }
}
