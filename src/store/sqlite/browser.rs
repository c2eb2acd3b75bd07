//! Browser sessions, waiting requests and consents, in SQL.

use super::Sqlite;
use crate::store::browser::{MAX_FLOWS_OF_ONE_SESSION, MAX_SESSIONS_OF_ONE_USER};
use crate::store::{BrowserSession, Choice, Consent, Decided, Error, Flow};
use rusqlite::{Connection, OptionalExtension as _, Row};

impl Sqlite {
    pub(in crate::store) async fn insert_browser_session(&self, session: BrowserSession) -> Result<(), Error> {
        self.write(move |connection| {
            connection.prepare_cached("INSERT INTO browser_sessions VALUES (?, ?, ?, ?, ?)")?.execute((
                session.digest,
                &session.user,
                &session.password_mark,
                session.created_at_ms,
                session.seen_at_ms,
            ))?;
            connection
                .prepare_cached(
                    "DELETE FROM browser_sessions WHERE user = ?1 AND digest NOT IN (SELECT digest FROM browser_sessions
                     WHERE user = ?1 ORDER BY created_at DESC LIMIT ?2)",
                )?
                .execute((&session.user, MAX_SESSIONS_OF_ONE_USER))?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn browser_session(&self, digest: [u8; 32]) -> Result<Option<BrowserSession>, Error> {
        self.reader
            .run(move |reader| {
                let mut statement = reader.connection.prepare_cached(
                    "SELECT digest, user, password_mark, created_at, seen_at FROM browser_sessions WHERE digest = ?",
                )?;
                let read = |row: &Row<'_>| {
                    Ok(BrowserSession {
                        digest: row.get(0)?,
                        user: row.get(1)?,
                        password_mark: row.get(2)?,
                        created_at_ms: row.get(3)?,
                        seen_at_ms: row.get(4)?,
                    })
                };
                Ok(statement.query_row([digest], read).optional()?)
            })
            .await
    }

    pub(in crate::store) async fn browser_session_seen(&self, digest: [u8; 32], at_ms: i64) -> Result<(), Error> {
        self.write(move |connection| {
            let sql = "UPDATE browser_sessions SET seen_at = max(seen_at, ?) WHERE digest = ?";
            connection.prepare_cached(sql)?.execute((at_ms, digest))?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn end_browser_session(&self, digest: [u8; 32]) -> Result<(), Error> {
        self.write(move |connection| {
            connection.prepare_cached("DELETE FROM browser_sessions WHERE digest = ?")?.execute([digest])?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn insert_flow(&self, flow: Flow) -> Result<(), Error> {
        self.write(move |connection| {
            connection.prepare_cached("INSERT INTO flows VALUES (?, ?, ?, ?, NULL, NULL)")?.execute((
                &flow.id,
                flow.session,
                &flow.request,
                flow.created_at_ms,
            ))?;
            connection
                .prepare_cached(
                    "DELETE FROM flows WHERE session = ?1 AND id NOT IN (SELECT id FROM flows
                     WHERE session = ?1 ORDER BY created_at DESC LIMIT ?2)",
                )?
                .execute((flow.session, MAX_FLOWS_OF_ONE_SESSION))?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn flow(&self, id: &str) -> Result<Option<Flow>, Error> {
        let id = id.to_owned();
        self.reader.run(move |reader| flow(&reader.connection, &id)).await
    }

    pub(in crate::store) async fn decide_flow(
        &self,
        id: &str,
        session: [u8; 32],
        choice: Choice,
        at_ms: i64,
    ) -> Result<Option<Decided>, Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            let n_written = connection
                .prepare_cached(
                    "UPDATE flows SET decision = ?, decided_at = ? WHERE id = ? AND session = ? AND decision IS NULL",
                )?
                .execute((choice.as_str(), at_ms, &id, session))?;
            let found = flow(connection, &id)?.filter(|flow| flow.session == session).and_then(|flow| flow.decision);
            Ok(found.map(|(choice, at_ms)| Decided { choice, at_ms, is_repeated: n_written == 0 }))
        })
        .await
    }

    /// `key`: user, client, redirect host, resource.
    pub(in crate::store) async fn consent(&self, key: [String; 4]) -> Result<Option<Consent>, Error> {
        self.reader
            .run(move |reader| {
                let mut statement = reader.connection.prepare_cached(
                    "SELECT user, client_id, redirect_host, resource, metadata, scopes, given_at FROM consents
                     WHERE user = ? AND client_id = ? AND redirect_host = ? AND resource = ?",
                )?;
                let read = |row: &Row<'_>| {
                    let scopes: String = row.get(5)?;
                    Ok(Consent {
                        user: row.get(0)?,
                        client: row.get(1)?,
                        redirect_host: row.get(2)?,
                        resource: row.get(3)?,
                        metadata_sha256: row.get(4)?,
                        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
                        given_at_ms: row.get(6)?,
                    })
                };
                Ok(statement.query_row(key, read).optional()?)
            })
            .await
    }

    pub(in crate::store) async fn insert_consent(&self, consent: Consent) -> Result<(), Error> {
        self.write(move |connection| {
            connection.prepare_cached("INSERT OR REPLACE INTO consents VALUES (?, ?, ?, ?, ?, ?, ?)")?.execute((
                &consent.user,
                &consent.client,
                &consent.redirect_host,
                &consent.resource,
                consent.metadata_sha256,
                consent.scopes.join(" "),
                consent.given_at_ms,
            ))?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn forget_consents(&self, user: &str, client: &str) -> Result<(), Error> {
        let (user, client) = (user.to_owned(), client.to_owned());
        self.write(move |connection| {
            let sql = "DELETE FROM consents WHERE user = ? AND client_id = ?";
            connection.prepare_cached(sql)?.execute((user, client))?;
            Ok(())
        })
        .await
    }
}

fn flow(connection: &Connection, id: &str) -> Result<Option<Flow>, Error> {
    let mut statement = connection
        .prepare_cached("SELECT id, session, request, created_at, decision, decided_at FROM flows WHERE id = ?")?;
    let read = |row: &Row<'_>| {
        let decision: Option<String> = row.get(4)?;
        Ok(Flow {
            id: row.get(0)?,
            session: row.get(1)?,
            request: row.get(2)?,
            created_at_ms: row.get(3)?,
            decision: decision.as_deref().and_then(Choice::of).zip(row.get(5)?),
        })
    };
    Ok(statement.query_row([id], read).optional()?)
}

/// Removes sessions that began before `at_ms`; what waits in them goes with them.
pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM browser_sessions WHERE created_at <= ?")?.execute([at_ms])?;
    Ok(())
}
