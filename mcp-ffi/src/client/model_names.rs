//! Names of tools that a model's interface takes: letters, digits, `_` and `-`, at most 64 of them.
//!
//! A name depends on its server and tool alone: whatever other servers come, go or are parked, a model that kept a name
//! never calls another tool with it.

/// What the interfaces of models allow.
const LONGEST: usize = 64;

/// Between the names of server and tool.
const BETWEEN: &str = "__";

/// The name of a server's tool.
pub(super) fn of(server: &str, tool: &str) -> String {
    let plain = format!("{server}{BETWEEN}{tool}");
    if is_unmistakable(server, tool) && plain.len() <= LONGEST {
        return plain;
    }
    let mark = format!("_{:016x}", fingerprint(server, tool));
    let mut name: String = plain.chars().map(allowed).collect();
    // All ASCII by now, so that every byte is a character.
    name.truncate(LONGEST - mark.len());
    name + &mark
}

/// Whether the two can be told from the plain name, and the plain name from one with a mark.
fn is_unmistakable(server: &str, tool: &str) -> bool {
    let unchanged = |name: &str| name.chars().all(|c| allowed(c) == c);
    unchanged(server)
        && unchanged(tool)
        && !server.contains(BETWEEN)
        && !server.ends_with('_')
        && !has_mark(tool)
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '-' || c == '_' {
        c
    } else {
        '_'
    }
}

fn has_mark(tool: &str) -> bool {
    tool.rsplit_once('_')
        .is_some_and(|(_, end)| end.len() == 16 && end.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// FNV-1a over both names, which no name can run into the other of. It is the same in every run and release: models'
/// conversations outlive both.
fn fingerprint(server: &str, tool: &str) -> u64 {
    let bytes = server.bytes().chain([0]).chain(tool.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_server_and_tool() {
        assert_eq!(of("files", "read-file"), "files__read-file");
    }

    #[test]
    fn what_a_model_does_not_take_is_replaced_and_stays_apart() {
        let names = [
            ("a.b", "x"),
            ("a b", "x"),
            ("a_b", "x"),
            ("a.b", "é"),
            ("a.b", "ü"),
        ];
        let mut names = names.map(|(server, tool)| of(server, tool));
        assert!(
            names
                .iter()
                .all(|name| name.chars().all(|c| allowed(c) == c))
        );
        assert_eq!(names[2], "a_b__x");
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = "t".repeat(100);
        let (one, other) = (of("s", &long), of("s", &format!("{long}2")));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
    }

    #[test]
    fn no_two_pairs_of_plain_names_make_one() {
        assert_ne!(of("a__b", "c"), of("a", "b__c"));
        assert_ne!(of("a_", "b"), of("a", "_b"));
    }

    #[test]
    fn no_tool_can_call_itself_by_the_name_of_another() {
        let marked = of("a b", "x");
        let (_, pretender) = marked.split_once(BETWEEN).unwrap();
        assert_ne!(of("a_b", pretender), marked);
    }

    #[test]
    fn a_name_is_the_same_for_ever() {
        assert_eq!(of("a.b", "x"), "a_b__x_06f23cb513981f74");
    }
}
