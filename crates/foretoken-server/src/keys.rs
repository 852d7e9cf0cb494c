//! Who may ask: API keys, compared in constant time.

use axum::http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::error::ApiError;

/// The keys that are let in; none: everybody is.
#[derive(Clone, Default)]
pub struct Keys(Vec<Vec<u8>>);

impl Keys {
    /// One key a line; empty lines and those that begin with `#` are left out.
    pub fn from_lines(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(|line| line.as_bytes().to_vec()).collect())
    }

    /// With the keys of both.
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether everybody is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The scope of a request with these headers: 0 for everybody when there are no keys, otherwise one for each key.
    /// What one scope writes is neither reused nor guessed for another.
    pub fn scope(&self, headers: &HeaderMap) -> Result<u64, ApiError> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = |text: &str| {
            let (scheme, key) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim().to_owned())
        };
        let Some(key) = given.and_then(bearer) else {
            return Err(refused("missing_api_key", "this server needs an API key: send Authorization: Bearer KEY"));
        };
        // Every key is compared, so that the time does not tell which one came close. Lengths may be told.
        let mut found = 0;
        for (index, known) in self.0.iter().enumerate() {
            if bool::from(known.as_slice().ct_eq(key.as_bytes())) {
                found = index as u64 + 1;
            }
        }
        if found > 0 { Ok(found) } else { Err(refused("invalid_api_key", "this API key is not known here")) }
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

fn refused(code: &'static str, message: &str) -> ApiError {
    let error = ApiError::invalid(None, code, message).with_status(StatusCode::UNAUTHORIZED);
    ApiError { kind: "authentication_error", ..error }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::AUTHORIZATION, authorization.parse().unwrap())])
    }

    #[test]
    fn each_key_has_its_scope_and_strangers_none() {
        let keys = Keys::from_lines("# ours\nalpha\n\n beta \n").and(Keys::from_lines("gamma"));
        assert_eq!(keys.scope(&headers("Bearer alpha")), Ok(1));
        assert_eq!(keys.scope(&headers("bearer  beta")), Ok(2));
        assert_eq!(keys.scope(&headers("Bearer gamma")), Ok(3));
        for wrong in ["Bearer alph", "Bearer alphaa", "Bearer ", "Basic alpha", "alpha", "Bearer # ours"] {
            assert_eq!(keys.scope(&headers(wrong)).unwrap_err().status, StatusCode::UNAUTHORIZED, "{wrong}");
        }
        assert!(keys.scope(&HeaderMap::new()).is_err());
        assert_eq!(Keys::default().scope(&HeaderMap::new()), Ok(0));
        assert_eq!(format!("{keys:?}"), "Keys(3)");
    }
}
