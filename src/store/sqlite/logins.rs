//! Failed logins, in SQL. The rule for pauses is `store::login`'s.

use crate::store::login::{FORGOTTEN_AFTER_MS, MAX_NAMES};
use crate::store::{Attempt, Error, LoginState};
use rusqlite::{Connection, OptionalExtension as _};

pub(super) fn state(connection: &Connection, name: &str) -> Result<LoginState, Error> {
    let found = connection
        .prepare_cached("SELECT count, last_at, locked_until FROM login_failures WHERE name = ?")?
        .query_row([name], |row| {
            Ok(LoginState { failures: row.get(0)?, last_at_ms: row.get(1)?, locked_until_ms: row.get(2)? })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

pub(super) fn attempt(connection: &Connection, name: &str, at_ms: i64) -> Result<Attempt, Error> {
    let counted = match state(connection, name)?.attempt(at_ms) {
        Ok(counted) => counted,
        Err(locked) => return Ok(locked),
    };
    connection.prepare_cached("INSERT OR REPLACE INTO login_failures VALUES (?, ?, ?, ?)")?.execute((
        name,
        counted.failures,
        counted.last_at_ms,
        counted.locked_until_ms,
    ))?;
    make_room(connection, name)?;
    Ok(Attempt::Open)
}

/// Those with the fewest failures go first: a flood of made-up names does not wash out the count of a real one.
fn make_room(connection: &Connection, keep: &str) -> Result<(), Error> {
    let names: i64 =
        connection.prepare_cached("SELECT count(*) FROM login_failures")?.query_row([], |row| row.get(0))?;
    let beyond = names.saturating_sub(MAX_NAMES);
    if beyond > 0 {
        connection
            .prepare_cached(
                "DELETE FROM login_failures WHERE name IN (SELECT name FROM login_failures
                 WHERE name <> ? ORDER BY count, last_at LIMIT ?)",
            )?
            .execute((keep, beyond))?;
    }
    Ok(())
}

pub(super) fn success(connection: &Connection, name: &str) -> Result<(), Error> {
    connection.prepare_cached("DELETE FROM login_failures WHERE name = ?")?.execute([name])?;
    Ok(())
}

pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<(), Error> {
    connection
        .prepare_cached("DELETE FROM login_failures WHERE last_at <= ? AND locked_until <= ?")?
        .execute((at_ms.saturating_sub(FORGOTTEN_AFTER_MS), at_ms))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::schema;

    #[test]
    fn a_flood_of_made_up_names_is_bounded_and_spares_the_count_of_a_real_one() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection).unwrap();
        for at_ms in 0..3 {
            attempt(&connection, "alice", at_ms).unwrap();
        }

        for n in 0..MAX_NAMES + 50 {
            attempt(&connection, &format!("stranger{n}"), 10 + n).unwrap();
        }

        let names: i64 = connection.query_row("SELECT count(*) FROM login_failures", [], |row| row.get(0)).unwrap();
        assert_eq!(names, MAX_NAMES);
        assert_eq!(state(&connection, "alice").unwrap().failures, 3);
    }
}
