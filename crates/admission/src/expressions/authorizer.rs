//! The variable `authorizer`: a chain of calls builds the attributes of a request, and `check` calls the
//! authorizer, as in Kubernetes' CEL library for authorization.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::super::request::AdmissionRequest;
use watchet_api::UserInfo;
use watchet_auth::{Attributes, Authorizer, Decision, group_names, user_name};
use watchet_cel::ast::{Expr, IdedExpr};
use watchet_cel::{
    Budget, Context, ExecutionError, Library, Opaque, Scope, This, Value as CelValue,
};

/// The name of the variable.
const AUTHORIZER: &str = "authorizer";
/// The member of the variable that is compiled to a variable of its own.
const REQUEST_RESOURCE: &str = "requestResource";
/// The name of the variable for the member.
const AUTHORIZER_REQUEST_RESOURCE: &str = "authorizer.requestResource";

/// The value of the variable `authorizer` for one request.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizerVariable {
    authorizer: Arc<dyn Authorizer>,
    /// The attributes of `authorizer.requestResource`, without a verb.
    request: Attributes,
}

impl AuthorizerVariable {
    pub(crate) fn new(request: &AdmissionRequest<'_>, authorizer: Arc<dyn Authorizer>) -> Self {
        Self {
            authorizer,
            request: Attributes {
                user: Arc::new(request.user.clone()),
                is_resource_request: true,
                api_group: request.resource.group.clone(),
                api_version: "*".to_owned(),
                resource: request.resource.resource.clone(),
                subresource: request.subresource.to_owned(),
                namespace: request.namespace.to_owned(),
                name: request.name.to_owned(),
                ..Attributes::default()
            },
        }
    }
}

/// The type of a value in a chain of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
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

/// A check that an expression builds.
#[derive(Debug, Clone)]
struct Check {
    stage: Stage,
    authorizer: Arc<dyn Authorizer>,
    attributes: Attributes,
}

impl PartialEq for Check {
    fn eq(&self, other: &Self) -> bool {
        (self.stage, &self.attributes) == (other.stage, &other.attributes)
    }
}

impl Eq for Check {}

impl Opaque for Check {
    fn runtime_type_name(&self) -> &str {
        self.stage.type_name()
    }
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Checked(Decision);

impl Opaque for Checked {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.authorization.Decision"
    }
}

type Resolved = Result<CelValue, ExecutionError>;
type Text = Arc<String>;

fn opaque(value: impl Opaque) -> CelValue {
    CelValue::Opaque(Arc::new(value))
}

impl AuthorizerVariable {
    /// Sets the variable in `scope`.
    pub(crate) fn set_in(&self, scope: &mut Scope<'_>) {
        let check = |stage, attributes| {
            opaque(Check {
                stage,
                authorizer: self.authorizer.clone(),
                attributes,
            })
        };
        let user = Attributes {
            user: self.request.user.clone(),
            api_version: "*".to_owned(),
            ..Attributes::default()
        };
        scope.set_value(AUTHORIZER, check(Stage::Authorizer, user));
        let of_request = check(Stage::Resource, self.request.clone());
        scope.set_value(AUTHORIZER_REQUEST_RESOURCE, of_request);
    }
}

/// Returns the check in `value` if it is in one of `stages`.
fn check_in<'a>(value: &'a CelValue, stages: &[Stage]) -> Result<&'a Check, ExecutionError> {
    let check = match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<Check>(),
        _ => None,
    };
    check
        .filter(|check| stages.contains(&check.stage))
        .ok_or(ExecutionError::NoSuchOverload)
}

/// Adds a function that leads from one stage to another and sets an attribute.
fn add_setter(
    context: &mut Context<'_>,
    name: &'static str,
    (from, to): (Stage, Stage),
    set: fn(&mut Attributes, String),
) {
    context.add_function(
        name,
        move |This(on): This<CelValue>, text: Text| -> Resolved {
            let mut check = check_in(&on, &[from])?.clone();
            check.stage = to;
            set(&mut check.attributes, text.as_ref().clone());
            Ok(opaque(check))
        },
    );
}

/// Adds a function of a decision.
fn add_getter(context: &mut Context<'_>, name: &'static str, get: fn(&Decision) -> CelValue) {
    context.add_function(name, move |This(on): This<CelValue>| -> Resolved {
        let checked = match &on {
            CelValue::Opaque(opaque) => opaque.downcast_ref::<Checked>(),
            _ => None,
        };
        let Checked(decision) = checked.ok_or(ExecutionError::NoSuchOverload)?;
        Ok(get(decision))
    });
}

/// The functions of the variable.
pub(super) struct AuthorizerLibrary;

impl Library for AuthorizerLibrary {
    fn register(&self, context: &mut Context<'_>) {
        register(context);
    }

    fn functions(&self) -> &'static [&'static str] {
        &[
            "allowed",
            "check",
            "error",
            "errored",
            "fieldSelector",
            "group",
            "labelSelector",
            "name",
            "namespace",
            "path",
            "reason",
            "resource",
            "serviceAccount",
            "subresource",
        ]
    }

    fn rewrite(&self, expression: &mut IdedExpr) {
        if let Expr::Select(select) = &expression.expr
            && select.field == REQUEST_RESOURCE
            && matches!(&select.operand.expr, Expr::Ident(name) if name == AUTHORIZER)
        {
            *expression = IdedExpr {
                id: 0,
                expr: Expr::Ident(AUTHORIZER_REQUEST_RESOURCE.to_owned()),
            };
        }
    }
}

/// Adds the functions. A check waits for the authorizer until the budget's deadline at most.
fn register(context: &mut Context<'_>) {
    use Stage::{Authorizer, Group, Path, Resource};
    add_setter(context, "path", (Authorizer, Path), |attributes, text| {
        attributes.path = text;
    });
    add_setter(context, "group", (Authorizer, Group), |attributes, text| {
        attributes.is_resource_request = true;
        attributes.api_group = text;
    });
    add_setter(
        context,
        "resource",
        (Group, Resource),
        |attributes, text| {
            attributes.resource = text;
        },
    );
    let of_resource = (Resource, Resource);
    add_setter(context, "subresource", of_resource, |attributes, text| {
        attributes.subresource = text;
    });
    add_setter(context, "namespace", of_resource, |attributes, text| {
        attributes.namespace = text;
    });
    add_setter(context, "name", of_resource, |attributes, text| {
        attributes.name = text;
    });
    // An invalid selector selects nothing less than all objects, as upstream.
    add_setter(context, "fieldSelector", of_resource, |attributes, text| {
        attributes.field_selector = text.parse().unwrap_or_default();
    });
    add_setter(context, "labelSelector", of_resource, |attributes, text| {
        attributes.label_selector = text.parse().unwrap_or_default();
    });
    context.add_function("serviceAccount", service_account);
    context.add_function(
        "check",
        |This(on): This<CelValue>, verb: Text| -> Resolved { check(&on, &verb) },
    );
    add_getter(context, "allowed", |decision| {
        CelValue::Bool(decision.is_allowed())
    });
    add_getter(context, "reason", |decision| {
        CelValue::String(Arc::new(decision.reason().to_owned()))
    });
    add_getter(context, "errored", |decision| {
        CelValue::Bool(decision.error().is_some())
    });
    add_getter(context, "error", |decision| {
        CelValue::String(Arc::new(decision.error().unwrap_or_default().to_owned()))
    });
}

fn service_account(This(on): This<CelValue>, namespace: Text, name: Text) -> Resolved {
    let mut check = check_in(&on, &[Stage::Authorizer])?.clone();
    let user = user_name(&namespace, &name);
    let user = UserInfo::authenticated(user, String::new(), group_names(&namespace));
    check.attributes.user = Arc::new(user);
    Ok(opaque(check))
}

/// Calls the authorizer. Expressions are evaluated on blocking threads, which may wait for it.
fn check(on: &CelValue, verb: &str) -> Resolved {
    let check = check_in(on, &[Stage::Path, Stage::Resource])?;
    if check.stage == Stage::Path && check.attributes.path.is_empty() {
        return Err(ExecutionError::function_error(
            "check",
            "path must not be empty",
        ));
    }
    let attributes = Attributes {
        verb: verb.to_owned(),
        ..check.attributes.clone()
    };
    let deadline = Budget::current()?.deadline();
    let decision = async {
        let decision = check.authorizer.authorize(&attributes);
        tokio::time::timeout_at(deadline, decision).await
    };
    match Handle::current().block_on(decision) {
        Ok(decision) => Ok(opaque(Checked(decision))),
        Err(_) => Err(ExecutionError::function_error(
            "check",
            "the authorizer takes too long",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use tokio::time::Instant;

    use super::super::{compile, new_scope};
    use super::*;
    use watchet_cel::Outcome;

    /// Allows `get`; the reason is the attributes.
    #[derive(Debug)]
    struct Echo;

    #[async_trait]
    impl Authorizer for Echo {
        async fn authorize(&self, attributes: &Attributes) -> Decision {
            // A remote authorizer does not decide immediately.
            tokio::task::yield_now().await;
            let Attributes {
                user,
                verb,
                is_resource_request,
                ..
            } = attributes;
            let reason = match is_resource_request {
                true => format!(
                    "{} {verb} {}/{}/{} {}/{} {} {}",
                    user.name,
                    attributes.api_group,
                    attributes.resource,
                    attributes.subresource,
                    attributes.namespace,
                    attributes.name,
                    attributes.field_selector,
                    attributes.label_selector
                ),
                false => format!("{} {verb} {}", user.name, attributes.path),
            };
            match verb == "get" {
                true => Decision::Allow(reason.into()),
                false => Decision::NoOpinion(reason.into()),
            }
        }
    }

    async fn check(text: &'static str, expect: Result<&'static str, &'static str>) {
        let evaluate = move || {
            let mut scope = new_scope(Instant::now() + Duration::from_secs(60));
            let variable = AuthorizerVariable {
                authorizer: Arc::new(Echo),
                request: Attributes {
                    user: Arc::new(UserInfo::authenticated(
                        "jane".into(),
                        String::new(),
                        Vec::new(),
                    )),
                    is_resource_request: true,
                    resource: "pods".into(),
                    namespace: "ns".into(),
                    ..Attributes::default()
                },
            };
            variable.set_in(&mut scope);
            let compiled = compile(text, &["authorizer"]).unwrap();
            scope.evaluate(&compiled)
        };
        let evaluated = watchet_tasks::Tasks::new().spawn_blocking("evaluate", evaluate);
        match (evaluated.await.unwrap(), expect) {
            (Ok(Outcome::Text(reason)), Ok(expect)) => assert_eq!(reason, expect, "{text}"),
            (Ok(Outcome::Bool(true)), Ok("")) => {}
            (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
            (other, _) => panic!("{text}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn chain_of_calls_builds_the_attributes() {
        let all = "authorizer.group('apps').resource('deployments').subresource('scale')\
                   .namespace('a').name('b').fieldSelector('x=y').labelSelector('z')\
                   .check('update').reason()";
        let expect = "jane update apps/deployments/scale a/b x=y z";
        check(all, Ok(expect)).await;
        for (text, expect) in [
            ("authorizer.path('/healthz').check('get').allowed()", Ok("")),
            (
                "authorizer.path('/healthz').check('get').reason()",
                Ok("jane get /healthz"),
            ),
            (
                "!authorizer.group('').resource('pods').check('delete').allowed()",
                Ok(""),
            ),
            (
                "authorizer.serviceAccount('a', 'b').path('/x').check('get').reason()",
                Ok("system:serviceaccount:a:b get /x"),
            ),
            (
                "authorizer.requestResource.name('n').check('get').reason()",
                Ok("jane get /pods/ ns/n  "),
            ),
            ("!authorizer.path('/x').check('get').errored()", Ok("")),
            (
                "authorizer.path('').check('get').allowed()",
                Err("path must not be empty"),
            ),
            ("authorizer.check('get').allowed()", Err("no such overload")),
        ] {
            check(text, expect).await;
        }
    }
}
