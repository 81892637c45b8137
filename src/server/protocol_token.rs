//! Bearer tokens among the subprotocols of a WebSocket, where browsers, which cannot set headers, put
//! them: `base64url.bearer.authorization.k8s.io.<token>`. It moves a token to where others have it;
//! whose it is, `auth` says.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};

use super::auth::Unauthorized;
use crate::http as http_room;

/// What such a subprotocol begins with; the rest is the token in base64url without padding.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Moves the token among the subprotocols of `headers`, if there is one, into an Authorization that
/// is not there yet. The other subprotocols stay: one of them is told the client, and never the token.
///
/// # Errors
/// Several tokens, one that is no base64url of UTF-8, or one without another subprotocol beside it:
/// upstream's rules.
pub(super) fn take(headers: &mut HeaderMap) -> Result<(), Unauthorized> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) || !http_room::is_websocket_upgrade(headers) {
        return Ok(());
    }
    let mut token = None;
    let mut others = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| refused())?;
        for protocol in text.split(',').map(str::trim) {
            match protocol.strip_prefix(PREFIX) {
                Some(_) if token.is_some() => return Err(refused()),
                Some(encoded) => token = Some(authorization(encoded)?),
                None => others.push(protocol),
            }
        }
    }
    let Some(token) = token else {
        return Ok(());
    };
    if others.is_empty() {
        return Err(refused());
    }
    let others = HeaderValue::from_str(&others.join(",")).map_err(|_| refused())?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    headers.entry(AUTHORIZATION).or_insert(token);
    Ok(())
}

fn refused() -> Unauthorized {
    Unauthorized::new("no usable bearer token among the subprotocols of the WebSocket")
}

fn authorization(encoded: &str) -> Result<HeaderValue, Unauthorized> {
    let token = BASE64_URL_SAFE_NO_PAD.decode(encoded);
    let token = token.map_err(|_| refused())?;
    let token = String::from_utf8(token).map_err(|_| refused())?;
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Authorization and the subprotocols afterwards, of these before.
    fn check(protocols: &[&str], expected: Result<(&str, &str), Unauthorized>) {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        for protocol in protocols {
            let value = HeaderValue::from_str(protocol).unwrap();
            headers.append(SEC_WEBSOCKET_PROTOCOL, value);
        }
        let text = |name| headers_text(&headers, name);
        match (take(&mut headers.clone()), expected) {
            (Err(_), Err(_)) => {}
            (Ok(()), Ok((authorization, rest))) => {
                let mut headers = headers.clone();
                take(&mut headers).unwrap();
                assert_eq!(headers_text(&headers, AUTHORIZATION), authorization);
                assert_eq!(headers_text(&headers, SEC_WEBSOCKET_PROTOCOL), rest);
            }
            (told, _) => panic!("{}: {told:?}", text(SEC_WEBSOCKET_PROTOCOL)),
        }
    }

    fn headers_text(headers: &HeaderMap, name: http::HeaderName) -> String {
        let values: Vec<&str> = headers
            .get_all(name)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        values.join("|")
    }

    #[test]
    fn a_token_goes_where_others_have_it() {
        let token = format!("{PREFIX}czNjcmV0"); // s3cret
        check(&["a", "b"], Ok(("", "a|b")));
        check(&[&format!("{token}, a")], Ok(("Bearer s3cret", "a")));
        check(&["a,b", &token, "c"], Ok(("Bearer s3cret", "a,b,c")));
        check(&[&token], Err(refused()));
        check(&[&token, "a", &token], Err(refused()));
        check(&["a", &format!("{PREFIX}?")], Err(refused()));
        check(&["a", &format!("{PREFIX}_w")], Err(refused()));
    }

    #[test]
    fn other_requests_are_left_alone() {
        let mut headers = HeaderMap::new();
        let value = format!("{PREFIX}czNjcmV0,a");
        let value = HeaderValue::from_str(&value).unwrap();
        headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
        take(&mut headers).unwrap();
        assert!(!headers.contains_key(AUTHORIZATION));
    }
}
