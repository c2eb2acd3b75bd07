//! The attacks, and how each is tried. `docs/ssh-attacks.md` has the same list, and a test that says so.

use super::certificates::{Hostile, Unfit};
use super::logins::Stranger;
use super::requests::Request;
use super::wrong::Wrong;
use crate::settings::Credential;
use std::fmt::Write as _;

/// One attack.
#[derive(Debug)]
pub struct Attack {
    /// A short name that stays.
    pub id: &'static str,
    /// What must hold, as a sentence.
    pub sentence: &'static str,
    /// How it is tried.
    pub tried: Tried,
}

/// How an attack is tried.
#[derive(Clone, Copy, Debug)]
pub enum Tried {
    /// By asking for an action of these bytes. Words in braces stand for something: [`super::target`].
    Exec(&'static [u8]),
    /// By asking for every action of the actions file, in a way that is wrong.
    Wrong(Wrong),
    /// The same with `sleep`: a refusal that takes so long is none.
    Sleep(Wrong),
    /// By asking for an action of so many bytes, in words of 100.
    Long(usize),
    /// By asking for an action that may not come as far as the script: so many bytes.
    Oversize(usize),
    /// The same, of these bytes.
    Unreadable(&'static [u8]),
    /// By a variable for the environment.
    Environment(&'static str, &'static str),
    /// By what else the protocol has.
    Request(Request),
    /// By another login to the same account, and then the true one on the same connection.
    Stranger(Stranger),
    /// By the true credential, at another account.
    Account(Account),
    /// By a certificate of the true authority that is good for nothing here.
    Unfit(Unfit),
    /// By a certificate of the true authority that claims more than it should, and all that could be done with it.
    Hostile(Hostile),
    /// By such a certificate, at another account.
    HostileAccount(Account),
    /// By the true credential, and by a certificate that names the account, at others that most hosts have.
    Accounts,
}

/// Whose account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The administrator's.
    Root,
    /// Nobody's.
    Nobody,
}

/// What most hosts have, and, where administrators are made by images, some. sshd lets them in even where their shell does not.
pub(super) const ACCOUNTS: [&str; 5] = ["daemon", "nobody", "www-data", "admin", "debian"];

// === impl Attack ===

impl Attack {
    /// Whether it can be made with this credential.
    pub fn is_for(&self, credential: &Credential) -> bool {
        match credential {
            Credential::Key { .. } => !self.needs_authority(),
            Credential::Certificates { .. } => !matches!(self.tried, Tried::Stranger(Stranger::KeyAsAuthority)),
        }
    }

    fn needs_authority(&self) -> bool {
        let is_authority = matches!(self.tried, Tried::Stranger(Stranger::AuthorityKey | Stranger::OtherAuthority));
        is_authority || matches!(self.tried, Tried::Unfit(_) | Tried::Hostile(_) | Tried::HostileAccount(_))
    }

    /// What to do about it where it was not refused.
    pub(super) fn remedy(&self) -> &'static str {
        const SCRIPT: &str = "have sshd run the script whatever is asked for: `command=\"…\"` before the key in authorized_keys, \
                              or `ForceCommand` for the account; upstreams/ssh/host/install says what to write";
        const CLOSED: &str = "write `restrict` before `command=` in authorized_keys, and for the account what \
                              upstreams/ssh/host/install says (`DisableForwarding yes`, `PermitTTY no`, and more)";
        const LOGIN: &str = "let nothing open the account but this key, or this authority for this principal: see \
                             `AuthorizedKeysFile`, `TrustedUserCAKeys`, `AuthorizedPrincipalsFile`, `AuthenticationMethods`";
        match self.tried {
            Tried::Environment(..) => "take `AcceptEnv` away, as far as it holds for the account",
            Tried::Request(Request::Locale) => {
                "give the account the shell /bin/sh, or take `AcceptEnv` for locales away"
            }
            Tried::Request(request) if request.is_of_the_scripts() => SCRIPT,
            Tried::Request(_) => CLOSED,
            Tried::Stranger(_) | Tried::Account(_) | Tried::Unfit(_) => LOGIN,
            Tried::HostileAccount(_) | Tried::Accounts => {
                "trust the authority for one account only: `TrustedUserCAKeys` belongs under `Match User`, and so does an \
                 `AuthorizedKeysFile` that is not each account's own"
            }
            _ => SCRIPT,
        }
    }

    fn credential(&self) -> &'static str {
        match self.tried {
            Tried::Stranger(Stranger::KeyAsAuthority) => "key",
            _ if self.needs_authority() => "certificates",
            _ => "both",
        }
    }
}

/// All attacks, as a table in Markdown.
pub fn table() -> String {
    let mut table = String::from("| What must hold | Name | Credential | Tried by |\n|---|---|---|---|\n");
    for attack in ATTACKS {
        let Attack { id, sentence, tried } = attack;
        let _ = writeln!(table, "| {sentence} | `{id}` | {} | {} |", attack.credential(), tried.words());
    }
    table
}

impl Tried {
    /// What is sent, for people.
    pub(super) fn words(self) -> String {
        match self {
            Tried::Exec([]) => "an action of no bytes".to_owned(),
            Tried::Exec(bytes) | Tried::Unreadable(bytes) => code(bytes),
            Tried::Wrong(wrong) | Tried::Sleep(wrong) => {
                let templates: Vec<String> = wrong.templates().iter().map(|it| code(it.as_bytes())).collect();
                format!("{} {}", templates.join(", "), wrong.place()).trim_start().to_owned()
            }
            Tried::Long(n) | Tried::Oversize(n) => format!("an action of {n} bytes"),
            Tried::Environment(name, value) => code(format!("{name}={value}").as_bytes()),
            Tried::Request(request) => request.words().to_owned(),
            Tried::Stranger(stranger) => stranger.words().to_owned(),
            Tried::Account(account) => format!("the true credential, as {}", account.words()),
            Tried::Unfit(unfit) => format!("a certificate of the true authority {}", unfit.words()),
            Tried::Hostile(hostile) => {
                format!(
                    "a certificate of the true authority {}: a program, a terminal, a forward, a shell, files",
                    hostile.words()
                )
            }
            Tried::HostileAccount(account) => {
                format!("a certificate of the true authority that names {0}, as {0}", account.words())
            }
            Tried::Accounts => {
                let names: Vec<String> = ACCOUNTS.iter().map(|name| format!("`{name}`")).collect();
                format!("the true credential, and a certificate that names the account, as {}", names.join(", "))
            }
        }
    }
}

impl Account {
    /// The account's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Account::Root => "root",
            Account::Nobody => "portcullis-verify",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Account::Root => "`root`",
            Account::Nobody => "`portcullis-verify`, who is nobody",
        }
    }
}

/// In a cell of a table, whatever stands in it.
fn code(bytes: &[u8]) -> String {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    };
    let text = text.replace("\\'", "'").replace("\\\"", "\"").replace("\\\\", "\\").replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}

const fn exec(id: &'static str, sentence: &'static str, bytes: &'static [u8]) -> Attack {
    Attack { id, sentence, tried: Tried::Exec(bytes) }
}

const fn wrong(id: &'static str, sentence: &'static str, wrong: Wrong) -> Attack {
    Attack { id, sentence, tried: Tried::Wrong(wrong) }
}

const fn env(id: &'static str, sentence: &'static str, name: &'static str, value: &'static str) -> Attack {
    Attack { id, sentence, tried: Tried::Environment(name, value) }
}

const fn request(id: &'static str, sentence: &'static str, request: Request) -> Attack {
    Attack { id, sentence, tried: Tried::Request(request) }
}

const fn login(id: &'static str, sentence: &'static str, stranger: Stranger) -> Attack {
    Attack { id, sentence, tried: Tried::Stranger(stranger) }
}

const fn unfit(id: &'static str, sentence: &'static str, unfit: Unfit) -> Attack {
    Attack { id, sentence, tried: Tried::Unfit(unfit) }
}

const fn hostile(id: &'static str, sentence: &'static str, hostile: Hostile) -> Attack {
    Attack { id, sentence, tried: Tried::Hostile(hostile) }
}

/// All attacks, in the order in which they are tried.
#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    // Other programs.
    exec("program", "another program is not run", b"{run}"),
    exec("program-path", "another program is not run by its path", b"/usr/bin/{run}"),
    exec("program-shell", "a shell is not run", b"sh -c '{run}'"),
    exec("program-python", "an interpreter is not run", b"python3 -c 'print({a} + {b})'"),
    exec("program-env", "a program that runs another is not run", b"env {run}"),
    exec("program-sudo", "nothing is run as somebody else", b"sudo -n {run}"),
    exec("builtin-exec", "a shell's own words mean nothing: exec", b"exec {run}"),
    exec("builtin-eval", "a shell's own words mean nothing: eval", b"eval {run}"),
    exec("assignment", "a variable before an action is refused", b"A={a} {check}"),
    exec("nothing", "no action at all is refused", b""),
    exec("spaces", "an action of spaces is refused", b"   "),
    exec("upper-case", "an action in upper case is another one", b"{CHECK}"),
    exec("longer", "an action with a letter more is another one", b"{check}x"),
    exec("path", "an action with a path before it is another one", b"./{check}"),
    exec("path-parent", "an action is not sought in other folders", b"../{check}"),
    exec("path-absolute", "an action is not sought from the root", b"/bin/{check}"),
    // What a shell makes something of.
    exec("semicolon", "nothing runs behind a semicolon", b"{check}; {run}"),
    exec("semicolon-first", "nothing runs behind a semicolon that stands alone", b";{run}"),
    exec("and", "nothing runs behind &&", b"{check} && {run}"),
    exec("or", "nothing runs behind a double bar", b"portcullis-verify || {run}"),
    exec("pipe", "nothing runs behind a pipe", b"{check} | {run}"),
    exec("background", "nothing runs behind &", b"{check} & {run}"),
    exec("substitution", "nothing runs in $(…)", b"{check} $({run} >&2)"),
    exec("substitution-first", "nothing in $(…) chooses the action", b"$(echo {run})"),
    exec("backtick", "nothing runs in backticks", b"{check} `{run} >&2`"),
    exec("arithmetic", "nothing is computed", b"{check} $(({a}+{b}))"),
    exec("variable", "no variable is put in", b"{check} $HOME"),
    exec("separator-variable", "no variable makes spaces", b"expr${IFS}{a}${IFS}+${IFS}{b}"),
    exec("process-substitution", "nothing runs in <(…)", b"cat <(expr {a} + {b})"),
    exec("subshell", "nothing runs in (…)", b"({run})"),
    exec("group", "nothing runs in { …; }", b"{ {run}; }"),
    exec("redirect-out", "nothing is written to a file", b"{run} > /dev/stderr"),
    exec("redirect-in", "nothing is read from a file", b"{run} < /dev/null"),
    exec("here-string", "nothing is read from words", b"{run} <<< x"),
    exec("quotes", "quotes mean nothing", b"'{check}'"),
    exec("double-quotes", "double quotes mean nothing", b"\"{check}\""),
    exec("quote-open", "a quote that is not closed is refused", b"{check} '"),
    exec("quote-break", "a quote does not break out of another", b"{check} '; {run}; '"),
    exec("double-quote-break", "a double quote does not break out of another", b"{check} \"; {run}; \""),
    exec("backslash", "a backslash means nothing", b"\\{check}"),
    exec("backslash-last", "a backslash at the end is refused", b"{check} \\"),
    exec("tilde", "a tilde is nobody's home", b"{check} ~"),
    exec("braces", "braces make no words", b"{expr,{a},+,{b}}"),
    exec("glob", "an asterisk stands for no files", b"{check} *"),
    exec("glob-question", "a question mark stands for no letter", b"{check} ?"),
    exec("glob-bracket", "brackets stand for no letter", b"{check} [a-z]"),
    exec("comment", "a comment is no comment", b"{check} # {run}"),
    exec("history", "an exclamation mark repeats nothing", b"{check} !!"),
    exec("percent", "a percent sign stands for nothing", b"{check} %s%n%h"),
    // Bytes.
    exec("newline", "nothing runs on a second line", b"{check}\n{run}"),
    exec("newline-first", "nothing runs on a line behind an empty one", b"\n{run}"),
    exec("newline-last", "a newline at the end is not overlooked", b"{check}\n"),
    exec("carriage-return", "nothing runs behind a carriage return", b"{check}\r{run}"),
    exec("carriage-return-last", "a carriage return at the end is not overlooked", b"{check}\r"),
    exec("tab", "a tab is no space", b"{check}\t"),
    exec("vertical-tab", "a vertical tab and a form feed are no spaces", b"{check}\x0b\x0c"),
    exec("escape", "bytes that a terminal obeys are refused", b"{check}\x1b[2J\x08\x7f"),
    Attack { id: "nul", sentence: "nothing runs behind a NUL", tried: Tried::Unreadable(b"{check}\0; {run}") },
    Attack { id: "nul-first", sentence: "nothing runs behind a NUL that stands first", tried: Tried::Unreadable(b"\0{run}") },
    exec("utf-8", "letters beyond ASCII are refused", "{check} \u{e9}".as_bytes()),
    exec("utf-8-space", "a space beyond ASCII is no space", "{check}\u{a0}\u{2003}".as_bytes()),
    exec("utf-8-semicolon", "a semicolon beyond ASCII is no semicolon", "{check}\u{ff1b} {run}".as_bytes()),
    exec("utf-8-line", "a line separator ends no line", "{check}\u{2028}{run}".as_bytes()),
    exec("utf-8-mark", "a byte order mark is not overlooked", "\u{feff}{check}".as_bytes()),
    exec("invalid-utf-8", "bytes that are no UTF-8 are refused", b"{check} \xff\xfe"),
    exec("overlong-utf-8", "a semicolon in too many bytes is no semicolon", b"{check}\xc0\xbb{run}"),
    // Words.
    exec("space-first", "a space before an action is refused", b" {check}"),
    exec("space-last", "a space behind an action is refused", b"{check} "),
    exec("words", "more words than an action has are refused", b"{check} a b c d e f g h"),
    exec("option", "options are refused", b"{check} --help"),
    exec("option-first", "an option is no action", b"-c {run}"),
    exec("option-end", "nothing is passed on behind --", b"{check} -- {run}"),
    exec("option-value", "an option with a value is refused", b"-oProxyCommand={check}"),
    Attack { id: "long", sentence: "an action that is too long is refused", tried: Tried::Long(600) },
    Attack { id: "longer-100k", sentence: "an action of 100 kB is refused", tried: Tried::Long(100_000) },
    Attack { id: "oversize-200k", sentence: "an action that no program can be given runs nothing", tried: Tried::Oversize(200_000) },
    Attack { id: "oversize-300k", sentence: "an action that no packet can hold runs nothing", tried: Tried::Oversize(300_000) },
    // Paths and options, where there is an action for logs.
    exec("logs-parent", "no log outside of its folder is read by ..", b"logs {project} 10 ../../../../../../../../etc/passwd"),
    exec("logs-parent-inside", "no log outside of its folder is read by .. in the middle", b"logs {project} 10 a/../../hooks/status"),
    exec("logs-parent-last", "no log is read by .. at the end", b"logs {project} 10 a/.."),
    exec("logs-absolute", "no log is read by an absolute path", b"logs {project} 10 /etc/passwd"),
    exec("logs-proc", "no log is read in /proc", b"logs {project} 10 /proc/self/environ"),
    exec("logs-dots", "no log is read by a path that begins with .", b"logs {project} 10 ./current.log"),
    exec("logs-slashes", "no log is read by a path with empty parts", b"logs {project} 10 a//b"),
    exec("logs-folder", "no folder is read for a log", b"logs {project} 10 ."),
    exec("logs-glob", "no pattern of logs is read", b"logs {project} 10 *"),
    exec("logs-two", "no second log is read", b"logs {project} 10 current.log /etc/passwd"),
    exec("logs-follow", "a log is not followed", b"logs {project} -f"),
    exec("logs-option", "options of other programs are not passed on", b"logs {project} 10 --follow=name"),
    exec("logs-option-first", "an option is no project", b"logs -n {project}"),
    exec("logs-plus", "a number of lines has no sign", b"logs {project} +1"),
    exec("logs-minus", "a number of lines is not negative", b"logs {project} -1"),
    exec("logs-none", "a number of lines is not 0", b"logs {project} 0"),
    exec("logs-octal", "a number of lines does not begin with 0", b"logs {project} 010"),
    exec("logs-base", "a number of lines is decimal", b"logs {project} 0x10"),
    exec("logs-expression", "a number of lines is not computed", b"logs {project} 1+1"),
    exec("logs-huge", "a number of lines has an end", b"logs {project} 99999999999999999999"),
    exec("logs-project-parent", "no project is sought in other folders", b"logs ../{project} 10"),
    exec("logs-project-path", "a project is no path", b"logs {project}/../{project} 10"),
    exec("logs-project-folder", "the folder of all projects is no project", b"logs . 10"),
    exec("logs-project-unknown", "a project that is none is refused", b"logs portcullis-verify 10"),
    exec("logs-project-case", "a project in upper case is another one", b"logs {PROJECT} 10"),
    exec("logs-spaces", "two spaces are not one", b"logs  {project} 10"),
    exec("logs-link", "a log that is a link to elsewhere is not read (`portcullis-verify-link` among the logs, where somebody has put one there)", b"logs {project} 10 portcullis-verify-link"),
    // Every action of the actions file.
    wrong("action-semicolon", "nothing runs behind a semicolon in a word of any action", Wrong::Word(&["{word};{run};", "{word}; {run} #"])),
    wrong("action-and", "nothing runs behind && or a double bar in a word of any action", Wrong::Word(&["{word} && {run}", "{word}||{run} #"])),
    wrong("action-pipe", "nothing runs behind a pipe or & in a word of any action", Wrong::Word(&["{word}|{run}", "{word}&{run} #"])),
    wrong("action-substitution", "nothing runs in $(…) or backticks in a word of any action", Wrong::Word(&["{word}$({run} >&2)", "$({run} >&2){word}", "{word}`{run} >&2`"])),
    wrong("action-variable", "no variable is put in a word of any action", Wrong::Word(&["{word}$HOME", "{word};expr${IFS}{a}${IFS}+${IFS}{b};"])),
    wrong("action-newline", "nothing runs on a second line of any action", Wrong::Word(&["{word}\n{run}\n", "{word}\r{run}", "{word}\n"])),
    wrong("action-quotes", "a quote in a word of any action means nothing", Wrong::Word(&["'{word}'", "\"{word}\"", "{word}';{run};'", "{word}\";{run};\"", "{word}\\"])),
    wrong("action-redirect", "no word of any action is a file to write or to read", Wrong::Word(&["{word}>/dev/null", "{word}</dev/null"])),
    wrong("action-glob", "no pattern in a word of any action stands for files", Wrong::Word(&["{word}*", "{word}?", "{word}[a-z]", "{{word},}"])),
    wrong("action-path", "no word of any action leads anywhere", Wrong::Word(&["../{word}", "./{word}", "/{word}", "{word}/../{word}", "{word}/.", "../../{word}"])),
    wrong("action-option", "no word of any action is an option", Wrong::Word(&["--{word}", "-- {word}", "-{word}"])),
    wrong("action-bytes", "a word of any action has no other bytes", Wrong::Word(&["{word}\t", "{word}\u{e9}", "{word}\u{1b}[2J", "{word}%s", "{word}~"])),
    wrong("action-number", "a number of any action is written in one way", Wrong::Number(&["+{word}", "-{word}", "0{word}", "0x{word}", "{word}+0", "{word}e0", "99999999999999999999"])),
    wrong("action-unknown", "a value that nobody knows is refused by any action", Wrong::Unknown),
    wrong("action-case", "a value or a name in upper case is another one", Wrong::Word(&["{WORD}"])),
    wrong("action-name", "a name that is almost an action's is none", Wrong::Name(&["{word}x", "{WORD}", "./{word}", "../{word}", "/{word}", "{word};{run};", "{run};{word}"])),
    wrong("action-words", "more words than any action has are refused", Wrong::Whole(&["{action} {unknown} {unknown} {unknown} {unknown}"])),
    wrong("action-fewer", "fewer words than an action has are refused", Wrong::Fewer),
    wrong("action-spaces", "there is one space between words of any action", Wrong::Whole(&[" {action}", "{action} ", "{action two spaces} "])),
    Attack { id: "action-sleep", sentence: "nothing of any action is run where nobody sees it", tried: Tried::Sleep(Wrong::Word(&["{word};sleep 4;", "{word}$(sleep 4)", "{word}\nsleep 4\n"])) },
    Attack { id: "sleep", sentence: "what is asked for is not run where nobody sees it", tried: Tried::Sleep(Wrong::Whole(&["sleep 4", "{action};sleep 4"])) },
    // The environment.
    env("env-preload", "no library is loaded from us", "LD_PRELOAD", "/portcullis-verify.so"),
    env("env-library-path", "no library is sought where we say", "LD_LIBRARY_PATH", "/portcullis-verify"),
    env("env-path", "no program is sought where we say", "PATH", "/portcullis-verify:/usr/bin:/bin"),
    env("env-bash-env", "bash reads no file of ours", "BASH_ENV", "/portcullis-verify"),
    env("env-env", "sh reads no file of ours", "ENV", "/portcullis-verify"),
    env("env-function", "no shell gets a function of ours", "BASH_FUNC_echo%%", "() { expr 1 + 1; }"),
    env("env-shellopts", "no shell gets options of ours", "SHELLOPTS", "xtrace"),
    env("env-ps4", "no shell computes a prompt of ours", "PS4", "$(id)"),
    env("env-ifs", "no shell splits words as we say", "IFS", "x"),
    env("env-command", "the action does not come by the environment", "SSH_ORIGINAL_COMMAND", "id"),
    env("env-unknown", "a variable that nobody knows is refused", "PORTCULLIS_VERIFY", "1"),
    request("env-locale", "a locale of ours changes nothing that the script says", Request::Locale),
    // What else the protocol has.
    request("terminal", "there is no terminal", Request::Terminal),
    request("shell", "there is no shell", Request::Shell),
    request("sftp", "there are no files by SFTP", Request::Subsystem("sftp")),
    request("subsystem", "there is no other subsystem", Request::Subsystem("netconf")),
    request("subsystem-action", "no action is run as a subsystem", Request::Subsystem("sh")),
    exec("scp-read", "there are no files to be had by scp", b"scp -f /etc/hostname"),
    exec("scp-write", "there are no files to be left by scp", b"scp -t /tmp"),
    exec("sftp-server", "there are no files by an SFTP server", b"/usr/lib/openssh/sftp-server"),
    exec("internal-sftp", "there are no files by the SFTP server in sshd", b"internal-sftp"),
    exec("rsync", "there are no files by rsync", b"rsync --server --sender -logDtpre.iLsfxC . /etc/hostname"),
    exec("git", "there are no files by git", b"git-upload-pack '/'"),
    request("stdin", "nothing that is sent beside an action is run", Request::Stdin),
    request("second-exec", "a channel has one action", Request::SecondExec),
    request("exec-after-shell", "a channel that was asked for a shell has no action", Request::ExecAfterShell),
    request("many-sessions", "many sessions at once are held to the same", Request::ManySessions),
    request("signal", "what runs cannot be signalled", Request::Signal),
    request("forward-tcp", "no connection is made to the host's own server, nor to ports that are often in use (one that is let through elsewhere is not seen)", Request::ForwardTcp),
    request("forward-tcp-name", "no name is looked up on the host", Request::ForwardTcpName),
    request("forward-unix", "no socket on the host is connected to (sshd answers the same where there is none)", Request::ForwardUnix),
    request("listen-tcp", "the host listens for us on no port of its choice, nor on those that are often asked for (one that is let through elsewhere is not seen)", Request::ListenTcp),
    request("listen-unix", "the host listens on no socket for us", Request::ListenUnix),
    request("agent", "no agent is forwarded", Request::Agent),
    request("x11", "no X11 is forwarded", Request::X11),
    // Logins.
    login("login-none", "nobody gets in with nothing", Stranger::Nothing),
    login("login-password", "nobody gets in with an empty password, or with the account's name for one", Stranger::Password),
    login("login-interactive", "nobody gets in with empty answers", Stranger::Answers),
    login("login-stranger", "nobody gets in with another key", Stranger::Key),
    login("login-signed-by-key", "the key makes no certificates", Stranger::KeyAsAuthority),
    Attack { id: "login-root", sentence: "the credential does not open root's account", tried: Tried::Account(Account::Root) },
    Attack { id: "login-nobody", sentence: "the credential does not open an account that is not there", tried: Tried::Account(Account::Nobody) },
    Attack { id: "login-accounts", sentence: "the credential opens none of some accounts that hosts have (`--account` tries others; one that is not there is refused as well)", tried: Tried::Accounts },
    login("login-authority", "the authority's key is no key of a user", Stranger::AuthorityKey),
    login("login-other-authority", "nobody else signs certificates", Stranger::OtherAuthority),
    unfit("certificate-other-key", "a certificate is of no use without its key", Unfit::OtherKey),
    unfit("certificate-altered", "a certificate that was altered is refused", Unfit::Altered),
    unfit("certificate-principal", "a certificate for another principal is refused", Unfit::Principal),
    unfit("certificate-no-principal", "a certificate for no principal is refused", Unfit::NoPrincipal),
    unfit("certificate-expired", "a certificate that is over is refused", Unfit::Expired),
    unfit("certificate-not-yet", "a certificate that is not good yet is refused", Unfit::NotYet),
    unfit("certificate-source", "a certificate for another address is refused", Unfit::Source),
    unfit("certificate-host", "a certificate of a host is refused", Unfit::HostCertificate),
    unfit("certificate-option", "a certificate with an option that nobody knows is refused", Unfit::Option),
    hostile("hostile-command", "a certificate does not choose the program", Hostile::Command),
    hostile("hostile-extensions", "a certificate gives no terminal and no forwarding", Hostile::Extensions),
    hostile("hostile-lifetime", "a certificate for ten years is held to the same", Hostile::Lifetime),
    hostile("hostile-source", "a certificate for every address is held to the same", Hostile::Source),
    hostile("hostile-principals", "a certificate for many principals is held to the same", Hostile::Principals),
    hostile("hostile-no-id", "a certificate without a name is held to the same", Hostile::NoId),
    hostile("hostile-id", "a certificate with a name of many lines is held to the same", Hostile::Id),
    hostile("hostile-all", "a certificate with all of these is held to the same", Hostile::All),
    Attack { id: "hostile-root", sentence: "a certificate does not open root's account", tried: Tried::HostileAccount(Account::Root) },
];
