//! Grants and the feed of their revocations, in SQL.

use crate::store::grant::NEWER_LOGIN;
use crate::store::{Error, Grant, LOGIN, MAX_GRANTS_OF_ONE_SUBJECT, MAX_LISTED, Revocation, Revoked, Subject};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, named_params};
use std::sync::Arc;

const COLUMNS: &str = "id, issuer, subject_kind, subject_name, client_id, resource, scopes, \
                       created_at, expires_at, made_by, revoked_at, revoked_by, password_mark, longest_until";

/// Rows that one purge removes at most.
const PURGED_AT_ONCE: usize = 5_000;

pub(super) fn insert(connection: &Connection, grant: &Grant) -> Result<(), Error> {
    if get(connection, &grant.id)?.is_some() {
        return Err(Error::Exists(grant.id.to_string()));
    }
    if in_force(connection, &grant.subject, grant.created_at_ms)? >= MAX_GRANTS_OF_ONE_SUBJECT {
        return Err(Error::TooMany { subject: grant.subject.clone(), limit: MAX_GRANTS_OF_ONE_SUBJECT });
    }
    connection
        .prepare_cached(
            "INSERT INTO grants VALUES (:id, :issuer, :kind, :name, :client, :resource, :scopes,
             :created, :expires, :made_by, NULL, NULL, :mark, :longest)",
        )?
        .execute(named_params! {
            ":id": grant.id, ":issuer": grant.issuer,
            ":kind": grant.subject.kind(), ":name": grant.subject.name(),
            ":client": grant.client, ":resource": grant.resource, ":scopes": grant.scopes.join(" "),
            ":created": grant.created_at_ms, ":expires": grant.expires_at_ms, ":made_by": grant.made_by,
            ":mark": grant.password_mark, ":longest": grant.longest_until_ms,
        })?;
    Ok(())
}

/// Ends a login of the subject where it has as many grants as it may have: of the same client and resource if there is
/// one, and that which was idle for the longest time. What was made by hand stays: nobody asked to replace it.
pub(super) fn make_room(connection: &Connection, grant: &Grant) -> Result<Option<Arc<str>>, Error> {
    let Grant { subject, created_at_ms: now_ms, .. } = grant;
    if in_force(connection, subject, *now_ms)? < MAX_GRANTS_OF_ONE_SUBJECT {
        return Ok(None);
    }
    // The end of a login moves with its use: the one that would end first is the one idle for longest.
    let idlest: Option<Arc<str>> = connection
        .prepare_cached(
            "SELECT id FROM grants WHERE subject_kind = :kind AND subject_name = :name
             AND revoked_at IS NULL AND expires_at > :now AND made_by = :login
             ORDER BY client_id = :client AND resource = :resource DESC, expires_at, id LIMIT 1",
        )?
        .query_row(
            named_params! {
                ":kind": subject.kind(), ":name": subject.name(), ":now": now_ms, ":login": LOGIN,
                ":client": grant.client, ":resource": grant.resource,
            },
            |row| row.get(0),
        )
        .optional()?;
    if let Some(id) = &idlest {
        revoke(connection, id, NEWER_LOGIN, *now_ms)?;
    }
    Ok(idlest)
}

fn in_force(connection: &Connection, subject: &Subject, at_ms: i64) -> Result<usize, Error> {
    let count = connection
        .prepare_cached(
            "SELECT count(*) FROM grants WHERE subject_kind = ? AND subject_name = ?
             AND revoked_at IS NULL AND expires_at > ?",
        )?
        .query_row((subject.kind(), subject.name(), at_ms), |row| row.get::<_, i64>(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

pub(super) fn get(connection: &Connection, id: &str) -> Result<Option<Grant>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM grants WHERE id = ?");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read).optional()?)
}

pub(super) fn list(connection: &Connection, of: Option<&Subject>) -> Result<Vec<Grant>, Error> {
    let (filter, parameters): (_, Vec<&dyn ToSql>) = match of {
        None => ("", vec![]),
        Some(Subject::User(name)) => ("WHERE subject_kind = 'user' AND subject_name = ?", vec![name]),
        Some(Subject::Client(id)) => ("WHERE subject_kind = 'client' AND subject_name = ?", vec![id]),
    };
    let sql = format!(
        "SELECT {COLUMNS} FROM grants {filter} ORDER BY revoked_at IS NOT NULL, created_at DESC, id LIMIT {MAX_LISTED}"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(parameters.as_slice(), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn list_in_force(connection: &Connection, subject: &Subject, at_ms: i64) -> Result<Vec<Grant>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM grants WHERE subject_kind = ? AND subject_name = ?
         AND revoked_at IS NULL AND expires_at > ? ORDER BY created_at DESC, id"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map((subject.kind(), subject.name(), at_ms), read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Grant> {
    let kind: String = row.get("subject_kind")?;
    let name: Arc<str> = row.get("subject_name")?;
    let scopes: String = row.get("scopes")?;
    let revoked_at: Option<i64> = row.get("revoked_at")?;
    let revoked_by: Option<String> = row.get("revoked_by")?;
    Ok(Grant {
        id: row.get("id")?,
        issuer: row.get("issuer")?,
        subject: Subject::of_columns(&kind, name).ok_or(rusqlite::Error::InvalidQuery)?,
        client: row.get("client_id")?,
        resource: row.get("resource")?,
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
        created_at_ms: row.get("created_at")?,
        expires_at_ms: row.get("expires_at")?,
        made_by: row.get("made_by")?,
        password_mark: row.get("password_mark")?,
        longest_until_ms: row.get("longest_until")?,
        revoked: revoked_at.zip(revoked_by).map(|(at_ms, by)| Revoked { at_ms, by }),
    })
}

pub(super) fn revoke(connection: &Connection, id: &str, by: &str, at_ms: i64) -> Result<Revocation, Error> {
    let changed = connection
        .prepare_cached("UPDATE grants SET revoked_at = ?, revoked_by = ? WHERE id = ? AND revoked_at IS NULL")?
        .execute((at_ms, by, id))?;
    if changed == 0 {
        let known = get(connection, id)?.is_some();
        return Ok(if known { Revocation::Before } else { Revocation::Unknown });
    }
    connection.prepare_cached("INSERT INTO revocations (grant_id) VALUES (?)")?.execute([id])?;
    Ok(Revocation::Done)
}

/// Removes what has expired; revocations go with their grants.
pub(super) fn purge(connection: &Connection, at_ms: i64) -> Result<usize, Error> {
    let sql = format!(
        "DELETE FROM grants WHERE id IN
         (SELECT id FROM grants WHERE expires_at <= ? LIMIT {PURGED_AT_ONCE})"
    );
    Ok(connection.prepare_cached(&sql)?.execute([at_ms])?)
}

/// What the reading connection saw of the revocations, so that asking again costs one comparison.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// SQLite's count of changes by other connections, ours that writes among them.
    data_version: Option<i64>,
    /// The last revocation there was at that count.
    last: i64,
}

impl Feed {
    pub(super) fn after(&mut self, connection: &Connection, change: i64) -> Result<(i64, Vec<String>), Error> {
        // Read before the rows: what is written in between is then looked for once more, not missed.
        let version: i64 = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        if self.data_version == Some(version) && change >= self.last {
            return Ok((change, Vec::new()));
        }
        let sql =
            format!("SELECT change, grant_id FROM revocations WHERE change > ? ORDER BY change LIMIT {MAX_LISTED}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query([change])?;
        let (mut last, mut ids) = (change, Vec::new());
        while let Some(row) = rows.next()? {
            last = row.get(0)?;
            ids.push(row.get(1)?);
        }
        if ids.len() < MAX_LISTED {
            (self.data_version, self.last) = (Some(version), last);
        }
        Ok((last, ids))
    }
}
