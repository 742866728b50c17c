//! The events of one answer, as they come.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};

use super::{
    body::{BodyError, Payload},
    connections::READ,
    ear::Listening,
    http1::Arriving,
};
use crate::sse::{Decoder, Event};

/// One connection's part of a stream of events.
#[derive(Debug)]
pub(super) struct Events {
    payload: Payload,
    decoder: Decoder,
    /// Of a stream on which the server speaks on its own.
    listening: Option<Listening>,
}

impl Events {
    /// The events in the body that came under `headers`, each of at most `limit` bytes.
    pub(super) fn new(headers: &HeaderMap, body: Arriving, limit: usize) -> Self {
        Self {
            payload: Payload::new(headers, body),
            decoder: Decoder::new(limit),
            listening: None,
        }
    }

    /// The same, noted as heard for as long as it is read.
    pub(super) fn listening(mut self: Box<Self>, listening: Listening) -> Box<Self> {
        self.listening = Some(listening);
        self
    }

    /// The next event, or `None` at the end. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, BodyError> {
        loop {
            match self.decoder.next_event() {
                Ok(Some(mut event)) => {
                    // One that came in one piece is a slice of the connection's buffer, and would keep it.
                    if event.data.len() <= READ {
                        event.data = Bytes::copy_from_slice(&event.data);
                    }
                    return Ok(Some(event));
                }
                Ok(None) => {}
                Err(too_large) => {
                    return Err(BodyError::TooLarge {
                        limit: too_large.limit,
                    });
                }
            }
            match self.payload.next().await {
                Some(data) => {
                    self.decoder.feed(data?);
                    self.listening.iter().for_each(Listening::hear);
                }
                None => return Ok(None),
            }
        }
    }

    /// The beginning of what an event that is under way, or was too large, brings: at most `limit` bytes.
    pub(super) fn data_under_way(&self, limit: usize) -> Bytes {
        self.decoder.data_under_way(limit)
    }

    /// From where the stream can be read on, if its events had ids that can stand in a header.
    pub(super) fn last_event_id(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(self.decoder.last_event_id()?).ok()
    }

    /// The last `retry` that it named.
    pub(super) fn retry(&self) -> Option<Duration> {
        self.decoder.retry()
    }
}
