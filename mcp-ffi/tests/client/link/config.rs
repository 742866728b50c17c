use mcp_transport::host::Framing;
use mcpconn::{CallOptions, Client, ClientOptions, Event, EventKind, Kind, Scope};
use serde_json::{Value, json};

use super::{answered, asked_for, asked_to_call, call, call_with, client, hosted, next, serve};

#[test]
fn a_call_goes_and_comes_over_a_link_in_lines_or_in_messages() {
    for (framing, ends) in [("line", true), ("message", false)] {
        let client = client(json!({"framing": framing}));
        let id = call(&client, "there and back\n");
        let (link, bytes) = asked_to_call(&client);
        assert_eq!(bytes.ends_with(b"\n"), ends, "{framing}");
        assert_eq!(link.framing() == Framing::Bytes, ends);
        link.sent(bytes.len() as u64).unwrap();
        let end = if ends { "\n" } else { "" };
        let answer = super::answer(&bytes).unwrap() + end;
        link.received(answer.as_bytes()).unwrap();
        assert_eq!(answered(&client, id), "there and back\n");
    }
}

#[test]
fn home_session_and_scopes_have_links_of_their_own_that_say_whose_they_are() {
    let client = Client::new(ClientOptions::default()).unwrap();
    client
        .configure("team", &hosted(&["server"], json!({"link": {"port": 7}})))
        .unwrap();
    let mut whose = Vec::new();
    for scope in ["", "chat-1", "chat-2"] {
        let scope = Scope::new("team", scope);
        let options = CallOptions::default();
        let id = client
            .call_tool(&scope, "server", "echo", r#"{"text": "x"}"#, options)
            .unwrap();
        let link = asked_for(&client);
        assert_eq!((link.domain(), link.server()), ("team", "server"));
        assert_eq!(link.data(), r#"{"port":7}"#);
        whose.push((link.scope().map(ToOwned::to_owned), link.generation()));
        link.opened().unwrap();
        assert_eq!(answered(&client, id), "x");
    }
    let chat = |name: &str, generation| (Some(name.to_owned()), generation);
    assert_eq!(whose, [(None, 1), chat("chat-1", 2), chat("chat-2", 3)]);
}

#[test]
fn what_the_host_attached_to_a_link_comes_back_with_each_of_its_events() {
    let client = client(json!({}));
    let id = call_with(
        &client,
        "",
        "x",
        CallOptions {
            token: 5,
            ..CallOptions::default()
        },
    );
    let link = asked_for(&client);
    link.set_token(99);
    link.opened().unwrap();
    let send = next(&client, |event| {
        matches!(event.kind, EventKind::LinkSend(..))
    });
    assert_eq!((send.token, send.id), (99, 0));
    serve(&send);
    assert_eq!(super::completion(&client, id).token, 5);
    client.close(None);
    let close = next(&client, |event| {
        matches!(event.kind, EventKind::LinkClose(_))
    });
    assert_eq!(close.token, 99);
}

#[test]
fn debug_shows_of_what_is_sent_only_how_long_it_is() {
    let client = client(json!({}));
    call(&client, "hidden");
    let to_send = |event: &Event| match &event.kind {
        EventKind::LinkSend(_, bytes) => bytes.windows(6).any(|text| text == b"hidden"),
        _ => false,
    };
    let link = asked_for(&client);
    link.opened().unwrap();
    let event = loop {
        let event = next(&client, |event| {
            matches!(event.kind, EventKind::LinkSend(..))
        });
        if to_send(&event) {
            break event;
        }
        serve(&event);
    };
    let shown = format!("{event:?}");
    assert!(
        shown.contains("LinkSend") && shown.contains(" bytes"),
        "{shown}"
    );
    assert!(
        !shown.contains("hidden") && !shown.contains("104, 105, 100"),
        "{shown}"
    );
}

#[test]
fn what_makes_the_link_replaces_the_server_and_what_does_not_leaves_it() {
    let client = client(json!({"framing": "line", "link": {"a": 1, "b": 2}}));
    let configure = |ours: Value| client.configure("", &hosted(&["server"], ours)).unwrap();
    let same = configure(json!({"link": {"b": 2, "a": 1}, "close_timeout_ms": 100}));
    assert_eq!(same.unchanged, ["server"]);
    let other = configure(json!({"link": {"a": 1, "b": 3}}));
    assert_eq!(other.changed, ["server"]);
    let other = configure(json!({"link": {"a": 1, "b": 3}, "framing": "message"}));
    assert_eq!(other.changed, ["server"]);
}

#[test]
fn an_entry_that_is_not_usable_is_named_with_its_member() {
    let client = Client::new(ClientOptions::default()).unwrap();
    for (entry, says) in [
        (
            json!({"type": "host", "mcpconn": {"framing": "frames"}}),
            "mcpconn.framing",
        ),
        (json!({"type": "host", "mcpconn": {"frames": 1}}), "frames"),
        (json!({"type": "host", "command": "x"}), "type"),
        (
            json!({"command": "x", "mcpconn": {"link": 1}}),
            "mcpconn.link",
        ),
    ] {
        let config = json!({"server": entry}).to_string();
        let report = client.configure("", &config).unwrap();
        assert!(report.invalid[0].message.contains(says), "{report:?}");
        let scope = Scope::default();
        let refused = client.call_tool(&scope, "server", "echo", "", CallOptions::default());
        assert_eq!(refused.unwrap_err().kind, Kind::Config);
    }
}
