//! Converts the claims of a verified token to a user, and checks the rules of the issuer, in the order of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/plugin/pkg/authenticator/token/oidc/oidc.go).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use watchet_api::UserInfo;
use watchet_cel::Scope;

use super::claims::Claims;
use super::expression::{claims_scope, user_scope};
use crate::config::ValidJwt;

/// Returns the user of a token with these claims.
///
/// # Errors
/// A claim is absent or has another type, an expression fails, or a rule is not satisfied.
pub(super) fn user(jwt: &ValidJwt, claims: &Claims) -> Result<UserInfo, String> {
    let scope = claims_scope(&claims.0);
    let name = username(jwt, claims, &scope)?;
    let groups = groups(jwt, claims, &scope)?;
    let uid = uid(jwt, claims, &scope)?;
    let mut extra = BTreeMap::new();
    for (key, expression) in &jwt.extra {
        let values = expression.strings(&scope).map_err(|error| {
            format!("oidc: error evaluating extra claim expression: {key}: {error}")
        })?;
        if !values.is_empty() {
            extra.insert(key.clone(), values);
        }
    }
    for rule in &jwt.config.claim_validation_rules {
        if !rule.claim.is_empty() {
            check_required(claims, &rule.claim, &rule.required_value)?;
        }
    }
    for rule in &jwt.claim_rules {
        rule.check(&scope).map_err(|error| {
            format!("oidc: error evaluating claim validation expression: {error}")
        })?;
    }
    let mut shown = json!({"username": name});
    let optional = [
        ("uid", Some(json!(uid)).filter(|_| !uid.is_empty())),
        ("groups", Some(json!(groups)).filter(|_| !groups.is_empty())),
        ("extra", Some(json!(extra)).filter(|_| !extra.is_empty())),
    ];
    for (member, value) in optional {
        if let Some(value) = value {
            shown[member] = value;
        }
    }
    check_user(jwt, &shown)?;
    let mut user = UserInfo::authenticated(name, uid, groups);
    user.extra = extra;
    Ok(user)
}

fn check_user(jwt: &ValidJwt, user: &Value) -> Result<(), String> {
    if jwt.user_rules.is_empty() {
        return Ok(());
    }
    let scope = user_scope(user);
    for rule in &jwt.user_rules {
        rule.check(&scope).map_err(|error| {
            format!("oidc: error evaluating user info validation rule: {error}")
        })?;
    }
    Ok(())
}

fn check_required(claims: &Claims, name: &str, required: &str) -> Result<(), String> {
    if claims.get(name).is_none() {
        return Err(format!(
            "oidc: required claim {name} not present in ID token"
        ));
    }
    let value = claims.string(name);
    let value = value.map_err(|error| format!("oidc: parse claim {name}: {error}"))?;
    match value == required {
        true => Ok(()),
        false => Err(format!(
            "oidc: required claim {name} value does not match. Got = {value}, want = {required}"
        )),
    }
}

fn username(jwt: &ValidJwt, claims: &Claims, scope: &Scope<'_>) -> Result<String, String> {
    if let Some(expression) = &jwt.username {
        return expression.string(scope).map_err(|error| {
            format!("oidc: error evaluating username claim expression: username claim {error}")
        });
    }
    let mapping = &jwt.config.claim_mappings.username;
    let claim = &mapping.claim;
    let value = claims.string(claim);
    let value = value.map_err(|error| format!("oidc: parse username claims {claim:?}: {error}"))?;
    if claim == "email" {
        let is_verified = claims.flag("email_verified");
        let is_verified =
            is_verified.map_err(|error| format!("oidc: parse 'email_verified' claim: {error}"))?;
        if is_verified == Some(false) {
            return Err("oidc: email not verified".to_owned());
        }
    }
    Ok(mapping.prefix.clone().unwrap_or_default() + &value)
}

fn groups(jwt: &ValidJwt, claims: &Claims, scope: &Scope<'_>) -> Result<Vec<String>, String> {
    if let Some(expression) = &jwt.groups {
        let groups = expression.strings(scope);
        return groups
            .map_err(|error| format!("oidc: error evaluating group claim expression: {error}"));
    }
    let mapping = &jwt.config.claim_mappings.groups;
    let claim = &mapping.claim;
    if claim.is_empty() {
        return Ok(Vec::new());
    }
    let groups = claims.strings(claim);
    let groups = groups.map_err(|error| format!("oidc: parse groups claim {claim:?}: {error}"))?;
    let prefix = mapping.prefix.as_deref().unwrap_or_default();
    let groups = groups.unwrap_or_default();
    Ok(groups
        .into_iter()
        .map(|group| format!("{prefix}{group}"))
        .collect())
}

fn uid(jwt: &ValidJwt, claims: &Claims, scope: &Scope<'_>) -> Result<String, String> {
    if let Some(expression) = &jwt.uid {
        return expression.string(scope).map_err(|error| {
            format!("oidc: error evaluating uid claim expression: uid claim {error}")
        });
    }
    match jwt.config.claim_mappings.uid.claim.as_str() {
        "" => Ok(String::new()),
        claim => {
            let uid = claims.string(claim);
            uid.map_err(|error| format!("oidc: parse uid claim {claim:?}: {error}"))
        }
    }
}
