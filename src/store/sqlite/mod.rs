//! The embedded store: one SQLite file, shared by the processes of one host.
//!
//! Two threads of our own, one that writes and one that reads, each fed by a bounded queue: SQLite blocks, and an async
//! task must not. WAL lets the reader and other processes go on while somebody writes; `synchronous=FULL` means that a
//! write which returned survives a power cut.

mod approvals;
mod browser;
mod clients;
mod codes;
mod documents;
mod grants;
mod lane;
mod logins;
mod notices;
mod presence;
mod refresh;
mod schema;
mod sessions;

use super::{Attempt, Error, Grant, LoginState, Revocation, Subject, files};
use lane::Lane;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long one statement waits for another process's write.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle; clones share the threads, which end with the last of them.
#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    writer: Arc<Lane<Connection>>,
    reader: Arc<Lane<Reader>>,
    presence: Arc<presence::Presence>,
}

/// The reading connection and what it saw last.
#[derive(Debug)]
struct Reader {
    connection: Connection,
    feed: grants::Feed,
    approvals: approvals::Feed,
}

impl Sqlite {
    pub(super) fn open(data_dir: &Path) -> Result<Self, Error> {
        let path = data_dir.join("portcullis.db");
        let failed = |source| Error::Open { path: path.clone(), source };
        files::make_private_dir(data_dir).map_err(failed)?;
        // Two processes that start at the same moment would both turn on WAL, which SQLite answers with "busy" at once.
        let _lock = files::lock(&data_dir.join("portcullis.db.lock")).map_err(failed)?;
        // SQLite gives the `-wal` and `-shm` files beside it the same mode.
        files::make_private_file(&path).map_err(failed)?;

        let mut writer = connect(&path)?;
        writer.pragma_update(None, "journal_mode", "wal")?;
        writer.pragma_update(None, "synchronous", "full")?;
        schema::migrate(&mut writer)?;
        let reader = connect(&path)?;
        reader.pragma_update(None, "query_only", true)?;
        let reader =
            Reader { connection: reader, feed: grants::Feed::default(), approvals: approvals::Feed::default() };
        Ok(Sqlite {
            writer: Arc::new(Lane::start("store-writer", writer).map_err(failed)?),
            reader: Arc::new(Lane::start("store-reader", reader).map_err(failed)?),
            presence: Arc::new(presence::Presence::new(data_dir)),
        })
    }

    pub(super) async fn insert_grant(&self, grant: Grant) -> Result<(), Error> {
        self.write(move |connection| grants::insert(connection, &grant)).await
    }

    pub(super) async fn grant(&self, id: &str) -> Result<Option<Grant>, Error> {
        let id = id.to_owned();
        self.reader.run(move |reader| grants::get(&reader.connection, &id)).await
    }

    pub(super) async fn grants(&self, of: Option<&Subject>) -> Result<Vec<Grant>, Error> {
        let of = of.cloned();
        self.reader.run(move |reader| grants::list(&reader.connection, of.as_ref())).await
    }

    pub(super) async fn grants_in_force(&self, subject: &Subject, at_ms: i64) -> Result<Vec<Grant>, Error> {
        let subject = subject.clone();
        self.reader.run(move |reader| grants::list_in_force(&reader.connection, &subject, at_ms)).await
    }

    pub(super) async fn revoke_grant(&self, id: &str, by: &str, at_ms: i64) -> Result<Revocation, Error> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.write(move |connection| grants::revoke(connection, &id, &by, at_ms)).await
    }

    pub(super) async fn revocations_after(&self, change: i64) -> Result<(i64, Vec<String>), Error> {
        self.reader.run(move |reader| reader.feed.after(&reader.connection, change)).await
    }

    pub(super) async fn login_attempt(&self, name: &str, at_ms: i64) -> Result<Attempt, Error> {
        let name = name.to_owned();
        self.write(move |connection| logins::attempt(connection, &name, at_ms)).await
    }

    pub(super) async fn login_success(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.write(move |connection| logins::success(connection, &name)).await
    }

    pub(super) async fn login_state(&self, name: &str) -> Result<LoginState, Error> {
        let name = name.to_owned();
        self.reader.run(move |reader| logins::state(&reader.connection, &name)).await
    }

    pub(super) async fn end_session(&self, digest: [u8; 32], at_ms: i64, oldest_ms: i64) -> Result<(), Error> {
        self.write(move |connection| sessions::end(connection, &digest, at_ms, oldest_ms)).await
    }

    pub(super) async fn ended_sessions(&self, oldest_ms: i64) -> Result<Vec<([u8; 32], i64)>, Error> {
        self.reader.run(move |reader| sessions::ended(&reader.connection, oldest_ms)).await
    }

    pub(super) async fn purge_expired(&self, at_ms: i64) -> Result<usize, Error> {
        self.write(move |connection| {
            logins::purge(connection, at_ms)?;
            codes::purge(connection, at_ms)?;
            refresh::purge(connection, at_ms)?;
            browser::purge(connection, at_ms)?;
            documents::purge(connection, at_ms)?;
            grants::purge(connection, at_ms)
        })
        .await
    }

    /// Runs `work` in one transaction, kept only if it succeeds. It takes the write lock at its start:
    /// one that reads first and locks later fails when somebody else wrote in between.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.writer
            .run(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = work(&transaction)?;
                transaction.commit()?;
                Ok(done)
            })
            .await
    }
}

/// A connection set up as all of ours are.
fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use crate::store::{Store, conformance};
    use std::os::unix::fs::PermissionsExt as _;

    conformance::suite!(one_handle, async |dir: &std::path::Path| {
        let store = Store::open(dir).await.expect("it opens");
        (store.clone(), store)
    });

    conformance::suite!(two_processes, async |dir: &std::path::Path| {
        let here = Store::open(dir).await.expect("it opens");
        (here, Store::open(dir).await.expect("it opens again"))
    });

    #[tokio::test]
    async fn its_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");

        let _store = Store::open(&data_dir).await.unwrap();

        let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&data_dir), 0o700);
        for file in ["portcullis.db", "portcullis.db-wal", "portcullis.db-shm"] {
            assert_eq!(mode(&data_dir.join(file)), 0o600, "{file}");
        }
    }
}
