//! Logging in and consenting in a real browser: what its history, its second click and its own rules for pages make of it.

use super::{RULES, gate};
use crate::support::browser::{parameter, parameters};
use crate::support::chromium::{Look, Seen, Window};
use crate::support::gate::Gate;
use crate::support::gateway::{Gateway, in_front_of, password};
use crate::support::oauth::{self, Asked, Client, Tokens, status_with};
use crate::support::recorder::{Recorded, Recorder};
use crate::support::reply::Reply;
use crate::support::tls::{self, Identity};
use serde_json::json;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;

/// A gateway, an app on this computer that is registered with it, and what the app asks.
struct Scene {
    gateway: Gateway,
    /// Behind the gateway.
    _upstream: Recorder,
    /// Where the app listens.
    app: Recorder,
    client: Client,
    asked: Asked,
}

// === impl Scene ===

impl Scene {
    #[track_caller]
    fn set() -> Scene {
        let app = app(Recorder::start());
        let redirect_uri = format!("http://{}/callback", app.address());
        Scene::with(app, &redirect_uri)
    }

    #[track_caller]
    fn with(app: Recorder, redirect_uri: &str) -> Scene {
        let Gate { gateway, recorder, .. } = gate("");
        let about = json!({ "client_name": "Test App", "redirect_uris": [redirect_uri] });
        let client = Client::register_as(&gateway, &about);
        let asked = client.ask(&gateway, "up");
        Scene { gateway, _upstream: recorder, app, client, asked }
    }

    /// A window that may go to the gateway and to the app, and nowhere else.
    #[track_caller]
    fn window(&self, look: Look) -> Option<Window> {
        Window::open(look, &[&self.origin(), &self.app_origin()])
    }

    fn origin(&self) -> String {
        format!("http://{}/", self.gateway.agent)
    }

    fn app_origin(&self) -> String {
        let (origin, _) = self.client.redirect_uri.split_once("/callback").expect("the app is called back there");
        format!("{origin}/")
    }

    fn url(&self) -> String {
        format!("http://{}{}", self.gateway.agent, self.asked.url())
    }

    /// From the app to the question, with the password.
    #[track_caller]
    fn to_consent(&self, window: &Window, user: &str) -> Seen {
        window.goto(&self.url());
        let seen = log_in(window, user);
        assert_eq!(seen.heading, "Test App asks to use up", "{seen:?}");
        seen
    }

    /// From the app to the question, for who is logged in: no password is asked for.
    #[track_caller]
    fn to_consent_again(&self, window: &Window) {
        let seen = window.goto(&self.url());
        assert_eq!(seen.heading, "Test App asks to use up", "no login page comes: {seen:?}");
    }

    /// The gateway's store, from the side: for what no page says and no clock brings.
    #[track_caller]
    fn store(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.gateway.path("data/portcullis.db")).expect("the store is there")
    }

    /// What the app was told, each time.
    fn told(&self) -> Vec<String> {
        let requests = self.app.requests();
        requests.into_iter().map(|it| it.target).filter(|target| target.starts_with("/callback")).collect()
    }

    /// The tokens that the app gets for what it was told.
    #[track_caller]
    fn redeemed(&self, told: &str) -> Tokens {
        let code = parameter(told, "code").expect("a code");
        Tokens::of(&oauth::token(&self.gateway, &self.client.redeem(&code, &self.asked.verifier)))
    }
}

/// An app that answers its person with a page, and asks for no picture.
fn app(recorder: Recorder) -> Recorder {
    recorder.answer_with(|_: &Recorded| {
        let page =
            "<!doctype html><html lang=en><link rel=icon href='data:,'><title>App</title><h1>Back in the app</h1>";
        Reply::new(200, page).header("Content-Type", "text/html; charset=utf-8")
    });
    recorder
}

#[track_caller]
fn log_in(window: &Window, user: &str) -> Seen {
    window.fill("User name", user);
    window.fill("Password", &password(user));
    window.press("Log in")
}

const BACK: &str = "Back in the app";

#[test]
fn a_person_logs_in_and_says_yes_and_the_app_gets_a_code_that_works() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };

    let login = window.goto(&scene.url());
    assert_eq!((login.status, login.heading.as_str(), login.focused.as_str()), (200, "Log in", "User name"));
    assert!(login.text.contains("Test App asks to use up"), "{login:?}");
    assert_eq!(window.hindrances(), [""; 0]);
    let consent = log_in(&window, "alice");
    for said in
        ["Nobody vouches for this name", "127.0.0.1", "on your own computer", "Logged in as alice", &scene.client.id]
    {
        assert!(consent.text.contains(said), "the page says {said}: {consent:?}");
    }
    assert_eq!(window.hindrances(), [""; 0]);
    window.shot("flow-consent");
    assert!(scene.told().is_empty(), "nothing was given before the answer");
    let back = window.press("Allow");

    assert_eq!(back.heading, BACK);
    let told = scene.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(parameter(&told[0], "state").as_deref(), Some("st/at e+1"));
    assert_eq!(parameter(&told[0], "iss"), Some(format!("http://{}", scene.gateway.agent)));
    let tokens = scene.redeemed(&told[0]);
    assert_eq!(status_with(&scene.gateway, &tokens.access), 200);
}

#[test]
fn who_says_no_is_sent_back_with_nothing() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    scene.to_consent(&window, "bob");

    let back = window.press("Deny");

    assert_eq!(back.heading, BACK);
    let told = scene.told();
    assert_eq!((told.len(), parameter(&told[0], "error").as_deref()), (1, Some("access_denied")));
    assert_eq!(parameter(&told[0], "code"), None);
    let grants = window.goto(&format!("{}grants", scene.origin()));
    assert!(grants.text.contains("Nothing acts for you now"), "{grants:?}");
}

#[test]
fn a_wrong_password_is_said_where_it_is_read_and_the_right_one_goes_on() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::PHONE) else {
        return;
    };
    window.goto(&scene.url());
    window.fill("User name", "alice");
    window.fill("Password", "wrong");

    let refused = window.press("Log in");

    assert_eq!((refused.status, refused.focused.as_str()), (403, "Password"));
    assert!(refused.title.starts_with("Not logged in") && refused.text.contains("do not match"), "{refused:?}");
    assert!(refused.text.contains("Test App asks to use up"), "what it is for is still said: {refused:?}");
    assert_eq!(window.field("User name").0, "alice");
    assert_eq!(window.field("Password").0, "", "a password is never sent back");
    assert_eq!(window.hindrances(), [""; 0]);
    window.fill("Password", &password("alice"));
    assert_eq!(window.press("Log in").heading, "Test App asks to use up");
    assert_eq!(window.press("Allow").heading, BACK);
}

#[test]
fn a_question_moved_to_another_browser_is_not_answered_there_whoever_is_logged_in() {
    let scene = Scene::set();
    let (Some(window), Some(other)) = (scene.window(Look::DESK), scene.window(Look::DESK)) else {
        return;
    };
    let consent = scene.to_consent(&window, "alice");

    let stranger = other.goto(&consent.url);
    assert_eq!((stranger.status, stranger.heading.as_str()), (400, "Please start again"));
    other.goto(&format!("{}login", scene.origin()));
    log_in(&other, "alice");
    let moved = other.goto(&consent.url);

    assert_eq!((moved.status, moved.heading.as_str()), (400, "Please start again"));
    assert!(!moved.text.contains("Test App"), "nothing of it is shown there: {moved:?}");
    assert!(scene.told().is_empty(), "nobody was sent to the app");
    assert_eq!(window.press("Allow").heading, BACK, "where it was asked, it is answered");
    assert_eq!(scene.told().len(), 1);
}

#[test]
fn somebody_else_can_answer_after_their_own_password() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    scene.to_consent(&window, "alice");

    let login = window.press("Log in as someone else");
    assert_eq!(login.heading, "Log in");
    assert!(login.text.contains("Test App asks to use up"), "for the same question: {login:?}");
    let consent = log_in(&window, "bob");

    assert!(consent.text.contains("Logged in as bob") && !consent.text.contains("alice"), "{consent:?}");
    assert_eq!(window.press("Allow").heading, BACK);
    let tokens = scene.redeemed(&scene.told()[0]);
    assert_eq!(status_with(&scene.gateway, &tokens.access), 200);
    let grants = window.goto(&format!("{}grants", scene.origin()));
    assert!(grants.text.contains("Logged in as bob") && grants.text.contains("Test App uses up"), "{grants:?}");
}

#[test]
fn a_question_that_waited_too_long_is_not_answered() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    scene.to_consent(&window, "alice");
    let n = scene.store().execute("UPDATE flows SET created_at = created_at - 600000", ()).expect("the table is there");
    assert_eq!(n, 1, "the one question is as old as can be");

    let refused = window.press("Allow");

    assert_eq!((refused.status, refused.heading.as_str()), (400, "Please start again"));
    assert!(refused.text.contains("Nothing was allowed") && refused.text.contains("request"), "{refused:?}");
    assert_eq!(window.hindrances(), [""; 0]);
    assert!(scene.told().is_empty());
    scene.to_consent_again(&window);
    assert_eq!(window.press("Allow").heading, BACK, "begun again, it works");
}

#[test]
fn the_back_button_leads_to_no_old_page_that_still_works() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    let consent = scene.to_consent(&window, "alice");

    // Back to the login page: who is logged in is asked anew, for a new question.
    let again = window.back();
    assert_eq!(again.heading, "Test App asks to use up", "{again:?}");
    assert_ne!(again.url, consent.url);
    assert_eq!(window.press("Allow").heading, BACK);
    assert_eq!(scene.told().len(), 1);

    // Back to the question: it is answered.
    let answered = window.back();
    assert_eq!((answered.status, answered.heading.as_str()), (400, "Already answered"));
    assert_eq!(scene.told().len(), 1, "the app hears of it once");
    scene.redeemed(&scene.told()[0]);
}

#[test]
fn a_form_sent_twice_gives_one_code_and_the_app_can_use_it() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    scene.to_consent(&window, "alice");

    // The gateway has no time for an answer until the form has been sent again.
    scene.gateway.signal("STOP");
    window.press_twice("Allow");
    scene.gateway.signal("CONT");
    window.arrive(BACK);

    let told = scene.told();
    let codes: Vec<_> = told.iter().map(|told| parameter(told, "code").expect("a code")).collect();
    assert!(codes.iter().all(|code| *code == codes[0]), "one code: {told:?}");
    let n_codes: i64 = scene.store().query_row("SELECT count(*) FROM codes", (), |row| row.get(0)).expect("a count");
    assert_eq!(n_codes, 1, "none lies around");
    let tokens = scene.redeemed(&told[0]);
    assert_eq!(status_with(&scene.gateway, &tokens.access), 200);
}

#[test]
fn without_a_mouse_and_without_scripts_everything_works() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::PHONE.dark().without_script()) else {
        return;
    };
    let url = scene.url();
    window.goto(&url);
    let typed = format!("text:{}", password("bob"));
    let consent = window.keys_lead_on(&["text:bob", "Tab", &typed, "Enter"]);
    assert_eq!(consent.heading, "Test App asks to use up", "{consent:?}");

    // Deny is the first stop, Allow the next.
    assert_eq!(window.keys(&["Tab"]).focused, "Deny");
    assert_eq!(window.keys(&["Tab"]).focused, "Allow");
    assert_eq!(window.keys_lead_on(&["Enter"]).heading, BACK);

    scene.redeemed(&scene.told()[0]);
    window.goto(&format!("{}grants", scene.origin()));
    assert_eq!(window.keys(&["Tab"]).focused, "Log out");
    assert_eq!(window.keys(&["Tab"]).focused, "Revoke the use of up by Test App");
    let revoked = window.keys_lead_on(&["Enter"]);
    assert!(revoked.text.contains("Nothing acts for you now"), "{revoked:?}");
    assert_eq!(window.keys_lead_on(&["Tab", "Enter"]).heading, "Logged out");
}

#[test]
fn a_person_sees_what_acts_for_them_takes_it_back_and_logs_out() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    scene.to_consent(&window, "bob");
    window.press("Allow");
    let tokens = scene.redeemed(&scene.told()[0]);
    assert_eq!(status_with(&scene.gateway, &tokens.access), 200);

    let grants = window.goto(&format!("{}grants", scene.origin()));
    assert!(grants.text.contains("Test App uses up") && grants.text.contains(&scene.client.id), "{grants:?}");
    assert_eq!(window.hindrances(), [""; 0]);
    window.shot("flow-grants");
    let revoked = window.press("Revoke the use of up by Test App");

    assert!(revoked.text.contains("Nothing acts for you now"), "{revoked:?}");
    assert_eq!(status_with(&scene.gateway, &tokens.access), 401);
    assert_eq!(window.press("Log out").heading, "Logged out");
    assert!(!window.cookies().contains(&"portcullis-session".to_owned()));
    let back = window.back();
    assert_eq!(back.heading, "Log in", "nothing of it is kept in the browser: {back:?}");
}

#[test]
fn a_page_of_another_origin_can_neither_frame_ours_nor_send_its_forms() {
    let scene = Scene::set();
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    let consent = scene.to_consent(&window, "bob");
    window.press("Allow");
    let tokens = scene.redeemed(&scene.told()[0]);
    let ours = [format!("{}grants", scene.origin()), consent.url];
    let (origin, framed) = (scene.origin(), ours.clone());
    scene.app.answer_with(move |request: &Recorded| {
        let policy = if request.target.ends_with("silent") { "no-referrer" } else { "unsafe-url" };
        let frame = |n: usize| format!("<iframe src='{}'></iframe>", framed[n]);
        let form = format!(
            "<form method=post action='{origin}grants'><input type=hidden name=grant value=x>\
             <input type=hidden name=csrf value=guessed><button>Win a prize</button></form>"
        );
        let inside = match request.target.as_str() {
            "/frame-0" => frame(0),
            "/frame-1" => frame(1),
            _ => form,
        };
        let page = format!(
            "<!doctype html><html lang=en><link rel=icon href='data:,'><title>Evil</title>\
             <h1>Evil</h1><a href=/frame-0>Frame 0</a> <a href=/frame-1>Frame 1</a>{inside}"
        );
        Reply::new(200, page).header("Content-Type", "text/html; charset=utf-8").header("Referrer-Policy", policy)
    });
    let evil = |path: &str| format!("{}{path}", scene.app_origin());

    // With a referrer the browser names the origin, without one it says `null`, as it does for our own forms.
    window.goto(&evil("form"));
    let named = window.press("Win a prize");
    window.goto(&evil("silent"));
    let silent = window.press("Win a prize");
    assert_eq!((named.status, silent.status), (403, 400), "{named:?} {silent:?}");
    assert_eq!(silent.heading, "Please start again");
    for (n, page) in ours.iter().enumerate() {
        // A window each: what its console says of the frame may come late.
        let window = scene.window(Look::DESK).expect("there is a Chromium");
        window.goto(&evil("form"));
        // It waits for just that, or fails.
        window.press_in_vain(&format!("Frame {n}"), &format!("{page} net::ERR_BLOCKED_BY_RESPONSE"));
    }

    assert_eq!(status_with(&scene.gateway, &tokens.access), 200, "nothing was revoked");
}

#[test]
fn who_consented_before_is_sent_to_the_app_at_once_also_right_after_the_password() {
    let identity = Identity::authority("apps").sign(&["app.example"]);
    let app = app(Recorder::start_tls(&identity, None));
    let redirect_uri = format!("https://app.example:{}/callback", app.address().port());
    let scene = Scene::with(app, &redirect_uri);
    let Some(window) = scene.window(Look::DESK) else {
        return;
    };
    let consent = scene.to_consent(&window, "alice");
    assert!(consent.text.contains("app.example") && !consent.text.contains("on your own computer"), "{consent:?}");
    assert_eq!(window.press("Allow").heading, BACK);
    scene.redeemed(&scene.told()[0]);

    assert_eq!(window.goto(&scene.url()).heading, BACK, "who is logged in sees no page at all");
    window.goto(&format!("{}grants", scene.origin()));
    window.press("Log out");
    window.goto(&scene.url());
    assert_eq!(log_in(&window, "alice").heading, BACK, "the form of the password leads there");

    assert_eq!(scene.told().len(), 3);
}

#[test]
fn an_app_with_a_scheme_of_its_own_and_one_on_ipv6_are_reached() {
    for (redirect_uri, said) in [("cursor://app.example/callback", "cursor:"), ("http://[::1]:4711/callback", "[::1]")]
    {
        let scene = Scene::with(app(Recorder::start()), redirect_uri);
        let Some(window) = Window::open(Look::DESK, &[&scene.origin(), redirect_uri]) else {
            return;
        };
        let consent = scene.to_consent(&window, "alice");
        assert!(consent.text.contains(said), "{consent:?}");

        let heard = window.press_in_vain("Allow", &format!("{redirect_uri}?"));

        let led = heard.iter().find_map(|line| line.strip_prefix("GET ")?.strip_prefix(redirect_uri));
        let led = led.unwrap_or_else(|| panic!("the browser went for the app: {heard:?}"));
        assert!(parameters(led).iter().any(|(name, _)| name == "code"), "{heard:?}");
        assert!(!heard.iter().any(|line| line.contains("Content Security Policy")), "{heard:?}");
    }
}

#[test]
fn the_first_admin_is_made_in_a_browser() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(&format!("identity: {{}}\n{}", in_front_of(&recorder.url(), RULES)));
    gateway.wait_for_log("/setup?link=");
    let log = gateway.log();
    let link = log.split_whitespace().find(|word| word.contains("/setup?link=")).expect("the link is printed");
    let Some(window) = Window::open(Look::DESK, &[&format!("http://{}/", gateway.agent)]) else {
        return;
    };
    let secret = "four words make it";

    assert_eq!(window.goto(link).heading, "Make the first admin");
    assert_eq!(window.hindrances(), [""; 0]);
    window.fill("User name", "root");
    window.fill("Password", "too short");
    window.fill("The same password again", "too short");
    window.keys(&["Enter"]);
    assert!(!window.field("Password").1, "the browser holds back what would be refused");
    window.fill("Password", secret);
    window.fill("The same password again", "four words make one");
    let differ = window.press("Make this person the admin");
    assert!(differ.text.contains("differ") && differ.title.starts_with("Not done yet"), "{differ:?}");
    assert_eq!(window.field("User name").0, "root");
    window.fill("Password", secret);
    window.fill("The same password again", secret);
    let done = window.press("Make this person the admin");

    assert_eq!(done.heading, "What acts for you");
    assert!(done.text.contains("Logged in as root"), "{done:?}");
    assert_eq!(window.goto(link).heading, "No such link", "it works once");
}

#[test]
fn over_https_the_cookies_are_bound_to_the_host_and_everything_works() {
    let recorder = Recorder::start();
    let (_gateway, origin) = behind_tls(&recorder);
    let Some(window) = Window::open(Look::DESK, &[&origin]) else {
        return;
    };

    window.goto(&format!("{origin}login"));
    let grants = log_in(&window, "alice");

    assert_eq!(grants.heading, "What acts for you", "{grants:?}");
    let cookies = window.cookies();
    assert!(cookies.len() >= 2 && cookies.iter().all(|name| name.starts_with("__Host-")), "{cookies:?}");
    assert_eq!(window.press("Log out").heading, "Logged out");
}

/// A gateway behind a proxy that ends TLS, and where people reach it.
#[track_caller]
fn behind_tls(recorder: &Recorder) -> (Gateway, String) {
    let identity = Identity::authority("ours").sign(&["localhost"]);
    let behind: Arc<OnceLock<SocketAddr>> = Arc::default();
    let to = Arc::clone(&behind);
    let front = tls::terminate(&identity, None, move |browser, _| {
        let gateway = TcpStream::connect(to.get().expect("the gateway runs")).expect("it listens");
        let (mut from, mut back) = (browser.try_clone().expect("a socket"), gateway.try_clone().expect("a socket"));
        // What breaks off is the browser's choice.
        thread::spawn(move || drop(io::copy(&mut from, &mut &gateway)));
        thread::spawn(move || drop(io::copy(&mut back, &mut &browser)));
    });
    let origin = format!("https://localhost:{}", front.port());
    let own = format!("public_url: {origin}\nbehind_proxy: {{ from: [127.0.0.1/32] }}\n");
    let gateway = Gateway::start(&format!("{own}{}", in_front_of(&recorder.url(), RULES)));
    behind.set(gateway.agent).expect("it is set once");
    (gateway, format!("{origin}/"))
}
