//! A browser without JavaScript: cookies, forms, redirects. It follows redirects within its own origin and stops where one leads
//! elsewhere, which is where a person comes back to her client.
//!
//! It is as strict as a real one where that matters: a `__Host-` cookie that breaks its rules fails the test.

use super::http::{Connection, Request, Response};
use std::net::SocketAddr;

/// One person's browser at one origin.
pub(crate) struct Browser {
    origin: String,
    open: Box<dyn Fn() -> Connection + Send>,
    cookies: Vec<(String, String)>,
}

/// What stands in the window: the last answer, where it came from, and its forms.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Path and query it was asked for.
    pub(crate) target: String,
    /// The answer.
    pub(crate) response: Response,
    /// Where a redirect to another origin leads to, such as a client's callback.
    pub(crate) left_for: Option<String>,
    forms: Vec<Form>,
}

/// One form of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Form {
    /// Where it goes; empty: to its own page.
    pub(crate) action: String,
    /// Fields with the values they come with, hidden ones too.
    pub(crate) fields: Vec<(String, String)>,
    /// Submit buttons that have a name.
    pub(crate) buttons: Vec<(String, String)>,
}

/// More redirects in a row than any login needs.
const MOST_REDIRECTS: usize = 10;

// === impl Browser ===

impl Browser {
    /// A browser for the plain HTTP origin at this address.
    pub(crate) fn new(address: SocketAddr) -> Browser {
        Browser::at(&format!("http://{address}"), move || Connection::open(address))
    }

    /// A browser for this origin, such as `https://mcp.example.com`, reached however `open` reaches it (see `tls::connect`).
    pub(crate) fn at(origin: &str, open: impl Fn() -> Connection + Send + 'static) -> Browser {
        Browser { origin: origin.to_owned(), open: Box::new(open), cookies: Vec::new() }
    }

    /// The cookies it has: name and value.
    pub(crate) fn cookies(&self) -> &[(String, String)] {
        &self.cookies
    }

    /// Puts a cookie into it, or another value into one it has.
    pub(crate) fn set_cookie(&mut self, name: &str, value: &str) {
        self.cookies.retain(|(key, _)| key != name);
        self.cookies.push((name.to_owned(), value.to_owned()));
    }

    /// Opens a URL of its origin, or a path there, and follows redirects as far as they stay there.
    #[track_caller]
    pub(crate) fn get(&mut self, url: &str) -> Page {
        let target = url.strip_prefix(&self.origin).unwrap_or(url).to_owned();
        let page = self.send(&target, &navigation(Request::get(&target)).header("Sec-Fetch-Site", "none"));
        self.follow(page)
    }

    /// Fills in the one form of a page that has all of these fields or buttons, submits it, and follows.
    #[track_caller]
    pub(crate) fn submit(&mut self, page: &Page, fill: &[(&str, &str)]) -> Page {
        let (action, fields) = page.filled(fill);
        self.post(&action, &fields)
    }

    /// Sends a form, whatever stood on the page, and follows.
    #[track_caller]
    pub(crate) fn post(&mut self, action: &str, fields: &[(String, String)]) -> Page {
        let page = self.post_only(action, fields);
        self.follow(page)
    }

    /// Sends a form and keeps the answer, also where that is a redirect.
    #[track_caller]
    pub(crate) fn post_only(&mut self, action: &str, fields: &[(String, String)]) -> Page {
        let target = action.strip_prefix(&self.origin).unwrap_or(action).to_owned();
        let request = navigation(Request::post(&target))
            .header("Origin", &self.origin)
            .header("Sec-Fetch-Site", "same-origin")
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(encode_form(fields));
        self.send(&target, &request)
    }

    /// Opens `/authorize`, logs in where it is asked to, presses a button of the consent page (`allow`, `deny`), and gives the
    /// URL of the client that it is sent back to.
    #[track_caller]
    pub(crate) fn authorize(&mut self, url: &str, user: &str, password: &str, decision: &str) -> String {
        let mut page = self.get(url);
        if page.has_field("password") {
            page = self.submit(&page, &[("username", user), ("password", password)]);
        }
        if page.left_for.is_none() {
            page = self.submit(&page, &[("decision", decision)]);
        }
        page.callback()
    }

    #[track_caller]
    fn follow(&mut self, mut page: Page) -> Page {
        for _ in 0..MOST_REDIRECTS {
            let Some(target) = page.redirect() else {
                return page;
            };
            page = self.send(&target, &navigation(Request::get(&target)).header("Sec-Fetch-Site", "same-origin"));
        }
        panic!("more than {MOST_REDIRECTS} redirects, the last to {}", page.target);
    }

    #[track_caller]
    fn send(&mut self, target: &str, request: &Request) -> Page {
        let mut request = request.clone();
        if !self.cookies.is_empty() {
            let all: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            request = request.header("Cookie", &all.join("; "));
        }
        let mut connection = (self.open)();
        let authority = self.origin.split_once("://").map_or(self.origin.as_str(), |(_, authority)| authority);
        connection.send(&request.to_bytes(authority));
        let response = connection.response();
        for cookie in response.headers.all("set-cookie") {
            self.take_cookie(cookie);
        }
        Page::new(&self.origin, target, response)
    }

    /// RFC 6265bis §5.7, as far as one origin needs it.
    #[track_caller]
    fn take_cookie(&mut self, line: &str) {
        let mut parts = line.split(';').map(str::trim);
        let (name, value) = parts.next().and_then(|pair| pair.split_once('=')).unwrap_or_default();
        let attributes: Vec<String> = parts.map(str::to_ascii_lowercase).collect();
        let has = |attribute: &str| attributes.iter().any(|has| has == attribute);
        if name.starts_with("__Host-") {
            let is_bound = has("secure") && has("path=/") && !attributes.iter().any(|has| has.starts_with("domain"));
            assert!(is_bound, "a browser refuses this cookie: {line}");
        }
        self.cookies.retain(|(key, _)| key != name);
        if !has("max-age=0") && !has("expires=thu, 01 jan 1970 00:00:00 gmt") {
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }
}

fn navigation(request: Request) -> Request {
    request
        .header("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
        .header("Sec-Fetch-Mode", "navigate")
        .header("Sec-Fetch-Dest", "document")
}

// === impl Page ===

impl Page {
    fn new(origin: &str, target: &str, response: Response) -> Page {
        let location = response.header("location").filter(|_| (300..400).contains(&response.status));
        let is_own =
            |url: &&str| url.starts_with('/') && !url.starts_with("//") || url.starts_with(&format!("{origin}/"));
        let left_for = location.filter(|url| !is_own(url)).map(str::to_owned);
        let forms = if response.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            forms(&response.text())
        } else {
            Vec::new()
        };
        let target = target.to_owned();
        Page { target, response, left_for, forms }
    }

    /// Its status.
    pub(crate) fn status(&self) -> u16 {
        self.response.status
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        self.response.text()
    }

    /// Whether a form of it has a field of this name.
    pub(crate) fn has_field(&self, name: &str) -> bool {
        self.forms.iter().any(|form| form.has(name))
    }

    /// The URL of the client that it was sent back to.
    #[track_caller]
    pub(crate) fn callback(&self) -> String {
        let shown = || format!("{} {} is no way back to a client:\n{}", self.status(), self.target, self.text());
        self.left_for.clone().unwrap_or_else(|| panic!("{}", shown()))
    }

    /// Where its form goes and what it sends, filled in so.
    #[track_caller]
    pub(crate) fn filled(&self, fill: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        let form = self.forms.iter().find(|form| fill.iter().all(|(name, value)| form.takes(name, value)));
        let Some(form) = form else {
            panic!("{} {} has no form for {fill:?}:\n{}", self.status(), self.target, self.text());
        };
        let mut fields = form.fields.clone();
        for (name, value) in fill {
            match fields.iter_mut().find(|(key, _)| key == name) {
                Some((_, old)) => (*value).clone_into(old),
                None => fields.push(((*name).to_owned(), (*value).to_owned())),
            }
        }
        (if form.action.is_empty() { self.target.clone() } else { form.action.clone() }, fields)
    }

    /// Where its form to log out goes, and what it sends.
    #[track_caller]
    pub(crate) fn logout(&self) -> (String, Vec<(String, String)>) {
        let form = self.forms.iter().find(|form| form.action == "/logout").expect("there is a form to log out");
        (form.action.clone(), form.fields.clone())
    }

    /// The path within its origin that a redirect leads to.
    fn redirect(&self) -> Option<String> {
        if self.left_for.is_some() || !(300..400).contains(&self.status()) {
            return None;
        }
        let location = self.response.header("location")?;
        let path =
            location.split_once("://").map_or(location, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
        Some(path.to_owned())
    }
}

impl Form {
    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(key, _)| key == name)
    }

    fn takes(&self, name: &str, value: &str) -> bool {
        self.has(name) || self.buttons.iter().any(|(key, offered)| key == name && offered == value)
    }
}

// === HTML, as much of it as forms need ===

fn forms(html: &str) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    let mut is_open = false;
    for tag in html.split('<').skip(1).filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag)) {
        let name = tag.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
        let get = |key: &str| attribute(tag, key);
        match name {
            "form" => {
                forms.push(Form { action: get("action").unwrap_or_default(), ..Form::default() });
                is_open = true;
            }
            // An end tag: `</form>`.
            "" if tag.starts_with("/form") => is_open = false,
            "input" | "button" if is_open => {
                let Some((form, name)) = forms.last_mut().zip(get("name")) else {
                    continue;
                };
                let value = get("value").unwrap_or_default();
                let kind =
                    get("type").unwrap_or_else(|| if tag.starts_with("button") { "submit" } else { "text" }.to_owned());
                match kind.as_str() {
                    "submit" => form.buttons.push((name, value)),
                    "checkbox" | "radio" if get("checked").is_none() => {}
                    "reset" | "button" => {}
                    _ => form.fields.push((name, value)),
                }
            }
            _ => {}
        }
    }
    forms
}

/// The value of an attribute in a tag: quoted, bare, or empty where it has none.
fn attribute(tag: &str, name: &str) -> Option<String> {
    let mut rest = tag.trim_start_matches(|c: char| !c.is_whitespace());
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        if rest.is_empty() {
            return None;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(rest.len());
        let key = &rest[..end];
        rest = &rest[end..];
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let (found, left) = match quote {
                Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
            };
            (value, rest) = (found, left);
        }
        if key.eq_ignore_ascii_case(name) {
            return Some(unescaped(value));
        }
    }
}

/// The characters that escapers write as references.
pub(crate) fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some((reference, after)) = rest[1..].split_once(';') else {
            break;
        };
        let numbered = reference.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok(),
            None => number.parse().ok(),
        });
        match (reference, numbered.and_then(char::from_u32)) {
            (_, Some(character)) => out.push(character),
            ("amp", _) => out.push('&'),
            ("lt", _) => out.push('<'),
            ("gt", _) => out.push('>'),
            ("quot", _) => out.push('"'),
            ("apos", _) => out.push('\''),
            _ => panic!("an unknown character reference: &{reference};"),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

// === URLs ===

/// `application/x-www-form-urlencoded`; also a query.
pub(crate) fn encode_form<N: AsRef<str>, V: AsRef<str>>(fields: &[(N, V)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    form.finish()
}

/// The parameters in a URL's query, in their order.
#[track_caller]
pub(crate) fn parameters(url: &str) -> Vec<(String, String)> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// The one parameter of this name in a URL's query.
#[track_caller]
pub(crate) fn parameter(url: &str, name: &str) -> Option<String> {
    let all: Vec<String> = parameters(url).into_iter().filter(|(key, _)| key == name).map(|(_, value)| value).collect();
    assert!(all.len() <= 1, "{name} stands more than once in {url}");
    all.into_iter().next()
}
