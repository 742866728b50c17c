//! Starts the server's process: what the child does before it becomes the server, and what is told of it.
//!
//! Not by `std::process::Command`, for two reasons. It asserts that it can wait for a child whose exec failed,
//! which it cannot in a host that ignores SIGCHLD. And it gives no descriptor of the process: one that is
//! opened by number afterwards may be another's in such a host, where [`fork_for_exec`] gives it with the child.
#![allow(unsafe_code)]

use std::{
    ffi::CString,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::error::{Error, ErrorKind};

use super::{
    command::{self, Command},
    fork::{default_signals, fork, fork_for_exec},
    guardian::Notice,
    sys,
};

/// A child that runs its program, with our ends of its pipes.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: libc::pid_t,
    pub(super) pidfd: OwnedFd,
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// It has told the guardian of its group.
    pub(super) announced: bool,
}

/// Where the child was when it failed.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Stage {
    Prepare = 1,
    Directory = 2,
    Exec = 3,
}

/// Starts the program. Blocks until it runs or has failed to.
///
/// The child dies with the calling *thread*: call it from one that lives as long as the child may. All signals
/// should be blocked on it, so that no handler of the host's runs in the child before these are gone.
///
/// With `notice` the child announces its group to the guardian before it runs anything of the server's.
pub(super) fn spawn(command: &Command, notice: Option<&Notice<'_>>) -> Result<Child, Error> {
    spawn_by(run_in_our_memory, command, notice)
}

/// How the child is made.
type Way = fn(&mut Plan<'_>) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)>;

fn spawn_by(way: Way, command: &Command, notice: Option<&Notice<'_>>) -> Result<Child, Error> {
    let (stdin_theirs, stdin) = sys::pipe().map_err(local)?;
    let (stdout, stdout_theirs) = sys::pipe().map_err(local)?;
    let (stderr, stderr_theirs) = sys::pipe().map_err(local)?;
    for ours in [&stdin, &stdout, &stderr] {
        // Only our ends: the two ends of a pipe have each their own flags.
        sys::set_nonblocking(ours.as_fd()).map_err(local)?;
    }
    let args = pointers(&command.args);
    let env = pointers(&command.env);
    // A script without a first line is for the shell, as execvp has it.
    let sh = c"/bin/sh";
    let mut sh_args = vec![sh.as_ptr(), command.program.as_ptr()];
    sh_args.extend_from_slice(&args[1..]);
    let mut plan = Plan {
        program: command.program.as_ptr(),
        args: args.as_ptr(),
        sh: sh.as_ptr(),
        sh_args: sh_args.as_ptr(),
        env: env.as_ptr(),
        cwd: command.cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
        stdio: [&stdin_theirs, &stdout_theirs, &stderr_theirs].map(AsRawFd::as_raw_fd),
        failure: AtomicU64::new(0),
        announced: AtomicBool::new(false),
        report: None,
        parent: std::process::id(),
        notice,
    };
    let (pid, pidfd) = way(&mut plan).map_err(local)?;
    drop((stdin_theirs, stdout_theirs, stderr_theirs));
    let pidfd = match pidfd {
        Ok(pidfd) => pidfd,
        Err(error) => return Err(without_pidfd(pid, &error)),
    };
    let failure = plan.failure.into_inner();
    if failure == 0 {
        return Ok(Child {
            pid,
            pidfd,
            stdin,
            stdout,
            stderr,
            announced: plan.announced.into_inner(),
        });
    }
    // It has ended or is about to; waiting for it keeps no zombie.
    sys::poll_readable(&[pidfd.as_fd()], None);
    let _ = sys::reap(pidfd.as_fd());
    let (stage, errno) = ((failure >> 32) as u8, failure as u32 as i32);
    let error = io::Error::from_raw_os_error(errno);
    Err(if stage == Stage::Exec as u8 {
        command::exec_error(&command.program, &error)
    } else if stage == Stage::Directory as u8 {
        let message = format!("the working directory cannot be entered: {error}");
        Error::new(ErrorKind::Config, message)
    } else {
        Error::local("the child process cannot be prepared", &error)
    })
}

/// The child says what it has to say in the plan itself.
fn run_in_our_memory(plan: &mut Plan<'_>) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)> {
    // SAFETY: every pointer of the plan is into memory that outlives the child's use of it, and the child calls nothing
    // but what may be called between fork and exec.
    match unsafe { fork_for_exec(become_server, &*plan) } {
        // A kernel or a sandbox that does not have it; or there can be no process now, and it fails again.
        Err(_) => run_in_a_copy(plan),
        made => made,
    }
}

/// The child says what went wrong over a pipe; whether it has announced itself is not known.
fn run_in_a_copy(plan: &mut Plan<'_>) -> io::Result<(libc::pid_t, io::Result<OwnedFd>)> {
    let (report, theirs) = sys::pipe()?;
    plan.report = Some(theirs.as_raw_fd());
    // SAFETY: as above, of its copy.
    let made = unsafe { fork(become_server, &*plan) }?;
    drop(theirs);
    let mut failure = [0; 8];
    // It ends at exec, when the child's end of this pipe is closed, or with the child.
    if std::fs::File::from(report).read_exact(&mut failure).is_ok() {
        plan.failure = AtomicU64::new(u64::from_ne_bytes(failure));
    }
    Ok(made)
}

fn local(error: io::Error) -> Error {
    Error::local("no process can be started now", &error)
}

/// A kernel that has neither `clone3` nor `pidfd_open`, or forbids both.
fn without_pidfd(pid: libc::pid_t, error: &io::Error) -> Error {
    // SAFETY: it is our child, and nobody else waits for it but a host that waits for all.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, ptr::null_mut(), 0);
    }
    let message =
        format!("no descriptor of a process can be had (Linux 5.4 or later is needed): {error}");
    Error::new(ErrorKind::Config, message)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([ptr::null()])
        .collect()
}

/// What the child needs, as it needs it: after a fork of a process with threads nothing may be allocated.
struct Plan<'a> {
    program: *const libc::c_char,
    args: *const *const libc::c_char,
    sh: *const libc::c_char,
    sh_args: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdio: [RawFd; 3],
    /// Written by the child: its [`Stage`] and, in the lower half, the number of the error.
    failure: AtomicU64,
    /// Written by the child.
    announced: AtomicBool,
    /// Where the child says its failure again, if it has a copy of all this.
    report: Option<RawFd>,
    parent: u32,
    notice: Option<&'a Notice<'a>>,
}

/// The child's part: async-signal-safe calls only, up to exec.
///
/// # Safety
/// Only in a process that was forked just now, with a plan whose pointers are good, and end with null where they are lists.
unsafe fn become_server(plan: &Plan<'_>) -> ! {
    // SAFETY: all of these may be called after a fork; what they are given is on this stack or in the plan.
    unsafe {
        default_signals();
        libc::setsid();
        // A second line only: it reaches this process alone. KILL, for it comes when nobody is left to insist.
        libc::prctl(
            libc::PR_SET_PDEATHSIG,
            libc::SIGKILL as libc::c_ulong,
            0,
            0,
            0,
        );
        if libc::getppid() as u32 != plan.parent {
            // The parent ended before it could be waited for in this way.
            libc::_exit(127);
        }
        if let Some(notice) = plan.notice {
            // Before there can be anyone else in the group. Where it fails, the parent tells it.
            plan.announced
                .store(notice.send_for_myself(), Ordering::Relaxed);
        }
        for (wanted, fd) in (0..).zip(plan.stdio) {
            // None of them is 0, 1 or 2 now, so that none is lost here; the copies stay open at exec.
            if libc::dup2(fd, wanted) < 0 {
                fail(plan, Stage::Prepare);
            }
        }
        if !plan.cwd.is_null() && libc::chdir(plan.cwd) != 0 {
            fail(plan, Stage::Directory);
        }
        close_others_at_exec();
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        // Last, for every handler is gone by now.
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
        libc::execve(plan.program, plan.args, plan.env);
        if *libc::__errno_location() == libc::ENOEXEC {
            libc::execve(plan.sh, plan.sh_args, plan.env);
            *libc::__errno_location() = libc::ENOEXEC;
        }
        fail(plan, Stage::Exec)
    }
}

/// What the host did not mark itself is marked to be closed at exec: its sockets and files are not the server's.
///
/// # Safety
/// Only in the child.
unsafe fn close_others_at_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;
    // SAFETY: the calls touch descriptors only.
    unsafe {
        if libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            CLOSE_RANGE_CLOEXEC,
        ) == 0
        {
            return;
        }
        // Linux before 5.11.
        let mut limit = std::mem::MaybeUninit::<libc::rlimit>::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        let limit = limit.assume_init().rlim_cur.min(65_536) as RawFd;
        for fd in 3..limit {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Tells the parent what went wrong, and ends.
///
/// # Safety
/// Only in the child.
unsafe fn fail(plan: &Plan<'_>, stage: Stage) -> ! {
    // SAFETY: the report is on this stack; a pipe takes eight bytes at once.
    unsafe {
        let errno = *libc::__errno_location() as u32;
        let failure = (stage as u64) << 32 | u64::from(errno);
        plan.failure.store(failure, Ordering::Relaxed);
        if let Some(to) = plan.report {
            let report = failure.to_ne_bytes();
            libc::write(to, report.as_ptr().cast(), report.len());
        }
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &std::ffi::CStr, cwd: Option<&std::ffi::CStr>) -> Command {
        Command {
            program: program.into(),
            args: vec![program.into()],
            env: Vec::new(),
            cwd: cwd.map(Into::into),
        }
    }

    #[test]
    fn in_our_memory_or_a_copy_the_child_runs_or_says_what_went_wrong() {
        for way in [run_in_our_memory as Way, run_in_a_copy] {
            let child = spawn_by(way, &command(c"/bin/cat", Some(c"/")), None).unwrap();
            drop(child.stdin);
            sys::poll_readable(&[child.pidfd.as_fd()], None);
            let exit = sys::reap(child.pidfd.as_fd()).unwrap();
            assert_eq!(exit, Some(sys::Exit::Code(0)));

            let error = spawn_by(way, &command(c"/nonexistent", None), None).unwrap_err();
            assert!(error.message.contains("/nonexistent"), "{error}");
            let error = spawn_by(way, &command(c"/bin/cat", Some(c"/nowhere")), None).unwrap_err();
            assert!(error.message.contains("directory"), "{error}");
            assert_eq!(error.kind, ErrorKind::Config);
        }
    }
}
