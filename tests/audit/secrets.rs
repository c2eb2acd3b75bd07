//! A thousand secrets, through every way in there is, at the finest log level: none is written down, and none is said to
//! anybody but those whom the call itself is for. (L-03, B72)
//!
//! The twin: the same gateway with redaction taken away (`PORTCULLIS_FAULT=redact.nothing`, which only a debug build knows)
//! writes them down, and the scanner finds them.

use super::plant::Plant;
use crate::approval::held::logged_in;
use crate::approval::{decide, hooks};
use crate::observe::status;
use crate::support::agent::Agent;
use crate::support::browser::{Browser, encode_form};
use crate::support::canary::texts;
use crate::support::collector::{Collector, message_of};
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::http::{Connection, Request, Response};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::wait_for;
use portcullis::redact::Redactor;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const RULES: &str = r#"
- { name: risky, tools: [up/danger], hold: { approvers: { users: [bob] }, wait: 1s } }
- { name: never, tools: ["up/never*"], deny: { reason: "not here" } }
- { name: rest, tools: ["up/*", "box/*"], prompts: ["up/*"], resources: ["up/*"], allow: {} }
"#;

/// What a gateway and everybody around it have said, and where.
struct World {
    plant: Plant,
    gateway: Gateway,
    upstream: Recorder,
    receiver: Recorder,
    /// Takes traces, and the records of a sink.
    collector: Collector,
    agent: Agent,
    /// Texts, and what they are.
    said: Vec<(String, String)>,
}

/// What the upstream answers, made before it starts: by the name of the tool.
fn answers(plant: &mut Plant, upstream: &Recorder) {
    let place = "an upstream's answer";
    let mut texts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for tool in ["broken", "nothttp", "redirect", "nojson", "refusing", "talking", "listed"] {
        texts.insert(tool, (0..12).map(|_| plant.line(place)).collect());
    }
    upstream.answer_with(move |request: &Recorded| {
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let tool = message["params"]["name"].as_str().unwrap_or_default();
        let of = |tool: &str| texts[tool].join(" ");
        let header = |n: usize| texts["broken"][n].clone();
        match tool {
            "broken" => Reply::new(500, of(tool)).header("Set-Cookie", &header(0)).header("X-Error", &header(1)),
            "nothttp" => Reply::raw(vec![format!("HTTP/1.1 200 OK\r\n{}\r\n\r\n", of(tool)).into_bytes()]),
            "redirect" => Reply::redirect(307, &format!("https://evil.example/?x={}", texts[tool][0])),
            "nojson" => Reply::json(of(tool)),
            "refusing" => Reply::error(request, -32000, &of(tool)),
            "talking" => Reply::sse(&[
                json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "data": of(tool) } }),
                json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "content": [{ "type": "text", "text": of(tool) }] } }),
            ]),
            _ if message["method"] == "tools/list" => Reply::result(
                request,
                &json!({ "tools": (["echo", "danger", "broken", "nothttp", "redirect", "nojson", "refusing", "talking"]
                    .map(|name| json!({ "name": name, "description": of("listed"), "inputSchema": { "type": "object" } }))) }),
            ),
            _ => Reply::mcp(request).header("Mcp-Session-Id", &texts["listed"][0].replace([' ', '"'], "_")),
        }
    });
}

/// Of a call: secrets by their key, their place and their shape.
fn arguments(plant: &mut Plant, place: &'static str) -> Value {
    json!({
        "password": plant.word(place), "apiKey": plant.word(place), "note": plant.text(place), "url": plant.line(place),
        "deep": { "er": [{ "x": plant.text(place), plant.line("a key of the arguments"): 1 }, [plant.text(place)]] },
        "headers": [{ "name": "Authorization", "value": plant.word(place) }, ["Cookie", plant.word(place)]],
        "argv": ["run", "--token", plant.word(place), plant.line(place)],
        "json": json!({ "client_secret": plant.word(place), "a": [plant.text(place)] }).to_string(),
        "auth": { "user": plant.word(place), "more": [plant.word(place)] },
    })
}

impl World {
    fn start(fault: Option<&str>) -> World {
        let mut plant = Plant::new();
        let (upstream, receiver, collector) = (Recorder::start(), Recorder::start(), Collector::start());
        answers(&mut plant, &upstream);
        let told: Vec<String> = (0..4).map(|_| plant.line("a webhook's answer")).collect();
        receiver.answer_with(move |_| Reply::new(500, told.join(" ")).header("X-Reason", &told[0]));
        let hook = hooks::hook("chat", &hooks::url(&receiver), ", arguments: true");
        let up = in_front_of(&upstream.url(), RULES).replacen(
            "\" } }\n",
            "\", headers: { X-Upstream-Key: { env: UPSTREAM_KEY }, Authorization: { file: key } } } }\n  box: { sandbox: {} }\n",
            1,
        );
        let (traces, logs) = (&collector.url, collector.url.replace("/v1/traces", "/v1/logs"));
        let yaml = format!(
            "{up}admin: {{ listen: 127.0.0.1:0 }}\napprovals:\n  webhooks:\n    - {hook}\n\
             audit:\n  arguments: [{{ tools: [\"*/*\"] }}]\n  also: [{{ name: other, otlp: {{ url: \"{logs}\" }} }}]\n\
             traces: {{ otlp: {{ url: \"{traces}\" }} }}\n"
        );
        let key = format!("Bearer {}", plant.shape("a file of the configuration"));
        let launch = hooks::with_secret(Launch::new(&yaml)).file("key", key);
        hooks::make_private(&launch.path("key"));
        let launch = launch.env("UPSTREAM_KEY", &plant.shape("the environment")).env("RUST_LOG", "trace");
        let launch = fault.into_iter().fold(launch, |launch, fault| launch.env("PORTCULLIS_FAULT", fault));
        let gateway = launch.start();
        gateway.wait_until_asked("up");
        let agent = gateway.agent("alice", "up");
        World { plant, gateway, upstream, receiver, collector, agent, said: Vec::new() }
    }

    /// Keeps an answer that the gateway made itself. The id in it is the client's own, as the protocol wants it.
    fn answered(&mut self, what: &str, response: &Response) {
        let mut body = response.text();
        if let Ok(message) = serde_json::from_str::<Value>(&body) {
            body = body.replacen(&format!("\"id\":{}", message["id"]), "", 1);
        }
        self.said.push((format!("the answer to {what}"), format!("{:?} {body}", response.headers)));
    }

    fn post(&self, body: impl Into<Vec<u8>>) -> Request {
        Request::mcp("/mcp/up", body).bearer(self.agent.token.as_deref().expect("it has one"))
    }

    fn send(&mut self, what: &str, request: &Request) -> Response {
        let response = request.send(self.gateway.agent);
        let is_passed_on = response.text().contains("\"result\"") && response.status == 200;
        if !is_passed_on
            || response.text().contains("\"isError\":true") && !response.text().contains("structuredContent")
        {
            self.answered(what, &response);
        }
        response
    }

    fn rpc(&mut self, what: &str, method: &str, params: &Value) {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
        let request = self.post(body);
        self.send(what, &request);
    }

    // === The ways in ===

    /// Names of tools, prompts and resources, and arguments at any depth: let through, held and denied.
    fn calls(&mut self) {
        let plant = &mut self.plant;
        let place = "an argument";
        let arguments = arguments(plant, place);
        let names: Vec<String> = (0..3).map(|_| self.plant.line("a tool's name")).collect();
        for tool in ["echo", "never-this", "danger"].into_iter().chain(names.iter().map(String::as_str)) {
            self.rpc("a call", "tools/call", &json!({ "name": tool, "arguments": arguments }));
        }
        let prompt =
            json!({ "name": self.plant.line("a prompt's name"), "arguments": { "token": self.plant.word(place) } });
        self.rpc("a prompt", "prompts/get", &prompt);
        for _ in 0..2 {
            let uri = json!({ "uri": self.plant.line("a resource's URI") });
            self.rpc("a resource", "resources/read", &uri);
        }
    }

    /// The envelope: ids, methods, `_meta`, what a client says of itself, and messages that are none.
    fn envelopes(&mut self) {
        let id = self.plant.line("an id");
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "never", "arguments": {} } });
        self.send("a call with a secret for an id", &self.post(body.to_string()));
        let method = self.plant.line("a method");
        self.rpc("an unknown method", &method, &json!({}));
        let place = "_meta";
        let meta = json!({ self.plant.line(place): 1, "progressToken": self.plant.shape(place), "io.modelcontextprotocol/clientInfo": { "name": self.plant.line(place), "version": "1" } });
        self.rpc("a call with _meta", "tools/call", &json!({ "name": "never", "arguments": {}, "_meta": meta }));
        let place = "initialize";
        let told = json!({ "protocolVersion": self.plant.line(place), "capabilities": { self.plant.line(place): {} }, "clientInfo": { "name": self.plant.line(place), "version": self.plant.line(place) } });
        self.rpc("initialize", "initialize", &told);
        let place = "a broken message";
        let (one, two, three) = (self.plant.line(place), self.plant.word(place), self.plant.line(place));
        for body in [
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":{}", json!(one)),
            format!("{{\"password\":\"{two}\",\"password\":\"{two}\"}}"),
            format!("[{}, 1]", json!(three)),
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": one, "reason": three } }).to_string(),
            format!("password={two}"),
        ] {
            let request = self.post(body);
            self.send(place, &request);
        }
    }

    /// Headers, in calls that are good but for this one.
    fn headers(&mut self) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "never", "arguments": {} } }).to_string();
        let place = "a header";
        for name in [
            "Mcp-Session-Id",
            "Mcp-Name",
            "Mcp-Method",
            "MCP-Protocol-Version",
            "User-Agent",
            "Referer",
            "X-Api-Key",
            "Cookie",
            "Origin",
            "Last-Event-ID",
            "traceparent",
            "baggage",
            "X-Forwarded-For",
            "Accept",
            "Content-Type",
        ] {
            let value = self.plant.line(place);
            let request = self.post(body.clone()).header(name, &value);
            self.send(&format!("a request with {name}"), &request);
        }
        let place = "Authorization";
        let (word, other) = (self.plant.word(place), self.plant.word(place));
        for value in [
            format!("Bearer {}", self.plant.shape(place)),
            format!("Bearer {word} x"),
            format!("bearer  {word}"),
            format!(
                "Basic {}",
                base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("a:{other}"))
            ),
            format!("Digest username=\"a\", response=\"{other}\""),
            format!("token {}", self.plant.shape(place)),
            format!("DPoP {word}"),
            word.clone(),
        ] {
            let request = Request::mcp("/mcp/up", body.clone()).header("Authorization", &value);
            self.send("a request without a good token", &request);
        }
        let raw = format!(
            "POST /mcp/up HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {word}\r\nno header {}\r\n\r\n",
            self.plant.line("bad HTTP")
        );
        let mut connection = Connection::open(self.gateway.agent);
        connection.send(raw.as_bytes());
        if let Ok(response) = connection.try_response() {
            self.answered("bad HTTP", &response);
        }
    }

    /// Targets: query strings and paths, on every listener.
    fn targets(&mut self) {
        let place = "a target";
        let encoded =
            |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
        for _ in 0..3 {
            let (word, line, path) = (self.plant.word(place), self.plant.line(place), self.plant.line(place));
            for target in [
                format!("/mcp/up?access_token={word}&x={}", encoded(&line)),
                format!("/mcp/{}", encoded(&path)),
                format!("/{}?api_key={word}", encoded(&path)),
                format!("/.well-known/oauth-protected-resource/mcp/{}", encoded(&path)),
            ] {
                self.send("a strange target", &Request::get(&target));
                self.send("a strange target", &Request::mcp(&target, "{}").bearer(&word));
            }
            for listener in [self.gateway.metrics, self.gateway.admin] {
                let target = format!("/{}?token={word}", encoded(&path));
                let response = Request::get(&target).send(listener.expect("it is configured"));
                self.answered("a strange target on another listener", &response);
            }
        }
    }

    /// OAuth: registrations, authorization requests, tokens, and people who type the wrong thing.
    fn oauth(&mut self) {
        let plant = &mut self.plant;
        let place = "a registration";
        for metadata in [
            json!({ "redirect_uris": ["http://127.0.0.1:3999/callback"], "client_name": plant.shape(place), "client_uri": plant.line(place) }),
            json!({ "redirect_uris": [format!("javascript:{}", plant.line(place))], "client_name": plant.line(place) }),
            json!({ "redirect_uris": [format!("https://a.example/?token={}", plant.word(place)), 7], "software_statement": plant.shape(place), "scope": plant.line(place) }),
            json!({ "redirect_uris": plant.line(place), "jwks_uri": plant.line(place), "grant_types": [plant.line(place)] }),
        ] {
            let request =
                Request::post("/register").header("Content-Type", "application/json").body(metadata.to_string());
            let response = request.send(self.gateway.agent);
            if response.status >= 400 {
                self.answered(place, &response);
            }
        }
        let place = "an OAuth parameter";
        for target in ["/authorize", "/token", "/revoke", "/introspect"] {
            let names = [
                "client_id",
                "redirect_uri",
                "state",
                "scope",
                "resource",
                "code",
                "code_verifier",
                "code_challenge",
                "refresh_token",
                "client_secret",
                "client_assertion",
                "token",
                "login_hint",
                "password",
                "grant_type",
            ];
            let fields: Vec<(&str, String)> = names.into_iter().map(|name| (name, self.plant.line(place))).collect();
            let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let form = encode_form(&fields);
            let response = Request::get(&format!("{target}?{form}")).send(self.gateway.agent);
            self.answered(&format!("GET {target}"), &response);
            let request = Request::post(target).header("Content-Type", "application/x-www-form-urlencoded").body(form);
            self.answered(&format!("POST {target}"), &request.send(self.gateway.agent));
        }
    }

    /// The page shows a person what they typed for a name; the password nobody sees again.
    fn logins(&mut self) {
        for _ in 0..3 {
            let mut browser = Browser::new(self.gateway.agent);
            let page = browser.get("/login");
            let (name, password) = (self.plant.line("a user's name"), self.plant.word("a password"));
            browser.submit(&page, &[("username", &name), ("password", &password)]);
            let word = self.plant.word("a password");
            let page = browser.get("/login");
            let answer = browser.submit(&page, &[("username", "alice"), ("password", &word)]);
            self.said.push(("the login page".to_owned(), answer.text()));
        }
    }

    /// What upstreams answer, and a command of the sandbox on stderr.
    fn upstreams(&mut self) {
        for tool in ["broken", "nothttp", "redirect", "nojson", "refusing", "talking"] {
            let answer = self.agent.tool(tool, json!({}));
            if !["refusing", "talking"].contains(&tool) {
                self.answered(&format!("a call of {tool}"), &answer.response);
            }
        }
        self.agent.tools();
        let sandbox = self.gateway.agent("alice", "box").modern();
        for _ in 0..2 {
            let (line, word) = (self.plant.shape("a command's stderr"), self.plant.word("a command's stderr"));
            sandbox.tool(
                "run_command",
                json!({ "command": format!("echo '{line}' >&2; echo 'password={word}' >&2; exit 3") }),
            );
        }
    }

    /// Held calls: what the approver says, and what the webhook is told and answers.
    fn approvals(&mut self) {
        let place = "a held call's argument";
        for n in 0..3 {
            let arguments = json!({ "n": n, "password": self.plant.word(place), "text": self.plant.line(place), "list": [self.plant.text(place)] });
            self.agent.tool("danger", arguments.clone());
            let held = decide::all(&self.gateway).into_iter().find(|one| one["state"] == "pending").expect("it waits");
            decide::deny(&self.gateway, &held, &self.plant.line("an approver's comment"));
            let answer = self.agent.tool("danger", arguments);
            self.answered("a call that was denied", &answer.response);
        }
    }

    /// A file that is refused, with credentials written out in it.
    fn reload(&mut self) {
        let place = "a file that is refused";
        let lines: Vec<String> = (0..6).map(|_| self.plant.line(place).replace('"', "'")).collect();
        let yaml = in_front_of(&self.upstream.url(), RULES).replacen(
            "\" } }\n",
            &format!(
                "\", headers: {{ X-Api-Key: \"{}\", Authorization: \"Bearer {}\" }}, typo: \"{}\" }} }}\n",
                lines[0],
                self.plant.word(place),
                lines[1]
            ),
            1,
        );
        for broken in [
            yaml.clone(),
            format!("{yaml}password: \"{}\"\n\"{}\": 1\n", lines[2], lines[3]),
            format!("{yaml}token: {{\n {}\n{}", lines[4], lines[5]),
        ] {
            self.gateway.rewrite(&broken);
            let refused = self.gateway.reload();
            assert!(!refused.status.success(), "{refused:?}");
            self.said.push(("the answer to a reload".to_owned(), format!("{}{}", refused.stdout, refused.stderr)));
        }
        self.gateway.rewrite(&in_front_of(&self.upstream.url(), RULES));
    }

    /// Everything that was written or said, after the gateway has ended.
    fn end(mut self) -> (Plant, Vec<(String, String)>) {
        let hook = "portcullis_webhook_deliveries_total{hook=\"chat\",result=\"failed\"}";
        wait_for("a webhook's answer", || !self.receiver.requests().is_empty() || self.gateway.metric(hook) > 0.0);
        for path in ["/metrics", "/readyz"] {
            self.said.push((path.to_owned(), self.gateway.observe(path).text()));
        }
        for words in [&["audit", "tail", "-n", "1000"][..], &["status"]] {
            self.said.push((words[..words.len().min(2)].join(" "), self.gateway.cli(words).success().stdout));
        }
        self.said.push(("/status".to_owned(), logged_in(&self.gateway, "alice").get("/status").text()));
        self.said.push(("/api/status".to_owned(), status::api(&self.gateway, "alice").1.to_string()));
        assert!(self.gateway.stop().success());
        for request in self.receiver.requests() {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            self.said
                .push(("a notice to a webhook".to_owned(), format!("{} {:?} {body}", request.target, request.headers)));
        }
        for request in self.collector.recorder.requests() {
            let body = String::from_utf8_lossy(&message_of(&request)).into_owned();
            self.said.push((request.target, body));
        }
        self.said.push(("the log".to_owned(), self.gateway.log()));
        texts(&self.gateway.path("data"), &mut self.said);
        (self.plant, self.said)
    }
}

/// Everything, so often that at least `n` secrets are planted.
fn everything(fault: Option<&str>, n: usize) -> (Plant, Vec<(String, String)>) {
    let mut world = World::start(fault);
    world.logins();
    world.upstreams();
    world.approvals();
    world.oauth();
    world.reload();
    while world.plant.planted.len() < n {
        world.calls();
        world.envelopes();
        world.headers();
        world.targets();
    }
    assert!(world.gateway.log().contains("TRACE"), "the finest level is on");
    world.end()
}

/// What is kept because it is what it is: names that a client or a person gave, in the store. (The arguments of held calls
/// are sealed there.)
fn is_kept_by_right(place: &str, hit: &str) -> bool {
    let is_store = place.contains("/portcullis.db");
    is_store && ["planted as a registration", "planted as an approver's comment"].iter().any(|it| hit.contains(it))
}

// B72: github/gh-aw#50930, cohere-ai/north-mcp-python-sdk#58, open-mercato/open-mercato#2660, zereight/gitlab-mcp#645,
// IBM/mcp-context-forge#1580. In every place and spelling, beside `cases::secrets`.
#[test]
fn of_a_thousand_planted_secrets_none_is_written_or_said_anywhere() {
    let (plant, said) = everything(None, 1000);
    let scanner = plant.scanner();

    let hits: Vec<String> = said
        .iter()
        .flat_map(|(place, text)| scanner.hits(place, text).into_iter().filter(|hit| !is_kept_by_right(place, hit)))
        .collect();

    assert!(
        plant.planted.len() >= 1000 && plant.n_kinds() >= 40,
        "{} of {} kinds",
        plant.planted.len(),
        plant.n_kinds()
    );
    assert!(said.iter().any(|(place, text)| place.ends_with(".jsonl") && text.contains("hmac:")), "records have tags");
    for place in [
        "the log",
        "/metrics",
        "/status",
        "/api/status",
        "status",
        "/v1/traces",
        "/v1/logs",
        "a notice to a webhook",
        "the answer to a reload",
        "the answer to an unknown method",
    ] {
        assert!(said.iter().any(|(name, text)| name == place && !text.is_empty()), "{place} was looked at");
    }
    let n = hits.len();
    assert!(
        hits.is_empty(),
        "{n} hits; the first of each place:\n{}",
        hits.iter().take(60).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// The same secrets, many more of them, straight through what replaces them: what is rare is met here.
#[test]
fn whatever_is_planted_is_gone_from_what_redaction_returns() {
    let redactor = Redactor::new(&[7; 32]);
    let rounds = std::env::var("PORTCULLIS_TEST_PLANTS").ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    for _ in 0..rounds {
        let mut plant = Plant::new();
        let place = "a text";
        let mut said: Vec<String> = (0..300).map(|_| redactor.text(&plant.text(place)).into_owned()).collect();
        said.extend((0..20).map(|_| redactor.json(&arguments(&mut plant, place), &[], &[]).to_string()));

        let scanner = plant.scanner();
        let hits: Vec<String> = said.iter().flat_map(|text| scanner.hits("what is returned", text)).collect();
        assert!(hits.is_empty(), "{hits:#?}");
    }
}

#[test]
fn without_redaction_the_same_secrets_are_found() {
    let (plant, said) = everything(Some("redact.nothing"), 300);
    let scanner = plant.scanner();

    let found = |is: &dyn Fn(&str) -> bool| {
        let texts = said.iter().filter(|(place, _)| is(place));
        texts.map(|(place, text)| scanner.hits(place, text).len()).sum::<usize>()
    };

    assert!(
        found(&|place| place.ends_with(".jsonl")) > 30,
        "in records: {}",
        found(&|place| place.ends_with(".jsonl"))
    );
    for place in ["a notice to a webhook", "/v1/traces", "/v1/logs", "/status"] {
        assert!(found(&|name| name == place) > 2, "{place}: {}", found(&|name| name == place));
    }
    assert!(found(&|place| place.starts_with("the answer to")) > 2);
}
