//! Notices to webhooks, and what webhooks said, in SQL.

use super::Sqlite;
use crate::store::{Error, Notice, NoticeCounts, NoticeState as State};
use rusqlite::{Row, named_params, params};

const COLUMNS: &str =
    "id, approval, hook, nonce, state, attempts, next_at, claimed_until, last_error, created_at, ended_at";
/// To be sent now, and nobody is at it. That the time for a decision has run out may not have been noted yet.
const DUE: &str = "hook = :hook AND state = 'waiting' AND next_at <= :at AND claimed_until <= :at
                   AND approval IN (SELECT id FROM approvals
                                    WHERE approvals.id = approval AND state = 'pending' AND expires_at > :at)";
/// Not sent, and too late to be.
const LATE: &str = "state = 'waiting' AND claimed_until <= :at
                    AND approval NOT IN (SELECT id FROM approvals
                                         WHERE approvals.id = approval AND state = 'pending' AND expires_at > :at)";
/// Notices that are given up in one go.
const ENDED_AT_ONCE: usize = 1_000;

impl Sqlite {
    pub(in crate::store) async fn notices(&self, approval: &str) -> Result<Vec<Notice>, Error> {
        let approval = approval.to_owned();
        self.reader
            .run(move |reader| {
                let sql = format!("SELECT {COLUMNS} FROM notices WHERE approval = ? ORDER BY hook, id");
                let mut statement = reader.connection.prepare_cached(&sql)?;
                let rows = statement.query_map([approval], read)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    pub(in crate::store) async fn claim_notices(
        &self,
        hook: &str,
        most: usize,
        at_ms: i64,
        until_ms: i64,
    ) -> Result<Vec<Notice>, Error> {
        let hook = hook.to_owned();
        let (asked, most) = (hook.clone(), i64::try_from(most).unwrap_or(i64::MAX));
        let is_due = self.reader.run(move |reader| {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM notices WHERE {DUE})");
            let of = named_params! { ":hook": asked, ":at": at_ms };
            Ok(reader.connection.prepare_cached(&sql)?.query_row(of, |row| row.get::<_, bool>(0))?)
        });
        if !is_due.await? {
            return Ok(Vec::new());
        }
        self.write(move |connection| {
            let sql = format!(
                "UPDATE notices SET claimed_until = :until WHERE id IN
                 (SELECT id FROM notices WHERE {DUE} ORDER BY next_at, id LIMIT :most) RETURNING {COLUMNS}"
            );
            let of = named_params! { ":hook": hook, ":at": at_ms, ":until": until_ms, ":most": most };
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(of, read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    pub(in crate::store) async fn retry_notice(
        &self,
        claimed: &Notice,
        next_at_ms: i64,
        error: &str,
    ) -> Result<bool, Error> {
        let (claimed, error) = (claimed.clone(), error.to_owned());
        self.write(move |connection| {
            let n_changed = connection
                .prepare_cached(
                    "UPDATE notices SET attempts = attempts + 1, next_at = :next, claimed_until = 0, last_error = :error
                     WHERE id = :id AND state = 'waiting' AND attempts = :attempts AND claimed_until = :claim",
                )?
                .execute(named_params! {
                    ":id": claimed.id, ":attempts": claimed.attempts, ":claim": claimed.claimed_until_ms,
                    ":next": next_at_ms, ":error": error,
                })?;
            Ok(n_changed > 0)
        })
        .await
    }

    pub(in crate::store) async fn end_notice(
        &self,
        claimed: &Notice,
        state: State,
        error: Option<&str>,
        at_ms: i64,
    ) -> Result<bool, Error> {
        let (claimed, error) = (claimed.clone(), error.map(str::to_owned));
        self.write(move |connection| {
            let n_changed = connection
                .prepare_cached(
                    "UPDATE notices SET attempts = attempts + 1, state = :state, ended_at = :at, claimed_until = 0,
                     last_error = :error
                     WHERE id = :id AND state = 'waiting' AND attempts = :attempts AND claimed_until = :claim",
                )?
                .execute(named_params! {
                    ":id": claimed.id, ":attempts": claimed.attempts, ":claim": claimed.claimed_until_ms,
                    ":state": state.as_str(), ":error": error, ":at": at_ms,
                })?;
            Ok(n_changed > 0)
        })
        .await
    }

    pub(in crate::store) async fn end_late_notices(&self, at_ms: i64) -> Result<Vec<Notice>, Error> {
        let is_late = self.reader.run(move |reader| {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM notices WHERE {LATE})");
            let of = named_params! { ":at": at_ms };
            Ok(reader.connection.prepare_cached(&sql)?.query_row(of, |row| row.get::<_, bool>(0))?)
        });
        if !is_late.await? {
            return Ok(Vec::new());
        }
        self.write(move |connection| {
            let sql = format!(
                "UPDATE notices SET state = 'dead', ended_at = :at, last_error =
                 'the call was over before it could be delivered' || coalesce(': ' || last_error, '')
                 WHERE id IN (SELECT id FROM notices WHERE {LATE} LIMIT {ENDED_AT_ONCE}) RETURNING {COLUMNS}"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(named_params! { ":at": at_ms }, read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    pub(in crate::store) async fn count_notices(&self, since_ms: i64) -> Result<NoticeCounts, Error> {
        self.reader
            .run(move |reader| {
                let count = |sql: &str, since_ms: i64| -> Result<usize, Error> {
                    let n: i64 = reader.connection.prepare_cached(sql)?.query_row([since_ms], |row| row.get(0))?;
                    Ok(usize::try_from(n).unwrap_or(0))
                };
                Ok(NoticeCounts {
                    waiting: count("SELECT count(*) FROM notices WHERE state = 'waiting' AND next_at > ?", i64::MIN)?,
                    dead: count("SELECT count(*) FROM notices WHERE state = 'dead' AND ended_at >= ?", since_ms)?,
                })
            })
            .await
    }

    pub(in crate::store) async fn hear_webhook(&self, hook: &str, id: &str, at_ms: i64) -> Result<bool, Error> {
        let (hook, id) = (hook.to_owned(), id.to_owned());
        self.write(move |connection| {
            let n_changed = connection
                .prepare_cached("INSERT OR IGNORE INTO heard_webhooks (hook, id, heard_at) VALUES (?, ?, ?)")?
                .execute(params![hook, id, at_ms])?;
            Ok(n_changed > 0)
        })
        .await
    }

    pub(in crate::store) async fn unhear_webhook(&self, hook: &str, id: &str) -> Result<(), Error> {
        let (hook, id) = (hook.to_owned(), id.to_owned());
        self.write(move |connection| {
            connection
                .prepare_cached("DELETE FROM heard_webhooks WHERE hook = ? AND id = ?")?
                .execute(params![hook, id])?;
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn forget_webhooks(&self, before_ms: i64) -> Result<(), Error> {
        self.write(move |connection| {
            connection.prepare_cached("DELETE FROM heard_webhooks WHERE heard_at < ?")?.execute([before_ms])?;
            Ok(())
        })
        .await
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Notice> {
    let state: String = row.get("state")?;
    Ok(Notice {
        id: row.get("id")?,
        approval: row.get("approval")?,
        hook: row.get("hook")?,
        nonce: row.get("nonce")?,
        state: State::of(&state).ok_or(rusqlite::Error::InvalidQuery)?,
        attempts: row.get("attempts")?,
        next_at_ms: row.get("next_at")?,
        claimed_until_ms: row.get("claimed_until")?,
        last_error: row.get("last_error")?,
        created_at_ms: row.get("created_at")?,
        ended_at_ms: row.get("ended_at")?,
    })
}
