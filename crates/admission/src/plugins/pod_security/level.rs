//! Levels and versions of the Pod Security Standards, and the policy that the labels of a namespace specify.

use std::fmt;

use serde_json::Value;

use watchet_api::StatusCause;

/// The prefix of the names of the labels.
pub(super) const LABEL_PREFIX: &str = "pod-security.kubernetes.io/";

/// A level of the Pod Security Standards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    /// Parses the name of a level.
    ///
    /// # Errors
    /// Upstream's message if there is no such level.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// The version of the policy: a minor version of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Version {
    /// `v1.N`
    Minor(u64),
    /// The version of the server, which is newer than any other.
    Latest,
}

impl Version {
    /// Parses `latest` or `v1.N`.
    ///
    /// # Errors
    /// Upstream's message if it is neither.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(FORM)?;
        let is_canonical = minor.bytes().all(|byte| byte.is_ascii_digit())
            && (minor == "0" || !minor.starts_with('0'));
        // Upstream's integers are signed.
        let minor = minor.parse::<i64>().ok().filter(|_| is_canonical);
        let minor = minor.and_then(|minor| u64::try_from(minor).ok());
        minor.map(Self::Minor).ok_or(FORM)
    }
}

/// A level, as defined in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    pub(super) const PRIVILEGED: Self = Self {
        level: Level::Privileged,
        version: Version::Latest,
    };
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Version::Latest => write!(f, "{}:latest", self.level.as_str()),
            Version::Minor(minor) => write!(f, "{}:v1.{minor}", self.level.as_str()),
        }
    }
}

/// The levels of a namespace for each action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    /// The plugin rejects pods that violate this level.
    pub(super) enforce: LevelVersion,
    /// The audit log records pods that violate this level.
    pub(super) audit: LevelVersion,
    /// Clients get a warning about pods that violate this level.
    pub(super) warn: LevelVersion,
}

impl Default for Policy {
    /// Returns upstream's default: every level is privileged.
    fn default() -> Self {
        Self {
            enforce: LevelVersion::PRIVILEGED,
            audit: LevelVersion::PRIVILEGED,
            warn: LevelVersion::PRIVILEGED,
        }
    }
}

/// Reads the labels of one namespace and collects their problems.
struct Labels<'a> {
    labels: &'a Value,
    problems: Vec<StatusCause>,
}

impl Labels<'_> {
    /// Returns the value of a label, or `otherwise` if the value is invalid; `None` if there is no such label.
    fn read<T>(
        &mut self,
        name: &str,
        parse: fn(&str) -> Result<T, &'static str>,
        otherwise: T,
    ) -> Option<T> {
        let label = format!("{LABEL_PREFIX}{name}");
        let text = self.labels[&label].as_str()?;
        Some(parse(text).unwrap_or_else(|why| {
            let field = format!("metadata.labels[{label}]");
            self.problems.push(StatusCause::invalid(&field, text, why));
            otherwise
        }))
    }
}

impl Policy {
    /// Returns the policy of a namespace with these labels, and the problems of the labels. `defaults` apply where a
    /// label is absent. An invalid level becomes restricted if it is enforced, and privileged otherwise.
    pub(super) fn of(labels: &Value, defaults: Self) -> (Self, Vec<StatusCause>) {
        let problems = Vec::new();
        let mut labels = Labels { labels, problems };
        let mut policy = defaults;
        let latest = Version::Latest;
        let mut has_enforce_level = false;
        if let Some(level) = labels.read("enforce", Level::parse, Level::Restricted) {
            policy.enforce.level = level;
            has_enforce_level = labels.problems.is_empty();
        }
        if let Some(version) = labels.read("enforce-version", Version::parse, latest) {
            policy.enforce.version = version;
        }
        if let Some(level) = labels.read("audit", Level::parse, Level::Privileged) {
            policy.audit.level = level;
        }
        if let Some(version) = labels.read("audit-version", Version::parse, latest) {
            policy.audit.version = version;
        }
        let warn_level = labels.read("warn", Level::parse, Level::Privileged);
        let warn_version = labels.read("warn-version", Version::parse, latest);
        policy.warn.version = warn_version.unwrap_or(policy.warn.version);
        match warn_level {
            Some(level) => policy.warn.level = level,
            // Without a warning level, workloads whose pods will be rejected still cause a warning.
            None if has_enforce_level && policy.enforce.level > policy.warn.level => {
                policy.warn.level = policy.enforce.level;
                if warn_version.is_none() {
                    policy.warn.version = policy.enforce.version;
                }
            }
            None => {}
        }
        (policy, labels.problems)
    }

    /// Returns the levels by the names of their labels, in the order of messages.
    pub(super) fn modes(&self) -> [(&'static str, LevelVersion); 3] {
        [
            ("enforce", self.enforce),
            ("audit", self.audit),
            ("warn", self.warn),
        ]
    }

    pub(super) fn is_fully_privileged(&self) -> bool {
        let mut modes = self.modes().into_iter();
        modes.all(|(_, mode)| mode.level == Level::Privileged)
    }

    /// Returns true if both allow the same: a privileged level is the same in each version.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let mut pairs = self.modes().into_iter().zip(other.modes());
        pairs.all(|((_, one), (_, other))| {
            one == other || [one.level, other.level] == [Level::Privileged; 2]
        })
    }
}
