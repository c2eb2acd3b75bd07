//! Authorization codes, in SQL.

use super::{Sqlite, grants, refresh};
use crate::store::grant::REPLAY;
use crate::store::{Code, Error, MAX_WRONG_TRIES, Redeemed, Redemption, Subject};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params};
use std::sync::Arc;

const COLUMNS: &str = "digest, issuer, subject_kind, subject_name, client_id, resource, scopes, password_mark, \
                       redirect_uri, challenge, expires_at";

/// Rows that one purge removes at most.
const PURGED_AT_ONCE: usize = 5_000;

/// What becomes of a code.
struct State {
    expires_at_ms: i64,
    wrong_tries: u32,
    redeemed_for: Option<Arc<str>>,
}

impl State {
    fn is_in_time(&self, now_ms: i64) -> bool {
        now_ms < self.expires_at_ms && self.wrong_tries < MAX_WRONG_TRIES
    }
}

impl Sqlite {
    pub(in crate::store) async fn insert_code(&self, code: Code) -> Result<(), Error> {
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO codes VALUES (:digest, :issuer, :kind, :name, :client, :resource, :scopes,
                     :mark, :redirect, :challenge, :expires, 0, NULL, NULL)",
                )?
                .execute(named_params! {
                    ":digest": code.digest, ":issuer": code.issuer,
                    ":kind": code.subject.kind(), ":name": code.subject.name(),
                    ":client": code.client, ":resource": code.resource, ":scopes": code.scopes.join(" "),
                    ":mark": code.password_mark, ":redirect": code.redirect_uri,
                    ":challenge": code.challenge, ":expires": code.expires_at_ms,
                })?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn code(&self, digest: [u8; 32]) -> Result<Option<Code>, Error> {
        self.reader
            .run(move |reader| {
                let sql = format!("SELECT {COLUMNS} FROM codes WHERE digest = ?");
                Ok(reader.connection.prepare_cached(&sql)?.query_row([digest], read).optional()?)
            })
            .await
    }

    pub(in crate::store) async fn is_code_open(&self, digest: [u8; 32], now_ms: i64) -> Result<bool, Error> {
        self.reader
            .run(move |reader| {
                let state = state(&reader.connection, &digest)?;
                Ok(state.is_some_and(|state| state.redeemed_for.is_none() && state.is_in_time(now_ms)))
            })
            .await
    }

    pub(in crate::store) async fn count_wrong_try(&self, digest: [u8; 32]) -> Result<(), Error> {
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE codes SET wrong_tries = wrong_tries + 1 WHERE digest = ?")?
                .execute([digest])?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn redeem_code(&self, redemption: Redemption) -> Result<Redeemed, Error> {
        self.write(move |connection| redeem(connection, &redemption)).await
    }
}

fn redeem(connection: &Connection, redemption: &Redemption) -> Result<Redeemed, Error> {
    let Redemption { code, grant, refresh_token } = redemption;
    let now_ms = grant.created_at_ms;
    let Some(state) = state(connection, code)? else {
        return Ok(Redeemed::Over);
    };
    // Also when its time is over: that it comes twice is bad news at any time.
    if let Some(grant) = state.redeemed_for {
        grants::revoke(connection, &grant, REPLAY, now_ms)?;
        return Ok(Redeemed::Replayed { grant });
    }
    if !state.is_in_time(now_ms) {
        return Ok(Redeemed::Over);
    }
    let displaced = grants::make_room(connection, grant)?;
    grants::insert(connection, grant)?;
    if let Some(token) = refresh_token {
        refresh::insert(connection, token, &grant.id, 0, now_ms)?;
    }
    connection
        .prepare_cached("UPDATE codes SET redeemed_at = ?, grant_id = ? WHERE digest = ?")?
        .execute((now_ms, &grant.id, code))?;
    Ok(Redeemed::Granted { displaced })
}

fn state(connection: &Connection, digest: &[u8; 32]) -> Result<Option<State>, Error> {
    let read =
        |row: &Row<'_>| Ok(State { expires_at_ms: row.get(0)?, wrong_tries: row.get(1)?, redeemed_for: row.get(2)? });
    let mut statement =
        connection.prepare_cached("SELECT expires_at, wrong_tries, grant_id FROM codes WHERE digest = ?")?;
    Ok(statement.query_row([digest], read).optional()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Code> {
    let kind: String = row.get("subject_kind")?;
    let scopes: String = row.get("scopes")?;
    Ok(Code {
        digest: row.get("digest")?,
        issuer: row.get("issuer")?,
        subject: Subject::of_columns(&kind, row.get("subject_name")?).ok_or(rusqlite::Error::InvalidQuery)?,
        client: row.get("client_id")?,
        resource: row.get("resource")?,
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
        password_mark: row.get("password_mark")?,
        redirect_uri: row.get("redirect_uri")?,
        challenge: row.get("challenge")?,
        expires_at_ms: row.get("expires_at")?,
    })
}

/// Removes what has expired.
pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<(), Error> {
    let sql = format!(
        "DELETE FROM codes WHERE digest IN (SELECT digest FROM codes WHERE expires_at <= ? LIMIT {PURGED_AT_ONCE})"
    );
    connection.prepare_cached(&sql)?.execute([at_ms])?;
    Ok(())
}
