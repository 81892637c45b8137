//! What can be done in a place, and with which parameters: the facts of the verbs. How they are written
//! down is told by `paths`.

/// A parameter of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) form: &'static str,
    pub(super) description: &'static str,
}

const fn parameter(name: &'static str, form: &'static str, description: &'static str) -> Parameter {
    Parameter {
        name,
        form,
        description,
    }
}

pub(super) const PRETTY: Parameter = parameter(
    "pretty",
    "string",
    "If 'true', the output is indented. Defaults to 'false' unless the client looks like a person's.",
);

const DRY_RUN: Parameter = parameter(
    "dryRun",
    "string",
    "'All' goes through all stages of the request without storing its outcome. Nothing else is valid.",
);
const FIELD_MANAGER: Parameter = parameter(
    "fieldManager",
    "string",
    "The name of the actor that makes these changes, of at most 128 printable characters.",
);
const FIELD_VALIDATION: Parameter = parameter(
    "fieldValidation",
    "string",
    "What becomes of unknown and duplicate fields: 'Ignore' drops them, 'Warn' (the default) also tells \
     of each in a Warning header, 'Strict' refuses the request.",
);
const FORCE: Parameter = parameter(
    "force",
    "boolean",
    "An apply takes over the fields that it shares with other managers. Only of apply requests.",
);
const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];

const DELETE: &[Parameter] = &[
    DRY_RUN,
    parameter(
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object is deleted; zero is at once. The kind's own default unless given.",
    ),
    parameter(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Deletes the object even though it cannot be read, without asking its finalizers.",
    ),
    parameter(
        "orphanDependents",
        "boolean",
        "Deprecated: use propagationPolicy. Whether dependents are left behind.",
    ),
    parameter(
        "propagationPolicy",
        "string",
        "What becomes of dependents: 'Orphan', 'Background' or 'Foreground'.",
    ),
];

const SELECT: &[Parameter] = &[
    parameter(
        "continue",
        "string",
        "Goes on with a list where the answer that had this token ended.",
    ),
    parameter(
        "fieldSelector",
        "string",
        "Only objects whose fields have these values.",
    ),
    parameter(
        "labelSelector",
        "string",
        "Only objects whose labels have these values.",
    ),
    parameter("limit", "integer", "The most objects that one answer has."),
    parameter(
        "resourceVersion",
        "string",
        "The state that the answer is of, or after which it begins.",
    ),
    parameter(
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: 'Exact' or 'NotOlderThan'.",
    ),
    parameter(
        "sendInitialEvents",
        "boolean",
        "A watch begins with the state as ADDED events, and a bookmark at their end.",
    ),
    parameter(
        "timeoutSeconds",
        "integer",
        "Ends a list or a watch after this time.",
    ),
];

const WATCH: &[Parameter] = &[
    parameter(
        "allowWatchBookmarks",
        "boolean",
        "Asks for BOOKMARK events, which tell how far the watch has come.",
    ),
    parameter(
        "watch",
        "boolean",
        "Streams changes as events instead of answering with a list.",
    ),
];

/// One way to use a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    /// As in discovery.
    pub(super) verb: &'static str,
    /// `get`, `put`, …
    pub(super) method: &'static str,
    /// Begins its id: `readCoreV1NamespacedPod`.
    pub(super) word: &'static str,
    /// `x-kubernetes-action`
    pub(super) action: &'static str,
    /// Whether it is about one object.
    pub(super) named: bool,
    pub(super) parameters: &'static [&'static [Parameter]],
    /// What is sent.
    pub(super) body: Body,
    /// What comes back.
    pub(super) answer: Answer,
    pub(super) codes: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Object,
    Patch,
    Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Object,
    List,
    Status,
    Event,
}

const OK: (&str, &str) = ("200", "OK");
const CREATED: (&str, &str) = ("201", "Created");
const ACCEPTED: (&str, &str) = ("202", "Accepted");

#[rustfmt::skip]
pub(super) const OPERATIONS: &[Operation] = &[
    Operation { verb: "list", method: "get", word: "list", action: "list", named: false,
        parameters: &[SELECT, WATCH], body: Body::None, answer: Answer::List, codes: &[OK] },
    Operation { verb: "create", method: "post", word: "create", action: "post", named: false,
        parameters: &[WRITE], body: Body::Object, answer: Answer::Object, codes: &[OK, CREATED, ACCEPTED] },
    Operation { verb: "deletecollection", method: "delete", word: "delete", action: "deletecollection",
        named: false, parameters: &[DELETE, SELECT], body: Body::Options, answer: Answer::Status, codes: &[OK] },
    Operation { verb: "get", method: "get", word: "read", action: "get", named: true,
        parameters: &[], body: Body::None, answer: Answer::Object, codes: &[OK] },
    Operation { verb: "update", method: "put", word: "replace", action: "put", named: true,
        parameters: &[WRITE], body: Body::Object, answer: Answer::Object, codes: &[OK, CREATED] },
    Operation { verb: "delete", method: "delete", word: "delete", action: "delete", named: true,
        parameters: &[DELETE], body: Body::Options, answer: Answer::Status, codes: &[OK, ACCEPTED] },
    Operation { verb: "patch", method: "patch", word: "patch", action: "patch", named: true,
        parameters: &[PATCH], body: Body::Patch, answer: Answer::Object, codes: &[OK, CREATED] },
];

/// What the deprecated paths below `/watch/` do.
#[rustfmt::skip]
pub(super) const WATCH_OPERATIONS: &[Operation] = &[
    Operation { verb: "watch", method: "get", word: "watch", action: "watchlist", named: false,
        parameters: &[SELECT, WATCH], body: Body::None, answer: Answer::Event, codes: &[OK] },
    Operation { verb: "watch", method: "get", word: "watch", action: "watch", named: true,
        parameters: &[SELECT, WATCH], body: Body::None, answer: Answer::Event, codes: &[OK] },
];
