//! Pages for people: templates that escape everything by themselves, and the headers that keep a page to itself.
//!
//! What a page shows stands here as a struct; how it looks, in the `.html` file of the same name and in `style.css`.
//! No page needs a script, one has one, and none loads anything from elsewhere. What clients say of themselves goes through `text`.

mod approvals;
mod status;
pub(crate) mod text;
mod unicode;

pub use approvals::{
    Approval, ApprovalGroup, ApprovalRow, Approvals, Choice, Line, NoticeRow, Piece, Quorum, Said, Section, Value,
    period, second,
};

pub use status::{DecisionRow, Note, Status, StatusRow};

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::net::Ipv4Addr;
use url::{Host, Url};

/// Who asks a person for access, and to what: shown where they log in and where they consent.
#[derive(Clone, Debug)]
pub struct Asking {
    /// What the client calls itself, or its id.
    pub client: String,
    /// Its id: for a metadata document, its URL.
    pub client_id: String,
    /// The host that vouches for the client, where one does: that of its metadata document.
    pub vouched_by: Option<String>,
    /// Whether whoever runs this gateway wrote the client into the configuration.
    pub is_configured: bool,
    /// Where the person, and with them the access, is sent: the host of the redirect URI, or for an app's own scheme that and its
    /// colon (`cursor:`).
    pub sent_to: String,
    /// Whether that is a program on the person's own computer, which any program there could be.
    pub is_loopback: bool,
    /// The upstream's name.
    pub route: String,
    /// The URL of the route.
    pub resource: String,
    /// What the token may be used for.
    pub scopes: Vec<String>,
}

/// Asks for name and password.
#[derive(Debug, Template)]
#[template(path = "login.html")]
pub struct Login {
    /// On whose behalf, where the login is on the way to a consent.
    pub asking: Option<Asking>,
    /// What the form carries along, signed.
    pub ticket: String,
    /// What was typed before.
    pub username: String,
    /// What was wrong with it.
    pub problem: Option<String>,
}

/// Asks whether a client may act for the person.
#[derive(Debug, Template)]
#[template(path = "consent.html")]
pub struct Consent {
    /// Who is logged in.
    pub user: String,
    /// Who asks for what.
    pub asking: Asking,
    /// The id of the authorization request.
    pub flow: String,
    /// Proves that the form is of this session's page.
    pub csrf: String,
}

/// Says one thing: an error, an end.
#[derive(Debug, Template)]
#[template(path = "message.html")]
pub struct Message {
    /// The heading.
    pub title: String,
    /// What happened and what to do, a paragraph each.
    pub text: Vec<String>,
    /// For whoever is asked for help: names and values.
    pub details: Vec<(String, String)>,
    /// Where to go on, and what the link says.
    pub link: Option<(String, String)>,
    /// Whether it is an error.
    pub is_error: bool,
}

/// Shows a person what they let act for them.
#[derive(Debug, Template)]
#[template(path = "grants.html")]
pub struct Grants {
    /// Who is logged in.
    pub user: String,
    /// Proves that a form is of this session's page.
    pub csrf: String,
    /// What is in force.
    pub grants: Vec<GrantRow>,
    /// What was just done.
    pub notice: Option<String>,
}

/// One grant in force.
#[derive(Debug)]
pub struct GrantRow {
    /// Its id.
    pub id: String,
    /// What the client calls itself, or its id.
    pub client: String,
    /// The client's id.
    pub client_id: String,
    /// The upstream's name.
    pub route: String,
    /// What the tokens may be used for.
    pub scopes: String,
    /// How it came to be: `login`, `token issue`.
    pub made_by: String,
    /// When it was given, for people.
    pub since: String,
    /// When it ends by itself, for people.
    pub until: String,
}

/// Shows a person where a call stands that was asked for in their name and is held for somebody's approval.
#[derive(Debug, Template)]
#[template(path = "hold.html")]
pub struct Hold {
    /// Who is logged in.
    pub user: String,
    /// Proves that a form is of this session's page.
    pub csrf: String,
    /// The held call's id.
    pub id: String,
    /// Where it stands, in a word or three.
    pub heading: &'static str,
    /// What that means.
    pub explanation: &'static str,
    /// What was said of it, or can be done.
    pub note: Option<String>,
    /// Whether that is no bad news.
    pub is_good: bool,
    /// The tool.
    pub tool: String,
    /// The upstream's name.
    pub route: String,
    /// The client's id.
    pub client: String,
    /// When it was asked for, for people.
    pub since: String,
    /// Who can approve it, and until when.
    pub facts: Vec<(&'static str, String)>,
    /// Whether it can still be taken back.
    pub may_withdraw: bool,
}

/// Makes the first person of a new gateway.
#[derive(Debug, Template)]
#[template(path = "setup.html")]
pub struct Setup {
    /// The one-time link's secret.
    pub link: String,
    /// What was typed before.
    pub username: String,
    /// What was wrong with it.
    pub problem: Option<String>,
}

/// The style sheet, at [`STYLE_PATH`].
pub const STYLE: &str = include_str!("style.css");
/// Where the pages look for it.
pub const STYLE_PATH: &str = "/assets/style.css";
/// The picture in the browser's tab, at [`ICON_PATH`].
pub const ICON: &str = include_str!("icon.svg");
/// Where the pages look for it.
pub const ICON_PATH: &str = "/assets/icon.svg";

/// What keeps the list of held calls up to date, at [`LIVE_PATH`]; the only script there is, and the list works without it.
pub const LIVE: &str = include_str!("live.js");
/// Where that list looks for it.
pub const LIVE_PATH: &str = "/assets/live.js";

/// What a page may do: nothing but show itself in our style and send its forms to us.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// A page as an answer. `redirect_uri` is where, beside this gateway, its forms may lead: browsers hold a redirect after
/// a form to the same rule (CSP 3, `form-action`), so the page whose form ends at a client has to name it.
pub fn answer(status: StatusCode, page: &impl Template, redirect_uri: Option<&str>) -> Response {
    let Ok(html) = page.render() else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let mut response = (status, html).into_response();
    let headers = response.headers_mut();
    let fixed: [(HeaderName, &str); 8] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=(), payment=()"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy(redirect_uri));
    response
}

/// A page of the admin listener as an answer. It sends its forms with its own origin, so that no other is let in there.
/// `is_live` lets it load our one script and ask us for events.
pub fn answer_approver(status: StatusCode, page: &impl Template, is_live: bool) -> Response {
    const LIVE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; connect-src 'self'; \
                               base-uri 'none'; frame-ancestors 'none'; form-action 'self'";
    let mut response = answer(status, page, None);
    let headers = response.headers_mut();
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if is_live {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(LIVE_POLICY));
    }
    response
}

/// The script of the list as an answer.
pub fn live() -> Response {
    asset("text/javascript; charset=utf-8", LIVE)
}

/// The style sheet as an answer.
pub fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

/// The picture in the browser's tab as an answer.
pub fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

/// A time in Unix milliseconds as people read it, to the minute: `3 February 2027, 08:45 UTC`.
pub fn moment(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(at) => at.strftime("%-d %B %Y, %H:%M UTC").to_string(),
        // No clock says so.
        Err(_) => "at no time".to_owned(),
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "public, max-age=300"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Opened by itself, a picture in SVG is a document, too.
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    (headers, text).into_response()
}

fn policy(redirect_uri: Option<&str>) -> HeaderValue {
    let policy = redirect_uri.and_then(form_source).map(|source| format!("{POLICY} {source}"));
    let policy = policy.and_then(|policy| HeaderValue::try_from(policy).ok());
    policy.unwrap_or(HeaderValue::from_static(POLICY))
}

/// The narrowest source of CSP that a redirect to this URI matches: its origin, or the scheme of an app. `None` for what
/// no form of ours may lead to; the browser then stops there.
fn form_source(redirect_uri: &str) -> Option<String> {
    let uri = Url::parse(redirect_uri).ok()?;
    if !matches!(uri.scheme(), "http" | "https") {
        return is_harmless(&uri).then(|| format!("{}:", uri.scheme()));
    }
    match uri.host()? {
        // A source cannot name it: the grammar has no brackets (CSP 3 §2.3.1), and of other addresses only 127.0.0.1 ever
        // matches (§6.7.2.8).
        Host::Ipv6(_) => Some(format!("{}:", uri.scheme())),
        Host::Ipv4(address) if address != Ipv4Addr::LOCALHOST => Some(format!("{}:", uri.scheme())),
        // URLs take more characters in a host than a source may have; `;` would end the directive, `*` open it.
        Host::Domain(host) if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) => None,
        _ => Some(uri.origin().ascii_serialization()),
    }
}

/// Whether following a link there runs nothing and reads no file of this computer.
fn is_harmless(uri: &Url) -> bool {
    let harmful = ["about", "blob", "data", "file", "filesystem", "javascript", "vbscript", "view-source"];
    !harmful.contains(&uri.scheme())
}

// === impl Asking ===

impl Asking {
    /// Whether the person is sent to an app of their device, by a scheme of its own.
    fn is_app(&self) -> bool {
        self.sent_to.ends_with(':') || self.sent_to.contains("://")
    }
}

// === impl Message ===

impl Message {
    /// The link, if it leads to a page of ours or to where a browser may be sent.
    fn safe_link(&self) -> Option<&(String, String)> {
        let (href, _) = self.link.as_ref()?;
        let is_ours = href.starts_with('/') && !href.starts_with("//") && !href.contains('\\');
        (is_ours || Url::parse(href).is_ok_and(|uri| is_harmless(&uri))).then_some(self.link.as_ref()?)
    }
}

#[cfg(test)]
mod tests;
