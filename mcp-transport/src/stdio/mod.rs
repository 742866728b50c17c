//! Servers that are child processes, spoken to over their stdin and stdout.
//!
//! Linux only; elsewhere [`StdioTransport`] answers that it is not supported.

#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod ending;
#[cfg(target_os = "linux")]
mod fork;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(target_os = "linux")]
mod inherited;
#[cfg(target_os = "linux")]
mod outbox;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod sigpipe;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod spawner;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod tail;
#[cfg(target_os = "linux")]
mod transport;

#[cfg(target_os = "linux")]
pub(crate) use self::sigpipe::about_to_write;
#[cfg(target_os = "linux")]
pub use self::{
    sigpipe::SigpipeOff, spawner::Spawner, sys::with_signals_blocked, transport::StdioTransport,
};

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::unsupported::about_to_write;
#[cfg(not(target_os = "linux"))]
pub use self::unsupported::{SigpipeOff, Spawner, StdioTransport, with_signals_blocked};
