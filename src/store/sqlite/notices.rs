//! What became of notices, in SQL.

use super::Sqlite;
use crate::store::{Error, Notice, NoticeState};

impl Sqlite {
    pub(in crate::store) async fn notices_of(&self, approval: &str) -> Result<Vec<Notice>, Error> {
        let approval = approval.to_owned();
        self.reader
            .run(move |reader| {
                let sql = "SELECT hook, state, attempts, last_error FROM notices WHERE approval = ? ORDER BY hook, id";
                let mut statement = reader.connection.prepare_cached(sql)?;
                let rows = statement.query_map([approval], |row| {
                    let state: String = row.get(1)?;
                    Ok(Notice {
                        hook: row.get(0)?,
                        state: NoticeState::of(&state).ok_or(rusqlite::Error::InvalidQuery)?,
                        attempts: row.get(2)?,
                        last_error: row.get(3)?,
                    })
                })?;
                Ok(rows.collect::<Result<_, _>>()?)
            })
            .await
    }

    pub(in crate::store) async fn n_dead_notices(&self) -> Result<usize, Error> {
        self.reader
            .run(|reader| {
                let sql = "SELECT count(*) FROM notices WHERE state = 'dead'";
                let n: i64 = reader.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
                Ok(usize::try_from(n).unwrap_or(usize::MAX))
            })
            .await
    }
}
