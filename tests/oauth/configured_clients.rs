//! Clients of `identity.clients`: machines that act on their own account, and apps with an id of our choice.

use crate::support::gateway::{Gateway, IDENTITY, Launch, in_front_of};
use crate::support::http::Request;
use crate::support::oauth::{Client, Tokens, status_with, token};
use crate::support::recorder::Recorder;
use serde_json::json;

/// Robots may echo; people of `ops` may use everything.
const RULES: &str = "
- { name: robots, tools: [\"up/echo\"], who: { groups: [robots] }, allow: {} }
- { name: people, tools: [\"up/*\"], who: { groups: [ops] }, allow: {} }
- { name: alice, tools: [\"up/*\"], who: { users: [alice] }, allow: {} }
";

/// A secret and the line for the configuration, as the command prints them.
#[track_caller]
fn secret() -> (String, String) {
    let printed = Launch::new("").cli(&["clients", "secret"]).success().stdout;
    let last = |line: &str| line.split_whitespace().last().expect("a word").to_owned();
    let mut lines = printed.lines();
    let (secret, line) = (lines.next().expect("the secret"), lines.next().expect("its hash"));
    (last(secret), line.split_once("clients: ").expect("the line").1.to_owned())
}

fn yaml(url: &str, clients: &str) -> String {
    let two = in_front_of(url, RULES)
        .replace("upstreams:\n", &format!("upstreams:\n  other: {{ http: {{ url: \"{url}\" }} }}\n"));
    format!("{IDENTITY}  clients:\n{clients}{two}")
}

fn machine(client: &Client, gateway: &Gateway, resource: Option<&str>) -> crate::support::http::Response {
    let mut form = client.form(&[("grant_type", "client_credentials")]);
    form.extend(resource.map(|route| ("resource".to_owned(), gateway.url(route))));
    token(gateway, &form)
}

fn client(id: &str, secret: &str) -> Client {
    Client { id: id.to_owned(), secret: Some(secret.to_owned()), redirect_uri: "https://app.example/cb".to_owned() }
}

#[test]
fn a_machine_acts_with_its_own_groups_on_its_own_routes_and_never_as_its_owner() {
    let recorder = Recorder::start();
    let (secret, hash) = secret();
    let entry = format!("    - {{ id: ci, {hash}, owner: alice, groups: [robots], routes: [up] }}\n");
    let gateway = Gateway::start(&yaml(&recorder.url(), &entry));
    let ci = client("ci", &secret);

    let tokens = Tokens::of(&machine(&ci, &gateway, Some("up")));

    assert_eq!(tokens.refresh, None);
    let agent = gateway.agent_with(&tokens.access, "up");
    assert_eq!(agent.tools(), ["echo"], "alice, who answers for it, may use them all");
    assert!(agent.tool("echo", json!({ "x": 1 })).result()["isError"].as_bool() != Some(true));
    let log = gateway.audit_text();
    assert!(log.contains(r#""subject":"client:ci""#) && !log.contains(r#""subject":"user:alice""#), "{log}");
    assert!(!log.contains(&secret) && !log.contains(&tokens.access));
    // Its one route is also what it gets where it names none.
    Tokens::of(&machine(&ci, &gateway, None));
    let other = machine(&ci, &gateway, Some("other"));
    assert_eq!((other.status, &other.json()["error"]), (400, &json!("invalid_target")), "{}", other.text());
    let wrong = machine(&client("ci", "wrong"), &gateway, Some("up"));
    assert_eq!((wrong.status, &wrong.json()["error"]), (401, &json!("invalid_client")));
}

/// AS-55.
#[test]
fn as_55_no_other_client_acts_on_its_own_account() {
    let (secret, hash) = secret();
    let entry = format!(
        "    - {{ id: web, {hash}, redirect_uris: [\"https://app.example/cb\"] }}\n\
         \x20   - {{ id: open, redirect_uris: [\"https://app.example/cb\"] }}\n"
    );
    let gateway = Gateway::start(&yaml("http://127.0.0.1:9/mcp", &entry));
    let confidential = json!({ "redirect_uris": ["https://app.example/cb"],
        "grant_types": ["authorization_code", "client_credentials"] });
    let open = Client { secret: None, ..client("open", "") };
    let registered = Client::register_as(&gateway, &confidential);
    for client in [client("web", &secret), open, Client::register(&gateway), registered] {
        let refused = machine(&client, &gateway, Some("up"));
        assert_eq!((refused.status, &refused.json()["error"]), (400, &json!("unauthorized_client")), "{client:?}");
    }
    // What it is there for works: a person logs in through it.
    let tokens = client("web", &secret).log_in(&gateway, "bob", "up");
    assert_eq!(status_with(&gateway, &tokens.access), 200);
}

#[test]
fn what_is_taken_from_a_machine_is_closed_to_the_tokens_it_has() {
    let (secret, hash) = secret();
    let entry = |owner: &str, routes: &str| {
        format!("    - {{ id: ci, {hash}, owner: {owner}, groups: [robots], routes: [{routes}] }}\n")
    };
    let yaml = |clients: &str| yaml("http://127.0.0.1:9/mcp", clients);
    let whole = yaml(&entry("alice", "up, other"));
    let gateway = Gateway::start(&whole);
    let ci = client("ci", &secret);
    let tokens = Tokens::of(&machine(&ci, &gateway, Some("up")));
    assert_eq!(status_with(&gateway, &tokens.access), 200);

    for (changed, why) in [
        (yaml(&entry("alice", "other")), "not this route any more"),
        (yaml(&entry("mallory", "up, other")), "nobody answers for it"),
        (yaml("    - { id: ci, redirect_uris: [\"https://app.example/cb\"] }\n"), "it is no machine any more"),
        (yaml("    []\n"), "it is gone"),
    ] {
        gateway.rewrite(&changed);
        gateway.reload().success();
        assert_eq!(status_with(&gateway, &tokens.access), 401, "{why}");
        let refused = machine(&ci, &gateway, Some("up"));
        assert!(matches!(refused.status, 400 | 401), "{why}: {}", refused.text());
        gateway.rewrite(&whole);
        gateway.reload().success();
        assert_eq!(status_with(&gateway, &tokens.access), 200, "{why}");
    }
    // An owner who is not there keeps no reload from taking effect, but `check` says so.
    gateway.rewrite(&yaml(&entry("alcie", "up")));
    let checked = gateway.cli(&["check"]);
    assert!(!checked.status.success() && checked.stderr.contains("did you mean `alice`?"), "{checked:?}");
}

#[test]
fn an_id_of_the_configuration_is_nobodys_to_register() {
    let (_, hash) = secret();
    let entry = format!("    - {{ id: ci, {hash}, owner: alice, routes: [up] }}\n");
    let gateway = Gateway::start(&yaml("http://127.0.0.1:9/mcp", &entry));
    let about = json!({ "client_id": "ci", "redirect_uris": ["https://app.example/cb"], "client_secret": "mine" });
    let response = Request::post("/register").header("Content-Type", "application/json").body(about.to_string());
    let answer = response.send(gateway.agent).json();
    assert!(answer["client_id"].as_str().is_some_and(|id| id.starts_with("c_")), "{answer}");
    assert_ne!(answer["client_secret"], "mine");
}
