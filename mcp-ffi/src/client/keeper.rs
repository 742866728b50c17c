//! Keeps what is known of a server, and asked of it, for as long as one home session lives.

use std::{future::Future, sync::Arc, time::Duration};

use mcp_transport::{
    error,
    session::{Coalescer, Refresh, Session},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{
    catalogue::{self, Catalogue},
    error::Error,
    event::{Event, EventKind},
    list::ListKind,
    open::{Opener, Whose},
    queue::EventQueue,
    standing::Standing,
};

/// How long a server may take to tell its tools.
const CATALOGUE_TIMEOUT: Duration = Duration::from_secs(60);

/// What changes is looked at again so long after the last time at the earliest, and if it never rests, so long at the
/// latest.
const REFRESH_DISTANCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Says that a list is others than before. However often it is said meanwhile, the keeper hears it once.
#[derive(Debug, Clone, Default)]
pub(super) struct Reload(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    /// The host wants the tools, and does not wait its turn.
    wanted: Notify,
    tools: Notify,
    resources: Notify,
    prompts: Notify,
}

impl Reload {
    /// The host wants the tools anew.
    pub(super) fn ask(&self) {
        self.0.wanted.notify_one();
    }

    /// The server said this. `false` if it is not about a list.
    pub(super) fn hear(&self, notification: &str) -> bool {
        let changed = match notification {
            "notifications/tools/list_changed" => &self.0.tools,
            "notifications/resources/list_changed" => &self.0.resources,
            "notifications/prompts/list_changed" => &self.0.prompts,
            _ => return false,
        };
        changed.notify_one();
        true
    }
}

pub(super) struct Keeper {
    pub(super) opener: Arc<Opener>,
    pub(super) whose: Whose,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) standing: Arc<Standing>,
    pub(super) queue: Arc<EventQueue>,
}

impl Keeper {
    pub(super) async fn keep(self, session: Session, reload: Reload) {
        let ended = session.ended();
        let signals = &*reload.0;
        let tools = async {
            self.load(&session).await;
            tokio::join!(coalesced(&signals.tools, || self.load(&session)), async {
                loop {
                    signals.wanted.notified().await;
                    self.load(&session).await;
                }
            })
        };
        // The host lists these itself when it needs them.
        let resources = coalesced(&signals.resources, || async {
            self.tell(ListKind::Resources);
        });
        let prompts = coalesced(&signals.prompts, || async {
            self.tell(ListKind::Prompts);
        });
        let renewed = |uri: &str| {
            let params = serde_json::json!({ "uri": uri }).to_string();
            self.push(EventKind::ResourceUpdated(params.into()));
        };
        let server = &self.whose.origin.server;
        let standing = self
            .standing
            .renew(server, &session, self.whose.generation, renewed);
        tokio::select! {
            () = standing => {}
            _ = tools => {}
            () = resources => {}
            () = prompts => {}
            // Whoever waits for this session's tools must hear that they do not come.
            error = ended => self.failed(&error),
        }
    }

    async fn load(&self, session: &Session) {
        let credentials = self.opener.credentials();
        let shown = credentials.shown();
        let deadline = Instant::now() + CATALOGUE_TIMEOUT;
        match catalogue::load(&self.whose.origin.server, session, deadline).await {
            Ok(tools) => {
                self.catalogue.told(self.whose.generation, tools);
                self.tell(ListKind::Tools);
            }
            Err(error) => {
                credentials.refused(&error, shown);
                self.failed(&error);
            }
        }
    }

    fn tell(&self, list: ListKind) {
        self.push(EventKind::CatalogueChanged(list));
    }

    fn push(&self, kind: EventKind) {
        self.queue
            .push(self.whose.lane, Event::of(kind, &self.whose.origin));
    }

    fn failed(&self, error: &error::Error) {
        let error = Error::of_server(&self.whose.origin.server, error);
        self.catalogue.failed(self.whose.generation, error);
    }
}

/// Does something whenever it is said that something changed, seldom enough, and after the last time too.
async fn coalesced<F: Future<Output = ()>>(changed: &Notify, refresh: impl Fn() -> F) {
    let mut coalescer = Coalescer::new(REFRESH_DISTANCE.0, REFRESH_DISTANCE.1);
    let mut next = Refresh::Nothing;
    loop {
        next = match next {
            Refresh::Now => {
                refresh().await;
                coalescer.finished(Instant::now())
            }
            Refresh::At(at) => {
                tokio::select! {
                    () = sleep_until(at) => coalescer.due(Instant::now()),
                    () = changed.notified() => coalescer.changed(Instant::now()),
                }
            }
            Refresh::Nothing => {
                changed.notified().await;
                coalescer.changed(Instant::now())
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, pin::pin};

    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_that_come_while_one_is_looked_at_are_looked_at_once_more_a_second_later() {
        let (changed, looked) = (Notify::new(), Cell::new(0));
        let mut keeping = pin!(coalesced(&changed, || async {
            looked.set(looked.get() + 1);
            if looked.get() == 1 {
                for _ in 0..200 {
                    changed.notify_one();
                }
            }
        }));
        changed.notify_one();
        let within = Duration::from_millis;
        assert!(timeout(within(999), keeping.as_mut()).await.is_err());
        assert_eq!(looked.get(), 1);
        assert!(timeout(within(2), keeping.as_mut()).await.is_err());
        assert_eq!(looked.get(), 2);
        advance(Duration::from_secs(3600)).await;
        assert!(timeout(within(1), keeping.as_mut()).await.is_err());
        assert_eq!(looked.get(), 2);
    }
}
