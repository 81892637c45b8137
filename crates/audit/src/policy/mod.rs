//! The policy: selects the requests that are recorded, the level and the stages of their events. The first rule that
//! matches a request applies; a request that matches no rule is not recorded.

mod parse;
mod rule;
mod stage;
#[cfg(test)]
mod tests;

pub use parse::InvalidPolicy;
pub use rule::{GroupResources, PolicyRule, RequestAttributes, ResourceAttributes};
pub use stage::{Level, Stage, Stages};

/// An audit policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The rules in order, at least one.
    pub rules: Vec<PolicyRule>,
    /// The stages without events, for all rules.
    pub omit_stages: Stages,
    /// Whether objects are recorded without `metadata.managedFields`, unless a rule overrides it.
    pub omit_managed_fields: bool,
}

/// The parts of the policy that apply to a request, as upstream's `RequestAuditConfig`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditConfig {
    /// The level of the events.
    pub level: Level,
    /// The stages without events.
    pub omit_stages: Stages,
    /// Whether objects are recorded without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Returns the level and the options of the first rule that matches `request`.
    pub fn evaluate(&self, request: &RequestAttributes<'_>) -> AuditConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(request));
        match rule {
            Some(rule) => AuditConfig {
                level: rule.level,
                omit_stages: self.omit_stages.union(rule.omit_stages),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
            },
            None => AuditConfig {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            },
        }
    }
}
