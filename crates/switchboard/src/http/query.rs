//! Query parameters, except those of the inbox. Unknown ones are rejected: a misspelt filter
//! would show everything.

use tenure_wire::ingest::percent_decode;

use super::response::{ApiError, ApiResult};

/// Maximum number of parameters: each is compared with all before it.
const MAX_PARAMETERS: usize = 16;

/// Query parameters that were not taken yet.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn read(query: Option<&str>) -> ApiResult<Self> {
        let mut found: Vec<(String, String)> = Vec::new();
        let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if found.len() == MAX_PARAMETERS {
                return Err(ApiError::bad_request("too many query parameters"));
            }
            if found.iter().any(|(known, _)| *known == name) {
                return Err(ApiError::bad_request("duplicate query parameter"));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// Takes a text, which may be empty.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    pub(crate) fn number(
        &mut self,
        name: &str,
        (min, max): (usize, usize),
    ) -> ApiResult<Option<usize>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|n| digits && (min..=max).contains(n));
        let says = || format!("query parameter {name}: is not a number from {min} to {max}");
        number.map(Some).ok_or_else(|| ApiError::bad_request(says()))
    }

    pub(crate) fn flag(&mut self, name: &str) -> ApiResult<bool> {
        match self.text(name).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::bad_request(format!(
                "query parameter {name}: is neither true nor false"
            ))),
        }
    }

    /// Rejects parameters that were not taken: they are unknown.
    pub(crate) fn end(self) -> ApiResult<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(ApiError::bad_request("unknown query parameter")),
        }
    }
}

/// Decodes a part of a path.
pub(crate) fn part(text: &str) -> ApiResult<String> {
    unescaped(text)
        .ok_or_else(|| ApiError::bad_request("the path must be percent-encoded UTF-8 without NUL"))
}

fn decoded(text: &str) -> ApiResult<String> {
    unescaped(&text.replace('+', " "))
        .ok_or_else(|| ApiError::bad_request("the query must be percent-encoded UTF-8 without NUL"))
}

fn unescaped(text: &str) -> Option<String> {
    percent_decode(text).filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Query {
        Query::read(Some(query)).unwrap()
    }

    #[test]
    fn parameters_are_decoded_and_taken_once() {
        let mut query = read("a=x%20y+z&b=7&&c=&d=%C3%A4");
        assert_eq!(query.text("a").as_deref(), Some("x y z"));
        assert_eq!(query.number("b", (1, 7)).unwrap(), Some(7));
        assert_eq!(query.text("c").as_deref(), Some(""));
        assert_eq!(query.text("d").as_deref(), Some("ä"));
        assert_eq!(query.text("a"), None);
        query.end().unwrap();
        Query::read(None).unwrap().end().unwrap();
        assert!(read("limt=5").end().is_err());
        let mut query = read("a=true&b=false&c=yes");
        assert!(query.flag("a").unwrap() && !query.flag("b").unwrap() && !query.flag("x").unwrap());
        assert!(query.flag("c").is_err());
        assert_eq!(part("a%2Fb%3A+%40").unwrap(), "a/b:+@");
        assert!(part("%2").is_err() && part("%00").is_err() && part("%ff").is_err());
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in ["a=%", "a=%4", "a=%zz", "a=%FF", "a=%00", "a=1&a=2", "%=1", "a=%é"] {
            assert!(Query::read(Some(bad)).is_err(), "{bad}");
        }
        let many: Vec<_> = (0..=MAX_PARAMETERS).map(|n| format!("p{n}=1")).collect();
        assert!(Query::read(Some(&many[1..].join("&"))).is_ok());
        assert!(Query::read(Some(&many.join("&"))).is_err());
        for bad in ["n=", "n=0", "n=8", "n=-1", "n=%2B3", "n=1e0", "n=99999999999999999999", "n=x"]
        {
            assert!(read(bad).number("n", (1, 7)).is_err(), "{bad}");
        }
    }
}
