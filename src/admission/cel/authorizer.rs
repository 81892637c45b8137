//! The variable `authorizer`: a chain of calls says who wants to do what, `check` has it decided, as in
//! Kubernetes' library for authorization.

use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, Value as CelValue};

use super::super::authorizer::{Authorizer, Authorizing, Decision, Deed};
use crate::api::UserInfo;

/// The name of the variable, and of the other that looks like its member.
pub(super) const AUTHORIZER: &str = "authorizer";
pub(super) const REQUEST_RESOURCE: &str = "requestResource";
pub(super) const OF_REQUEST: &str = "authorizer.requestResource";

/// How far a question is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Only about whom.
    Authorizer,
    Path,
    Group,
    Resource,
}

impl Stage {
    fn type_name(self) -> &'static str {
        match self {
            Self::Authorizer => "kubernetes.authorization.Authorizer",
            Self::Path => "kubernetes.authorization.PathCheck",
            Self::Group => "kubernetes.authorization.GroupCheck",
            Self::Resource => "kubernetes.authorization.ResourceCheck",
        }
    }
}

/// A question under way.
#[derive(Clone)]
struct Question {
    stage: Stage,
    authorizer: Arc<dyn Authorizer>,
    user: UserInfo,
    deed: Deed,
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        (self.stage, &self.user, &self.deed) == (other.stage, &other.user, &other.deed)
    }
}

impl Eq for Question {}

impl std::fmt::Debug for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?})", self.stage.type_name(), self.deed)
    }
}

impl Opaque for Question {
    fn runtime_type_name(&self) -> &str {
        self.stage.type_name()
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Decided(Decision);

impl Opaque for Decided {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

type Resolved = Result<CelValue, ExecutionError>;
type Text = Arc<String>;

fn opaque(value: impl Opaque) -> CelValue {
    CelValue::Opaque(Arc::new(value))
}

/// The values of both variables.
pub(super) fn values(authorizing: &Authorizing) -> [(&'static str, CelValue); 2] {
    let question = |stage, deed| {
        opaque(Question {
            stage,
            authorizer: authorizing.authorizer.clone(),
            user: authorizing.user.clone(),
            deed,
        })
    };
    [
        (AUTHORIZER, question(Stage::Authorizer, Deed::default())),
        (
            OF_REQUEST,
            question(Stage::Resource, authorizing.request.clone()),
        ),
    ]
}

fn question(value: &CelValue) -> Option<&Question> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Question>(),
        _ => None,
    }
}

/// Adds what a question can be asked further: from which stage to which, and what is noted.
fn step(
    context: &mut Context<'_>,
    name: &'static str,
    (from, to): (Stage, Stage),
    note: fn(&mut Deed, String),
) {
    context.add_function(
        name,
        move |This(on): This<CelValue>, text: Text| -> Resolved {
            let asked = question(&on).filter(|asked| asked.stage == from);
            let mut asked = asked.ok_or(ExecutionError::NoSuchOverload)?.clone();
            asked.stage = to;
            note(&mut asked.deed, text.as_ref().clone());
            Ok(opaque(asked))
        },
    );
}

/// Adds what of a decision can be seen.
fn seen(context: &mut Context<'_>, name: &'static str, see: fn(&Decision) -> CelValue) {
    context.add_function(name, move |This(on): This<CelValue>| -> Resolved {
        let decided = match &on {
            CelValue::Opaque(opaque) => opaque.downcast_ref::<Decided>(),
            _ => None,
        };
        let Decided(decision) = decided.ok_or(ExecutionError::NoSuchOverload)?;
        Ok(see(decision))
    });
}

/// Adds the functions.
pub(super) fn register(context: &mut Context<'_>) {
    use Stage::{Authorizer, Group, Path, Resource};
    step(context, "path", (Authorizer, Path), |deed, text| {
        deed.path = text
    });
    step(context, "group", (Authorizer, Group), |deed, text| {
        deed.group = text
    });
    step(context, "resource", (Group, Resource), |deed, text| {
        deed.resource = text
    });
    let of_resource = (Resource, Resource);
    step(context, "subresource", of_resource, |deed, text| {
        deed.subresource = text
    });
    step(context, "namespace", of_resource, |deed, text| {
        deed.namespace = text
    });
    step(context, "name", of_resource, |deed, text| deed.name = text);
    // Which objects of a kind they are makes no difference to who decides here.
    step(context, "fieldSelector", of_resource, |_, _| {});
    step(context, "labelSelector", of_resource, |_, _| {});
    context.add_function("serviceAccount", service_account);
    context.add_function("check", check);
    seen(context, "allowed", |decision| {
        CelValue::Bool(decision.allowed)
    });
    seen(context, "reason", |decision| {
        CelValue::String(Arc::new(decision.reason.clone()))
    });
    // To decide takes no call that could fail.
    seen(context, "errored", |_| CelValue::Bool(false));
    seen(context, "error", |_| CelValue::String(Arc::default()));
}

fn service_account(This(on): This<CelValue>, namespace: Text, name: Text) -> Resolved {
    let asked = question(&on).filter(|asked| asked.stage == Stage::Authorizer);
    let mut asked = asked.ok_or(ExecutionError::NoSuchOverload)?.clone();
    let groups = vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ];
    let user = format!("system:serviceaccount:{namespace}:{name}");
    asked.user = UserInfo::authenticated(user, String::new(), groups);
    Ok(opaque(asked))
}

fn check(This(on): This<CelValue>, verb: Text) -> Resolved {
    let asked = question(&on).filter(|asked| matches!(asked.stage, Stage::Path | Stage::Resource));
    let asked = asked.ok_or(ExecutionError::NoSuchOverload)?;
    if asked.stage == Stage::Path && asked.deed.path.is_empty() {
        return Err(ExecutionError::function_error(
            "check",
            "path must not be empty",
        ));
    }
    let mut deed = asked.deed.clone();
    deed.verb = verb.as_ref().clone();
    Ok(opaque(Decided(asked.authorizer.decide(&asked.user, &deed))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::super::{Expression, Outcome, Scope};
    use super::*;

    /// Everybody may do what names him: tells back what it was asked.
    struct Echo;

    impl Authorizer for Echo {
        fn decide(&self, user: &UserInfo, deed: &Deed) -> Decision {
            Decision {
                allowed: deed.verb == "get",
                reason: format!(
                    "{} {} {}{}/{}/{} {}/{}",
                    user.name,
                    deed.verb,
                    deed.path,
                    deed.group,
                    deed.resource,
                    deed.subresource,
                    deed.namespace,
                    deed.name
                ),
            }
        }
    }

    fn check(text: &str, expect: Result<&str, &str>) {
        let mut scope = Scope::new(Instant::now() + Duration::from_secs(60));
        scope.authorize(&Authorizing {
            authorizer: Arc::new(Echo),
            user: UserInfo::authenticated("jane".into(), String::new(), Vec::new()),
            request: Deed {
                resource: "pods".into(),
                namespace: "ns".into(),
                ..Deed::default()
            },
        });
        let compiled = Expression::compile(text, &["authorizer"]).unwrap();
        match (scope.evaluate(&compiled), expect) {
            (Ok(Outcome::Text(told)), Ok(expect)) => assert_eq!(told, expect, "{text}"),
            (Ok(Outcome::Bool(true)), Ok("")) => {}
            (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
            (told, _) => panic!("{text}: {told:?}"),
        }
    }

    #[test]
    fn a_chain_of_calls_is_one_question() {
        let all = "authorizer.group('apps').resource('deployments').subresource('scale')\
                   .namespace('a').name('b').check('update').reason()";
        check(all, Ok("jane update apps/deployments/scale a/b"));
        check("authorizer.path('/healthz').check('get').allowed()", Ok(""));
        check(
            "authorizer.path('/healthz').check('get').reason()",
            Ok("jane get /healthz// /"),
        );
        check(
            "!authorizer.group('').resource('pods').check('delete').allowed()",
            Ok(""),
        );
        check(
            "authorizer.serviceAccount('a', 'b').path('/x').check('get').reason()",
            Ok("system:serviceaccount:a:b get /x// /"),
        );
        check(
            "authorizer.requestResource.name('n').check('get').reason()",
            Ok("jane get /pods/ ns/n"),
        );
        check("!authorizer.path('/x').check('get').errored()", Ok(""));
        check(
            "authorizer.path('').check('get').allowed()",
            Err("path must not be empty"),
        );
        check("authorizer.check('get').allowed()", Err("no such overload"));
    }
}
