//! Lists that come in pages.

use std::{collections::HashSet, fmt};

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    error::{Error, ErrorKind, Outcome},
    jsonrpc,
};

use super::{RequestOptions, Session};

/// More pages than any real list has.
const MAX_PAGES: usize = 10_000;
/// How many pages in a row may be empty and still name a next one.
const MAX_EMPTY_PAGES: usize = 16;

/// Asks for all pages of a list (`tools/list` with the field `tools`, and so on) and gives its items as raw
/// JSON, in order.
///
/// A server whose pages never end is not followed for ever: at a cursor that was followed before, after 16
/// empty pages in a row and after 10,000 pages the list ends with what there is, and the log tells.
///
/// # Errors
/// Those of [`Session::request`]; `Protocol` when a page is not of the list's shape.
pub async fn list_all(
    session: &Session,
    method: &'static str,
    field: &'static str,
    deadline: Option<Instant>,
) -> Result<Vec<Bytes>, Error> {
    let mut pages = Pages::new(method, field);
    let mut params = None;
    loop {
        let options = RequestOptions {
            deadline,
            ..RequestOptions::default()
        };
        let result = session.request(method, params.take(), options).await?;
        params = pages.take(&result)?;
        if params.is_none() {
            return Ok(pages.into_items());
        }
    }
}

/// The pages of a list, in order: what to ask for next, and when it is enough. Pure; [`list_all`] asks.
pub struct Pages {
    method: &'static str,
    field: &'static str,
    items: Vec<Bytes>,
    followed: HashSet<String>,
    empty: usize,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages")
            .field("method", &self.method)
            .field("items", &self.items.len())
            .finish_non_exhaustive()
    }
}

impl Pages {
    /// Of the list that this method gives under this field.
    pub fn new(method: &'static str, field: &'static str) -> Self {
        Self {
            method,
            field,
            items: Vec::new(),
            followed: HashSet::new(),
            empty: 0,
        }
    }

    /// Takes the result with the next page, and gives the params to ask for the one after it, `None` at the end.
    ///
    /// # Errors
    /// `Protocol` when it is not of the list's shape.
    pub fn take(&mut self, result: &Bytes) -> Result<Option<Bytes>, Error> {
        let page = read_page(result, self.method, self.field)?;
        self.empty = if page.items.is_empty() {
            self.empty + 1
        } else {
            0
        };
        self.items.extend(page.items);
        let Some(cursor) = page.next_cursor else {
            return Ok(None);
        };
        let params = cursor_params(&cursor);
        let why = if !self.followed.insert(cursor) {
            "its cursors repeat"
        } else if self.empty >= MAX_EMPTY_PAGES {
            "its pages are empty"
        } else if self.followed.len() >= MAX_PAGES {
            "it has too many pages"
        } else {
            return Ok(Some(params));
        };
        warn!(
            method = self.method,
            items = self.items.len(),
            "the list does not end and was cut: {why}"
        );
        Ok(None)
    }

    /// The items of all pages that were taken.
    pub fn into_items(self) -> Vec<Bytes> {
        self.items
    }
}

struct Page {
    items: Vec<Bytes>,
    next_cursor: Option<String>,
}

fn read_page(result: &Bytes, method: &str, field: &str) -> Result<Page, Error> {
    let bad = |what: &str| {
        let message = format!("the server's answer to `{method}` is not a list: {what}");
        Error::new(ErrorKind::Protocol, message).with_outcome(Outcome::Answered)
    };
    let members = jsonrpc::members(result).map_err(|e| bad(&e.to_string()))?;
    let member = |name: &str| {
        members
            .iter()
            .rev()
            .find(|(key, _)| key == name)
            .map(|(_, v)| *v)
    };
    let list = member(field).ok_or_else(|| bad(&format!("`{field}` is missing")))?;
    let items: Vec<&RawValue> =
        serde_json::from_str(list.get()).map_err(|_| bad(&format!("`{field}` is not an array")))?;
    let next_cursor = match member("nextCursor") {
        None => None,
        Some(raw) => serde_json::from_str::<Option<String>>(raw.get())
            .map_err(|_| bad("`nextCursor` is not a string"))?,
    };
    Ok(Page {
        items: items
            .into_iter()
            .map(|item| jsonrpc::slice(result, item.get().as_bytes()))
            .collect(),
        // Some servers write an empty cursor for "no more".
        next_cursor: next_cursor.filter(|cursor| !cursor.is_empty()),
    })
}

fn cursor_params(cursor: &str) -> Bytes {
    let mut params = BytesMut::with_capacity(cursor.len() + 16);
    params.put_slice(b"{\"cursor\":");
    jsonrpc::put_string(&mut params, cursor);
    params.put_u8(b'}');
    params.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cut_into_raw_items() {
        let page = Bytes::from_static(br#"{"tools":[{"a" : 1},{"b":[2]}],"nextCursor":"n\"1"}"#);
        let page = read_page(&page, "tools/list", "tools").unwrap();
        assert_eq!(page.items, [&br#"{"a" : 1}"#[..], br#"{"b":[2]}"#]);
        assert_eq!(page.next_cursor.as_deref(), Some("n\"1"));
        assert_eq!(cursor_params("n\"1"), r#"{"cursor":"n\"1"}"#);
    }

    #[test]
    fn an_empty_and_a_null_cursor_end_the_list() {
        for cursor in ["\"\"", "null"] {
            let page = Bytes::from(format!("{{\"tools\":[],\"nextCursor\":{cursor}}}"));
            assert_eq!(
                read_page(&page, "tools/list", "tools").unwrap().next_cursor,
                None
            );
        }
    }

    #[test]
    fn what_is_no_page_is_named() {
        for (page, named) in [
            ("{}", "`tools` is missing"),
            ("[]", "not a list"),
            (r#"{"tools":{}}"#, "not an array"),
            (r#"{"tools":[],"nextCursor":1}"#, "nextCursor"),
        ] {
            let Err(error) = read_page(&Bytes::from(page), "tools/list", "tools") else {
                panic!("{page} was taken");
            };
            assert!(error.message.contains(named), "{}", error.message);
            assert_eq!(error.outcome, Outcome::Answered);
        }
    }
}
