//! The end of a client: every call completes, every session is closed, and nothing is left.

use std::{sync::Arc, thread, time::Duration};

use mcp_transport::stdio::with_signals_blocked;
use tokio::{runtime::Handle, task::JoinSet, time::timeout};

use super::{
    Client,
    event::{Event, EventKind},
    origin::Origin,
    shared::Shared,
};

/// What the closing of a client may take beyond its limit before the last event is there all the same.
const CLOSE_GRACE: Duration = Duration::from_millis(500);

impl Drop for Client {
    fn drop(&mut self) {
        let limit = self.shared.options.close_timeout;
        Shared::close(&self.shared, limit);
        // Nobody takes events any more, so that no host is to hear that a link is to be closed.
        self.shared.links.close_all();
        let limit = limit.saturating_add(CLOSE_GRACE);
        // Nobody else can be waiting: that would borrow the client. Whatever is left is cut with the runtime.
        let wait = || {
            let ended = async { timeout(limit, self.shared.queue.ended()).await };
            let _ = self.driver.wait(ended);
        };
        if Handle::try_current().is_ok() {
            // A thread that is inside of a runtime, as a task of the host's is, must not drive another.
            thread::scope(|scope| drop(with_signals_blocked(|| scope.spawn(wait))));
        } else {
            wait();
        }
        self.driver.stop();
        // With the tasks the last transports went; what they started is killed, and waited for here.
        self.shared.spawner.finish(CLOSE_GRACE);
    }
}

#[cfg(feature = "capi")]
impl Client {
    /// In a child that the host forked, where nothing else of the client can be used: closes the copies of what would
    /// keep a server from hearing that the host has closed it. It takes no lock.
    pub(crate) fn let_go_in_forked_child(&self) {
        self.shared.spawner.close_in_forked_child();
    }
}

impl Shared {
    pub(super) fn close(shared: &Arc<Self>, limit: Duration) {
        let servers = {
            // Under the lock, so that no configuration starts a server behind our back.
            let mut servers = shared.servers();
            if !shared.calls.close() {
                return;
            }
            servers.take_all()
        };
        shared.links.open_none();
        let closing = shared.pool.shutdown();
        let shared = shared.clone();
        shared.runtime.clone().spawn(async move {
            let mut ends = JoinSet::new();
            for server in servers {
                ends.spawn(async move { server.supervisor.shutdown(limit).await });
            }
            ends.spawn(closing);
            let all = async {
                while ends.join_next().await.is_some() {}
                shared.leaving.all_left().await;
                shared.calls.all_ended().await;
            };
            tokio::pin!(all);
            if timeout(limit, &mut all).await.is_err() {
                shared.cut.send_replace(true);
                // Cutting takes a moment; whatever is left then goes with the runtime.
                let _ = timeout(CLOSE_GRACE / 2, all).await;
            }
            // Those of sessions that were cut: the host hears of each before the end.
            shared.links.close_all();
            shared
                .queue
                .end(Event::of(EventKind::Closed, &Origin::default()));
        });
    }
}
