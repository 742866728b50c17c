//! A transport in memory, behind which the test plays the server.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_transport::{
    error::Error,
    jsonrpc::RequestId,
    revision::Revision,
    transport::{BoxFuture, Incoming, Outgoing, Receiver, Transport},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A transport that does nothing by itself: the test plays the server.
#[derive(Default)]
pub struct Fake {
    pub receiver: Mutex<Option<Arc<dyn Receiver>>>,
    pub sent: Mutex<Option<mpsc::UnboundedSender<Value>>>,
    /// Whether what is sent stays unwritten.
    pub holds_back: Mutex<bool>,
    /// What stayed so.
    pub waiting: Mutex<Vec<Outgoing>>,
    /// A request that turns out to be on the wire when the transport is told to close.
    pub slips_out: Mutex<Option<RequestId>>,
    pub abandoned: Mutex<Vec<RequestId>>,
    pub closed: Mutex<Option<Duration>>,
    pub negotiated: Mutex<Option<Revision>>,
    pub resumed: AtomicUsize,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fake")
    }
}

impl Fake {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Value>) {
        let (sender, sent) = mpsc::unbounded_channel();
        let fake = Self {
            sent: Mutex::new(Some(sender)),
            ..Self::default()
        };
        (Arc::new(fake), sent)
    }

    pub fn deliver(&self, incoming: Incoming) {
        let receiver = self.receiver.lock().unwrap().clone().unwrap();
        receiver.receive(incoming);
    }

    /// Whether the session wants to be told more for now.
    pub fn is_read(&self) -> bool {
        let receiver = self.receiver.lock().unwrap().clone();
        receiver.unwrap().wants_more()
    }

    pub fn says(&self, message: Value) {
        self.deliver(Incoming::Message(message.to_string().into()));
    }

    pub fn answers(&self, request: &Value, result: Value) {
        self.says(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }
}

impl Transport for Fake {
    fn start(&self, receiver: Arc<dyn Receiver>) -> BoxFuture<'_, Result<(), Error>> {
        *self.receiver.lock().unwrap() = Some(receiver);
        Box::pin(async { Ok(()) })
    }
    fn send(&self, message: Outgoing) {
        let holds_back = *self.holds_back.lock().unwrap();
        if let (Some(id), false) = (message.request, holds_back) {
            self.deliver(Incoming::Written(id));
        }
        let value = serde_json::from_slice(&message.bytes).unwrap();
        if let Some(sent) = &*self.sent.lock().unwrap() {
            let _ = sent.send(value);
        }
        if holds_back {
            self.waiting.lock().unwrap().push(message);
        }
    }
    fn negotiated(&self, revision: Revision) {
        *self.negotiated.lock().unwrap() = Some(revision);
    }
    fn abandon(&self, request: RequestId) {
        self.abandoned.lock().unwrap().push(request);
    }
    fn close(&self, limit: Duration) -> BoxFuture<'_, ()> {
        *self.closed.lock().unwrap() = Some(limit);
        if let Some(id) = self.slips_out.lock().unwrap().take() {
            self.deliver(Incoming::Written(id));
        }
        Box::pin(async {})
    }
    fn resume(&self) {
        self.resumed.fetch_add(1, Ordering::SeqCst);
    }
    fn diagnosis(&self) -> Option<String> {
        Some("it hums".into())
    }
}
