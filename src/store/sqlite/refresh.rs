//! Refresh tokens, in SQL.

use super::{Sqlite, grants};
use crate::store::grant::REPLAY;
use crate::store::{
    Error, Grant, MAX_USED_TOKENS_OF_ONE_GRANT, NewRefreshToken, RETRY_WINDOW_MS, RefreshToken, Rotated, Rotation,
};
use rusqlite::{Connection, OptionalExtension as _, Row};
use std::sync::Arc;

/// Rows that one purge removes at most.
const PURGED_AT_ONCE: usize = 5_000;

/// One row.
struct Found {
    grant_id: Arc<str>,
    generation: i64,
    expires_at_ms: i64,
    used: Option<Used>,
}

/// What was made of it.
struct Used {
    at_ms: i64,
    sealed: Vec<u8>,
    /// Whether its successor is there and was not used.
    is_successor_unused: bool,
}

impl Sqlite {
    pub(in crate::store) async fn refresh_token(&self, digest: [u8; 32]) -> Result<Option<RefreshToken>, Error> {
        self.reader
            .run(move |reader| {
                let Some(found) = find(&reader.connection, &digest)? else {
                    return Ok(None);
                };
                // Its row goes with the grant's; between the two look-ups it may.
                let grant = grants::get(&reader.connection, &found.grant_id)?;
                let used_at_ms = found.used.map(|used| used.at_ms);
                Ok(grant.map(|grant| RefreshToken { grant, expires_at_ms: found.expires_at_ms, used_at_ms }))
            })
            .await
    }

    pub(in crate::store) async fn rotate_refresh_token(&self, rotation: Rotation) -> Result<Rotated, Error> {
        self.write(move |connection| rotate(connection, &rotation)).await
    }
}

fn rotate(connection: &Connection, rotation: &Rotation) -> Result<Rotated, Error> {
    let now_ms = rotation.at_ms;
    let Some(found) = find(connection, &rotation.token)? else {
        return Ok(Rotated::Over);
    };
    let grant = grants::get(connection, &found.grant_id)?.filter(|grant| is_in_force(grant, now_ms));
    let Some(grant) = grant else {
        return Ok(Rotated::Over);
    };
    if let Some(used) = found.used {
        // Either may be the earlier one: of two that come at once, the one that looked at the clock first may be second
        // here, and clocks of two processes differ.
        let is_a_retry = now_ms.saturating_sub(used.at_ms).abs() < RETRY_WINDOW_MS;
        if is_a_retry && used.is_successor_unused {
            return Ok(Rotated::Again(used.sealed));
        }
        grants::revoke(connection, &grant.id, REPLAY, now_ms)?;
        return Ok(Rotated::Replayed);
    }
    if now_ms >= found.expires_at_ms {
        return Ok(Rotated::Over);
    }
    let end_ms =
        grant.longest_until_ms.map_or(grant.expires_at_ms, |longest| longest.min(rotation.successor.expires_at_ms));
    let successor = NewRefreshToken { expires_at_ms: end_ms, ..rotation.successor };
    insert(connection, &successor, &grant.id, found.generation + 1, now_ms)?;
    connection
        .prepare_cached("UPDATE refresh_tokens SET used_at = ?, successor = ?, successor_sealed = ? WHERE digest = ?")?
        .execute((now_ms, successor.digest, &rotation.sealed, rotation.token))?;
    connection.prepare_cached("UPDATE grants SET expires_at = ? WHERE id = ?")?.execute((end_ms, &grant.id))?;
    connection
        .prepare_cached("DELETE FROM refresh_tokens WHERE grant_id = ? AND generation < ?")?
        .execute((&grant.id, found.generation + 1 - MAX_USED_TOKENS_OF_ONE_GRANT))?;
    Ok(Rotated::Fresh)
}

fn is_in_force(grant: &Grant, now_ms: i64) -> bool {
    grant.revoked.is_none() && now_ms < grant.expires_at_ms
}

pub(super) fn insert(
    connection: &Connection,
    token: &NewRefreshToken,
    grant: &str,
    generation: i64,
    now_ms: i64,
) -> Result<(), Error> {
    connection.prepare_cached("INSERT INTO refresh_tokens VALUES (?, ?, ?, ?, ?, NULL, NULL, NULL)")?.execute((
        token.digest,
        grant,
        generation,
        now_ms,
        token.expires_at_ms,
    ))?;
    Ok(())
}

fn find(connection: &Connection, digest: &[u8; 32]) -> Result<Option<Found>, Error> {
    let read = |row: &Row<'_>| {
        let used_at: Option<i64> = row.get(3)?;
        let sealed: Option<Vec<u8>> = row.get(4)?;
        let is_successor_unused = row.get(5)?;
        Ok(Found {
            grant_id: row.get(0)?,
            generation: row.get(1)?,
            expires_at_ms: row.get(2)?,
            used: used_at.map(|at_ms| Used { at_ms, sealed: sealed.unwrap_or_default(), is_successor_unused }),
        })
    };
    let mut statement = connection.prepare_cached(
        "SELECT token.grant_id, token.generation, token.expires_at, token.used_at, token.successor_sealed,
                successor.digest IS NOT NULL AND successor.used_at IS NULL
         FROM refresh_tokens token LEFT JOIN refresh_tokens successor ON successor.digest = token.successor
         WHERE token.digest = ?",
    )?;
    Ok(statement.query_row([digest], read).optional()?)
}

/// Removes what has expired.
pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<(), Error> {
    let sql = format!(
        "DELETE FROM refresh_tokens WHERE digest IN
         (SELECT digest FROM refresh_tokens WHERE expires_at <= ? LIMIT {PURGED_AT_ONCE})"
    );
    connection.prepare_cached(&sql)?.execute([at_ms])?;
    Ok(())
}
