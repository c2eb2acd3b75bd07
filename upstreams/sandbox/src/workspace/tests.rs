//! What a hostile command can leave in its folder, and what the file tools make of it.

use super::write::How;
use super::{Error, Folder, Limits, Usage, Workspace, WorkspacePath, usage};
use crate::workspace::read::Range;
use crate::workspace::walk::{Bounds, Next};
use portcullis_local::Principal;
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::process::{Gid, Uid};
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A workspace on the disk; outside of it, a file that nobody may reach.
struct House {
    outside: TempDir,
    workspace: Workspace,
}

const LIMITS: Limits = Limits { quota: 64 << 20, reserve: 0, commands: 4 };

fn house() -> House {
    house_with(LIMITS)
}

fn house_with(limits: Limits) -> House {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "of the host").unwrap();
    fs::create_dir(outside.path().join("workspaces")).unwrap();
    let workspace = open(&outside, limits);
    House { outside, workspace }
}

fn open(outside: &TempDir, limits: Limits) -> Workspace {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(outside.path().join("workspaces"), flags, Mode::empty()).unwrap();
    Workspace::new(root, limits).unwrap()
}

impl House {
    fn alice(&self) -> (Folder, PathBuf) {
        let alice = Principal { issuer: String::new(), subject: "user:alice".to_owned() };
        (self.workspace.folder(&alice).unwrap(), self.outside.path().join("workspaces/user-alice"))
    }
}

fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text).unwrap()
}

fn read(folder: &Folder, at: &str) -> Result<String, String> {
    let all = Range::Bytes { offset: 0, length: u64::MAX };
    let part = folder.read(&path(at), all, 1 << 20, &CancellationToken::new()).map_err(|why| why.to_string())?;
    Ok(String::from_utf8(part.bytes).unwrap())
}

fn write(folder: &Folder, at: &str, how: How) -> Result<(), String> {
    folder.write(&path(at), b"written", how, true).map(drop).map_err(|why| why.to_string())
}

fn edit(folder: &Folder, at: &str) -> Result<(), String> {
    folder.change(&path(at), |_| Ok::<_, Error>((b"edited".to_vec(), ()))).map_err(|why| why.to_string())
}

fn list(folder: &Folder, at: &str) -> Result<Vec<String>, String> {
    let stop = CancellationToken::new();
    let bounds = Bounds { depth: 64, entries: 1000, deadline: Instant::now() + Duration::from_secs(30), stop: &stop };
    let mut seen = Vec::new();
    let see = &mut |entry: &super::walk::Entry<'_>| {
        seen.push(entry.path.to_string());
        Next::Enter
    };
    folder.walk(&path(at), &bounds, see).map_err(|why| why.to_string())?;
    Ok(seen)
}

/// Each way that a command can lay to what is not its own, or to what blocks.
#[test]
fn no_link_leads_a_file_tool_anywhere() {
    let house = house();
    let (folder, at) = house.alice();
    let secret = house.outside.path().join("secret");
    fs::create_dir_all(at.join("inside")).unwrap();
    fs::write(at.join("inside/file"), "inside").unwrap();
    let magic = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&folder.directory));
    for (link, target) in [
        ("absolute", secret.to_str().unwrap()),
        ("relative", "../../secret"),
        ("to-the-outside", house.outside.path().to_str().unwrap()),
        ("up", ".."),
        ("root", "/"),
        ("magic", magic.as_str()),
        ("magic-root", "/proc/self/root"),
        ("magic-cwd", "/proc/self/cwd"),
        ("loop", "loop"),
        ("dangling", "nothing"),
        ("inner-file", "inside/file"),
        ("inner-folder", "inside"),
        ("inner-absolute", "/workspace/inside"),
        ("dot", "."),
    ] {
        symlink(target, at.join(link)).unwrap();
    }
    for name in [
        "absolute",
        "relative",
        "to-the-outside/secret",
        "up/user-alice/inside/file",
        "up",
        "root/etc/passwd",
        "magic/inside/file",
        "magic-root/etc/passwd",
        "magic-cwd/Cargo.toml",
        "loop",
        "dangling",
        "inner-file",
        "inner-folder/file",
        "inner-absolute/file",
        "dot/inside/file",
    ] {
        let refusals = [
            read(&folder, name).unwrap_err(),
            write(&folder, name, How::Overwrite).unwrap_err(),
            write(&folder, name, How::Append).unwrap_err(),
            edit(&folder, name).unwrap_err(),
            list(&folder, name).unwrap_err(),
            write(&folder, &format!("{name}/new"), How::Create).unwrap_err(),
        ];
        for why in refusals {
            assert!(why.contains("is a symbolic link to"), "{name}: {why}");
        }
    }
    assert!(write(&folder, "absolute", How::Create).unwrap_err().contains("exists already, and is a symbolic link"));

    assert_eq!(fs::read_to_string(&secret).unwrap(), "of the host");
    assert_eq!(fs::read_dir(house.outside.path()).unwrap().count(), 2, "nothing was made outside");
    assert_eq!(fs::read_to_string(at.join("inside/file")).unwrap(), "inside");
    assert!(!at.join("nothing").exists() && fs::read_dir(at.join("inside")).unwrap().count() == 1);
    assert_eq!(read(&folder, "inside/file").unwrap(), "inside", "the file itself can be read");
    assert_eq!(list(&folder, ".").unwrap().len(), 16, "links are listed, and what is behind them is not");
}

#[test]
fn a_refused_link_says_what_to_ask_for_instead() {
    let house = house();
    let (folder, at) = house.alice();
    fs::create_dir_all(at.join("lib/a")).unwrap();
    symlink("../a", at.join("lib/a/self")).unwrap();
    symlink("/etc", at.join("etc")).unwrap();

    assert_eq!(
        read(&folder, "lib/a/self/b/c").unwrap_err(),
        "`lib/a/self` is a symbolic link to `../a`, and links are not followed here; ask for `lib/a/b/c`"
    );
    assert!(read(&folder, "etc/passwd").unwrap_err().ends_with("(it leads out of the workspace)"));
}

#[test]
fn pipes_sockets_and_devices_are_refused_and_nothing_waits() {
    let house = house();
    let (folder, at) = house.alice();
    rustix::fs::mknodat(CWD, at.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = UnixListener::bind(at.join("socket")).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let may_make_devices = rustix::process::geteuid().is_root();
    if may_make_devices {
        rustix::fs::mknodat(CWD, at.join("device"), FileType::CharacterDevice, Mode::RWXU, null).unwrap();
    }
    fs::create_dir(at.join("folder")).unwrap();
    let kinds = [("pipe", "a named pipe"), ("socket", "a socket"), ("device", "a device"), ("folder", "a folder")];
    for (name, kind) in kinds.into_iter().filter(|(name, _)| *name != "device" || may_make_devices) {
        for refused in [
            read(&folder, name).map(drop),
            write(&folder, name, How::Overwrite),
            write(&folder, name, How::Append),
            edit(&folder, name),
        ] {
            assert_eq!(refused.unwrap_err(), format!("`{name}` is {kind}, not a file"));
        }
    }
    assert!(list(&folder, "pipe").unwrap_err().contains("is a named pipe, not a folder"));
    assert!(at.join("pipe").metadata().unwrap().mode() & 0o170_000 == 0o010_000, "it is still there");
}

#[test]
fn the_workspace_itself_is_no_file() {
    let house = house();
    let (folder, _) = house.alice();
    for refused in [
        read(&folder, ".").map(drop),
        write(&folder, "/workspace", How::Overwrite),
        write(&folder, ".", How::Append),
        edit(&folder, "."),
    ] {
        assert_eq!(refused.unwrap_err(), "`.` is a folder, not a file");
    }
}

struct EndsAtLast<'a>(&'a AtomicBool);

impl Drop for EndsAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A command that exchanges a folder for a link, again and again, while file tools are at work in it.
#[test]
fn a_folder_exchanged_for_a_link_between_two_steps_leads_nowhere() {
    let house = house();
    let (folder, at) = house.alice();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("d/secret"), "inside").unwrap();
    // Relative, so that nothing but `RESOLVE_BENEATH` and its like stands in the way, whatever is mounted where.
    symlink("../..", at.join("link")).unwrap();
    let is_over = AtomicBool::new(false);
    let (mut n_read, mut n_refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(CWD, at.join("d"), CWD, at.join("link"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        // Also when an assertion fails, or the other thread would never end.
        let _end = EndsAtLast(&is_over);
        for n in 0..20_000 {
            match read(&folder, "d/secret") {
                Ok(text) => {
                    assert_eq!(text, "inside", "it was led out");
                    n_read += 1;
                }
                Err(why) => {
                    assert!(
                        why.contains("link") || why.contains("no `d/secret`") || why.contains("cannot open"),
                        "{why}"
                    );
                    n_refused += 1;
                }
            }
            if n % 20 == 0 {
                let _ = write(&folder, "d/new", How::Overwrite);
                let _ = write(&folder, "d/more", How::Append);
                let _ = write(&folder, "d/sub/new", How::Overwrite);
                for seen in list(&folder, ".").unwrap() {
                    assert!(!seen.contains("workspaces"), "{seen}: it was led out");
                }
            }
            if n_read > 500 && n_refused > 500 {
                break;
            }
        }
    });

    assert!(n_read > 0 && n_refused > 0, "both were met: {n_read} {n_refused}");
    let mut outside: Vec<_> =
        fs::read_dir(house.outside.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    outside.sort();
    assert_eq!(outside, ["secret", "workspaces"], "nothing was made outside");
}

#[test]
fn a_folder_is_for_its_owner_alone_whatever_a_command_made_of_it() {
    let house = house();
    let (_, at) = house.alice();
    let mode = || fs::metadata(&at).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o700);
    for changed in [0o777, 0o000, 0o2770, 0o1700] {
        fs::set_permissions(&at, fs::Permissions::from_mode(changed)).unwrap();

        house.alice();

        assert_eq!(mode(), 0o700, "{changed:o}");
    }
}

#[test]
fn a_principals_folder_that_is_a_link_is_not_used() {
    let house = house();
    symlink(house.outside.path(), house.outside.path().join("workspaces/user-alice")).unwrap();
    let alice = Principal { issuer: String::new(), subject: "user:alice".to_owned() };

    assert!(house.workspace.folder(&alice).is_err());

    let bob = Principal { subject: "user:bob".to_owned(), ..alice };
    assert!(house.workspace.folder(&bob).is_ok());
}

/// A process that lives holds the lock of its folder; one that has ended does not.
#[test]
fn what_a_process_left_half_written_is_removed_when_it_has_ended_and_not_before() {
    let House { outside, workspace } = house();
    let staging = outside.path().join("workspaces/staging");
    let of_the_first = fs::read_dir(&staging).unwrap().next().unwrap().unwrap().path();
    fs::write(of_the_first.join("half"), "half").unwrap();
    fs::create_dir(staging.join("1-0")).unwrap();
    fs::write(staging.join("1-0/0"), "half, and its process has ended").unwrap();
    fs::write(staging.join("1-1"), "half, and nobody's").unwrap();

    let second = open(&outside, LIMITS);

    assert!(of_the_first.join("half").exists(), "its process lives");
    assert!(!staging.join("1-0").exists() && !staging.join("1-1").exists());
    let alice = Principal { issuer: String::new(), subject: "user:alice".to_owned() };
    for (workspace, name) in [(&workspace, "a"), (&second, "b"), (&workspace, "c")] {
        write(&workspace.folder(&alice).unwrap(), name, How::Create).unwrap();
    }
    assert_eq!(fs::read_dir(outside.path().join("workspaces/user-alice")).unwrap().count(), 3);

    drop(workspace);
    let _third = open(&outside, LIMITS);

    assert!(!of_the_first.join("half").exists(), "its process has ended");
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 2, "the two that live");
}

/// Old and new processes come and go side by side: none takes another's folder away.
#[test]
fn of_many_who_begin_at_once_none_loses_its_place() {
    let house = house();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let house = &house;
            scope.spawn(move || {
                let alice = Principal { issuer: String::new(), subject: "user:alice".to_owned() };
                for again in 0..30 {
                    let workspace = open(&house.outside, LIMITS);
                    write(&workspace.folder(&alice).unwrap(), &format!("{n}-{again}"), How::Create).unwrap();
                }
            });
        }
    });

    assert_eq!(house.alice().1.read_dir().unwrap().count(), 240);
}

#[test]
fn of_many_who_make_one_file_at_once_one_does_and_none_is_half_seen() {
    let house = house();
    let (folder, at) = house.alice();
    let content = |n: u8| vec![b'a' + n; 100_000];
    std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8)
            .map(|n| {
                let (folder, content) = (&folder, &content);
                scope.spawn(move || folder.write(&path("f"), &content(n), How::Create, false).is_ok())
            })
            .collect();
        let n_made = makers.into_iter().map(|maker| maker.join().unwrap()).filter(|made| *made).count();
        assert_eq!(n_made, 1);
    });

    let made = fs::read(at.join("f")).unwrap();
    assert!((0..8).any(|n| made == content(n)));
}

/// A command makes the same file at the same time: one of the two does, and whoever did keeps what they wrote.
#[test]
fn a_new_file_never_takes_the_place_of_what_a_command_just_made() {
    let house = house();
    let (folder, at) = house.alice();
    for n in 0..200 {
        let name = n.to_string();
        let (is_theirs, is_ours) = std::thread::scope(|scope| {
            let file = at.join(&name);
            let command = scope.spawn(move || fs::File::create_new(file).is_ok());
            let is_ours = write(&folder, &name, How::Create).is_ok();
            (command.join().unwrap(), is_ours)
        });
        assert!(is_theirs != is_ours, "both made {name}");
    }
}

#[test]
fn changes_of_one_file_at_once_do_not_lose_each_other() {
    let house = house();
    let (_, at) = house.alice();
    fs::write(at.join("f"), "").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // Each call has a folder of its own, as each request does.
            let (folder, _) = house.alice();
            scope.spawn(move || {
                let longer = |file| Ok::<_, Error>((std::io::read_to_string(file).unwrap().into_bytes(), ()));
                for _ in 0..10 {
                    let add = |file| longer(file).map(|(text, told)| ([text, b"x".to_vec()].concat(), told));
                    folder.change(&path("f"), add).unwrap();
                }
            });
        }
    });

    assert_eq!(fs::read_to_string(at.join("f")).unwrap(), "x".repeat(80));
}

#[test]
fn the_quota_holds_for_many_who_write_at_once() {
    let house = house_with(Limits { quota: 1 << 20, reserve: 0, commands: 4 });
    let n_written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (folder, _) = house.alice();
                scope.spawn(move || folder.write(&path(&n.to_string()), &[0; 300_000], How::Create, false).is_ok())
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).filter(|is_written| *is_written).count()
    });

    assert_eq!(n_written, 3);
}

#[test]
fn every_entry_is_counted_and_a_file_with_two_names_once() {
    let house = house();
    let (folder, at) = house.alice();
    let bytes = || folder.usage().unwrap();
    assert_eq!(bytes(), Usage { bytes: 0, is_whole: true });

    fs::write(at.join("a"), "x".repeat(100_000)).unwrap();
    let with_file = bytes().bytes;
    assert!((100_000..110_000).contains(&with_file), "{with_file}");
    fs::hard_link(at.join("a"), at.join("b")).unwrap();
    assert_eq!(bytes().bytes, with_file + 4096, "a name costs as much as an empty file");
    for n in 0..100 {
        fs::write(at.join(format!("empty-{n}")), "").unwrap();
    }
    assert_eq!(bytes().bytes, with_file + 101 * 4096);
    symlink(house.outside.path(), at.join("link")).unwrap();
    assert_eq!(bytes().bytes, with_file + 102 * 4096, "a link is not followed");
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    assert_eq!(bytes().bytes, with_file + 103 * 4096, "what is not there takes no space");
    fs::create_dir_all(at.join("d/e/f")).unwrap();
    fs::write(at.join("d/e/f/g"), "").unwrap();
    assert!(bytes().bytes >= with_file + 107 * 4096);
    assert!(bytes().is_whole);
}

#[test]
fn counting_ends_when_there_is_more_than_enough() {
    let house = house_with(Limits { quota: 40_960, reserve: 0, commands: 4 });
    let (folder, at) = house.alice();
    for n in 0..1000 {
        fs::write(at.join(n.to_string()), "").unwrap();
    }

    let usage = folder.usage().unwrap();

    assert_eq!(usage, Usage { bytes: 45_056, is_whole: false }, "eleven entries were looked at");
    let why = write(&folder, "one-more", How::Create).unwrap_err();
    assert!(why.contains("it may hold 40 KiB, holds more than that"), "{why}");
}

#[test]
fn what_lies_deep_is_counted_as_well_and_no_depth_is_too_much() {
    let house = house();
    let (folder, at) = house.alice();
    for (branch, depth) in [("a", 500), ("b", 300), ("c", 2)] {
        let deep = at.join(branch).join(vec!["d"; depth].join("/"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("f"), "x".repeat(1 << 20)).unwrap();
        fs::write(at.join(branch).join("d/f"), "x".repeat(1 << 20)).unwrap();
    }
    let is_between = |bytes: u64| (6 << 20..(6 << 20) + 1000 * 2 * 4096).contains(&bytes);

    let usage = folder.usage().unwrap();

    assert!(usage.is_whole && is_between(usage.bytes), "{usage:?}");
    write(&folder, "f", How::Create).unwrap();
}

/// A command may close its own folders; the server is no root, and could not look into them either.
#[test]
fn a_folder_that_was_closed_is_counted_all_the_same() {
    if !rustix::process::geteuid().is_root() {
        return; // Without root, there is no other user to be.
    }
    let house = house();
    let (folder, at) = house.alice();
    fs::create_dir_all(at.join("closed/deeper")).unwrap();
    fs::write(at.join("closed/deeper/f"), "x".repeat(1 << 20)).unwrap();
    let nobody = 65_534;
    for path in ["", "closed/deeper/f", "closed/deeper", "closed"] {
        std::os::unix::fs::chown(at.join(path), Some(nobody), Some(nobody)).unwrap();
    }
    for path in ["closed/deeper", "closed"] {
        fs::set_permissions(at.join(path), fs::Permissions::from_mode(0o000)).unwrap();
    }

    let counted = std::thread::scope(|scope| {
        let as_nobody = scope.spawn(|| {
            let (uid, gid) = (Uid::from_raw(nobody), Gid::from_raw(nobody));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            assert!(fs::read_dir(at.join("closed")).is_err());
            usage(folder.directory.as_fd(), u64::MAX)
        });
        as_nobody.join().unwrap().unwrap()
    });

    assert!(counted.is_whole && counted.bytes > 1 << 20, "{counted:?}");
}

#[test]
fn a_search_ends_when_it_was_cancelled_or_its_time_is_over() {
    let house = house();
    let (folder, at) = house.alice();
    fs::write(at.join("f"), "").unwrap();
    let stop = CancellationToken::new();
    let walk = |deadline, stop: &CancellationToken| {
        let bounds = Bounds { depth: 64, entries: 10, deadline, stop };
        let mut n = 0;
        let missed = folder.walk(&path("."), &bounds, &mut |_| {
            n += 1;
            Next::Enter
        });
        (n, missed.unwrap().is_cut)
    };
    let later = Instant::now() + Duration::from_secs(60);

    assert_eq!(walk(later, &stop), (1, false));
    assert_eq!(walk(Instant::now(), &stop), (0, true));
    stop.cancel();
    assert_eq!(walk(later, &stop), (0, true));
}
