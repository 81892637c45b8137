//! The operations of the verbs with their parameters. `paths` adds them to documents.

/// A query parameter.
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
    "'All' processes the request without storing its result. No other value is valid.",
);
const FIELD_MANAGER: Parameter = parameter(
    "fieldManager",
    "string",
    "The name of the actor that makes these changes, of at most 128 printable characters.",
);
const FIELD_VALIDATION: Parameter = parameter(
    "fieldValidation",
    "string",
    "The treatment of unknown and duplicate fields: 'Ignore' drops them, 'Warn' (the default) also sends a \
     Warning header for each, 'Strict' rejects the request.",
);
const FORCE: Parameter = parameter(
    "force",
    "boolean",
    "An apply takes over conflicting fields of other managers. Only for apply requests.",
);
const WRITE: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION];
const PATCH: &[Parameter] = &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE];

const DELETE: &[Parameter] = &[
    DRY_RUN,
    parameter(
        "gracePeriodSeconds",
        "integer",
        "Seconds until the object is deleted; zero deletes it immediately. Defaults to a value of the kind.",
    ),
    parameter(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Deletes the object even if it cannot be decoded, regardless of its finalizers.",
    ),
    parameter(
        "orphanDependents",
        "boolean",
        "Deprecated: use propagationPolicy. Whether dependents are orphaned.",
    ),
    parameter(
        "propagationPolicy",
        "string",
        "The treatment of dependents: 'Orphan', 'Background' or 'Foreground'.",
    ),
];

const SELECT: &[Parameter] = &[
    parameter(
        "continue",
        "string",
        "Continues a list after the response that had this token.",
    ),
    parameter(
        "fieldSelector",
        "string",
        "Selects objects by field values.",
    ),
    parameter("labelSelector", "string", "Selects objects by labels."),
    parameter(
        "limit",
        "integer",
        "The maximum number of objects in a response.",
    ),
    parameter(
        "resourceVersion",
        "string",
        "The resource version of a get or list, or the one after which a watch starts.",
    ),
    parameter(
        "resourceVersionMatch",
        "string",
        "The interpretation of resourceVersion: 'Exact' or 'NotOlderThan'.",
    ),
    parameter(
        "sendInitialEvents",
        "boolean",
        "A watch starts with the current state as ADDED events, followed by a bookmark.",
    ),
    parameter(
        "shardSelector",
        "string",
        "Selects objects by ranges of the hash of their uid or namespace, for example shardRange(object.metadata.uid, '0x0', '0x8000000000000000').",
    ),
    parameter(
        "timeoutSeconds",
        "integer",
        "Limits the duration of a list or watch.",
    ),
];

const WATCH: &[Parameter] = &[
    parameter(
        "allowWatchBookmarks",
        "boolean",
        "Enables BOOKMARK events, which contain the resource version that the watch has reached.",
    ),
    parameter(
        "watch",
        "boolean",
        "Watches for changes instead of returning a list.",
    ),
];

/// An operation on a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    /// As in discovery.
    pub(super) verb: &'static str,
    /// `get`, `put`, …
    pub(super) method: &'static str,
    /// The prefix of its id: `readCoreV1NamespacedPod`.
    pub(super) word: &'static str,
    /// `x-kubernetes-action`
    pub(super) action: &'static str,
    /// True if the operation is about one object.
    pub(super) named: bool,
    pub(super) parameters: &'static [&'static [Parameter]],
    /// The request body.
    pub(super) body: Body,
    /// The response body.
    pub(super) response: ResponseKind,
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
pub(super) enum ResponseKind {
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
        parameters: &[SELECT, WATCH], body: Body::None, response: ResponseKind::List, codes: &[OK] },
    Operation { verb: "create", method: "post", word: "create", action: "post", named: false,
        parameters: &[WRITE], body: Body::Object, response: ResponseKind::Object, codes: &[OK, CREATED, ACCEPTED] },
    Operation { verb: "deletecollection", method: "delete", word: "delete", action: "deletecollection",
        named: false, parameters: &[DELETE, SELECT], body: Body::Options, response: ResponseKind::Status, codes: &[OK] },
    Operation { verb: "get", method: "get", word: "read", action: "get", named: true,
        parameters: &[], body: Body::None, response: ResponseKind::Object, codes: &[OK] },
    Operation { verb: "update", method: "put", word: "replace", action: "put", named: true,
        parameters: &[WRITE], body: Body::Object, response: ResponseKind::Object, codes: &[OK, CREATED] },
    Operation { verb: "delete", method: "delete", word: "delete", action: "delete", named: true,
        parameters: &[DELETE], body: Body::Options, response: ResponseKind::Status, codes: &[OK, ACCEPTED] },
    Operation { verb: "patch", method: "patch", word: "patch", action: "patch", named: true,
        parameters: &[PATCH], body: Body::Patch, response: ResponseKind::Object, codes: &[OK, CREATED] },
];

/// Operations of the deprecated paths below `/watch/`.
#[rustfmt::skip]
pub(super) const WATCH_OPERATIONS: &[Operation] = &[
    Operation { verb: "watch", method: "get", word: "watch", action: "watchlist", named: false,
        parameters: &[SELECT, WATCH], body: Body::None, response: ResponseKind::Event, codes: &[OK] },
    Operation { verb: "watch", method: "get", word: "watch", action: "watch", named: true,
        parameters: &[SELECT, WATCH], body: Body::None, response: ResponseKind::Event, codes: &[OK] },
];
