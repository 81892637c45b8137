//! Bearer tokens in the subprotocols of a WebSocket request, since browsers cannot set headers:
//! `base64url.bearer.authorization.k8s.io.<token>`. The token is moved to the Authorization header
//! for the authenticator.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use http::{HeaderMap, HeaderValue};

use super::unauthorized::Unauthorized;

/// The prefix of such a subprotocol; the rest is the token in base64url without padding.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Moves the token in the subprotocols of `headers` of a WebSocket request to the Authorization header, unless
/// that exists. Other subprotocols remain: one of them is selected in the response, never the
/// token.
///
/// # Errors
/// Upstream's rules: several tokens, a token that is not base64url of UTF-8, or no other
/// subprotocol.
pub fn move_token_to_header(headers: &mut HeaderMap) -> Result<(), Unauthorized> {
    if !headers.contains_key(SEC_WEBSOCKET_PROTOCOL) {
        return Ok(());
    }
    let mut token = None;
    let mut others = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        let text = value.to_str().map_err(|_| invalid_token())?;
        for protocol in text.split(',').map(str::trim) {
            match protocol.strip_prefix(PREFIX) {
                Some(_) if token.is_some() => return Err(invalid_token()),
                Some(encoded) => token = Some(authorization(encoded)?),
                None => others.push(protocol),
            }
        }
    }
    let Some(token) = token else {
        return Ok(());
    };
    if others.is_empty() {
        return Err(invalid_token());
    }
    let others = HeaderValue::from_str(&others.join(",")).map_err(|_| invalid_token())?;
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    headers.entry(AUTHORIZATION).or_insert(token);
    Ok(())
}

fn invalid_token() -> Unauthorized {
    Unauthorized::new("invalid bearer token in the subprotocols of a WebSocket request")
}

fn authorization(encoded: &str) -> Result<HeaderValue, Unauthorized> {
    let token = BASE64_URL_SAFE_NO_PAD.decode(encoded);
    let token = token.map_err(|_| invalid_token())?;
    let token = String::from_utf8(token).map_err(|_| invalid_token())?;
    let mut value =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| invalid_token())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the Authorization and the subprotocols after the move.
    fn check(protocols: &[&str], expected: Result<(&str, &str), Unauthorized>) {
        let mut headers = HeaderMap::new();
        headers.insert("connection", HeaderValue::from_static("Upgrade"));
        headers.insert("upgrade", HeaderValue::from_static("websocket"));
        for protocol in protocols {
            let value = HeaderValue::from_str(protocol).unwrap();
            headers.append(SEC_WEBSOCKET_PROTOCOL, value);
        }
        let text = |name| headers_text(&headers, name);
        match (move_token_to_header(&mut headers.clone()), expected) {
            (Err(_), Err(_)) => {}
            (Ok(()), Ok((authorization, rest))) => {
                let mut headers = headers.clone();
                move_token_to_header(&mut headers).unwrap();
                assert_eq!(headers_text(&headers, AUTHORIZATION), authorization);
                assert_eq!(headers_text(&headers, SEC_WEBSOCKET_PROTOCOL), rest);
            }
            (actual, _) => panic!("{}: {actual:?}", text(SEC_WEBSOCKET_PROTOCOL)),
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
    fn a_token_moves_to_the_authorization_header() {
        let token = format!("{PREFIX}czNjcmV0"); // s3cret
        check(&["a", "b"], Ok(("", "a|b")));
        check(&[&format!("{token}, a")], Ok(("Bearer s3cret", "a")));
        check(&["a,b", &token, "c"], Ok(("Bearer s3cret", "a,b,c")));
        check(&[&token], Err(invalid_token()));
        check(&[&token, "a", &token], Err(invalid_token()));
        check(&["a", &format!("{PREFIX}?")], Err(invalid_token()));
        check(&["a", &format!("{PREFIX}_w")], Err(invalid_token()));
    }
}
