//! The tables, and the way from each schema to the next. Forward only: a file is never taken back to an older one.

use crate::store::Error;
use rusqlite::{Connection, TransactionBehavior};

/// Entry `n` leads from schema `n` to `n + 1`. Entries are added at the end and never changed.
const STEPS: &[&str] = &[
    "
    CREATE TABLE grants (
        id           TEXT PRIMARY KEY,
        issuer       TEXT NOT NULL,
        subject_kind TEXT NOT NULL CHECK (subject_kind IN ('user', 'client')),
        subject_name TEXT NOT NULL,
        client_id    TEXT NOT NULL,
        resource     TEXT NOT NULL,
        scopes       TEXT NOT NULL,      -- separated by one space, as in a token
        created_at   INTEGER NOT NULL,   -- all times: milliseconds since the Unix epoch
        expires_at   INTEGER NOT NULL,
        made_by      TEXT NOT NULL,
        revoked_at   INTEGER,
        revoked_by   TEXT,
        CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX grants_by_subject ON grants (subject_kind, subject_name, created_at);
    CREATE INDEX grants_by_expiry  ON grants (expires_at);
    -- AUTOINCREMENT: a number is never given twice, also after rows were purged. SQLite has one writer at a time,
    -- so numbers become visible in their order and nobody who asks for those after n can miss one.
    CREATE TABLE revocations (
        change   INTEGER PRIMARY KEY AUTOINCREMENT,
        grant_id TEXT NOT NULL UNIQUE REFERENCES grants (id) ON DELETE CASCADE
    ) STRICT;
    CREATE TABLE login_failures (
        name         TEXT PRIMARY KEY,
        count        INTEGER NOT NULL,
        last_at      INTEGER NOT NULL,
        locked_until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Tombstones: an ended session stays ended, whoever still holds its sealed id.
    CREATE TABLE ended_sessions (
        digest   BLOB PRIMARY KEY,
        ended_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX ended_sessions_by_time ON ended_sessions (ended_at);
",
];

/// Brings the file to the latest schema, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let done = usize::try_from(found).ok().filter(|done| *done <= STEPS.len());
    let Some(done) = done else {
        return Err(Error::Newer { found, known });
    };
    for step in STEPS.iter().skip(done) {
        transaction.execute_batch(step)?;
    }
    if found < known {
        transaction.pragma_update(None, "user_version", known)?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_store_of_a_later_version_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).await.unwrap());
        let file = Connection::open(dir.path().join("portcullis.db")).unwrap();
        file.pragma_update(None, "user_version", 99).unwrap();

        let refused = Store::open(dir.path()).await.expect_err("it is newer");

        assert_eq!(
            refused.to_string(),
            "the store has schema 99, and this program knows schemas up to 2; run the version that wrote it"
        );
    }

    #[test]
    fn a_store_that_is_up_to_date_is_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
    }
}
