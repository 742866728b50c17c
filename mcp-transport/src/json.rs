//! Finds where a JSON value ends, and sees that it is JSON, without making anything of it.
//!
//! So a result of 16 MiB is gone through once, its strings many bytes at a time. What is taken is JSON text in UTF-8 by
//! RFC 8259, nested as deep as it may be: nothing here calls itself.

/// It is no JSON, which shows at this byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotJson(pub(crate) usize);

/// Goes through the members of the object that `json` is: the names as they stand between their quotes, and the values.
pub(crate) fn object<'a>(
    json: &'a [u8],
    mut each: impl FnMut(&'a [u8], &'a [u8]),
) -> Result<(), NotJson> {
    list(json, b'{', b'}', |at| {
        let value_at = name(json, at)?;
        let end = value(json, value_at)?;
        // The colon and what is blank stand between the name's end and the value.
        let name = json[at..value_at].trim_ascii_end();
        let name = name[..name.len() - 1].trim_ascii_end();
        each(&name[1..name.len() - 1], &json[value_at..end]);
        Ok(end)
    })
}

/// Goes through the elements of the array that `json` is.
pub(crate) fn array<'a>(json: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Result<(), NotJson> {
    list(json, b'[', b']', |at| {
        let end = value(json, at)?;
        each(&json[at..end]);
        Ok(end)
    })
}

/// `part` is given where one begins, and gives where it ends.
fn list(
    json: &[u8],
    opening: u8,
    closing: u8,
    mut part: impl FnMut(usize) -> Result<usize, NotJson>,
) -> Result<(), NotJson> {
    let mut at = blank(json, expect(json, blank(json, 0), opening)?);
    if json.get(at) != Some(&closing) {
        loop {
            at = blank(json, part(at)?);
            if json.get(at) != Some(&b',') {
                break;
            }
            at = blank(json, at + 1);
        }
    }
    let end = blank(json, expect(json, at, closing)?);
    if end < json.len() {
        return Err(NotJson(end));
    }
    Ok(())
}

/// Where the value ends that begins at `at`.
pub(crate) fn value(json: &[u8], mut at: usize) -> Result<usize, NotJson> {
    let mut open = Open::default();
    loop {
        // A value begins.
        at = match json.get(at) {
            Some(b'"') => string(json, at)?,
            Some(b'{') => {
                let inside = blank(json, at + 1);
                if json.get(inside) == Some(&b'}') {
                    inside + 1
                } else {
                    open.push(true);
                    at = name(json, inside)?;
                    continue;
                }
            }
            Some(b'[') => {
                let inside = blank(json, at + 1);
                if json.get(inside) == Some(&b']') {
                    inside + 1
                } else {
                    open.push(false);
                    at = inside;
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => number(json, at)?,
            Some(b't') => word(json, at, b"true")?,
            Some(b'f') => word(json, at, b"false")?,
            Some(b'n') => word(json, at, b"null")?,
            _ => return Err(NotJson(at)),
        };
        // A value has ended, and with it perhaps what it stood in.
        loop {
            let Some(in_object) = open.last() else {
                return Ok(at);
            };
            at = blank(json, at);
            match json.get(at) {
                Some(b',') => {
                    at = blank(json, at + 1);
                    if in_object {
                        at = name(json, at)?;
                    }
                    break;
                }
                Some(b'}') if in_object => open.pop(),
                Some(b']') if !in_object => open.pop(),
                _ => return Err(NotJson(at)),
            }
            at += 1;
        }
    }
}

/// What is open around a value, innermost last: true for an object, false for an array. A bit each.
#[derive(Default)]
struct Open {
    last: u64,
    /// How many bits of `last` count.
    len: u32,
    outer: Vec<u64>,
}

impl Open {
    fn push(&mut self, is_object: bool) {
        if self.len == u64::BITS {
            self.outer.push(self.last);
            self.len = 0;
        }
        self.last = self.last << 1 | u64::from(is_object);
        self.len += 1;
    }

    fn last(&self) -> Option<bool> {
        (self.len > 0).then_some(self.last & 1 == 1)
    }

    fn pop(&mut self) {
        self.last >>= 1;
        self.len -= 1;
        if self.len == 0 {
            if let Some(outer) = self.outer.pop() {
                self.last = outer;
                self.len = u64::BITS;
            }
        }
    }
}

/// The first byte from `at` on that is not blank.
#[inline]
fn blank(json: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = json.get(at) {
        at += 1;
    }
    at
}

fn expect(json: &[u8], at: usize, byte: u8) -> Result<usize, NotJson> {
    if json.get(at) == Some(&byte) {
        Ok(at + 1)
    } else {
        Err(NotJson(at))
    }
}

fn word(json: &[u8], at: usize, word: &[u8]) -> Result<usize, NotJson> {
    if json[at..].starts_with(word) {
        Ok(at + word.len())
    } else {
        Err(NotJson(at))
    }
}

/// From the name of a member to its value.
#[inline]
fn name(json: &[u8], at: usize) -> Result<usize, NotJson> {
    if json.get(at) != Some(&b'"') {
        return Err(NotJson(at));
    }
    let end = blank(json, string(json, at)?);
    Ok(blank(json, expect(json, end, b':')?))
}

fn number(json: &[u8], at: usize) -> Result<usize, NotJson> {
    let digits = |at: usize| {
        let digits = json[at..].iter().take_while(|byte| byte.is_ascii_digit());
        match digits.count() {
            0 => Err(NotJson(at)),
            count => Ok(at + count),
        }
    };
    let whole = at + usize::from(json.get(at) == Some(&b'-'));
    let mut end = digits(whole)?;
    if json[whole] == b'0' && end > whole + 1 {
        return Err(NotJson(whole + 1));
    }
    if json.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if let Some(b'e' | b'E') = json.get(end) {
        let sign = matches!(json.get(end + 1), Some(b'+' | b'-'));
        end = digits(end + 1 + usize::from(sign))?;
    }
    Ok(end)
}

/// From a string's first quote to behind its last.
fn string(json: &[u8], at: usize) -> Result<usize, NotJson> {
    let mut at = at + 1;
    loop {
        at = plain(json, at);
        at = match json.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => escape(json, at)?,
            Some(0x80..) => character(json, at)?,
            // Of the others only what is below the blank is not plain.
            _ => return Err(NotJson(at)),
        };
        // Such characters seldom come alone.
        while let Some(0x80..) = json.get(at) {
            at = character(json, at)?;
        }
    }
}

/// The first byte from `at` on that means something in a string: a quote, a backslash, a control character, or one
/// outside of ASCII.
#[inline]
fn plain(json: &[u8], mut at: usize) -> usize {
    loop {
        for _ in 0..8 {
            let Some(word) = json[at..].first_chunk() else {
                let rest = json[at..].iter();
                return at + rest.take_while(|&&byte| !is_special(byte)).count();
            };
            let special = special_in(u64::from_le_bytes(*word));
            if special != 0 {
                return at + special.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        // A long one. Without an end inside of the block, so that it is done with the machine's vectors.
        while let Some(block) = json[at..].first_chunk::<64>() {
            if block
                .iter()
                .fold(false, |any, &byte| any | is_special(byte))
            {
                break;
            }
            at += 64;
        }
    }
}

#[inline]
fn is_special(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\') | (byte > 0x7f)
}

/// The high bit of each byte that is special, up to the lowest of them for sure: above it a borrow may have set more.
#[inline]
fn special_in(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let zero_in = |word: u64| word.wrapping_sub(ONES) & !word;
    let quote = zero_in(word ^ (ONES * u64::from(b'"')));
    let backslash = zero_in(word ^ (ONES * u64::from(b'\\')));
    let control = word.wrapping_sub(ONES * u64::from(b' ')) & !word;
    (quote | backslash | control | word) & (ONES << 7)
}

fn escape(json: &[u8], at: usize) -> Result<usize, NotJson> {
    match json.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match json.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
            _ => Err(NotJson(at)),
        },
        _ => Err(NotJson(at)),
    }
}

/// Behind a character that is not ASCII, as UTF-8 has them (RFC 3629, section 4).
fn character(json: &[u8], at: usize) -> Result<usize, NotJson> {
    let (second, len) = match json[at] {
        0xc2..=0xdf => (0x80..=0xbf, 2),
        0xe0 => (0xa0..=0xbf, 3),
        0xed => (0x80..=0x9f, 3),
        0xe1..=0xef => (0x80..=0xbf, 3),
        0xf0 => (0x90..=0xbf, 4),
        0xf1..=0xf3 => (0x80..=0xbf, 4),
        0xf4 => (0x80..=0x8f, 4),
        _ => return Err(NotJson(at)),
    };
    let Some(bytes) = json.get(at..at + len) else {
        return Err(NotJson(at));
    };
    let good =
        second.contains(&bytes[1]) && bytes[2..].iter().all(|byte| (0x80..=0xbf).contains(byte));
    if good { Ok(at + len) } else { Err(NotJson(at)) }
}

#[cfg(test)]
mod tests {
    use serde::de::IgnoredAny;

    use super::*;

    /// What serde_json says of the same: whether it is one JSON value, in UTF-8.
    fn is_json(text: &[u8]) -> bool {
        std::str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
    }

    fn is_skipped(text: &[u8]) -> bool {
        value(text, blank(text, 0)).is_ok_and(|end| blank(text, end) == text.len())
    }

    #[track_caller]
    fn agree(text: &[u8]) {
        assert_eq!(
            is_skipped(text),
            is_json(text),
            "{:?}",
            String::from_utf8_lossy(text)
        );
    }

    /// xorshift64*: the same on every machine.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
        }

        fn one_of<'a>(&mut self, of: &[&'a [u8]]) -> &'a [u8] {
            of[self.below(of.len())]
        }
    }

    #[test]
    fn every_sequence_of_a_few_pieces_is_json_or_not_as_serde_json_has_it() {
        const PIECES: [&[u8]; 21] = [
            b"{", b"}", b"[", b"]", b",", b":", b"\"", b"\\", b"u", b"00a", b"0", b"7", b"-", b".",
            b"e", b"+", b"null", b"tru", b" ", b"\x1f", b"\xe9",
        ];
        for first in PIECES {
            for second in PIECES {
                for third in PIECES {
                    for fourth in PIECES {
                        let text = [first, second, third, fourth].concat();
                        agree(&text);
                        agree(&[b"{\"a\":", &text[..], b"}"].concat());
                        agree(&[b"[\"", &text[..], b"\"]"].concat());
                    }
                }
            }
        }
    }

    #[test]
    fn every_byte_in_every_place_of_a_string_is_taken_as_serde_json_takes_it() {
        for len in [1, 7, 8, 9, 64, 71, 72, 150] {
            let text = [b"\"", &vec![b'x'; len][..], b"\""].concat();
            for at in 1..=len {
                for byte in 0..=255 {
                    let mut text = text.clone();
                    text[at] = byte;
                    agree(&text);
                }
            }
        }
    }

    #[test]
    fn every_beginning_of_a_character_is_utf8_or_not_as_the_standard_library_has_it() {
        for first in 0x80..=255 {
            for second in 0..=255 {
                for rest in [
                    &b""[..],
                    b"\x80",
                    b"\xbf\x80",
                    b"\x80\xc0",
                    b"\x80\xbf\x80",
                    b"x",
                ] {
                    agree(&[b"\"ab", &[first, second][..], rest, b"\""].concat());
                }
            }
        }
    }

    #[test]
    fn what_is_put_together_by_chance_is_json_or_not_as_serde_json_has_it() {
        const PIECES: [&[u8]; 28] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b"\"k\":",
            b"\"",
            b"\"plain\"",
            b"\\n",
            b"\\u00e9",
            b"\\",
            b"0",
            b"-1.5e+7",
            b"01",
            b"1.",
            b"true",
            b"null",
            b"false",
            b" ",
            b"\n",
            b"\r",
            b"\x0b",
            "é漢😀".as_bytes(),
            b"\x80",
            b"{\"a\":[1,{\"b\":\"\"}]}",
            b"0123456789012345678901234567890123456789012345678901234567890123456789",
            b"\x7f",
        ];
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        for _ in 0..200_000 {
            let len = random.below(24);
            let text: Vec<_> = (0..len)
                .flat_map(|_| random.one_of(&PIECES))
                .copied()
                .collect();
            agree(&text);
        }
        // Sound, then changed in one place.
        for _ in 0..20_000 {
            let mut text = sound(&mut random, 6);
            agree(&text);
            assert!(is_skipped(&text));
            let at = random.below(text.len());
            text[at] = random.below(256) as u8;
            agree(&text);
            text.truncate(at);
            agree(&text);
        }
    }

    fn sound(random: &mut Random, depth: usize) -> Vec<u8> {
        let parts = |random: &mut Random, named: bool| {
            let count = random.below(4);
            let parts: Vec<_> = (0..count)
                .map(|_| match named {
                    true => [b"\"n\\u0041\" : ", &sound(random, depth - 1)[..]].concat(),
                    false => sound(random, depth - 1),
                })
                .collect();
            parts.join(random.one_of(&[b",", b" ,\n"]))
        };
        match random.below(if depth == 0 { 3 } else { 5 }) {
            0 => random
                .one_of(&[b"0", b"-7", b"1.25", b"3e-9", b"12E+1", b"-0.0"])
                .to_vec(),
            1 => random.one_of(&[b"true", b"false", b"null"]).to_vec(),
            2 => {
                let len = random.below(12);
                let inside = [
                    &b"a"[..],
                    b" plain text of some length ",
                    b"\\\"",
                    "é漢😀".as_bytes(),
                ];
                let inside: Vec<_> = (0..len).map(|_| random.one_of(&inside)).collect();
                [b"\"", &inside.concat()[..], b"\""].concat()
            }
            3 => [b"[ ", &parts(random, false)[..], b"]"].concat(),
            _ => [b"{", &parts(random, true)[..], b" }"].concat(),
        }
    }

    #[test]
    fn depth_costs_a_bit_a_level_and_no_stack() {
        for depth in [1, 63, 64, 65, 128, 129, 1_000_000] {
            let text = [&b"[{\"a\":".repeat(depth)[..], b"1", &b"}]".repeat(depth)].concat();
            assert_eq!(value(&text, 0), Ok(text.len()), "{depth}");
            assert_eq!(
                value(&text[..text.len() - 1], 0),
                Err(NotJson(text.len() - 1))
            );
            let swapped = [&text[..text.len() - 1], b"}"].concat();
            assert_eq!(value(&swapped, 0), Err(NotJson(text.len() - 1)));
        }
    }

    #[test]
    fn members_and_elements_are_given_as_they_stand() {
        let mut members = Vec::new();
        object(
            b" { \"a\" : [1, 2] , \"b\\\"\":\"x\",\"\":{} }\r\n",
            |name, value| {
                members.push((name, value));
            },
        )
        .expect("JSON");
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"[1, 2]"), (b"b\\\"", b"\"x\""), (b"", b"{}")];
        assert_eq!(members, expected);
        let mut elements = Vec::new();
        array(b"[ {\"a\":1} ,2,[] ]", |element| elements.push(element)).expect("JSON");
        assert_eq!(elements, [&b"{\"a\":1}"[..], b"2", b"[]"]);
        for bad in [
            "",
            "{",
            "{\"a\"",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1}x",
            "{\"a\":1]",
            "[]",
            "{a:1}",
        ] {
            assert!(object(bad.as_bytes(), |_, _| {}).is_err(), "{bad}");
        }
        for bad in ["", "[", "[1,]", "[,]", "[1}", "[1] 2", "{}", "[1 2]"] {
            assert!(array(bad.as_bytes(), |_| {}).is_err(), "{bad}");
        }
        assert_eq!(
            (object(b"{}", |_, _| {}), array(b" [ ] ", |_| {})),
            (Ok(()), Ok(()))
        );
    }
}
