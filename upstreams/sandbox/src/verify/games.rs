//! Tricks that are played on the file tools: commands leave links and pipes in the workspace, and the tools, which run
//! outside, are asked for them.

use super::Seen;
use super::outside::Outside;
use super::runner::{Runner, line};
use serde_json::json;
use std::time::Duration;

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Game {
    /// A path that begins at the root.
    AbsolutePath,
    /// A path that climbs.
    Climbing,
    /// A link to a file outside.
    AbsoluteLink,
    /// The same, climbing.
    ClimbingLink,
    /// A link to a folder outside, and a path through it.
    FolderLink,
    /// A link to a folder outside, listed.
    ListedLink,
    /// A second name for a file outside.
    HardLink,
    /// A link into /proc, which shows each process something else.
    ProcLink,
    /// A link to a file outside that is not there yet, written to.
    WrittenLink,
    /// A link to a folder outside, and a new file in it.
    WrittenBeneath,
    /// A pipe that nobody writes to.
    Pipe,
    /// A folder that is exchanged for a link to one outside while it is read.
    Swap,
}

/// What is said of a tool that does not answer.
pub(super) const HANGS: &str = "the tool does not answer";

const LONG: Duration = Duration::from_secs(30);

/// Plays it with this runner's commands and tools. In the runner's folder, everything lies in `verify-games`.
pub(super) async fn play(game: Game, runner: &impl Runner, outside: &Outside) -> Seen {
    drop(runner.run("rm -rf verify-games; mkdir verify-games", LONG).await);
    let seen = match game {
        Game::Pipe => pipe(runner).await,
        Game::Swap => swap(runner, outside).await,
        Game::WrittenLink | Game::WrittenBeneath => written(game, runner, outside).await,
        Game::ListedLink => listed(runner, outside).await,
        _ => read(game, runner, outside).await,
    };
    drop(runner.run("rm -rf verify-games", LONG).await);
    seen.unwrap_or_else(Seen::Untried)
}

/// Prepares it by a command, and reads.
async fn read(game: Game, runner: &impl Runner, outside: &Outside) -> Result<Seen, String> {
    let canary = outside.canary();
    let (canary, folder) = (canary.display().to_string(), canary.with_file_name("").display().to_string());
    // As many steps as lead to the root from anywhere.
    let climb = format!("{}{}", "../".repeat(40), canary.trim_start_matches('/'));
    let link = |target: &str| format!("ln -s '{target}' verify-games/link");
    let (command, path) = match game {
        Game::AbsolutePath => (String::new(), canary),
        Game::Climbing => (String::new(), format!("verify-games/{climb}")),
        Game::AbsoluteLink => (link(&canary), "verify-games/link".to_owned()),
        Game::ClimbingLink => (link(&climb), "verify-games/link".to_owned()),
        Game::FolderLink => (link(&folder), "verify-games/link/canary".to_owned()),
        Game::HardLink => (format!("ln '{canary}' verify-games/link"), "verify-games/link".to_owned()),
        Game::ProcLink => (link("/proc/self/cmdline"), "verify-games/link".to_owned()),
        other => return Err(format!("{other:?} is not read")),
    };
    prepare(runner, &command, game == Game::HardLink).await?;
    Ok(match runner.call("read_file", json!({ "path": path })).await {
        Ok(text) if game == Game::ProcLink => Seen::Allowed(format!("read {} bytes of a process outside", text.len())),
        Ok(text) if has(&text, outside) => Seen::Allowed(format!("the tool read it by {path}")),
        Ok(text) => Seen::Blocked(format!("the tool read something else, {} bytes", text.len())),
        Err(why) => Seen::Blocked(one_line(&why)),
    })
}

/// Runs what prepares a game. What a confinement keeps from being prepared is a refusal as good as any.
async fn prepare(runner: &impl Runner, command: &str, may_fail: bool) -> Result<(), String> {
    if command.is_empty() {
        return Ok(());
    }
    let ran = runner.run(command, LONG).await?;
    if ran.exit_code == Some(0) || may_fail { Ok(()) } else { Err(format!("not prepared: {}", one_line(&ran.stderr))) }
}

fn has(text: &str, outside: &Outside) -> bool {
    text.contains(outside.canary_text().trim())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(160).collect()
}

async fn listed(runner: &impl Runner, outside: &Outside) -> Result<Seen, String> {
    let folder = outside.canary().with_file_name("");
    prepare(runner, &format!("ln -s '{}' verify-games/link", folder.display()), false).await?;
    Ok(match runner.call("list_directory", json!({ "path": "verify-games/link/" })).await {
        Ok(text) if text.contains("canary") => Seen::Allowed("the tool listed a folder outside".to_owned()),
        Ok(_) => Seen::Blocked("the tool listed something else".to_owned()),
        Err(why) => Seen::Blocked(one_line(&why)),
    })
}

async fn written(game: Game, runner: &impl Runner, outside: &Outside) -> Result<Seen, String> {
    let target = outside.place("written");
    drop(std::fs::remove_file(&target));
    let folder = target.with_file_name("");
    let (linked, path) = match game {
        Game::WrittenLink => (target.display(), "verify-games/link"),
        _ => (folder.display(), "verify-games/link/written"),
    };
    prepare(runner, &format!("ln -s '{linked}' verify-games/link"), false).await?;
    let answer = runner.call("write_file", json!({ "path": path, "content": "written" })).await;
    if std::fs::symlink_metadata(&target).is_ok() {
        drop(std::fs::remove_file(&target));
        return Ok(Seen::Allowed("the tool wrote a file outside".to_owned()));
    }
    Ok(Seen::Blocked(match answer {
        Ok(_) => "the tool replaced the link, and wrote nothing outside".to_owned(),
        Err(why) => one_line(&why),
    }))
}

async fn pipe(runner: &impl Runner) -> Result<Seen, String> {
    prepare(runner, "mkfifo verify-games/pipe", false).await?;
    Ok(match runner.call("read_file", json!({ "path": "verify-games/pipe" })).await {
        Err(why) if why == HANGS => Seen::Allowed(why),
        Err(why) => Seen::Blocked(one_line(&why)),
        Ok(_) => Seen::Blocked("the tool answered".to_owned()),
    })
}

/// Reads for as long as the exchange goes on: whoever looks first and opens then is caught sooner or later.
async fn swap(runner: &impl Runner, outside: &Outside) -> Result<Seen, String> {
    let folder = outside.canary().with_file_name("");
    let begin = format!(
        "cd verify-games && mkdir own && echo own >own/canary && ln -s '{}' other && cat own/canary",
        folder.display()
    );
    prepare(runner, &begin, false).await?;
    let words = ["swap", "own", "other", "4"].map(str::to_owned);
    let exchange = format!("cd verify-games && {}", line(runner.inner(), &words));
    let exchanges = runner.run(&exchange, LONG);
    let reads = async {
        let until = tokio::time::Instant::now() + Duration::from_secs(4);
        let (mut n, mut n_own) = (0_u32, 0_u32);
        while tokio::time::Instant::now() < until {
            let answer = runner.call("read_file", json!({ "path": "verify-games/own/canary" })).await;
            n += 1;
            match answer {
                Ok(text) if has(&text, outside) => return Seen::Allowed(format!("the tool read it, at reading {n}")),
                Ok(_) => n_own += 1,
                Err(_) => {}
            }
        }
        Seen::Blocked(format!("{n} readings: {n_own} of the command's own file, all others refused"))
    };
    let (ran, seen) = tokio::join!(exchanges, reads);
    let ran = ran?;
    if !ran.stdout.contains("exchanged") {
        return Err(format!("nothing was exchanged: {} {}", one_line(&ran.stdout), one_line(&ran.stderr)));
    }
    Ok(seen)
}
