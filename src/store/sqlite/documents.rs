//! Documents of clients, in SQL.

use super::Sqlite;
use crate::store::document::UNUSED_MS;
use crate::store::{Error, FetchedDocument};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

impl Sqlite {
    pub(in crate::store) async fn keep_document(&self, document: FetchedDocument, cap: usize) -> Result<(), Error> {
        self.write(move |connection| keep(connection, &document, cap)).await
    }

    pub(in crate::store) async fn document(&self, client: &str, url: &str) -> Result<Option<FetchedDocument>, Error> {
        let key = (client.to_owned(), url.to_owned());
        self.reader
            .run(move |reader| {
                let sql = "SELECT client_id, url, body, fetched_at FROM documents WHERE client_id = ? AND url = ?";
                let mut statement = reader.connection.prepare_cached(sql)?;
                Ok(statement.query_row(key, read).optional()?)
            })
            .await
    }

    pub(in crate::store) async fn forget_documents(&self, client: &str) -> Result<(), Error> {
        let client = client.to_owned();
        self.write(move |connection| forget(connection, &client)).await
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<FetchedDocument> {
    Ok(FetchedDocument { client: row.get(0)?, url: row.get(1)?, body: row.get(2)?, fetched_at_ms: row.get(3)? })
}

fn keep(connection: &Connection, document: &FetchedDocument, cap: usize) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO documents VALUES (:client, :url, :body, :at) ON CONFLICT (client_id, url) DO UPDATE
             SET body = excluded.body, fetched_at = excluded.fetched_at WHERE excluded.fetched_at >= fetched_at",
        )?
        .execute(named_params! {
            ":client": document.client, ":url": document.url, ":body": document.body, ":at": document.fetched_at_ms,
        })?;
    connection
        .prepare_cached(
            "DELETE FROM documents WHERE (client_id, url) IN
             (SELECT client_id, url FROM documents ORDER BY fetched_at DESC, client_id, url LIMIT -1 OFFSET ?)",
        )?
        .execute([i64::try_from(cap).unwrap_or(i64::MAX)])?;
    Ok(())
}

/// Also when a client is removed.
pub(super) fn forget(connection: &Connection, client: &str) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM documents WHERE client_id = ?")?.execute([client])?;
    Ok(())
}

/// Removes those that are old and of which no grant is in force.
pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<(), Error> {
    connection
        .prepare_cached(
            "DELETE FROM documents WHERE fetched_at <= :old AND client_id NOT IN
             (SELECT client_id FROM grants WHERE revoked_at IS NULL AND expires_at > :now)",
        )?
        .execute(named_params! { ":old": at_ms.saturating_sub(UNUSED_MS), ":now": at_ms })?;
    Ok(())
}
