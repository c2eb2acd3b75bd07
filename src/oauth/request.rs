//! An authorization request (RFC 6749 §4.1.1, RFC 7636 §4.3, RFC 8707 §2), checked.
//!
//! The order matters: until the client and its redirect URI are certain, a fault is shown to the person on a page of ours
//! and nobody is sent anywhere; after that the client is told (OAuth 2.1 §4.1.2.1).

use super::client::{Client, NotFound, Origin};
use super::{Shared, resource, scope};
use crate::browser::Form;
use crate::browser::Refusal;
use crate::redirect_uri;
use crate::snapshot::Snapshot;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// In bytes; clients put whole structures into it.
const LONGEST_STATE: usize = 8 * 1024;

/// What a client asks for, all of it checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    /// Who asks.
    pub(super) client: String,
    /// Where the answer goes, as the client wrote it.
    pub(super) redirect_uri: String,
    /// What the client wants back. As base64url while it travels: JSON would write a control character with six.
    #[serde(with = "encoded")]
    pub(super) state: Option<String>,
    /// The resource URL, in our form.
    pub(super) resource: String,
    /// The route's name.
    pub(super) route: String,
    /// What can be granted of what was asked for.
    pub(super) scopes: Vec<String>,
    /// S256.
    pub(super) challenge: String,
    /// `prompt=none`: nobody is to be asked.
    pub(super) may_not_ask: bool,
    /// `prompt=login`: who is logged in already is asked to log in again.
    pub(super) wants_login: bool,
    /// `prompt=consent`: who consented before is asked again.
    pub(super) wants_consent: bool,
    /// Whether people may be sent to the redirect URI without having seen where that is.
    is_trusted: bool,
}

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Shown to the person; nobody is sent anywhere.
    Page(Page),
    /// Told to the client.
    Redirect(RedirectError),
}

/// Why a request cannot be answered to its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The request has no `client_id`, or two.
    NoClient,
    /// Nobody by this `client_id`.
    UnknownClient(String),
    /// Its metadata document cannot be used.
    Document(String),
    /// The client cannot log people in.
    NotForPeople,
    /// The redirect URI is missing, or there twice.
    NoRedirectUri,
    /// The client may not have people sent there.
    ForeignRedirectUri,
    /// Not a form at all.
    Malformed(&'static str),
    /// It could not be found out now.
    Unavailable,
}

/// An error for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RedirectError {
    /// Where to.
    pub(super) redirect_uri: String,
    /// The client's.
    pub(super) state: Option<String>,
    /// As RFC 6749 §4.1.2.1, RFC 8707 §2 and OpenID Connect Core §3.1.2.6 have them.
    pub(super) code: &'static str,
    /// A sentence for developers.
    pub(super) description: String,
    /// The client.
    pub(super) client: String,
    /// Whether people may be sent there without having seen where that is.
    pub(super) is_trusted: bool,
}

// === impl RedirectError ===

impl RedirectError {
    /// What is recorded of it.
    pub(super) fn refusal(&self) -> Refusal {
        Refusal { code: self.code, detail: self.description.clone().into() }
    }
}

// === impl Request ===

impl Request {
    /// Reads and checks the query of a request.
    ///
    /// # Errors
    /// [`Fault`]: what is wrong with it, and who is to be told.
    pub(super) async fn read(shared: &Shared, snapshot: &Snapshot, query: &str) -> Result<(Request, Client), Fault> {
        let form = Form::parse(query.as_bytes()).map_err(|error| Fault::Page(Page::Malformed(error.0)))?;
        let client = client(shared, &form).await.map_err(Fault::Page)?;
        let to = ToClient::find(&form, &client).map_err(Fault::Page)?;
        let request = check(snapshot, &form, &to).map_err(Fault::Redirect)?;
        Ok((request, client))
    }

    /// As it travels in a login form and waits in the store.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and truth values can be written as JSON")
    }

    /// What [`Request::to_json`] made.
    pub(super) fn of_json(text: &[u8]) -> Option<Request> {
        serde_json::from_slice(text).ok()
    }

    /// An error about this request.
    pub(super) fn error(&self, code: &'static str, description: &str) -> RedirectError {
        RedirectError {
            redirect_uri: self.redirect_uri.clone(),
            state: self.state.clone(),
            code,
            description: description.to_owned(),
            client: self.client.clone(),
            is_trusted: self.is_trusted,
        }
    }

    /// The same request, of which the person has been asked to log in as it wanted.
    pub(super) fn logged_in(self) -> Request {
        Request { wants_login: false, ..self }
    }
}

async fn client(shared: &Shared, form: &Form) -> Result<Client, Page> {
    let id = form.get("client_id").filter(|_| !form.is_repeated("client_id")).ok_or(Page::NoClient)?;
    let client = match Client::find(shared, id).await {
        Ok(client) => client,
        Err(NotFound::Unknown) => return Err(Page::UnknownClient(id.to_owned())),
        Err(NotFound::Document(why)) => return Err(Page::Document(why)),
        Err(NotFound::Unavailable) => return Err(Page::Unavailable),
    };
    if client.may_use_codes { Ok(client) } else { Err(Page::NotForPeople) }
}

/// Where an answer goes.
struct ToClient<'a> {
    client: &'a Client,
    redirect_uri: &'a str,
    state: Option<&'a str>,
    is_trusted: bool,
}

impl<'a> ToClient<'a> {
    fn find(form: &'a Form, client: &'a Client) -> Result<Self, Page> {
        if form.is_repeated("redirect_uri") {
            return Err(Page::NoRedirectUri);
        }
        let redirect_uri = match (form.get("redirect_uri"), client.redirect_uris.as_slice()) {
            (Some(sent), _) if client.allows_redirect_to(sent) => sent,
            (Some(_), _) => return Err(Page::ForeignRedirectUri),
            // OAuth 2.1 §2.3.2: it may be left out where there is only one.
            (None, [only]) => only,
            (None, _) => return Err(Page::NoRedirectUri),
        };
        let state = form.get("state").filter(|state| state.len() <= LONGEST_STATE && !form.is_repeated("state"));
        let is_trusted = client.origin == Origin::Configured || redirect_uri::is_loopback(redirect_uri);
        Ok(ToClient { client, redirect_uri, state, is_trusted })
    }

    fn error(&self, code: &'static str, description: impl Into<String>) -> RedirectError {
        RedirectError {
            redirect_uri: self.redirect_uri.to_owned(),
            state: self.state.map(str::to_owned),
            code,
            description: description.into(),
            client: self.client.id.to_string(),
            is_trusted: self.is_trusted,
        }
    }
}

fn check(snapshot: &Snapshot, form: &Form, to: &ToClient<'_>) -> Result<Request, RedirectError> {
    let invalid = |description: &str| to.error("invalid_request", description);
    if form.get("state").is_some() && to.state.is_none() {
        return Err(invalid("state is too long or there twice; at most 8192 bytes"));
    }
    // One route a token: two `resource` parameters (RFC 8707 allows them) ask for more than that.
    if form.is_repeated("resource") {
        return Err(to.error("invalid_target", "one resource at a time"));
    }
    if form.has_repeated() {
        return Err(invalid("a parameter came twice"));
    }
    check_kind(form, to)?;
    let challenge = challenge(form).map_err(invalid)?;
    let route = resource::route_for(snapshot, form.get("resource"))
        .map_err(|target| to.error("invalid_target", target.description))?;
    let scopes = scope::granted(snapshot, form.get("scope"))
        .map_err(|_| to.error("invalid_scope", "scope is not a list of scopes (RFC 6749 section 3.3)"))?;
    let prompts: Vec<&str> = form.get("prompt").unwrap_or_default().split_whitespace().collect();
    let may_not_ask = prompts.contains(&"none");
    if may_not_ask && prompts.len() > 1 {
        return Err(invalid("prompt=none goes with no other"));
    }
    Ok(Request {
        client: to.client.id.to_string(),
        redirect_uri: to.redirect_uri.to_owned(),
        state: to.state.map(str::to_owned),
        resource: route.resource.clone(),
        route: route.name.to_string(),
        scopes,
        challenge,
        may_not_ask,
        wants_login: prompts.contains(&"login"),
        wants_consent: prompts.contains(&"consent"),
        is_trusted: to.is_trusted,
    })
}

/// The kinds of request there are, of which we know one.
fn check_kind(form: &Form, to: &ToClient<'_>) -> Result<(), RedirectError> {
    // RFC 9101 and OpenID Connect Core §6: nothing is fetched, nothing unpacked.
    if form.has("request") {
        return Err(to.error("request_not_supported", "request objects are not supported"));
    }
    if form.has("request_uri") {
        return Err(to.error("request_uri_not_supported", "request objects are not supported"));
    }
    if form.has("registration") {
        return Err(to.error("registration_not_supported", "register at the registration endpoint"));
    }
    match form.get("response_type") {
        Some("code") => {}
        Some(_) => return Err(to.error("unsupported_response_type", "response_type must be code")),
        None => return Err(to.error("invalid_request", "response_type is missing; it must be code")),
    }
    match form.get("response_mode") {
        None | Some("query") => Ok(()),
        Some(_) => Err(to.error("invalid_request", "response_mode must be query")),
    }
}

/// The PKCE challenge; without one there is no code (OAuth 2.1 §7.5).
fn challenge(form: &Form) -> Result<String, &'static str> {
    let challenge = form.get("code_challenge").ok_or("code_challenge is missing; PKCE with S256 is required")?;
    // RFC 7636 §4.3: left out, it is `plain`.
    if form.get("code_challenge_method") != Some("S256") {
        return Err("code_challenge_method must be S256");
    }
    //= RFC 7636 §4.2
    //# code_challenge = BASE64URL-ENCODE(SHA256(ASCII(code_verifier)))
    let is_digest = challenge.len() == 43 && URL_SAFE_NO_PAD.decode(challenge).is_ok_and(|bytes| bytes.len() == 32);
    if is_digest { Ok(challenge.to_owned()) } else { Err("code_challenge is not a SHA-256 in base64url") }
}

/// A text as base64url of its bytes.
mod encoded {
    use super::URL_SAFE_NO_PAD;
    use base64::Engine as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(text: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_ref().map(|text| URL_SAFE_NO_PAD.encode(text)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
        let encoded = Option::<String>::deserialize(deserializer)?;
        let decode = |text: String| {
            String::from_utf8(URL_SAFE_NO_PAD.decode(text).map_err(D::Error::custom)?).map_err(D::Error::custom)
        };
        encoded.map(decode).transpose()
    }
}
