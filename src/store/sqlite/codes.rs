//! Authorization codes, in SQL.

use super::Sqlite;
use crate::store::{Code, Error};
use rusqlite::named_params;

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
}
