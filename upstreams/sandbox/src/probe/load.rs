//! More of everything than there is: processes, memory, disk, output, processor, time. Each has a bound of its own, so that
//! it does no harm where nothing else holds it.

use super::{Attempt, Stop, at, blocked, end_with_parent, ignore, name_of, now, number, pause, scratch, text, untried};
use crate::syscall::{self, raw};
use rustix::io::Errno;
use rustix::process::{WaitOptions, waitpid};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// What is written at once.
const BLOCK: usize = 1 << 20;
/// How large a file of a flood is.
const FILE: usize = 8 << 20;
/// How long a flood stays, so that whoever looks now and then sees it.
const STAY: Duration = Duration::from_secs(4);

/// `forks <how many>`: has that many processes at once.
pub(super) fn forks(arguments: &[String]) -> Attempt {
    let wanted = number(arguments, 0, "number of processes")?;
    for n in 0..wanted {
        match syscall::fork() {
            Ok(Some(_)) => {}
            Ok(None) => {
                end_with_parent();
                pause(Duration::from_secs(20));
                syscall::exit(0);
            }
            Err(errno) => return Err(blocked(format!("fork: {} after {n} processes", name_of(errno)))),
        }
    }
    Ok(format!("had {wanted} processes at once"))
}

/// `memory <bytes> <processes>`: has that much at once, in several processes, so that no limit of one process helps.
pub(super) fn memory(arguments: &[String]) -> Attempt {
    let (bytes, n) = (number(arguments, 0, "number of bytes")?, number(arguments, 1, "number of processes")?);
    let share = usize::try_from(bytes / n.max(1)).map_err(|_| untried("too much for a test"))?;
    let (filled, fills) = std::io::pipe()?;
    let mut children = Vec::new();
    for _ in 0..n {
        match at("fork", syscall::fork())? {
            Some(child) => children.push(child),
            None => {
                end_with_parent();
                // Written to, since a page that nobody wrote to takes no memory.
                let held = vec![1_u8; share];
                let is_told = (&fills).write_all(&held[share.saturating_sub(1)..]).is_ok();
                pause(Duration::from_secs(if is_told { 20 } else { 0 }));
                syscall::exit(i32::from(held.first() == Some(&0)));
            }
        }
    }
    drop(fills);
    let mut missing = n;
    while missing > 0 {
        for child in &children {
            if let Ok(Some((_, status))) = waitpid(Some(*child), WaitOptions::NOHANG) {
                let signal = status.terminating_signal().unwrap_or_default();
                return Err(blocked(format!("one of {n} processes was killed by signal {signal}")));
            }
        }
        let mut told = [rustix::event::PollFd::new(&filled, rustix::event::PollFlags::IN)];
        let soon = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if rustix::event::poll(&mut told, Some(&soon)).is_ok_and(|n| n > 0) {
            let mut byte = [0; 1];
            missing -= u64::from(rustix::io::read(&filled, &mut byte).is_ok_and(|n| n == 1));
        }
    }
    Ok(format!("{n} processes had {} MiB at once", bytes >> 20))
}

/// `fill <folder> <bytes>`: has that much in files there, of 8 MiB each, for some seconds.
pub(super) fn fill(arguments: &[String]) -> Attempt {
    let (folder, bytes) = (text(arguments, 0, "folder")?, number(arguments, 1, "number of bytes")?);
    let place = format!("{folder}/{}", scratch("flood"));
    std::fs::create_dir(&place)?;
    let block = vec![1_u8; FILE];
    let n_files = bytes.div_ceil(FILE as u64);
    let filled = (0..n_files).try_for_each(|n| {
        let written = File::create(format!("{place}/{n}")).and_then(|mut file| file.write_all(&block));
        written.map_err(|error| match Stop::from(error) {
            Stop::Blocked(why) => blocked(format!("{why} after {} MiB", (n * FILE as u64) >> 20)),
            Stop::Untried(why) => untried(why),
        })
    });
    if filled.is_ok() {
        pause(STAY);
    }
    drop(std::fs::remove_dir_all(&place));
    filled.map(|()| format!("had {} MiB in {folder}", bytes >> 20))
}

/// `big-file <bytes>`: makes one of that length, with nothing in it.
pub(super) fn big_file(arguments: &[String]) -> Attempt {
    let bytes = number(arguments, 0, "number of bytes")?;
    // The limit answers by a signal, unless that is ignored.
    ignore(libc::SIGXFSZ)?;
    let name = scratch("big");
    let grown = File::create(&name).and_then(|file| file.set_len(bytes));
    drop(std::fs::remove_file(&name));
    grown?;
    Ok(format!("made a file of {} MiB", bytes >> 20))
}

/// `shout <bytes>`: writes that much to stdout.
pub(super) fn shout(arguments: &[String]) -> Attempt {
    let bytes = number(arguments, 0, "number of bytes")?;
    let block = vec![b'x'; BLOCK];
    let mut left = usize::try_from(bytes).map_err(|_| untried("too much for a test"))?;
    let mut stdout = std::io::stdout().lock();
    while left > 0 {
        let n = left.min(BLOCK);
        stdout.write_all(&block[..n])?;
        left -= n;
    }
    Ok(format!("wrote {bytes} bytes"))
}

/// `burn <milliseconds> <processes> <thousandths of a processor>`: uses more processor time than 1.3 times that much.
pub(super) fn burn(arguments: &[String]) -> Attempt {
    let duration = Duration::from_millis(number(arguments, 0, "time")?);
    let n = number(arguments, 1, "number of processes")?;
    let limit = number(arguments, 2, "thousandths of a processor")?;
    let begun = now();
    let mut children = Vec::new();
    for _ in 0..n {
        match at("fork", syscall::fork())? {
            Some(child) => children.push(child),
            None => {
                end_with_parent();
                while begun.elapsed() < duration {
                    std::hint::spin_loop();
                }
                syscall::exit(0);
            }
        }
    }
    for child in children {
        at("waitpid", waitpid(Some(child), WaitOptions::empty()))?;
    }
    let elapsed = begun.elapsed();
    let used = used_by_children()?.as_micros() as u64 * 1000 / (elapsed.as_micros() as u64).max(1);
    let said = format!("used {used} thousandths of a processor for {} ms", elapsed.as_millis());
    // Ten are three tenths of little, and not worth a complaint.
    if used > limit + (limit * 3 / 10).max(10) { Ok(said) } else { Err(blocked(said)) }
}

fn used_by_children() -> Result<Duration, Stop> {
    // struct rusage begins with two struct timeval: user and system.
    let mut usage = [0_u8; 144];
    at("getrusage", raw(libc::SYS_getrusage, [libc::RUSAGE_CHILDREN.into(), (&mut usage[..]).into()]))?;
    let words: Vec<u64> =
        usage.chunks_exact(8).take(4).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default())).collect();
    let [user_s, user_us, system_s, system_us] = words[..] else {
        return Err(untried("getrusage gave too little"));
    };
    Ok(Duration::from_secs(user_s + system_s) + Duration::from_micros(user_us + system_us))
}

/// `daemon <file> <seconds> silent|holding`: leaves a process behind that no parent waits for, in a session of its own,
/// deaf to every polite signal, and writes to the file as long as it lives. `holding` keeps stdout open.
pub(super) fn daemon(arguments: &[String]) -> Attempt {
    let (file, seconds) = (text(arguments, 0, "file")?, number(arguments, 1, "seconds")?);
    let is_holding = text(arguments, 2, "whether it holds stdout")? == "holding";
    let until = now() + Duration::from_secs(seconds);
    if at("fork", syscall::fork())?.is_some() {
        return Ok("left a process behind".to_owned());
    }
    at("setsid", raw(libc::SYS_setsid, []))?;
    if at("fork", syscall::fork())?.is_some() {
        syscall::exit(0);
    }
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGPIPE] {
        ignore(signal)?;
    }
    if !is_holding {
        for descriptor in 0..=2 {
            let _ = raw(libc::SYS_close, [descriptor.into()]);
        }
    }
    // In place, so that whoever reads finds a number, and not the moment before it.
    let beat = File::create(file)?;
    let mut n = 0_u64;
    while now() < until {
        n += 1;
        if beat.write_all_at(format!("{n:08}").as_bytes(), 0).is_err() {
            break;
        }
        pause(Duration::from_millis(40));
    }
    syscall::exit(0);
}

/// `swap <one> <other> <seconds>`: exchanges two names, over and over: what was looked at is not what is opened.
pub(super) fn swap(arguments: &[String]) -> Attempt {
    let (one, other) = (text(arguments, 0, "name")?, text(arguments, 1, "name")?);
    let until = now() + Duration::from_secs(number(arguments, 2, "seconds")?);
    let here = rustix::fs::CWD;
    let mut n = 0_u64;
    while now() < until {
        match rustix::fs::renameat_with(here, one, here, other, rustix::fs::RenameFlags::EXCHANGE) {
            Ok(()) => n += 1,
            Err(Errno::NOENT) => pause(Duration::from_millis(5)),
            // gVisor has no exchange in one step.
            Err(Errno::INVAL) => {
                let aside = scratch("aside");
                std::fs::rename(one, &aside)?;
                std::fs::rename(other, one)?;
                std::fs::rename(&aside, other)?;
                n += 1;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(format!("exchanged two names {n} times"))
}
