//! What a server wants to see before it lets somebody in: `WWW-Authenticate`.

use std::fmt;

use crate::secrets::Secrets;

/// What a server wants to see: the `WWW-Authenticate` of a 401 or 403.
///
/// `Debug` shows the schemes only.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The HTTP status, 401 or 403.
    pub status: u16,
    /// The values of `WWW-Authenticate`, as they came but for headers of ours that they repeat: RFC 9110, section
    /// 11.6.1. They are the server's word.
    pub values: Vec<String>,
}

/// One way to be let in, of those that a [`Challenge`] names.
///
/// `Debug` shows the scheme and the names of the parameters only.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AuthScheme {
    /// The scheme as the server writes it; it is the same in any case.
    pub scheme: String,
    /// What stands in place of parameters (`token68`), for schemes that have it so.
    pub token68: Option<String>,
    /// The parameters, their names in small letters, each name once.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The challenge in these headers; `None` where there is none that is text.
    pub(crate) fn of(status: u16, headers: &http::HeaderMap) -> Option<Self> {
        let values: Vec<String> = headers
            .get_all(http::header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok().map(ToOwned::to_owned))
            .collect();
        (!values.is_empty()).then_some(Self { status, values })
    }

    /// The same without what must not be repeated. A server's URLs, which it names here to be looked up, are left.
    pub(crate) fn without(&self, secrets: &Secrets) -> Self {
        let values = self.values.iter();
        Self {
            status: self.status,
            values: values
                .map(|value| secrets.redact_whole(value).into_owned())
                .collect(),
        }
    }

    /// The ways to be let in, in the server's order. What is none of RFC 9110 is left out.
    pub fn schemes(&self) -> Vec<AuthScheme> {
        let mut schemes = Vec::new();
        for value in &self.values {
            Reader { rest: value }.read_into(&mut schemes);
        }
        schemes
    }
}

impl AuthScheme {
    /// The value of a parameter, by its name in small letters.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut parameters = self.parameters.iter();
        parameters
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<_> = self
            .values
            .iter()
            .map(|value| value.split_whitespace().next().unwrap_or_default())
            .collect();
        f.debug_struct("Challenge")
            .field("status", &self.status)
            .field("schemes", &schemes)
            .finish()
    }
}

impl fmt::Debug for AuthScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.parameters.iter().map(|(name, _)| name).collect();
        f.debug_struct("AuthScheme")
            .field("scheme", &self.scheme)
            .field("parameters", &names)
            .finish_non_exhaustive()
    }
}

/// Reads one header value. Schemes and parameters are both in one list with commas, so that only what follows a word
/// says which it is.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn read_into(&mut self, schemes: &mut Vec<AuthScheme>) {
        let first = schemes.len();
        loop {
            self.take(|c| c == ',' || is_blank(c));
            if self.rest.is_empty() {
                return;
            }
            let word = self.take(is_of_token);
            let has_blank = !self.take(is_blank).is_empty();
            if word.is_empty() {
                self.skip_element();
            } else if let Some(after) = self.rest.strip_prefix('=') {
                self.rest = after;
                self.take(is_blank);
                let value = self.value();
                // A parameter before any scheme is nobody's.
                if let Some(scheme) = schemes[first..].last_mut() {
                    add(scheme, word, value);
                }
            } else {
                schemes.push(AuthScheme {
                    scheme: word.to_owned(),
                    token68: has_blank.then(|| self.token68()).flatten(),
                    parameters: Vec::new(),
                });
            }
        }
    }

    fn take(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !wanted(c)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    /// What stands alone behind a scheme; nothing is taken if it is a parameter.
    fn token68(&mut self) -> Option<String> {
        let is_of_token68 = |c: char| c.is_ascii_alphanumeric() || "-._~+/".contains(c);
        let mut ahead = Reader { rest: self.rest };
        let length = ahead.take(is_of_token68).len() + ahead.take(|c| c == '=').len();
        let token = &self.rest[..length];
        ahead.take(is_blank);
        let stands_alone = ahead.rest.is_empty() || ahead.rest.starts_with(',');
        // A scheme may follow a scheme, but not without a comma between.
        (stands_alone && !token.is_empty()).then(|| {
            self.rest = ahead.rest;
            token.to_owned()
        })
    }

    /// A token, or a quoted text; one that is not closed goes to the end.
    fn value(&mut self) -> String {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            return self.take(|c| c != ',' && !is_blank(c)).to_owned();
        };
        let mut value = String::new();
        let mut characters = quoted.chars();
        while let Some(c) = characters.next() {
            match c {
                '"' => break,
                '\\' => value.extend(characters.next()),
                c => value.push(c),
            }
        }
        self.rest = characters.as_str();
        value
    }

    fn skip_element(&mut self) {
        if self.rest.starts_with('"') {
            self.value();
        } else {
            self.take(|c| c != ',');
        }
    }
}

fn add(scheme: &mut AuthScheme, name: &str, value: String) {
    let name = name.to_ascii_lowercase();
    if scheme.parameter(&name).is_none() {
        scheme.parameters.push((name, value));
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each scheme with its parameters, in one line.
    fn read(values: &[&str]) -> Vec<String> {
        let challenge = Challenge {
            status: 401,
            values: values.iter().map(|&value| value.to_owned()).collect(),
        };
        let line = |scheme: &AuthScheme| {
            let parameters = scheme.parameters.iter();
            let parameters: String = parameters
                .map(|(name, value)| format!(" {name}={value:?}"))
                .collect();
            let token = scheme.token68.iter().map(|token| format!(" {token}"));
            format!("{}{}{parameters}", scheme.scheme, token.collect::<String>())
        };
        challenge.schemes().iter().map(line).collect()
    }

    #[test]
    fn schemes_and_parameters_are_told_apart() {
        for (value, schemes) in [
            (
                r#"Bearer realm="a, b", Scope="x y",error=invalid_token"#,
                &[r#"Bearer realm="a, b" scope="x y" error="invalid_token""#][..],
            ),
            (
                r#"Newauth realm="apps", type=1, title="Login to \"apps\"", Basic realm="simple""#,
                &[
                    r#"Newauth realm="apps" type="1" title="Login to \"apps\"""#,
                    r#"Basic realm="simple""#,
                ],
            ),
            ("Negotiate", &["Negotiate"]),
            (
                "Negotiate a87421000492aa874209af8bc028==, Basic",
                &["Negotiate a87421000492aa874209af8bc028==", "Basic"],
            ),
            ("Basic,Bearer", &["Basic", "Bearer"]),
            (
                "Bearer realm = \"x\" , , scope=a",
                &[r#"Bearer realm="x" scope="a""#],
            ),
            (
                "Bearer resource_metadata=https://h/.well-known/oauth-protected-resource/mcp",
                &[
                    r#"Bearer resource_metadata="https://h/.well-known/oauth-protected-resource/mcp""#,
                ],
            ),
        ] {
            assert_eq!(read(&[value]), schemes, "{value}");
        }
    }

    #[test]
    fn what_is_no_challenge_is_left_out_and_nothing_else() {
        for (value, schemes) in [
            ("", &[][..]),
            (",,  ,", &[]),
            ("=", &[]),
            ("realm=x", &[]),
            ("\"Bearer\", Basic", &["Basic"]),
            ("(odd), Basic realm=x", &[r#"Basic realm="x""#]),
            (r#"Bearer realm="open"#, &[r#"Bearer realm="open""#]),
            (r#"Bearer realm="\"#, &[r#"Bearer realm="""#]),
            (r#"Bearer a="1", A="2""#, &[r#"Bearer a="1""#]),
        ] {
            assert_eq!(read(&[value]), schemes, "{value}");
        }
        // A parameter belongs to no scheme of another header line.
        assert_eq!(read(&["Basic", "realm=x"]), ["Basic"]);
    }

    #[test]
    fn any_text_is_read_to_its_end() {
        let parts = ["Bearer", " ", ",", "=", "\"", "\\", "a", "é", "=="];
        for n in 0..parts.len().pow(5) {
            let digits = std::iter::successors(Some(n), |n| Some(n / parts.len()));
            let value: String = digits.take(5).map(|n| parts[n % parts.len()]).collect();
            read(&[&value]);
        }
    }
}
