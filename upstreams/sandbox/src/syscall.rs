//! System calls by their number, for the probes: a filter looks at numbers and arguments, so that is what is tried, and
//! not whatever the C library makes of a wish. All `unsafe` of this crate.
//!
//! Nothing here is for the upstream itself. A process that tries something ends right after it.

#![expect(unsafe_code, reason = "calls that are not to succeed have no safe form")]

use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::CStr;

/// An argument. What is pointed to lives as long as the call, and is as long as it is.
pub(crate) enum Arg<'a> {
    /// A number, a descriptor, flags.
    Number(i64),
    /// A path or a name.
    Text(&'a CStr),
    /// A structure that the kernel reads, or fills.
    Buffer(&'a mut [u8]),
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Arg::Number(number)
    }
}

impl From<i32> for Arg<'_> {
    fn from(number: i32) -> Self {
        Arg::Number(number.into())
    }
}

impl From<u32> for Arg<'_> {
    fn from(number: u32) -> Self {
        Arg::Number(number.into())
    }
}

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Arg::Text(text)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(buffer: &'a mut [u8]) -> Self {
        Arg::Buffer(buffer)
    }
}

/// Makes a system call. Arguments that are not given are 0.
///
/// # Errors
/// What the kernel, or a filter, says.
pub(crate) fn raw<const N: usize>(number: i64, arguments: [Arg<'_>; N]) -> Result<i64, Errno> {
    let mut words = [0_i64; 6];
    for (word, argument) in words.iter_mut().zip(arguments) {
        *word = match argument {
            Arg::Number(number) => number,
            Arg::Text(text) => text.as_ptr().expose_provenance() as i64,
            Arg::Buffer(buffer) => buffer.as_mut_ptr().expose_provenance() as i64,
        };
    }
    let [a, b, c, d, e, f] = words;
    // SAFETY: pointers are to memory that is borrowed for the call. The probes give no call a number where it takes a
    // pointer, but for null, and make none that changes the memory they run in.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned == -1 { Err(last_error()) } else { Ok(returned) }
}

fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EINVAL))
}

/// A copy of this process: its number, or `None` in the copy.
///
/// # Errors
/// There may be no further process.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: a probe has one thread, so the copy is as whole as the original: no lock is held by a thread that is not
    // in it.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(last_error()) } else { Ok(Pid::from_raw(pid)) }
}

/// Ends this process, without anything that is done at an ordinary end.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: no memory is touched.
    unsafe { libc::_exit(status) }
}

/// What the 32-bit table of calls answers to `getpid`: it has other numbers than the one that filters are written for.
#[cfg(target_arch = "x86_64")]
pub(crate) fn getpid_of_i386() -> i64 {
    let returned: i64;
    // SAFETY: getpid (20) takes no argument and touches no memory. Kernels before 4.17 leave nothing in r8 to r11.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inlateout("rax") 20_i64 => returned,
            lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _,
        );
    }
    returned
}
