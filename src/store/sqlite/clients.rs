//! Registered clients and used assertions, in SQL.

use super::{Sqlite, documents, grants};
use crate::store::client::{TOUCHED_EVERY_MS, YOUNG_MS};
use crate::store::{Error, Insertion, MAX_CLIENTS, RegisteredClient, Removal};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};

const COLUMNS: &str = "id, metadata, secret, created_at, used_at";
/// Expired assertions that go with a new one at most.
const FORGOTTEN_AT_ONCE: usize = 100;

impl Sqlite {
    pub(in crate::store) async fn insert_client(
        &self,
        client: RegisteredClient,
        cap: usize,
    ) -> Result<Insertion, Error> {
        self.write(move |connection| insert(connection, &client, cap)).await
    }

    pub(in crate::store) async fn client(&self, id: &str) -> Result<Option<RegisteredClient>, Error> {
        let id = id.to_owned();
        self.reader.run(move |reader| get(&reader.connection, &id)).await
    }

    pub(in crate::store) async fn clients(&self) -> Result<Vec<RegisteredClient>, Error> {
        self.reader
            .run(move |reader| {
                let sql = format!("SELECT {COLUMNS} FROM clients ORDER BY created_at DESC, id LIMIT {MAX_CLIENTS}");
                let mut statement = reader.connection.prepare_cached(&sql)?;
                let rows = statement.query_map([], read)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    pub(in crate::store) async fn touch_client(&self, id: &str, at_ms: i64) -> Result<(), Error> {
        let stale_ms = at_ms.saturating_sub(TOUCHED_EVERY_MS);
        let is_known = |client: RegisteredClient| client.used_at_ms.is_some_and(|used| used > stale_ms);
        // Most often there is nothing to write, and a write waits for the disk.
        if self.client(id).await?.is_none_or(is_known) {
            return Ok(());
        }
        let id = id.to_owned();
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE clients SET used_at = max(coalesce(used_at, 0), ?) WHERE id = ?")?
                .execute((at_ms, id))?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn remove_client(&self, id: &str, by: &str, at_ms: i64) -> Result<Removal, Error> {
        let (id, by) = (id.to_owned(), by.to_owned());
        self.write(move |connection| remove(connection, &id, &by, at_ms)).await
    }

    pub(in crate::store) async fn use_assertion(
        &self,
        digest: [u8; 32],
        expires_at_ms: i64,
        at_ms: i64,
    ) -> Result<bool, Error> {
        self.write(move |connection| {
            let sql = format!(
                "DELETE FROM assertions WHERE digest IN
                 (SELECT digest FROM assertions WHERE expires_at <= ? LIMIT {FORGOTTEN_AT_ONCE})"
            );
            connection.prepare_cached(&sql)?.execute([at_ms])?;
            let inserted = connection
                .prepare_cached("INSERT OR IGNORE INTO assertions VALUES (?, ?)")?
                .execute((digest, expires_at_ms))?;
            Ok(inserted == 1)
        })
        .await
    }
}

fn insert(connection: &Connection, client: &RegisteredClient, cap: usize) -> Result<Insertion, Error> {
    let count: i64 = connection.prepare_cached("SELECT count(*) FROM clients")?.query_row([], |row| row.get(0))?;
    let mut removed = None;
    if usize::try_from(count).unwrap_or(usize::MAX) >= cap {
        removed = dead(connection, client.created_at_ms)?;
        let Some(id) = &removed else {
            return Ok(Insertion::Full);
        };
        connection.prepare_cached("DELETE FROM clients WHERE id = ?")?.execute([id])?;
    }
    connection.prepare_cached("INSERT INTO clients VALUES (:id, :metadata, :secret, :created, :used)")?.execute(
        named_params! {
            ":id": client.id, ":metadata": client.metadata, ":secret": client.secret,
            ":created": client.created_at_ms, ":used": client.used_at_ms,
        },
    )?;
    Ok(Insertion::Done { removed })
}

/// The first client in line to go, of those nobody can be using: no person has agreed to it, and no token or code of it
/// is good for anything. Those never used (NULL) come first.
fn dead(connection: &Connection, now_ms: i64) -> Result<Option<String>, Error> {
    let young_ms = now_ms.saturating_sub(YOUNG_MS);
    Ok(connection
        .prepare_cached(
            "SELECT id FROM clients WHERE created_at <= :young AND coalesce(used_at, 0) <= :young
             AND id NOT IN (SELECT client_id FROM consents)
             AND id NOT IN (SELECT client_id FROM codes WHERE expires_at > :now)
             AND id NOT IN (SELECT client_id FROM grants WHERE revoked_at IS NULL AND expires_at > :now)
             ORDER BY used_at, created_at, id LIMIT 1",
        )?
        .query_row(named_params! { ":young": young_ms, ":now": now_ms }, |row| row.get(0))
        .optional()?)
}

fn get(connection: &Connection, id: &str) -> Result<Option<RegisteredClient>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM clients WHERE id = ?");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read).optional()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<RegisteredClient> {
    Ok(RegisteredClient {
        id: row.get("id")?,
        metadata: row.get("metadata")?,
        secret: row.get("secret")?,
        created_at_ms: row.get("created_at")?,
        used_at_ms: row.get("used_at")?,
    })
}

fn remove(connection: &Connection, id: &str, by: &str, at_ms: i64) -> Result<Removal, Error> {
    let n_removed = connection.prepare_cached("DELETE FROM clients WHERE id = ?")?.execute([id])?;
    connection.prepare_cached("DELETE FROM codes WHERE client_id = ?")?.execute([id])?;
    connection.prepare_cached("DELETE FROM consents WHERE client_id = ?")?.execute([id])?;
    documents::forget(connection, id)?;
    let mut statement = connection
        .prepare_cached("SELECT id FROM grants WHERE client_id = ? AND revoked_at IS NULL AND expires_at > ?")?;
    let grants: Vec<String> = statement.query_map((id, at_ms), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for grant in &grants {
        grants::revoke(connection, grant, by, at_ms)?;
    }
    Ok(Removal { was_registered: n_removed > 0, n_revoked: grants.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn a_client_that_somebody_consented_to_never_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let client = |id: &str, created_at_ms: i64| RegisteredClient {
            id: id.to_owned(),
            metadata: String::new(),
            secret: None,
            created_at_ms,
            used_at_ms: None,
        };
        for id in ["trusted", "other"] {
            store.insert_client(client(id, 1), 2).await.unwrap();
        }
        let file = Connection::open(dir.path().join("portcullis.db")).unwrap();
        file.execute("INSERT INTO consents VALUES ('alice', 'trusted', 'h', 'r', x'00', 'mcp', 1)", []).unwrap();

        let first = store.insert_client(client("new", YOUNG_MS + 1), 2).await.unwrap();
        let second = store.insert_client(client("newer", YOUNG_MS + 1), 2).await.unwrap();

        assert_eq!(first, Insertion::Done { removed: Some("other".to_owned()) });
        assert_eq!(second, Insertion::Full);
        store.remove_client("trusted", "user:root", 2).await.unwrap();
        let left: i64 = file.query_row("SELECT count(*) FROM consents", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0);
    }
}
