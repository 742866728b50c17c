//! Host names to addresses: by the system's resolver, which cannot be interrupted, and so on threads that nobody
//! waits for.

use std::{
    error::Error as StdError,
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    thread, vec,
};

use hyper_util::client::legacy::connect::dns::Name;
use tokio::sync::{Semaphore, oneshot};
use tower_service::Service;

use super::address::AddressPolicy;

type BoxError = Box<dyn StdError + Send + Sync>;

/// How many names are looked up at a time; further ones wait in order.
const LOOKUPS: usize = 16;

type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves names, and checks what they are resolved to. A caller who gives up, and a runtime that ends, leave a
/// look-up behind that ends by itself and tells nobody.
#[derive(Clone)]
pub(super) struct Resolver {
    policy: AddressPolicy,
    lookups: Arc<Semaphore>,
    look_up: Arc<LookUp>,
}

impl Resolver {
    pub(super) fn new(policy: AddressPolicy) -> Self {
        Self::by(policy, |name| Ok((name, 0).to_socket_addrs()?.collect()))
    }

    /// One that looks names up by this. A port it gives counts where the URL has none.
    pub(super) fn by(
        policy: AddressPolicy,
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            policy,
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
            look_up: Arc::new(look_up),
        }
    }

    pub(super) fn policy(&self) -> AddressPolicy {
        self.policy
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self {
            policy,
            lookups,
            look_up,
        } = self.clone();
        Box::pin(async move {
            let leave = lookups.acquire_owned().await?;
            let (tell, told) = oneshot::channel();
            let work = move || {
                let _leave = leave;
                if !tell.is_closed() {
                    let _ = tell.send(look_up(name.as_str()));
                }
            };
            // From a thread of the runtime, whose signal mask the new one takes over: the host's own would let its
            // handlers run here.
            let spawned = tokio::task::spawn_blocking(move || {
                let thread = thread::Builder::new().name("mcp-resolve".into());
                thread.spawn(work).map(drop)
            });
            spawned.await?.map_err(Unresolved)?;
            let mut found = told.await?.map_err(Unresolved)?;
            let mut denied = None;
            found.retain(|address| match policy.check(address.ip()) {
                Ok(()) => true,
                Err(why) => {
                    denied = Some(why);
                    false
                }
            });
            match denied {
                Some(why) if found.is_empty() => Err(why.into()),
                _ => Ok(found.into_iter()),
            }
        })
    }
}

/// The name has no address.
#[derive(Debug)]
pub(super) struct Unresolved(pub(super) io::Error);

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Unresolved {}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Instant};

    use super::*;
    use crate::http::address::AddressClass;

    fn name() -> Name {
        "h.invalid".parse().expect("a name")
    }

    #[tokio::test]
    async fn every_address_of_a_name_is_checked_and_only_the_allowed_are_given() {
        let look_up = |_: &str| {
            Ok(vec![
                ([10, 0, 0, 1], 0).into(),
                ([8, 8, 8, 8], 0).into(),
                ([127, 0, 0, 1], 0).into(),
            ])
        };
        let mut found = Resolver::by(AddressPolicy::public_only(), look_up)
            .call(name())
            .await
            .expect("one is left");
        assert_eq!(found.next(), Some(([8, 8, 8, 8], 0).into()));
        assert_eq!(found.next(), None);
        let policy = AddressPolicy::any().deny(AddressClass::Loopback);
        let error = Resolver::by(policy, |_| Ok(vec![([127, 0, 0, 1], 0).into()]))
            .call(name())
            .await
            .expect_err("none is left");
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
    }

    /// Locked as long as a look-up is to hang.
    static HANGS: Mutex<()> = Mutex::new(());

    #[test]
    fn a_look_up_that_hangs_holds_up_neither_its_caller_nor_the_runtime() {
        let hangs = HANGS.lock().expect("whole");
        let look_up = |_: &str| {
            drop(HANGS.lock());
            Ok(Vec::new())
        };
        let begun = Instant::now();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let mut resolver = Resolver::by(AddressPolicy::any(), look_up);
            let limit = std::time::Duration::from_secs(2);
            let given_up = tokio::time::timeout(limit, resolver.call(name())).await;
            assert!(given_up.is_err());
        });
        drop(runtime);
        assert!(begun.elapsed() < std::time::Duration::from_secs(30));
        drop(hangs);
    }
}
