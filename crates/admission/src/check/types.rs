//! Type checking of policies: warnings about fields that expressions select and that their types do not have, with the
//! messages of upstream's type checker. The results of functions and values of unknown types are not checked, so an
//! expression without a warning can still fail.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};

use super::super::request::{GroupVersionKind, GroupVersionResource};
use super::problems::strings;
use watchet_cel::ast::operators::INDEX;
use watchet_cel::ast::{ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, SelectExpr};
use watchet_cel::{Syntax, parse, truncated, undefined_field_error};
use watchet_schema::{KindType, Shape, TypeRef};

/// The maximum number of kinds that are checked, as upstream.
const KINDS_MAX: usize = 10;

/// The maximum size in bytes of the problems of an expression with one kind, and of all warnings of a policy.
const PROBLEMS_BYTES_MAX: usize = 4 << 10;
const WARNINGS_BYTES_MAX: usize = 64 << 10;

/// The served types.
pub trait Kinds {
    /// Returns the served resources.
    fn resources(&self) -> Vec<GroupVersionResource>;

    /// Returns the kind of a resource and its type.
    fn of_resource(&self, resource: &GroupVersionResource) -> Option<(GroupVersionKind, KindType)>;

    /// Returns the type of a kind.
    fn of_kind(&self, kind: &GroupVersionKind) -> Option<KindType>;
}

/// Returns the `status.typeChecking.expressionWarnings` of a ValidatingAdmissionPolicy.
pub fn warnings(policy: &Value, kinds: &dyn Kinds) -> Vec<Value> {
    let spec = &policy["spec"];
    let matched = matched_kinds(spec, kinds);
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
    let mut warnings_bytes = 0;
    let validations = spec["validations"].as_array().into_iter().flatten();
    for (index, validation) in validations.enumerate() {
        for member in ["expression", "messageExpression"] {
            let Some(text) = validation[member].as_str() else {
                continue;
            };
            // Validation reports expressions that cannot be parsed.
            let Ok(expression) = parse(text, &Syntax::default()) else {
                continue;
            };
            let mut texts = Vec::new();
            for (kind, object) in &matched {
                let types = [
                    ("object", Some(object)),
                    ("oldObject", Some(object)),
                    ("params", params.as_ref()),
                    ("namespaceObject", namespace.as_ref()),
                ];
                let problems = problems(text, &expression, &types);
                if !problems.is_empty() {
                    texts.push(format!("{kind}: {problems}"));
                }
            }
            if !texts.is_empty() {
                let text = texts.join("\n");
                warnings_bytes += text.len();
                warnings.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{member}"),
                    "warning": text,
                }));
            }
            if warnings_bytes > WARNINGS_BYTES_MAX {
                return warnings;
            }
        }
    }
    warnings
}

/// Returns the kinds that the policy's rules name, sorted; wildcards are skipped. The time depends on the number of names
/// in the rules, not on that of their combinations.
fn matched_kinds(spec: &Value, kinds: &dyn Kinds) -> Vec<(GroupVersionKind, KindType)> {
    let served = kinds.resources();
    let mut unseen: HashMap<&str, Vec<&GroupVersionResource>> = HashMap::new();
    for resource in &served {
        unseen.entry(&resource.resource).or_default().push(resource);
    }
    let mut found: Vec<(GroupVersionKind, KindType)> = Vec::new();
    let rules = spec["matchConstraints"]["resourceRules"].as_array();
    for rule in rules.into_iter().flatten() {
        let names = |member: &str| -> HashSet<&str> {
            let all: HashSet<&str> = strings(&rule[member]).collect();
            match all.contains("*") {
                true => HashSet::new(),
                false => all,
            }
        };
        let (groups, versions) = (names("apiGroups"), names("apiVersions"));
        for name in names("resources") {
            let Some(named) = unseen.get_mut(name) else {
                continue;
            };
            let is_named = |resource: &mut &GroupVersionResource| {
                groups.contains(&*resource.group) && versions.contains(&*resource.version)
            };
            for resource in named.extract_if(.., is_named) {
                let known = kinds.of_resource(resource);
                found.extend(known.filter(|(kind, _)| found.iter().all(|(k, _)| k != kind)));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    found.truncate(KINDS_MAX);
    found
}

/// Returns the problems of `expression`, the text of which is `text`, where variables have these types.
fn problems(text: &str, expression: &IdedExpr, types: &[(&str, Option<&KindType>)]) -> String {
    let known = types
        .iter()
        .map(|(name, kind)| (*name, kind.map(KindType::root)));
    let mut check = Check {
        text,
        bound: known.map(|(name, of)| (name.to_owned(), of)).collect(),
        undefined: BTreeSet::new(),
        problems: String::new(),
    };
    check.walk(expression);
    truncated(&check.problems)
}

struct Check<'a> {
    text: &'a str,
    /// The variables and their types, the innermost last. `None` is the unknown type.
    bound: Vec<(String, Option<TypeRef<'a>>)>,
    /// The reported fields.
    undefined: BTreeSet<String>,
    problems: String,
}

impl<'a> Check<'a> {
    /// Checks `expression` and returns its type, if it is known.
    fn walk(&mut self, expression: &IdedExpr) -> Option<TypeRef<'a>> {
        match &expression.expr {
            Expr::Ident(name) => {
                let mut bound = self.bound.iter().rev();
                bound.find(|(known, _)| known == name)?.1
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => {
                let target = call.target.as_deref().map(|target| self.walk(target));
                let of = call.args.iter().map(|argument| self.walk(argument));
                let of: Vec<Option<TypeRef<'a>>> = of.collect();
                match (&*call.func_name, target, &of[..]) {
                    (INDEX, None, [Some(container), _]) => item(*container),
                    _ => None,
                }
            }
            Expr::List(ListExpr { elements, .. }) => {
                for element in elements {
                    self.walk(element);
                }
                None
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.walk(&entry.key);
                        self.walk(&entry.value);
                    }
                }
                None
            }
            Expr::Comprehension(folded) => self.comprehension(folded),
            _ => None,
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Option<TypeRef<'a>> {
        let of = self.walk(&select.operand)?;
        match of.shape() {
            // Names that are not identifiers are escaped.
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

    /// Reports an undefined field with its position and line, as upstream.
    fn undefined(&mut self, field: &str) {
        if self.problems.len() > PROBLEMS_BYTES_MAX || !self.undefined.insert(field.to_owned()) {
            return;
        }
        if !self.problems.is_empty() {
            self.problems.push('\n');
        }
        let problem = undefined_field_error(self.text, None, field);
        self.problems.push_str(&problem);
    }

    fn comprehension(&mut self, folded: &ComprehensionExpr) -> Option<TypeRef<'a>> {
        let range = self.walk(&folded.iter_range);
        self.walk(&folded.accu_init);
        let outer = self.bound.len();
        let listed = range.filter(|of| matches!(of.shape(), Shape::List { .. }));
        let each = match folded.iter_var2 {
            // If there are two variables, the first one is the index.
            Some(_) => None,
            None => listed.and_then(item),
        };
        self.bound.push((folded.iter_var.clone(), each));
        if let Some(second) = &folded.iter_var2 {
            self.bound.push((second.clone(), range.and_then(item)));
        }
        self.bound.push((folded.accu_var.clone(), None));
        for part in [&folded.loop_cond, &folded.loop_step, &folded.result] {
            self.walk(part);
        }
        self.bound.truncate(outer);
        None
    }
}

/// Returns the type of the items of a container.
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
    use watchet_schema::Types;

    struct TestKinds;

    impl Kinds for TestKinds {
        fn resources(&self) -> Vec<GroupVersionResource> {
            let resource = |(group, resource): (&str, &str)| GroupVersionResource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                resource: resource.to_owned(),
            };
            let all = [("apps", "deployments"), ("", "pods"), ("apps", "pods")];
            all.map(resource).to_vec()
        }

        fn of_resource(
            &self,
            resource: &GroupVersionResource,
        ) -> Option<(GroupVersionKind, KindType)> {
            let kind = match &*resource.resource {
                "deployments" => "Deployment",
                _ => "Pod",
            };
            let kind = GroupVersionKind {
                group: resource.group.clone(),
                version: resource.version.clone(),
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

    fn warnings_of(expression: &str) -> Vec<String> {
        let rules =
            json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
        let policy = json!({"spec": {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}],
        }});
        let all = warnings(&policy, &TestKinds).into_iter();
        all.map(|one| {
            assert_eq!(one["fieldRef"], "spec.validations[0].expression");
            one["warning"].as_str().unwrap().to_owned()
        })
        .collect()
    }

    #[test]
    fn undefined_field_is_reported() {
        assert_eq!(
            warnings_of("object.replicas > 1"),
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
            let all = warnings_of(expression);
            let expected = format!("undefined field '{field}'");
            assert!(
                all.len() == 1 && all[0].contains(&expected),
                "{expression}: {all:?}"
            );
        }
    }

    /// A rule of ten thousand groups, versions and resources each has 10^12 combinations.
    #[test]
    fn combinations_of_a_rule_are_not_enumerated() {
        let many = |known: &str| -> Vec<String> {
            let invented = (0..10_000).map(|n| format!("x{n}"));
            invented.chain([known.to_owned()]).collect()
        };
        let spec = json!({"matchConstraints": {"resourceRules": [
            {"apiGroups": many(""), "apiVersions": many("v1"), "resources": many("pods")},
            {"apiGroups": many("apps"), "apiVersions": many("v1"), "resources": many("deployments")},
            {"apiGroups": ["*"], "apiVersions": ["v1"], "resources": ["pods"]},
        ]}});
        let found = matched_kinds(&spec, &TestKinds);
        let kinds: Vec<String> = found.iter().map(|(kind, _)| kind.to_string()).collect();
        assert_eq!(kinds, ["/v1, Kind=Pod", "apps/v1, Kind=Deployment"]);
    }

    /// Each field is reported with a line of text.
    #[test]
    fn size_of_warnings_is_limited() {
        let fields: Vec<String> = (0..350).map(|n| format!("object.f{n} == 1")).collect();
        let all = warnings_of(&fields.join("||"));
        assert!(all[0].len() < 2 * PROBLEMS_BYTES_MAX, "{}", all[0].len());
    }

    #[test]
    fn possible_fields_are_not_reported() {
        for expression in [
            "object.spec.replicas <= 5 && object.metadata.labels.anything == 'a'",
            "object.spec.template.spec.containers.all(c, c.image.startsWith('a'))",
            "request.anything.at.all == 1 || authorizer.group('').resource('x').check('y').allowed()",
            "params.data.x == '1' && params.metadata.name == 'a'",
            "object.spec.selector.matchLabels.all(k, object.metadata.labels[k] == 'a')",
            "variables.foo.bar && [object].all(o, o.anything)",
            "object.?spec.replicas.orValue(1) == 1",
        ] {
            assert_eq!(warnings_of(expression), [""; 0], "{expression}");
        }
    }
}
