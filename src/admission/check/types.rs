//! What a policy's expressions select that the types they are about do not have: warnings for its status, in
//! the words of upstream's type checker. What has no type here, and what a function makes, is not looked
//! into: an expression without a warning can still fail.

use kube_cel::cel::common::ast::operators::INDEX;
use kube_cel::cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, SelectExpr,
};
use kube_cel::cel::parser::Parser;
use serde_json::{Value, json};

use super::super::attributes::GroupVersionKind;
use super::strings;
use crate::schema::{KindType, Shape, TypeRef};

/// How many kinds are looked at; upstream's.
const KINDS_MAX: usize = 10;

/// How deep an expression is followed: one that is deeper is refused elsewhere.
const DEPTH_MAX: usize = 100;

/// What types there are.
pub trait Kinds {
    /// The kind of the resource of this group, version and plural name, and its type.
    fn of_resource(
        &self,
        group: &str,
        version: &str,
        resource: &str,
    ) -> Option<(GroupVersionKind, KindType)>;

    /// The type of this kind.
    fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType>;
}

/// The warnings about a ValidatingAdmissionPolicy, as `status.typeChecking.expressionWarnings` has them.
pub fn warnings(policy: &Value, kinds: &dyn Kinds) -> Vec<Value> {
    let spec = &policy["spec"];
    let about = about(spec, kinds);
    let of_params = &spec["paramKind"];
    let params = of_params
        .is_object()
        .then(|| kinds.of_kind(&GroupVersionKind::of(of_params)))
        .flatten();
    let namespace = kinds.of_kind(&GroupVersionKind {
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        ..GroupVersionKind::default()
    });
    let mut warnings = Vec::new();
    let validations = spec["validations"].as_array().into_iter().flatten();
    for (index, validation) in validations.enumerate() {
        for member in ["expression", "messageExpression"] {
            let Some(text) = validation[member].as_str() else {
                continue;
            };
            let mut told = Vec::new();
            for (kind, object) in &about {
                let types = [
                    ("object", Some(object)),
                    ("oldObject", Some(object)),
                    ("params", params.as_ref()),
                    ("namespaceObject", namespace.as_ref()),
                ];
                let problems = problems(text, &types);
                if !problems.is_empty() {
                    told.push(format!("{kind}: {}", problems.join("\n")));
                }
            }
            if !told.is_empty() {
                warnings.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{member}"),
                    "warning": told.join("\n"),
                }));
            }
        }
    }
    warnings
}

/// The kinds that the policy's rules name; who means any names none.
fn about(spec: &Value, kinds: &dyn Kinds) -> Vec<(GroupVersionKind, KindType)> {
    let mut found: Vec<(GroupVersionKind, KindType)> = Vec::new();
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    for rule in rules.into_iter().flatten() {
        let list = |member: &str| -> Vec<&str> {
            let all: Vec<&str> = strings(&rule[member]).collect();
            match all.contains(&"*") {
                true => Vec::new(),
                false => all,
            }
        };
        for group in list("apiGroups") {
            for version in list("apiVersions") {
                for resource in list("resources") {
                    let known = kinds.of_resource(group, version, resource);
                    let new = known.filter(|(kind, _)| found.iter().all(|(k, _)| k != kind));
                    found.extend(new);
                    if found.len() == KINDS_MAX {
                        return found;
                    }
                }
            }
        }
    }
    found
}

/// What is wrong with the expression `text`, where variables have these types.
fn problems(text: &str, types: &[(&str, Option<&KindType>)]) -> Vec<String> {
    // What is no expression is refused elsewhere.
    let parsed =
        std::panic::catch_unwind(|| Parser::new().enable_optional_syntax(true).parse(text));
    let Ok(Ok(parsed)) = parsed else {
        return Vec::new();
    };
    let known = types
        .iter()
        .map(|(name, kind)| (*name, kind.map(KindType::root)));
    let mut check = Check {
        text,
        bound: known.map(|(name, of)| (name.to_owned(), of)).collect(),
        problems: Vec::new(),
    };
    check.walk(&parsed, 0);
    check.problems
}

struct Check<'a> {
    text: &'a str,
    /// Variables with their types, the innermost last; `None` may be anything.
    bound: Vec<(String, Option<TypeRef<'a>>)>,
    problems: Vec<String>,
}

impl<'a> Check<'a> {
    /// The type of `expression`, if that can be told.
    fn walk(&mut self, expression: &IdedExpr, depth: usize) -> Option<TypeRef<'a>> {
        if depth > DEPTH_MAX {
            return None;
        }
        let deeper = depth + 1;
        match &expression.expr {
            Expr::Ident(name) => {
                let mut bound = self.bound.iter().rev();
                bound.find(|(known, _)| known == name)?.1
            }
            Expr::Select(select) => self.select(select, deeper),
            Expr::Call(call) => {
                let target = call
                    .target
                    .as_deref()
                    .map(|target| self.walk(target, deeper));
                let of = call.args.iter().map(|argument| self.walk(argument, deeper));
                let of: Vec<Option<TypeRef<'a>>> = of.collect();
                match (&*call.func_name, target, &of[..]) {
                    (INDEX, None, [Some(container), _]) => item(*container),
                    _ => None,
                }
            }
            Expr::List(ListExpr { elements, .. }) => {
                for element in elements {
                    self.walk(element, deeper);
                }
                None
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.walk(&entry.key, deeper);
                        self.walk(&entry.value, deeper);
                    }
                }
                None
            }
            Expr::Comprehension(folded) => self.comprehension(folded, deeper),
            _ => None,
        }
    }

    fn select(&mut self, select: &SelectExpr, depth: usize) -> Option<TypeRef<'a>> {
        let of = self.walk(&select.operand, depth)?;
        match of.shape() {
            // Names that are no identifiers are escaped.
            _ if select.field.contains("__") => None,
            Shape::Object { fields, open, .. } => match fields.get(&select.field) {
                Some(found) => Some(found),
                None => {
                    if !open {
                        self.undefined(&select.field);
                    }
                    None
                }
            },
            Shape::Map { value, .. } => Some(value),
            _ => None,
        }
    }

    /// Tells of a field as upstream does: where, and with the line.
    fn undefined(&mut self, field: &str) {
        let selected = format!(".{field}");
        let is_whole = |at: &usize| {
            let rest = &self.text[at + selected.len()..];
            !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        };
        let mut places = self.text.match_indices(&selected).map(|(at, _)| at);
        let at = places.find(is_whole).unwrap_or(0);
        let before = &self.text[..at];
        let (line, column) = match before.rsplit_once('\n') {
            Some((lines, last)) => (lines.matches('\n').count() + 2, last.chars().count()),
            None => (1, before.chars().count()),
        };
        let shown = self.text.lines().nth(line - 1).unwrap_or_default();
        let problem = format!(
            "ERROR: <input>:{line}:{}: undefined field '{field}'\n | {shown}\n | {}^",
            column + 1,
            ".".repeat(column)
        );
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    fn comprehension(&mut self, folded: &ComprehensionExpr, depth: usize) -> Option<TypeRef<'a>> {
        let range = self.walk(&folded.iter_range, depth);
        self.walk(&folded.accu_init, depth);
        let outer = self.bound.len();
        let listed = range.filter(|of| matches!(of.shape(), Shape::List { .. }));
        let each = match folded.iter_var2 {
            // Of two the first is the place.
            Some(_) => None,
            None => listed.and_then(item),
        };
        self.bound.push((folded.iter_var.clone(), each));
        if let Some(second) = &folded.iter_var2 {
            self.bound.push((second.clone(), range.and_then(item)));
        }
        self.bound.push((folded.accu_var.clone(), None));
        for part in [&folded.loop_cond, &folded.loop_step, &folded.result] {
            self.walk(part, depth);
        }
        self.bound.truncate(outer);
        None
    }
}

/// The type of what a container holds.
fn item(container: TypeRef<'_>) -> Option<TypeRef<'_>> {
    match container.shape() {
        Shape::List { item, .. } => Some(item),
        Shape::Map { value, .. } => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Types;

    struct Some_;

    impl Kinds for Some_ {
        fn of_resource(
            &self,
            group: &str,
            version: &str,
            resource: &str,
        ) -> Option<(GroupVersionKind, KindType)> {
            let kind = match resource {
                "deployments" => "Deployment",
                "pods" => "Pod",
                _ => return None,
            };
            let kind = GroupVersionKind {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
            };
            Some((kind.clone(), self.of_kind(&kind)?))
        }

        fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType> {
            let version = match kind.group.is_empty() {
                true => kind.version.clone(),
                false => format!("{}/{}", kind.group, kind.version),
            };
            KindType::builtin(&Types::builtins(), &version, &kind.kind)
        }
    }

    fn told(expression: &str) -> Vec<String> {
        let rules =
            json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        let policy = json!({"spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}],
        }});
        let all = warnings(&policy, &Some_).into_iter();
        all.map(|one| {
            assert_eq!(one["fieldRef"], "spec.validations[0].expression");
            one["warning"].as_str().unwrap().to_owned()
        })
        .collect()
    }

    #[test]
    fn a_field_that_the_type_has_not_is_told() {
        assert_eq!(
            told("object.replicas > 1"),
            [
                "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n \
              | object.replicas > 1\n | ......^"
            ]
        );
        for (expression, field) in [
            (
                "object.spec.template.spec.containers.all(c, c.imagge != '')",
                "imagge",
            ),
            ("has(object.spec.foo)", "foo"),
            ("object.spec.template.spec.containers[0].nam == 'a'", "nam"),
            (
                "oldObject == null || oldObject.metadata.labells['a'] == 'b'",
                "labells",
            ),
            ("params.dataa.x == '1'", "dataa"),
            ("namespaceObject.metadata.nam == 'a'", "nam"),
            ("variables.x == 1 && object.spek == 1", "spek"),
        ] {
            let all = told(expression);
            let expected = format!("undefined field '{field}'");
            assert!(
                all.len() == 1 && all[0].contains(&expected),
                "{expression}: {all:?}"
            );
        }
    }

    #[test]
    fn what_may_be_there_is_not_told() {
        for expression in [
            "object.spec.replicas <= 5 && object.metadata.labels.anything == 'a'",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('a'))",
            "request.anything.at.all == 1 || authorizer.group('').resource('x').check('y').allowed()",
            "params.data.x == '1' && params.metadata.name == 'a'",
            "object.spec.selector.matchLabels.all(k, object.metadata.labels[k] == 'a')",
            "variables.foo.bar && [object].all(o, o.anything)",
            "object.?spec.replicas.orValue(1) == 1",
        ] {
            assert_eq!(told(expression), [""; 0], "{expression}");
        }
    }
}
