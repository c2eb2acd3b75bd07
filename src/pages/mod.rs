//! Pages for people: templates that escape everything by themselves, and the headers that keep a page to itself.
//!
//! What a page shows stands here as a struct; how it looks, in the `.html` file of the same name and in `style.css`.
//! No page needs a script, and none loads anything from elsewhere.

use askama::Template;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

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
    /// Where the person, and with them the access, is sent: the host of the redirect URI, or its scheme for an app's own.
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

/// A page as an answer. `form_target` is where, beside this gateway, its forms may lead: browsers hold a redirect after a
/// form to the same rule (CSP 3, `form-action`).
pub fn answer(status: StatusCode, page: &impl Template, form_target: Option<&str>) -> Response {
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
        (HeaderName::from_static("permissions-policy"), "interest-cohort=()"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, policy(form_target));
    response
}

/// The style sheet as an answer.
pub fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=300"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, STYLE).into_response()
}

fn policy(form_target: Option<&str>) -> HeaderValue {
    let more = form_target.map(|target| format!(" {target}")).unwrap_or_default();
    let policy = format!(
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'{more}; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).unwrap_or_else(|_| {
        HeaderValue::from_static(
            "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        )
    })
}
