//! Ended sessions, in SQL.

use crate::store::Error;
use rusqlite::Connection;

pub(super) fn end(connection: &Connection, digest: &[u8; 32], at_ms: i64, oldest_ms: i64) -> Result<(), Error> {
    connection.prepare_cached("INSERT OR IGNORE INTO ended_sessions VALUES (?, ?)")?.execute((digest, at_ms))?;
    connection.prepare_cached("DELETE FROM ended_sessions WHERE ended_at < ?")?.execute([oldest_ms])?;
    Ok(())
}

pub(super) fn ended(connection: &Connection, oldest_ms: i64) -> Result<Vec<([u8; 32], i64)>, Error> {
    let mut statement = connection
        .prepare_cached("SELECT digest, ended_at FROM ended_sessions WHERE ended_at >= ? ORDER BY ended_at, digest")?;
    let rows = statement.query_map([oldest_ms], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
