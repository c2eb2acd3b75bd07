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
    "
    -- What the person's password was when they let the client act for them; a new password ends the grant.
    ALTER TABLE grants ADD COLUMN password_mark TEXT;
    -- A grant is used until its end; its refresh tokens move that end, never beyond this. NULL: its end does not move.
    ALTER TABLE grants ADD COLUMN longest_until INTEGER;
    CREATE INDEX grants_by_client ON grants (client_id);
    -- Clients that registered themselves (RFC 7591). Secrets, codes and tokens are kept as SHA-256 only.
    CREATE TABLE clients (
        id         TEXT PRIMARY KEY,
        metadata   TEXT NOT NULL,      -- as registered, JSON
        secret     BLOB,
        created_at INTEGER NOT NULL,
        used_at    INTEGER             -- when a person last consented to it, or it last got a token
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX clients_by_use ON clients (used_at, created_at);
    -- Documents of clients that a person has let in, as last fetched: for when they cannot be had.
    CREATE TABLE documents (
        client_id  TEXT NOT NULL,
        url        TEXT NOT NULL,      -- the client's id, or its jwks_uri
        body       BLOB NOT NULL,
        fetched_at INTEGER NOT NULL,
        PRIMARY KEY (client_id, url)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX documents_by_age ON documents (fetched_at);
    CREATE TABLE codes (
        digest        BLOB PRIMARY KEY,
        issuer        TEXT NOT NULL,
        subject_kind  TEXT NOT NULL CHECK (subject_kind IN ('user', 'client')),
        subject_name  TEXT NOT NULL,
        client_id     TEXT NOT NULL,
        resource      TEXT NOT NULL,
        scopes        TEXT NOT NULL,
        password_mark TEXT,
        redirect_uri  TEXT NOT NULL,   -- as the client sent it
        challenge     TEXT NOT NULL,   -- S256 (RFC 7636)
        expires_at    INTEGER NOT NULL,
        wrong_tries   INTEGER NOT NULL DEFAULT 0,
        redeemed_at   INTEGER,
        grant_id      TEXT             -- what it was redeemed for
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX codes_by_expiry ON codes (expires_at);
    CREATE TABLE refresh_tokens (
        digest           BLOB PRIMARY KEY,
        grant_id         TEXT NOT NULL REFERENCES grants (id) ON DELETE CASCADE,
        generation       INTEGER NOT NULL,   -- of the grant's tokens the first is 0, its successor 1
        created_at       INTEGER NOT NULL,
        expires_at       INTEGER NOT NULL,
        used_at          INTEGER,
        successor        BLOB,         -- its digest
        successor_sealed BLOB          -- itself, sealed under a key that only the predecessor gives
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX refresh_tokens_by_grant ON refresh_tokens (grant_id, generation);
    CREATE INDEX refresh_tokens_by_expiry ON refresh_tokens (expires_at);
    -- Assertions of private_key_jwt that were used (RFC 7523 §3, `jti`).
    CREATE TABLE assertions (
        digest     BLOB PRIMARY KEY,
        expires_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX assertions_by_expiry ON assertions (expires_at);
    -- A person logged in with a browser.
    CREATE TABLE browser_sessions (
        digest        BLOB PRIMARY KEY,
        user          TEXT NOT NULL,
        password_mark TEXT NOT NULL,
        created_at    INTEGER NOT NULL,
        seen_at       INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX browser_sessions_by_user ON browser_sessions (user, created_at);
    -- Authorization requests that wait for a person who is logged in.
    CREATE TABLE flows (
        id         TEXT PRIMARY KEY,
        session    BLOB NOT NULL REFERENCES browser_sessions (digest) ON DELETE CASCADE,
        request    TEXT NOT NULL,      -- what was checked, JSON
        created_at INTEGER NOT NULL,
        decision   TEXT,               -- allow, deny
        decided_at INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX flows_by_session ON flows (session, created_at);
    -- What a person said yes to, so that they are asked again only for something new.
    CREATE TABLE consents (
        user          TEXT NOT NULL,
        client_id     TEXT NOT NULL,
        redirect_host TEXT NOT NULL,
        resource      TEXT NOT NULL,
        metadata      BLOB NOT NULL,   -- SHA-256 of what the client said of itself
        scopes        TEXT NOT NULL,
        given_at      INTEGER NOT NULL,
        PRIMARY KEY (user, client_id, redirect_host, resource)
    ) STRICT, WITHOUT ROWID;
",
    "
    -- Calls that were held for a person.
    CREATE TABLE approvals (
        id             TEXT PRIMARY KEY,
        state          TEXT NOT NULL,
        digest         BLOB NOT NULL,
        issuer         TEXT NOT NULL,
        subject_kind   TEXT NOT NULL CHECK (subject_kind IN ('user', 'client')),
        subject_name   TEXT NOT NULL,
        client_id      TEXT NOT NULL,
        person         TEXT,
        grant_id       TEXT,
        upstream       TEXT NOT NULL,
        tool           TEXT NOT NULL,
        rules          TEXT NOT NULL,      -- JSON
        rules_digest   BLOB NOT NULL,
        terms          TEXT NOT NULL,      -- JSON
        call           BLOB,               -- sealed; NULL once erased
        result         BLOB,               -- sealed
        created_at     INTEGER NOT NULL,
        expires_at     INTEGER NOT NULL,
        valid_for      INTEGER NOT NULL,
        decided_at     INTEGER,
        usable_until   INTEGER,
        consumed_at    INTEGER,
        consumer       TEXT,
        ended_at       INTEGER,
        received_at    INTEGER,
        waited_for_until INTEGER NOT NULL,
        task_until     INTEGER,
        note           TEXT,
        change         INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX approvals_by_digest ON approvals (digest, created_at);
    CREATE INDEX approvals_by_state  ON approvals (state, created_at);
    CREATE INDEX approvals_by_change ON approvals (change);
    CREATE INDEX approvals_by_end    ON approvals (ended_at);
    -- The number of the last change; it only grows, also when rows are forgotten.
    CREATE TABLE approval_changes (last INTEGER NOT NULL) STRICT;
    INSERT INTO approval_changes VALUES (0);
    CREATE TABLE approval_decisions (
        approval TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
        person   TEXT NOT NULL,
        approves INTEGER NOT NULL,
        via      TEXT NOT NULL,
        at       INTEGER NOT NULL,
        mark     BLOB NOT NULL,
        PRIMARY KEY (approval, person)
    ) STRICT, WITHOUT ROWID;
    -- Webhooks that are to be told of a held call. What is sent is made from the call each time.
    CREATE TABLE notices (
        id            TEXT PRIMARY KEY,    -- the webhook-id
        approval      TEXT NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
        hook          TEXT NOT NULL,
        nonce         TEXT NOT NULL,
        state         TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'delivered', 'dead')),
        attempts      INTEGER NOT NULL DEFAULT 0,
        next_at       INTEGER NOT NULL,
        claimed_until INTEGER NOT NULL DEFAULT 0,   -- a process is sending it right now
        last_error    TEXT,
        created_at    INTEGER NOT NULL,
        ended_at      INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX notices_by_time     ON notices (state, next_at);
    CREATE INDEX notices_by_approval ON notices (approval);
    -- Decisions that webhooks have sent, by their webhook-id: one that comes again changes nothing.
    CREATE TABLE heard_webhooks (
        hook     TEXT NOT NULL,
        id       TEXT NOT NULL,
        heard_at INTEGER NOT NULL,
        PRIMARY KEY (hook, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX heard_webhooks_by_time ON heard_webhooks (heard_at);
",
];

/// Brings the file to the latest schema, in one transaction. Where it is there already no writer is waited for: a command
/// that only looks must not fail because a gateway writes much.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Error> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if version(connection)? == known {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
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

fn version(connection: &Connection) -> Result<i64, Error> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
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
            "the store has schema 99, and this program knows schemas up to 4; run the version that wrote it"
        );
    }

    #[tokio::test]
    async fn a_store_that_is_up_to_date_is_opened_while_another_process_writes() {
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).await.unwrap());
        let mut writer = Connection::open(dir.path().join("portcullis.db")).unwrap();
        let _writing = writer.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();

        let store = Store::open(dir.path()).await.expect("it need not write");

        assert_eq!(store.approvals(&[]).await.unwrap(), []);
    }

    #[test]
    fn a_store_that_is_up_to_date_is_left_as_it_is() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 4);
    }
}
