//! Lists of a server, paged to the end.

use bytes::{BufMut, Bytes, BytesMut};
use mcp_transport::session::Pages;
use serde::Deserialize;
use tracing::warn;

use super::{
    Client,
    call::{Call, Ticket},
    deadline,
    error::{Error, Kind},
    event::Answer,
    options::CallOptions,
    prepared::{PreparedCall, Work},
    scope::Scope,
};

/// The lists that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    ResourceTemplates,
    /// `prompts/list`.
    Prompts,
}

impl ListKind {
    fn method(self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Resources => "resources/list",
            Self::ResourceTemplates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }

    /// Where the items are in a page.
    fn field(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::ResourceTemplates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}

/// What names an item, of whatever list, and what it is for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
    #[serde(default)]
    uri_template: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

impl Item {
    /// By what the item is asked for.
    fn key(&self, kind: ListKind) -> Option<&str> {
        match kind {
            ListKind::Tools | ListKind::Prompts => self.name.as_deref(),
            ListKind::Resources => self.uri.as_deref(),
            ListKind::ResourceTemplates => self.uri_template.as_deref(),
        }
    }

    /// One line for a person.
    fn line(&self, key: &str) -> String {
        let what = self.description.as_ref().or(self.name.as_ref());
        let what = what.and_then(|text| text.lines().next());
        format!("{key}: {}", what.unwrap_or_default())
    }
}

impl Client {
    /// Prepares to ask a server for one of its lists, page by page to its end. The answer's JSON is an array of the
    /// items as they came, its text one line an item; an item without what names it is left out, and takes no other
    /// along. A server that does not know the method has none: the array is empty.
    ///
    /// # Errors
    /// As for [`Client::prepare_tool_call`].
    pub fn prepare_list(
        &self,
        scope: &Scope,
        server: &str,
        kind: ListKind,
        options: CallOptions,
    ) -> Result<PreparedCall, Error> {
        self.shared.check_open()?;
        let call = Call {
            server: self.shared.open_servers()?.get(&scope.domain, server)?,
            scope: scope.name.clone(),
            method: kind.method().into(),
            params: None,
            deadline: deadline::of(&options),
            options,
        };
        PreparedCall::admit(&self.shared, call, |call| Work::List(call, kind))
    }

    /// Asks a server for one of its lists; see [`Client::prepare_list`].
    ///
    /// # Errors
    /// As there.
    pub fn list(
        &self,
        scope: &Scope,
        server: &str,
        kind: ListKind,
        options: CallOptions,
    ) -> Result<u64, Error> {
        Ok(self.prepare_list(scope, server, kind, options)?.start())
    }
}

/// The error of a server that does not know a method.
fn is_unknown_method(error: &Error) -> bool {
    #[derive(Deserialize)]
    struct Rpc {
        code: i64,
    }
    error.kind == Kind::Server
        && error.rpc.as_ref().is_some_and(|rpc| {
            serde_json::from_slice::<Rpc>(rpc).is_ok_and(|rpc| rpc.code == -32601)
        })
}

/// Asks for page after page, each as a call of its own would be.
pub(super) async fn all_pages(
    mut call: Call,
    kind: ListKind,
    ticket: &mut Ticket,
) -> Result<Answer, Error> {
    let mut pages = Pages::new(kind.method(), kind.field());
    let mut replaced = false;
    loop {
        let page = match call.answer(ticket).await {
            Ok(page) => page,
            Err(error) if is_unknown_method(&error) => {
                return Ok(Answer::with_text(Bytes::from_static(b"[]"), String::new()));
            }
            Err(error) => return Err(error),
        };
        replaced |= page.replaced;
        call.params = pages
            .take(&page.json)
            .map_err(|error| Error::of_server(&call.server.name, &error))?;
        if call.params.is_none() {
            let (json, text) = joined(&call.server.name, kind, &pages.into_items());
            let mut answer = Answer::with_text(json, text);
            answer.generation = page.generation;
            answer.replaced = replaced;
            return Ok(answer);
        }
    }
}

/// The items that are well-formed, as an array and as lines.
fn joined(server: &str, kind: ListKind, items: &[Bytes]) -> (Bytes, String) {
    let mut json = BytesMut::with_capacity(items.iter().map(|item| item.len() + 1).sum());
    let mut lines = Vec::with_capacity(items.len());
    for raw in items {
        let item = serde_json::from_slice::<Item>(raw).ok();
        let Some((item, key)) = item.as_ref().and_then(|item| Some((item, item.key(kind)?))) else {
            let method = kind.method();
            warn!(server, method, "an item without its name was left out");
            continue;
        };
        lines.push(item.line(key));
        json.put_u8(if json.is_empty() { b'[' } else { b',' });
        json.put_slice(raw);
    }
    if json.is_empty() {
        json.put_u8(b'[');
    }
    json.put_u8(b']');
    (json.freeze(), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(kind: ListKind, items: &[&'static str]) -> (Bytes, String) {
        let items: Vec<_> = items
            .iter()
            .map(|item| Bytes::from_static(item.as_bytes()))
            .collect();
        super::joined("server", kind, &items)
    }

    #[test]
    fn a_malformed_item_is_left_out_alone_and_the_rest_is_as_it_came() {
        let items = [
            r#"{"uri" : "a:1","name":"one","x":[1]}"#,
            r#"{"name":"no uri"}"#,
            "7",
            r#"{"uri":"a:2","name":"two","description":"more\nthan this"}"#,
        ];
        let (json, text) = joined(ListKind::Resources, &items);
        assert_eq!(json, format!("[{},{}]", items[0], items[3]));
        assert_eq!(text, "a:1: one\na:2: more");
    }

    #[test]
    fn an_empty_list_is_one() {
        assert_eq!(joined(ListKind::Prompts, &[]).0, "[]");
        assert_eq!(joined(ListKind::Prompts, &["{}"]).0, "[]");
    }
}
