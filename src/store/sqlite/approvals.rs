//! Held calls, in SQL.

use super::Sqlite;
use crate::store::{
    Approval, ApprovalDecision, ApprovalState as State, Error, Holding, Judge, MAX_LISTED_APPROVALS, Move, NewNotice,
    Requester, Step, Subject,
};
use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};
use std::sync::Arc;

const COLUMNS: &str = "id, state, digest, issuer, subject_kind, subject_name, client_id, person, grant_id, upstream, \
                       tool, rules, rules_digest, terms, created_at, expires_at, valid_for, decided_at, usable_until, \
                       consumed_at, consumer, ended_at, received_at, waited_for_until, task_until, note";

/// Rows that one purge erases or forgets at most.
const PURGED_AT_ONCE: usize = 1_000;
/// A call that was withdrawn counts as an undecided one for this long after it was asked for.
const WITHDRAWN_COUNTS_MS: i64 = 60_000;
/// Changes in one answer of the feed.
const CHANGES_AT_ONCE: usize = 1_000;

// === impl Sqlite ===

impl Sqlite {
    pub(in crate::store) async fn hold(
        &self,
        new: Approval,
        notices: Vec<NewNotice>,
        most_pending: usize,
        keep_ms: i64,
    ) -> Result<Holding, Error> {
        self.write(move |connection| {
            let newest = newest(connection, &new.digest)?;
            if let Some(known) = newest.filter(|known| is_still_meant(known, new.created_at_ms, keep_ms)) {
                return Ok(Holding::Known(Box::new(known)));
            }
            if n_pending(connection, &new.requester, new.created_at_ms)? >= most_pending {
                return Ok(Holding::TooMany);
            }
            insert(connection, &new)?;
            tell(connection, &new.id, &notices, false, new.created_at_ms)?;
            Ok(Holding::New(Box::new(new)))
        })
        .await
    }

    pub(in crate::store) async fn approval(&self, id: &str) -> Result<Option<Approval>, Error> {
        let id = id.to_owned();
        self.reader.run(move |reader| get(&reader.connection, &id)).await
    }

    pub(in crate::store) async fn latest_approval(&self, digest: &[u8; 32]) -> Result<Option<Approval>, Error> {
        let digest = *digest;
        self.reader.run(move |reader| newest(&reader.connection, &digest)).await
    }

    pub(in crate::store) async fn approvals(&self, states: &[State]) -> Result<Vec<Approval>, Error> {
        let words: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        let words = serde_json::Value::from(words).to_string();
        self.reader
            .run(move |reader| {
                let sql = format!(
                    "SELECT {COLUMNS}, NULL AS call, NULL AS result FROM approvals
                     WHERE state IN (SELECT value FROM json_each(?)) ORDER BY created_at DESC, id
                     LIMIT {MAX_LISTED_APPROVALS}"
                );
                let mut statement = reader.connection.prepare_cached(&sql)?;
                let rows = statement.query_map([words], read)?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    pub(in crate::store) async fn approval_decisions(&self, id: &str) -> Result<Vec<ApprovalDecision>, Error> {
        let id = id.to_owned();
        self.reader.run(move |reader| decisions(&reader.connection, &id)).await
    }

    pub(in crate::store) async fn decide_approval<E: Send + 'static>(
        &self,
        id: &str,
        decision: ApprovalDecision,
        note: Option<String>,
        judge: Judge<E>,
    ) -> Result<Option<Result<Approval, E>>, Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            let Some(known) = get(connection, &id)? else {
                return Ok(None);
            };
            let step = match judge(&known, &decisions(connection, &id)?) {
                Ok(step) => step,
                Err(refusal) => return Ok(Some(Err(refusal))),
            };
            connection.prepare_cached("INSERT INTO approval_decisions VALUES (?, ?, ?, ?, ?, ?)")?.execute(params![
                id,
                decision.person,
                decision.approves,
                decision.via,
                decision.at_ms,
                decision.mark
            ])?;
            let at_ms = decision.at_ms;
            match step {
                Step::Counts => {}
                Step::Approves => {
                    connection
                        .prepare_cached(
                            "UPDATE approvals SET state = 'approved', decided_at = :at, usable_until = :at + valid_for
                             WHERE id = :id AND state = 'pending'",
                        )?
                        .execute(named_params! { ":id": id, ":at": at_ms })?;
                }
                Step::Denies => {
                    // In force for as long as the call could have waited.
                    connection
                        .prepare_cached(
                            "UPDATE approvals SET state = 'denied', decided_at = :at, ended_at = :at, note = :note,
                             expires_at = :at + (expires_at - created_at) WHERE id = :id AND state = 'pending'",
                        )?
                        .execute(named_params! { ":id": id, ":at": at_ms, ":note": note })?;
                }
            }
            touch(connection, &id)?;
            Ok(get(connection, &id)?.map(Ok))
        })
        .await
    }

    pub(in crate::store) async fn consume_approval(
        &self,
        id: &str,
        consumer: &str,
        at_ms: i64,
    ) -> Result<Option<Approval>, Error> {
        let (id, consumer) = (id.to_owned(), consumer.to_owned());
        let presence = Arc::clone(&self.presence);
        self.write(move |connection| {
            presence.show()?;
            let n_changed = connection
                .prepare_cached(
                    "UPDATE approvals SET state = 'consumed', consumed_at = :at, consumer = :consumer
                     WHERE id = :id AND state = 'approved' AND usable_until > :at",
                )?
                .execute(named_params! { ":id": id, ":at": at_ms, ":consumer": consumer })?;
            if n_changed == 0 {
                return Ok(None);
            }
            touch(connection, &id)?;
            get(connection, &id)
        })
        .await
    }

    pub(in crate::store) async fn finish_approval(
        &self,
        id: &str,
        consumer: &str,
        state: State,
        result: Option<Vec<u8>>,
        note: Option<String>,
        at_ms: i64,
    ) -> Result<bool, Error> {
        let (id, consumer) = (id.to_owned(), consumer.to_owned());
        self.write(move |connection| {
            let n_changed = connection
                .prepare_cached(
                    "UPDATE approvals SET state = :state, result = :result, note = :note, ended_at = :at
                     WHERE id = :id AND consumer = :consumer AND state IN ('consumed', 'indeterminate')",
                )?
                .execute(named_params! {
                    ":id": id, ":consumer": consumer, ":state": state.as_str(), ":result": result, ":note": note,
                    ":at": at_ms,
                })?;
            if n_changed > 0 {
                touch(connection, &id)?;
            }
            Ok(n_changed > 0)
        })
        .await
    }

    pub(in crate::store) async fn move_approval(&self, id: &str, step: Move) -> Result<bool, Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            let from: Vec<&str> = step.from.iter().map(|state| state.as_str()).collect();
            let from = serde_json::Value::from(from).to_string();
            let has_ended = step.reopened_until_ms.is_none();
            // The time for a decision begins anew, and so does everything that was said.
            let n_changed = connection
                .prepare_cached(
                    "UPDATE approvals SET state = :to, note = :note, ended_at = iif(:ended, coalesce(ended_at, :at), NULL),
                     created_at = iif(:ended, created_at, :at), expires_at = coalesce(:until, expires_at),
                     decided_at = iif(:ended, decided_at, NULL), call = iif(:to = 'withdrawn', NULL, call)
                     WHERE id = :id AND state IN (SELECT value FROM json_each(:from))",
                )?
                .execute(named_params! {
                    ":id": id, ":to": step.to.as_str(), ":note": step.note, ":at": step.at_ms, ":ended": has_ended,
                    ":until": step.reopened_until_ms, ":from": from,
                })?;
            if n_changed == 0 {
                return Ok(false);
            }
            if !has_ended {
                connection.prepare_cached("DELETE FROM approval_decisions WHERE approval = ?")?.execute([&id])?;
            }
            tell(connection, &id, &step.notices, true, step.at_ms)?;
            touch(connection, &id)?;
            Ok(true)
        })
        .await
    }

    pub(in crate::store) async fn receive_approval(&self, id: &str, at_ms: i64) -> Result<bool, Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            let n_changed = connection
                .prepare_cached("UPDATE approvals SET received_at = ? WHERE id = ? AND received_at IS NULL")?
                .execute(params![at_ms, id])?;
            Ok(n_changed > 0)
        })
        .await
    }

    pub(in crate::store) async fn attend_approvals(&self, ids: Vec<Arc<str>>, until_ms: i64) -> Result<(), Error> {
        self.write(move |connection| {
            let mut statement = connection.prepare_cached("UPDATE approvals SET waited_for_until = ? WHERE id = ?")?;
            for id in ids {
                statement.execute(params![until_ms, id])?;
            }
            Ok(())
        })
        .await
    }

    pub(in crate::store) async fn set_approval_task(&self, id: &str, until_ms: Option<i64>) -> Result<(), Error> {
        let id = id.to_owned();
        self.write(move |connection| {
            connection
                .prepare_cached("UPDATE approvals SET task_until = ? WHERE id = ?")?
                .execute(params![until_ms, id])?;
            touch(connection, &id)
        })
        .await
    }

    pub(in crate::store) async fn approvals_after(&self, change: i64) -> Result<(i64, Vec<Arc<str>>), Error> {
        self.reader.run(move |reader| reader.approvals.after(&reader.connection, change)).await
    }

    pub(in crate::store) async fn expire_approvals(&self, at_ms: i64) -> Result<Vec<Approval>, Error> {
        let is_due = self.reader.run(move |reader| has_due(&reader.connection, at_ms)).await?;
        if !is_due {
            return Ok(Vec::new());
        }
        self.write(move |connection| {
            let ids = due(connection, at_ms)?;
            for id in &ids {
                connection
                    .prepare_cached(
                        "UPDATE approvals SET state = 'expired', ended_at = :at, call = NULL,
                         note = iif(state = 'pending', 'nobody decided in time', 'approved, but not called again in time')
                         WHERE id = :id",
                    )?
                    .execute(named_params! { ":id": id, ":at": at_ms })?;
                touch(connection, id)?;
            }
            ids.iter().filter_map(|id| get(connection, id).transpose()).collect()
        })
        .await
    }

    pub(in crate::store) async fn find_lost_approvals(&self, at_ms: i64) -> Result<Vec<Approval>, Error> {
        let consumers = self
            .reader
            .run(|reader| {
                let sql = "SELECT DISTINCT consumer FROM approvals WHERE state = 'consumed'";
                let mut statement = reader.connection.prepare_cached(sql)?;
                let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            })
            .await?;
        let ended: Vec<String> = consumers.into_iter().filter(|name| self.presence.has_ended(name)).collect();
        if ended.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |connection| {
            let mut lost = Vec::new();
            for consumer in ended {
                let mut statement = connection.prepare_cached(
                    "UPDATE approvals SET state = 'indeterminate', ended_at = ?,
                     note = 'the gateway ended while it ran: whether it did is not known'
                     WHERE state = 'consumed' AND consumer = ? RETURNING id",
                )?;
                let ids = statement.query_map(params![at_ms, consumer], |row| row.get::<_, String>(0))?;
                for id in ids.collect::<Result<Vec<_>, _>>()? {
                    touch(connection, &id)?;
                    lost.extend(get(connection, &id)?);
                }
            }
            Ok(lost)
        })
        .await
    }

    pub(in crate::store) fn process(&self) -> &str {
        self.presence.name()
    }

    pub(in crate::store) async fn purge_approvals(&self, erase: i64, forget: i64) -> Result<(), Error> {
        self.write(move |connection| {
            let sql = format!(
                "UPDATE approvals SET call = NULL, result = NULL WHERE id IN
                 (SELECT id FROM approvals WHERE ended_at < ? AND state <> 'indeterminate'
                  AND (call IS NOT NULL OR result IS NOT NULL) LIMIT {PURGED_AT_ONCE})"
            );
            connection.prepare_cached(&sql)?.execute([erase])?;
            let sql = format!(
                "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE ended_at < ?
                 AND state <> 'indeterminate' LIMIT {PURGED_AT_ONCE})"
            );
            connection.prepare_cached(&sql)?.execute([forget])?;
            Ok(())
        })
        .await
    }
}

// === rows ===

/// Whether the newest call of a digest is the one that an identical call now means.
fn is_still_meant(known: &Approval, now_ms: i64, keep_ms: i64) -> bool {
    match known.state {
        State::Pending | State::Denied => now_ms < known.expires_at_ms,
        State::Approved => known.usable_until_ms.is_some_and(|until| now_ms < until),
        State::Consumed | State::Indeterminate => true,
        State::Completed | State::Failed => {
            known.received_at_ms.is_none()
                && known.result.is_some()
                && known.ended_at_ms.is_some_and(|ended| now_ms.saturating_sub(ended) < keep_ms)
        }
        State::Expired | State::Withdrawn | State::Invalidated => false,
    }
}

fn newest(connection: &Connection, digest: &[u8; 32]) -> Result<Option<Approval>, Error> {
    let sql = format!(
        "SELECT {COLUMNS}, call, result FROM approvals WHERE digest = ? ORDER BY created_at DESC, rowid DESC LIMIT 1"
    );
    Ok(connection.prepare_cached(&sql)?.query_row([digest], read).optional()?)
}

fn get(connection: &Connection, id: &str) -> Result<Option<Approval>, Error> {
    let sql = format!("SELECT {COLUMNS}, call, result FROM approvals WHERE id = ?");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read).optional()?)
}

/// Undecided calls, and those that were just withdrawn: each of them was told to people and takes room in the store.
fn n_pending(connection: &Connection, of: &Requester, at_ms: i64) -> Result<usize, Error> {
    let count: i64 = connection
        .prepare_cached(
            "SELECT count(*) FROM approvals
             WHERE ((state = 'pending' AND expires_at > :at) OR (state = 'withdrawn' AND created_at > :since))
             AND issuer = :issuer AND subject_kind = :kind AND subject_name = :name",
        )?
        .query_row(
            named_params! {
                ":at": at_ms, ":since": at_ms.saturating_sub(WITHDRAWN_COUNTS_MS), ":issuer": of.issuer,
                ":kind": of.subject.kind(), ":name": of.subject.name(),
            },
            |row| row.get(0),
        )?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn insert(connection: &Connection, new: &Approval) -> Result<(), Error> {
    let sql = format!(
        "INSERT INTO approvals ({COLUMNS}, call, result, change) VALUES (:id, :state, :digest, :issuer, :kind, :name,
         :client, :person, :grant, :upstream, :tool, :rules, :rules_digest, :terms, :created, :expires, :valid_for,
         NULL, NULL, NULL, NULL, NULL, NULL, :waited, :task, NULL, :call, NULL, 0)"
    );
    let rules: Vec<&str> = new.rules.iter().map(AsRef::as_ref).collect();
    connection.prepare_cached(&sql)?.execute(named_params! {
        ":id": new.id, ":state": new.state.as_str(), ":digest": new.digest, ":issuer": new.requester.issuer,
        ":kind": new.requester.subject.kind(), ":name": new.requester.subject.name(), ":client": new.requester.client,
        ":person": new.requester.person, ":grant": new.requester.grant, ":upstream": new.upstream, ":tool": new.tool,
        ":rules": serde_json::Value::from(rules).to_string(), ":rules_digest": new.rules_digest, ":terms": new.terms,
        ":created": new.created_at_ms, ":expires": new.expires_at_ms, ":valid_for": new.valid_for_ms,
        ":waited": new.waited_for_until_ms, ":task": new.task_until_ms, ":call": new.call,
    })?;
    touch(connection, &new.id)
}

/// Leaves notices to be sent. `again`: to each webhook that no earlier one of that call still waits for.
fn tell(connection: &Connection, approval: &str, notices: &[NewNotice], again: bool, at_ms: i64) -> Result<(), Error> {
    let sql = "INSERT INTO notices (id, approval, hook, nonce, next_at, created_at)
               SELECT :id, :approval, :hook, :nonce, :at, :at WHERE NOT (:again AND EXISTS
               (SELECT 1 FROM notices WHERE approval = :approval AND hook = :hook AND state = 'waiting'))";
    for NewNotice { id, hook, nonce } in notices {
        let of = named_params! {
            ":id": id, ":approval": approval, ":hook": hook, ":nonce": nonce, ":at": at_ms, ":again": again,
        };
        connection.prepare_cached(sql)?.execute(of)?;
    }
    Ok(())
}

/// Gives the row the next number, by which others see that it changed.
fn touch(connection: &Connection, id: &str) -> Result<(), Error> {
    let next: i64 = connection
        .prepare_cached("UPDATE approval_changes SET last = last + 1 RETURNING last")?
        .query_row([], |row| row.get(0))?;
    connection.prepare_cached("UPDATE approvals SET change = ? WHERE id = ?")?.execute(params![next, id])?;
    Ok(())
}

fn decisions(connection: &Connection, id: &str) -> Result<Vec<ApprovalDecision>, Error> {
    let sql = "SELECT person, approves, via, at, mark FROM approval_decisions WHERE approval = ? ORDER BY at, person";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([id], |row| {
        Ok(ApprovalDecision {
            person: row.get(0)?,
            approves: row.get(1)?,
            via: row.get(2)?,
            at_ms: row.get(3)?,
            mark: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const DUE: &str = "(state = 'pending' AND expires_at <= ?1) OR (state = 'approved' AND usable_until <= ?1)";

fn has_due(connection: &Connection, at_ms: i64) -> Result<bool, Error> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM approvals WHERE {DUE})");
    Ok(connection.prepare_cached(&sql)?.query_row([at_ms], |row| row.get(0))?)
}

fn due(connection: &Connection, at_ms: i64) -> Result<Vec<String>, Error> {
    let sql = format!("SELECT id FROM approvals WHERE {DUE} LIMIT {PURGED_AT_ONCE}");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([at_ms], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let kind: String = row.get("subject_kind")?;
    let state: String = row.get("state")?;
    let rules: String = row.get("rules")?;
    let rules: Vec<String> = serde_json::from_str(&rules).map_err(|_| rusqlite::Error::InvalidQuery)?;
    Ok(Approval {
        id: row.get("id")?,
        state: State::of(&state).ok_or(rusqlite::Error::InvalidQuery)?,
        digest: row.get("digest")?,
        requester: Requester {
            issuer: row.get("issuer")?,
            subject: Subject::of_columns(&kind, row.get("subject_name")?).ok_or(rusqlite::Error::InvalidQuery)?,
            client: row.get("client_id")?,
            person: row.get("person")?,
            grant: row.get("grant_id")?,
        },
        upstream: row.get("upstream")?,
        tool: row.get("tool")?,
        rules: rules.into_iter().map(Into::into).collect(),
        rules_digest: row.get("rules_digest")?,
        terms: row.get("terms")?,
        call: row.get("call")?,
        result: row.get("result")?,
        created_at_ms: row.get("created_at")?,
        expires_at_ms: row.get("expires_at")?,
        valid_for_ms: row.get("valid_for")?,
        decided_at_ms: row.get("decided_at")?,
        usable_until_ms: row.get("usable_until")?,
        consumed_at_ms: row.get("consumed_at")?,
        consumer: row.get("consumer")?,
        ended_at_ms: row.get("ended_at")?,
        received_at_ms: row.get("received_at")?,
        waited_for_until_ms: row.get("waited_for_until")?,
        task_until_ms: row.get("task_until")?,
        note: row.get("note")?,
    })
}

/// What the reading connection saw of the changes, so that asking again costs one comparison.
#[derive(Debug, Default)]
pub(super) struct Feed {
    data_version: Option<i64>,
    last: i64,
}

impl Feed {
    fn after(&mut self, connection: &Connection, change: i64) -> Result<(i64, Vec<Arc<str>>), Error> {
        // Read before the rows: what is written in between is then looked for once more, not missed.
        let version: i64 = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.data_version == Some(version) && change >= self.last {
            return Ok((change, Vec::new()));
        }
        let sql = format!("SELECT change, id FROM approvals WHERE change > ? ORDER BY change LIMIT {CHANGES_AT_ONCE}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([change])?;
        let (mut last, mut ids) = (change, Vec::new());
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            ids.push(row.get(1)?);
        }
        if ids.len() < CHANGES_AT_ONCE {
            (self.data_version, self.last) = (Some(version), last);
        }
        Ok((last, ids))
    }
}
