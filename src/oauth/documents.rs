//! The documents of clients, fetched and kept: what `metadata_document` reads, and the key sets beside it.
//!
//! A stranger names the URL, so everything about the fetch is bounded: where it may lead (`crate::fetch`), its size and
//! time, how many there are at once, and how many for one address. Good documents are kept, failures are not.
//!
//! A client that a person has let in is no stranger. Strangers cannot use up its fetches, and the store keeps what it
//! last said: its host may be down for some days, and nobody is logged out by that.

use super::client::{Authentication, Client, KeySet, NotFound, Origin};
use super::fetches::{Failure, Fetches, lifetime};
use super::metadata_document::{check_id, place, read};
use super::{Shared, caller};
use crate::browser::{Budget, Rate};
use crate::config::MetadataDocuments;
use crate::fetch::{self, Authorities, Fetcher, Get};
use crate::identity::PublicKeys;
use crate::snapshot::Snapshot;
use crate::store::{FetchedDocument, MAX_DOCUMENTS};
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use url::Url;

/// In bytes (draft-ietf-oauth-client-id-metadata-document §6.6).
const LARGEST: usize = 5 * 1024;
/// In bytes, of a key set: keys come with certificates.
const LARGEST_KEY_SET: usize = 64 * 1024;
/// From looking up the name to the last byte.
const LIMIT: Duration = Duration::from_secs(5);
/// Documents that are kept in memory. Known clients are a few dozen.
const MAX_KEPT: usize = 256;
/// Fetches at once.
const MAX_AT_ONCE: usize = 16;
/// For one address. A person who logs in causes one, or none.
const EACH: Rate = Rate { burst: 10, every: Duration::from_secs(6) };
/// For all of them.
const ALL: Rate = Rate { burst: 60, every: Duration::from_secs(1) };
/// A key that is not in the set may be new; it is looked for again no more often than this.
const ASKED_AGAIN: Duration = Duration::from_secs(60);
/// What was last said counts no longer than this after it was fetched.
const LONGEST_OUTAGE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Documents and key sets of clients, as far as they are known.
#[derive(Debug)]
pub(super) struct Documents {
    fetcher: Fetcher,
    clients: Fetches<Fetched>,
    keys: Fetches<PublicKeys>,
    /// For clients that nobody has let in.
    strangers: Allowance,
    /// For the others.
    known: Allowance,
    under: Mutex<Under>,
}

/// A document of a client, read.
#[derive(Debug)]
struct Fetched {
    client: Client,
    body: Bytes,
    at_ms: i64,
}

/// How much may be fetched.
#[derive(Debug)]
struct Allowance {
    budget: Budget,
    at_once: Semaphore,
}

/// Under which configuration documents were fetched; under another, other places may be good.
#[derive(Debug, Default)]
struct Under {
    settings: Option<MetadataDocuments>,
    authorities: Option<Authorities>,
    hosts: Vec<String>,
}

/// What counts while the document of a client cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// Nothing: a person who logs in can wait.
    Nothing,
    /// What it last said, if a person has let the client in.
    LastSaid,
}

// === impl Under ===

impl Under {
    fn of(snapshot: &Snapshot) -> Under {
        Under {
            settings: Some(snapshot.config.oauth.metadata_documents.clone()),
            authorities: snapshot.document_authorities.clone(),
            hosts: snapshot.guard.hosts().to_vec(),
        }
    }

    fn is(&self, snapshot: &Snapshot) -> bool {
        self.settings.as_ref() == Some(&snapshot.config.oauth.metadata_documents)
            && self.authorities == snapshot.document_authorities
            && self.hosts == snapshot.guard.hosts()
    }
}

// === impl Allowance ===

impl Allowance {
    fn new() -> Allowance {
        Allowance { budget: Budget::new(EACH, ALL), at_once: Semaphore::new(MAX_AT_ONCE) }
    }

    fn take(&self) -> Result<SemaphorePermit<'_>, Failure> {
        let turn = self.at_once.try_acquire().map_err(|_| Failure::Unavailable("too many at once".to_owned()))?;
        let wait = |_| Failure::Unavailable("too many documents are asked for".to_owned());
        self.budget.take(caller::address()).map_err(wait)?;
        Ok(turn)
    }
}

// === impl Documents ===

impl Documents {
    /// Knows none yet.
    pub(super) fn new(fetcher: Fetcher) -> Documents {
        Documents {
            fetcher,
            clients: Fetches::new(MAX_KEPT),
            keys: Fetches::new(MAX_KEPT),
            strangers: Allowance::new(),
            known: Allowance::new(),
            under: Mutex::default(),
        }
    }

    /// The client that the document at this URL describes.
    pub(super) async fn client(
        &self,
        shared: &Shared,
        snapshot: &Snapshot,
        id: &str,
        meanwhile: Meanwhile,
    ) -> Result<Client, NotFound> {
        let url = check_id(id, snapshot).map_err(NotFound::Document)?;
        self.forget_if_changed(snapshot);
        if let Some(fetched) = self.clients.kept(id) {
            return Ok(fetched.client.clone());
        }
        // On the heap: no request that causes no fetch carries one.
        let last = last_said(shared, id, id).await;
        match Box::pin(self.fetch_client(shared, snapshot, &url, last.is_some())).await {
            Ok(client) => Ok(client),
            Err(Failure::Unusable(why)) => {
                tracing::debug!(%why, "a client's metadata document cannot be used");
                Err(NotFound::Document(why))
            }
            Err(Failure::Missing(why) | Failure::Unavailable(why))
                if meanwhile == Meanwhile::LastSaid && counts(shared, last.as_ref()) =>
            {
                tracing::info!(client = id, %why, "a client's metadata document cannot be had; what it last said counts");
                let body = last.map(|last| last.body).unwrap_or_default();
                read_here(id, &body, snapshot).map_err(NotFound::Document)
            }
            Err(Failure::Missing(why)) => Err(NotFound::Document(why)),
            Err(Failure::Unavailable(why)) => {
                tracing::info!(%why, "a client's metadata document cannot be had");
                Err(NotFound::Unavailable)
            }
        }
    }

    async fn fetch_client(
        &self,
        shared: &Shared,
        snapshot: &Snapshot,
        url: &Url,
        is_known: bool,
    ) -> Result<Client, Failure> {
        // The same, byte for byte: `check_id`.
        let id = url.as_str();
        let fetch = async {
            let document = self.get(snapshot, url, LARGEST, is_known).await?;
            let client = match read_here(id, &document.body, snapshot) {
                Ok(client) => client,
                Err(why) => {
                    // It was had, and says something else now: what it said before is over.
                    if is_known && let Err(error) = shared.store.forget_documents(id).await {
                        tracing::warn!(%error, "the former document of a client is not forgotten");
                    }
                    return Err(Failure::Unusable(why));
                }
            };
            let at_ms = shared.clock.unix_ms();
            if is_known {
                keep(shared, id, id, &document.body, at_ms).await;
            }
            Ok((Fetched { client, body: document.body, at_ms }, lifetime(&document.cache_control)))
        };
        let fetched = self.clients.fetch(id, fetch).await?;
        if is_known {
            self.clients.need(id);
        }
        Ok(fetched.client.clone())
    }

    /// A person has let this client in, or it got a token: what it says now is kept for when its host is down. That this
    /// cannot be done costs it nothing now.
    pub(super) async fn remember(&self, shared: &Shared, client: &Client) {
        if client.origin != Origin::Document {
            return;
        }
        let Some(fetched) = self.clients.kept(&client.id) else {
            return;
        };
        self.clients.need(&client.id);
        // Most often there is nothing to write, and a write waits for the disk.
        if last_said(shared, &client.id, &client.id).await.is_none_or(|last| last.fetched_at_ms < fetched.at_ms) {
            keep(shared, &client.id, &client.id, &fetched.body, fetched.at_ms).await;
        }
    }

    /// The keys at the `jwks_uri` of this client's document, with one of this name among them if there is one.
    pub(super) async fn keys(
        &self,
        shared: &Shared,
        snapshot: &Snapshot,
        client: &str,
        url: &Url,
        kid: Option<&str>,
    ) -> Result<Arc<PublicKeys>, Failure> {
        self.forget_if_changed(snapshot);
        let known = self.keys.kept(url.as_str());
        let is_recent = self.keys.age(url.as_str()).is_some_and(|age| age < ASKED_AGAIN);
        if let Some(known) = known.filter(|keys| keys.has(kid) || is_recent) {
            return Ok(known);
        }
        let is_known = last_said(shared, client, client).await.is_some();
        let fetch = async {
            let document = self.get(snapshot, url, LARGEST_KEY_SET, is_known).await?;
            let keys = parse_keys(&document.body)?;
            if is_known {
                keep(shared, client, url.as_str(), &document.body, shared.clock.unix_ms()).await;
            }
            Ok((keys, lifetime(&document.cache_control)))
        };
        let failure = match Box::pin(self.keys.fetch(url.as_str(), fetch)).await {
            Ok(keys) => {
                if is_known {
                    self.keys.need(url.as_str());
                }
                return Ok(keys);
            }
            Err(failure @ Failure::Unusable(_)) => return Err(failure),
            Err(failure) => failure,
        };
        let last = last_said(shared, client, url.as_str()).await.filter(|last| counts(shared, Some(last)));
        let keys = last.and_then(|last| parse_keys(&last.body).ok()).filter(|keys| keys.has(kid));
        // Where they may be is judged by the configuration of now.
        let keys = keys.filter(|_| place(url, snapshot).is_ok());
        keys.map(Arc::new).ok_or(failure)
    }

    async fn get(
        &self,
        snapshot: &Snapshot,
        url: &Url,
        max_bytes: usize,
        is_known: bool,
    ) -> Result<fetch::Document, Failure> {
        let reach = place(url, snapshot).map_err(Failure::Unusable)?;
        let _turn = if is_known { self.known.take() } else { self.strangers.take() }?;
        let authorities = snapshot.document_authorities.as_ref();
        let get = Get { url, authorities, reach, limit: LIMIT, max_bytes };
        // Most of what a fetch is made of; on the heap, so that what waits for it stays small.
        let document = Box::pin(self.fetcher.document(&get)).await.map_err(|why| failure(url, &why))?;
        let is_json = document.content_type == "application/json"
            || (document.content_type.starts_with("application/") && document.content_type.ends_with("+json"));
        if is_json { Ok(document) } else { Err(Failure::Missing("its content type is not JSON".to_owned())) }
    }

    /// Only if the change is one for documents: any other is no reason to fetch them all again.
    fn forget_if_changed(&self, snapshot: &Snapshot) {
        let mut under = self.under.lock().unwrap_or_else(PoisonError::into_inner);
        if !under.is(snapshot) {
            *under = Under::of(snapshot);
            self.clients.clear();
            self.keys.clear();
        }
    }
}

/// The client that a document describes, if its keys are where they may be under this configuration.
fn read_here(id: &str, body: &[u8], snapshot: &Snapshot) -> Result<Client, String> {
    let client = read(id, body)?;
    // Said now, not when the client wants its token.
    if let Authentication::Keys { set: KeySet::At(keys), .. } = &client.authentication {
        place(keys, snapshot).map_err(|why| format!("its jwks_uri {why}"))?;
    }
    Ok(client)
}

fn parse_keys(body: &[u8]) -> Result<PublicKeys, Failure> {
    PublicKeys::parse(body).map_err(|why| Failure::Unusable(why.to_string()))
}

/// What may be different the next time is no fault of the document.
fn failure(url: &Url, why: &fetch::Error) -> Failure {
    use fetch::Error;
    let host = url.host_str().unwrap_or_default();
    match why {
        // Not which address, nor whether there is one: what names there are inside this network is nobody's business.
        Error::NotPublic(_) | Error::Resolve { .. } => {
            Failure::Missing(format!("{host} does not lead to a public address"))
        }
        Error::Url(_) | Error::Port(_) | Error::TooLarge(_) => Failure::Unusable(why.to_string()),
        Error::Encoded => Failure::Missing(why.to_string()),
        Error::Status(status) if !status.is_server_error() && status.as_u16() != 429 => {
            Failure::Missing(why.to_string())
        }
        _ => Failure::Unavailable(format!("{host}: {why}")),
    }
}

// === what the store keeps ===

/// What the document of a client at this URL last said; nothing of a client that nobody has let in.
async fn last_said(shared: &Shared, client: &str, url: &str) -> Option<FetchedDocument> {
    let last = shared.store.document(client, url).await;
    last.inspect_err(|error| tracing::warn!(%error, "what the document of a client last said cannot be read"))
        .ok()
        .flatten()
}

/// Whether what was last said is there, and young enough to count.
fn counts(shared: &Shared, last: Option<&FetchedDocument>) -> bool {
    last.is_some_and(|last| shared.clock.unix_ms().saturating_sub(last.fetched_at_ms) <= LONGEST_OUTAGE_MS)
}

async fn keep(shared: &Shared, client: &str, url: &str, body: &Bytes, fetched_at_ms: i64) {
    let document =
        FetchedDocument { client: client.to_owned(), url: url.to_owned(), body: body.to_vec(), fetched_at_ms };
    if let Err(error) = shared.store.keep_document(document, MAX_DOCUMENTS).await {
        tracing::warn!(%error, "the document of a client cannot be kept");
    }
}
