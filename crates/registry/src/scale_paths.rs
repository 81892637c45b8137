//! The paths of the fields of an object that its subresource `scale` has.

/// The paths of the fields that a Scale is made of, as lists of member names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired number of replicas.
    pub(crate) spec_replicas: Vec<String>,
    /// The present number of replicas.
    pub(crate) status_replicas: Vec<String>,
    pub(crate) selector: SelectorForm,
    /// An object without a desired number of replicas has no scale.
    pub(crate) requires_spec_replicas: bool,
}

/// The form in which an object has the selector of its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SelectorForm {
    /// The object has none.
    Absent,
    /// The text of a selector, at this path.
    Text(Vec<String>),
    /// A map of labels at `spec.selector`.
    Labels,
    /// A `LabelSelector` at `spec.selector`.
    LabelSelector,
}

/// Returns the member names of a path such as `.spec.replicas`.
fn path(text: &str) -> Vec<String> {
    let members = text.trim_start_matches('.').split('.');
    members.map(str::to_owned).collect()
}

impl ScalePaths {
    /// Returns the paths of a resource that is defined at run time; an empty `selector` means that it has none. An
    /// object without a desired number of replicas has no scale.
    pub fn custom(spec_replicas: &str, status_replicas: &str, selector: &str) -> Self {
        Self {
            spec_replicas: path(spec_replicas),
            status_replicas: path(status_replicas),
            selector: match selector {
                "" => SelectorForm::Absent,
                text => SelectorForm::Text(path(text)),
            },
            requires_spec_replicas: true,
        }
    }

    /// Returns the paths of objects whose `spec.selector` is a map of labels.
    pub fn with_label_map() -> Self {
        Self {
            selector: SelectorForm::Labels,
            ..Self::default()
        }
    }
}

impl Default for ScalePaths {
    /// Returns the paths of most built-in objects, whose `spec.selector` is a LabelSelector.
    fn default() -> Self {
        Self {
            spec_replicas: path("spec.replicas"),
            status_replicas: path("status.replicas"),
            selector: SelectorForm::LabelSelector,
            requires_spec_replicas: false,
        }
    }
}
