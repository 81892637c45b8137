//! Validation of an `AuthenticationConfiguration`, with the paths and messages of
//! [upstream](https://github.com/kubernetes/kubernetes/blob/v1.35.0/staging/src/k8s.io/apiserver/pkg/apis/apiserver/validation/validation.go).

use std::collections::BTreeSet;
use std::fmt::Display;

use http::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use watchet_api::FieldErrors;
use watchet_api::names::{SUBDOMAIN_LENGTH_MAX, is_dns_subdomain};
use watchet_x509::Trusted;

use super::{
    AuthenticationConfiguration, ClaimMappings, ClaimValidationRule, InvalidConfiguration, Issuer,
    JwtConfiguration, PrefixedClaimOrExpression, UserValidationRule,
};
use crate::jwt::{Expression, Rule};

/// The maximum number of issuers, as upstream.
const ISSUERS_MAX: usize = 64;

const MATCH_ANY: &str = "MatchAny";

/// A valid configuration of issuers, with its compiled expressions.
#[derive(Debug)]
pub struct ValidConfiguration {
    pub(crate) jwt: Vec<ValidJwt>,
}

/// An issuer with its compiled expressions.
#[derive(Debug)]
pub(crate) struct ValidJwt {
    pub(crate) config: JwtConfiguration,
    pub(crate) username: Option<Expression>,
    pub(crate) groups: Option<Expression>,
    pub(crate) uid: Option<Expression>,
    /// With their keys.
    pub(crate) extra: Vec<(String, Expression)>,
    pub(crate) claim_rules: Vec<Rule>,
    pub(crate) user_rules: Vec<Rule>,
}

impl AuthenticationConfiguration {
    /// Validates the configuration. `disallowed` are the issuers of service account tokens.
    ///
    /// # Errors
    /// All invalid fields, with upstream's messages.
    pub fn validate(
        &self,
        disallowed: &[String],
    ) -> Result<ValidConfiguration, InvalidConfiguration> {
        let mut errors = FieldErrors::default();
        let mut valid = Vec::new();
        if self.jwt.len() > ISSUERS_MAX {
            errors.too_many("jwt", self.jwt.len(), ISSUERS_MAX);
            errors.into_result().map_err(InvalidConfiguration)?;
            return Ok(ValidConfiguration { jwt: valid });
        }
        let (mut urls, mut discovery_urls) = (BTreeSet::new(), BTreeSet::new());
        for (index, jwt) in self.jwt.iter().enumerate() {
            let path = format!("jwt[{index}]");
            valid.push(jwt_authenticator(&mut errors, jwt, &path, disallowed));
            let issuer = &jwt.issuer;
            if !urls.insert(&issuer.url) {
                errors.duplicate(format_args!("{path}.issuer.url"), &issuer.url);
            }
            let url = &issuer.discovery_url;
            if !url.is_empty() && !discovery_urls.insert(url) {
                errors.duplicate(format_args!("{path}.issuer.discoveryURL"), url);
            }
        }
        if let Some(anonymous) = &self.anonymous
            && !anonymous.enabled
            && !anonymous.conditions.is_empty()
        {
            let paths: Vec<&str> = anonymous.conditions.iter().map(|one| &*one.path).collect();
            let detail = "enabled should be set to true when conditions are defined";
            errors.invalid("anonymous.conditions", &paths.join(","), detail);
        }
        errors.into_result().map_err(InvalidConfiguration)?;
        Ok(ValidConfiguration { jwt: valid })
    }
}

fn jwt_authenticator(
    errors: &mut FieldErrors,
    jwt: &JwtConfiguration,
    path: &str,
    disallowed: &[String],
) -> ValidJwt {
    check_issuer(errors, &jwt.issuer, path, disallowed);
    let mut valid = ValidJwt {
        config: jwt.clone(),
        username: None,
        groups: None,
        uid: None,
        extra: Vec::new(),
        claim_rules: Vec::new(),
        user_rules: Vec::new(),
    };
    let rules_path = format!("{path}.claimValidationRules");
    valid.claim_rules = claim_rules(errors, &jwt.claim_validation_rules, &rules_path);
    claim_mappings(errors, &jwt.claim_mappings, path, &mut valid);
    let rules_path = format!("{path}.userValidationRules");
    valid.user_rules = user_rules(errors, &jwt.user_validation_rules, &rules_path);
    valid
}

fn check_issuer(errors: &mut FieldErrors, issuer: &Issuer, path: &str, disallowed: &[String]) {
    let path = format!("{path}.issuer");
    let url_path = format!("{path}.url");
    match issuer.url.as_str() {
        "" => errors.required(url_path, ""),
        url => check_url(errors, url, &url_path, disallowed),
    }
    let discovery = issuer.discovery_url.as_str();
    if !discovery.is_empty() {
        let discovery_path = format!("{path}.discoveryURL");
        let bare = |url: &str| url.trim_end_matches('/').to_owned();
        if !issuer.url.is_empty() && bare(&issuer.url) == bare(discovery) {
            errors.invalid(
                &discovery_path,
                discovery,
                "discoveryURL must be different from URL",
            );
        }
        check_url(errors, discovery, &discovery_path, &[]);
    }
    check_audiences(errors, issuer, &path);
    if !issuer.certificate_authority.is_empty() {
        let certificates =
            CertificateDer::pem_slice_iter(issuer.certificate_authority.as_bytes()).flatten();
        if Trusted::new(certificates).is_empty() {
            let detail = "data does not contain any valid RSA or ECDSA certificates";
            errors.invalid(
                format_args!("{path}.certificateAuthority"),
                "<omitted>",
                detail,
            );
        }
    }
    if !issuer.egress_selector_type.is_empty() {
        let detail = "egress selector is not supported: remove it";
        let value = &issuer.egress_selector_type;
        errors.invalid(format_args!("{path}.egressSelectorType"), value, detail);
    }
}

fn check_url(errors: &mut FieldErrors, url: &str, path: &str, disallowed: &[String]) {
    if disallowed.iter().any(|one| one == url) {
        let all = disallowed.join(" ");
        let detail = format!("URL must not overlap with disallowed issuers: [{all}]");
        errors.invalid(path, url, detail);
    }
    let (before_fragment, fragment) = url.split_once('#').unwrap_or((url, ""));
    let parsed: Uri = match before_fragment.parse() {
        Ok(parsed) => parsed,
        Err(error) => return errors.invalid(path, url, error),
    };
    if parsed.scheme_str() != Some("https") {
        errors.invalid(path, url, "URL scheme must be https");
    } else if parsed.host().is_none_or(str::is_empty) {
        errors.invalid(path, url, "URL must have a host");
    }
    if parsed
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        errors.invalid(path, url, "URL must not contain a username or password");
    }
    if parsed.query().is_some_and(|query| !query.is_empty()) {
        errors.invalid(path, url, "URL must not contain a query");
    }
    if !fragment.is_empty() {
        errors.invalid(path, url, "URL must not contain a fragment");
    }
}

fn check_audiences(errors: &mut FieldErrors, issuer: &Issuer, path: &str) {
    let audiences_path = format!("{path}.audiences");
    if issuer.audiences.is_empty() {
        let detail = format!("at least one {audiences_path} is required");
        return errors.required(audiences_path, &detail);
    }
    let mut seen = BTreeSet::new();
    for (index, audience) in issuer.audiences.iter().enumerate() {
        let path = format!("{audiences_path}[{index}]");
        if audience.is_empty() {
            errors.required(&path, "");
        }
        if !seen.insert(audience) {
            errors.duplicate(&path, audience);
        }
    }
    let policy = issuer.audience_match_policy.as_str();
    let detail = match (issuer.audiences.len(), policy) {
        (_, MATCH_ANY) | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.invalid(format_args!("{path}.audienceMatchPolicy"), policy, detail);
}

/// Compiles an expression; adds an error if it is invalid.
fn compiled(
    errors: &mut FieldErrors,
    text: &str,
    path: impl Display,
    compile: fn(&str) -> Result<Expression, String>,
) -> Option<Expression> {
    let result = compile(text);
    result
        .map_err(|detail| errors.invalid(path, text, detail))
        .ok()
}

fn claim_rules(errors: &mut FieldErrors, rules: &[ClaimValidationRule], path: &str) -> Vec<Rule> {
    let (mut claims, mut expressions) = (BTreeSet::new(), BTreeSet::new());
    let mut valid = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}]");
        match (rule.claim.as_str(), rule.expression.as_str()) {
            ("", "") => errors.required(path, "claim or expression is required"),
            (claim, "") => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    errors.invalid(format_args!("{path}.message"), &rule.message, detail);
                }
                if !claims.insert(claim) {
                    errors.duplicate(format_args!("{path}.claim"), claim);
                }
            }
            ("", expression) => {
                if !rule.required_value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    let value = &rule.required_value;
                    errors.invalid(format_args!("{path}.requiredValue"), value, detail);
                }
                let path = format!("{path}.expression");
                if !expressions.insert(expression) {
                    errors.duplicate(path, expression);
                    continue;
                }
                let program = compiled(errors, expression, path, Expression::claims_rule);
                valid.extend(program.map(|program| Rule::new(program, &rule.message)));
            }
            (claim, _) => errors.invalid(path, claim, "claim and expression can't both be set"),
        }
    }
    valid
}

fn user_rules(errors: &mut FieldErrors, rules: &[UserValidationRule], path: &str) -> Vec<Rule> {
    let mut expressions = BTreeSet::new();
    let mut valid = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{index}].expression");
        let expression = rule.expression.as_str();
        if expression.is_empty() {
            errors.required(path, "");
        } else if !expressions.insert(expression) {
            errors.duplicate(path, expression);
        } else {
            let program = compiled(errors, expression, path, Expression::user_rule);
            valid.extend(program.map(|program| Rule::new(program, &rule.message)));
        }
    }
    valid
}

fn claim_mappings(
    errors: &mut FieldErrors,
    mappings: &ClaimMappings,
    path: &str,
    valid: &mut ValidJwt,
) {
    let path = format!("{path}.claimMappings");
    let username_path = format!("{path}.username");
    valid.username = mapping(errors, &mappings.username, &username_path, true);
    valid.groups = mapping(errors, &mappings.groups, &format!("{path}.groups"), false);
    let uid = &mappings.uid;
    match (uid.claim.is_empty(), uid.expression.as_str()) {
        (_, "") => {}
        (false, _) => {
            let detail = "claim and expression can't both be set";
            errors.invalid(format_args!("{path}.uid"), "", detail);
        }
        (true, expression) => {
            let path = format!("{path}.uid.expression");
            valid.uid = compiled(errors, expression, path, Expression::claims_mapping);
        }
    }
    let mut keys = BTreeSet::new();
    for (index, extra) in mappings.extra.iter().enumerate() {
        let path = format!("{path}.extra[{index}]");
        check_extra_key(errors, &extra.key, &format!("{path}.key"));
        if !keys.insert(&extra.key) {
            errors.duplicate(format_args!("{path}.key"), &extra.key);
            continue;
        }
        let path = format!("{path}.valueExpression");
        if extra.value_expression.is_empty() {
            errors.required(path, "");
            continue;
        }
        let text = &extra.value_expression;
        let program = compiled(errors, text, path, Expression::claims_mapping);
        valid
            .extra
            .extend(program.map(|program| (extra.key.clone(), program)));
    }
    let uses_email = |one: &Expression| one.uses_claim("email");
    if valid.username.as_ref().is_some_and(uses_email) && !uses_email_verified(valid) {
        let detail = "claims.email_verified must be used in claimMappings.username.expression or \
                      claimMappings.extra[*].valueExpression or claimValidationRules[*].expression \
                      when claims.email is used in claimMappings.username.expression";
        let text = &mappings.username.expression;
        errors.invalid(format_args!("{username_path}.expression"), text, detail);
    }
}

fn uses_email_verified(valid: &ValidJwt) -> bool {
    let extra = valid.extra.iter().map(|(_, expression)| expression);
    let rules = valid.claim_rules.iter().map(Rule::expression);
    let mut all = valid.username.iter().chain(extra).chain(rules);
    all.any(|one| one.uses_claim("email_verified"))
}

fn mapping(
    errors: &mut FieldErrors,
    mapping: &PrefixedClaimOrExpression,
    path: &str,
    is_required: bool,
) -> Option<Expression> {
    match (mapping.claim.as_str(), mapping.expression.as_str()) {
        ("", "") if is_required => errors.required(path, "claim or expression is required"),
        ("", "") => {}
        ("", expression) => {
            if let Some(prefix) = &mapping.prefix {
                let detail = "may not be specified when expression is set";
                errors.invalid(format_args!("{path}.prefix"), prefix, detail);
            }
            let path = format!("{path}.expression");
            return compiled(errors, expression, path, Expression::claims_mapping);
        }
        (_, "") if mapping.prefix.is_none() => errors.required(
            format_args!("{path}.prefix"),
            "prefix is required when claim is set. It can be set to an empty string to disable prefixing",
        ),
        (_, "") => {}
        _ => errors.invalid(path, "", "claim and expression can't both be set"),
    }
    None
}

/// Checks that `key` is a path with a domain that is not reserved for Kubernetes.
fn check_extra_key(errors: &mut FieldErrors, key: &str, path: &str) {
    let (domain, name) = key.split_once('/').unwrap_or((key, ""));
    if key.is_empty() {
        errors.required(path, "");
    } else if domain.is_empty() || name.is_empty() || !key.contains('/') {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.invalid(path, key, detail);
    } else {
        if domain.len() > SUBDOMAIN_LENGTH_MAX || !is_dns_subdomain(&domain.to_lowercase()) {
            let detail = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                          characters, '-' or '.', and must start and end with an alphanumeric character";
            errors.invalid(path, domain, detail);
        }
        let is_path_character =
            |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/%".contains(c);
        if !name.chars().all(is_path_character) {
            errors.invalid(path, name, "Invalid path");
        }
    }
    if key != key.to_lowercase() {
        errors.invalid(path, key, "must be lowercase");
    }
    let is_reserved = |reserved: &str| {
        let rest = domain.strip_suffix(reserved);
        key.contains('/') && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if is_reserved("kubernetes.io") || is_reserved("k8s.io") {
        let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.invalid(path, key, detail);
    }
}
