//! Names of tools that a model's interface takes: letters, digits, `_` and `-`, at most 64 of them, each once.

use std::collections::HashSet;

/// What the interfaces of models allow.
const LONGEST: usize = 64;

/// The names for these tools, each given as server and tool, in their order.
pub(super) fn unique<'a>(tools: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut taken = HashSet::new();
    tools
        .map(|(server, tool)| {
            let base = format!("{}__{}", plain(server), plain(tool));
            let name = (1..)
                .map(|n| numbered(&base, n))
                .find(|name| !taken.contains(name))
                .expect("the numbers do not end");
            taken.insert(name.clone());
            name
        })
        .collect()
}

fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
                c
            } else {
                '_'
            }
        })
        .collect()
}

fn numbered(base: &str, n: usize) -> String {
    let suffix = if n == 1 {
        String::new()
    } else {
        format!("_{n}")
    };
    // All ASCII by now, so that every byte is a character.
    let kept = base.len().min(LONGEST - suffix.len());
    format!("{}{suffix}", &base[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tools: &[(&str, &str)]) -> Vec<String> {
        unique(tools.iter().copied())
    }

    #[test]
    fn a_name_says_server_and_tool() {
        assert_eq!(names(&[("files", "read-file")]), ["files__read-file"]);
    }

    #[test]
    fn what_a_model_does_not_take_is_replaced_and_stays_unique() {
        assert_eq!(
            names(&[("a.b", "é/x"), ("a b", "ü/x")]),
            ["a_b____x", "a_b____x_2"]
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_unique() {
        let long = "t".repeat(100);
        let names = names(&[("s", &long), ("s", &format!("{long}2"))]);
        assert!(names.iter().all(|name| name.len() == 64), "{names:?}");
        assert_ne!(names[0], names[1]);
    }
}
