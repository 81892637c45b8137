//! The format `legacy` of an event, as in kube-apiserver: a line of text with the most important fields.

use bytes::Bytes;

use crate::event::{Event, truncated};
use watchet_api::UserInfo;

impl Event<'_> {
    /// Returns the line with a line break. Quoting escapes control characters.
    pub(crate) fn legacy_line(&self) -> Bytes {
        let ip = self.source_ips.first().map(ToString::to_string);
        let groups = |user: &UserInfo| {
            let quoted = user.groups.iter().map(|group| format!("{group:?}"));
            quoted.collect::<Vec<_>>().join(",")
        };
        let none = || "<none>".to_owned();
        let (user, user_groups) = match self.user {
            user if user.name.is_empty() => (none(), none()),
            user if user.groups.is_empty() => (user.name.clone(), none()),
            user => (user.name.clone(), groups(user)),
        };
        let (as_user, as_groups) = match self.impersonated_user {
            None => ("<self>", "<lookup>".to_owned()),
            Some(user) if user.groups.is_empty() => (&*user.name, "<lookup>".to_owned()),
            Some(user) => (&*user.name, groups(user)),
        };
        let object = self.object.as_ref();
        let namespace = object.map(|object| &*object.namespace);
        let namespace = namespace.filter(|namespace| !namespace.is_empty());
        let code = self.response.map(|response| response.code.to_string());
        let line = format!(
            "{} AUDIT: id={:?} stage={:?} ip={:?} method={:?} user={user:?} groups={user_groups:?} as={as_user:?} \
             asgroups={as_groups:?} user-agent={:?} namespace={:?} uri={:?} response=\"{}\"\n",
            self.received,
            self.audit_id,
            self.stage.as_str(),
            ip.as_deref().unwrap_or("<unknown>"),
            self.verb,
            truncated(self.user_agent),
            namespace.unwrap_or("<none>"),
            self.request_uri,
            code.as_deref().unwrap_or("<deferred>"),
        );
        line.into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::event::{ObjectReference, ResponseStatus};
    use crate::policy::{Level, Stage};

    fn user(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(ToString::to_string).collect(),
            ..UserInfo::default()
        }
    }

    /// The cases of upstream's format: absent members have placeholders, and lists are quoted twice.
    #[test]
    fn absent_members_have_placeholders() {
        let (annotations, ips) = (BTreeMap::new(), ["10.0.0.1".parse().unwrap()]);
        let (stranger, jane) = (user("", &["g"]), user("jane", &["a", "b\n"]));
        let received = "2026-11-24T09:50:00.12Z".parse().unwrap();
        let event = Event {
            level: Level::Metadata,
            audit_id: "1",
            stage: Stage::RequestReceived,
            request_uri: "/healthz".into(),
            verb: "get",
            user: &stranger,
            impersonated_user: None,
            source_ips: &[],
            user_agent: "",
            object: None,
            response: None,
            request_object: None,
            response_object: None,
            received,
            reached: received,
            annotations: &annotations,
        };
        let line = "2026-11-24T09:50:00.12Z AUDIT: id=\"1\" stage=\"RequestReceived\" ip=\"<unknown>\" method=\"get\" \
                    user=\"<none>\" groups=\"<none>\" as=\"<self>\" asgroups=\"<lookup>\" user-agent=\"\" \
                    namespace=\"<none>\" uri=\"/healthz\" response=\"<deferred>\"\n";
        assert_eq!(event.legacy_line(), line);
        let event = Event {
            stage: Stage::ResponseComplete,
            user: &jane,
            impersonated_user: Some(&jane),
            source_ips: &ips,
            user_agent: "kubectl",
            object: Some(ObjectReference {
                namespace: "default".into(),
                ..ObjectReference::default()
            }),
            response: Some(ResponseStatus {
                code: 200,
                status: None,
            }),
            ..event
        };
        let groups = r#""\"a\",\"b\\n\"""#;
        let line = format!(
            "2026-11-24T09:50:00.12Z AUDIT: id=\"1\" stage=\"ResponseComplete\" ip=\"10.0.0.1\" method=\"get\" \
             user=\"jane\" groups={groups} as=\"jane\" asgroups={groups} user-agent=\"kubectl\" \
             namespace=\"default\" uri=\"/healthz\" response=\"200\"\n"
        );
        assert_eq!(event.legacy_line(), line);
    }
}
