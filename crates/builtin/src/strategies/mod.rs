//! The strategies of built-in resources. [`Builtin`] has the common part: defaults, validation and printers, by tables.
//! A resource with rules of its own has a strategy in addition, which [`of`] selects once per resource.

mod admission;
mod core;
mod versions;

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::Value;

use self::versions::VersionPair;
use super::dependencies::Dependencies;
use super::{default, prepare_create, printers, validation};
use watchet_admission::ConfigurationKind;
use watchet_admission::types::Kinds;
use watchet_api::{DeleteOptions, Object, UserInfo};
use watchet_apiextensions::DefinitionStrategy;
use watchet_registry::Allocator;
use watchet_registry::Causes;
use watchet_registry::ScalePaths;
use watchet_registry::table_columns::TableColumn;
use watchet_registry::{
    Grace, Plain, PrintedFields, Resource, Rules, SchemaValidator, Strategy, VirtualObjects,
};
use watchet_schema::Types;
use watchet_services::ServiceStrategy;

/// Returns true if this group and version have this kind, or if it is the list kind of one of their kinds.
pub(super) type IsKnownKind = fn(group: &str, version: &str, kind: &str) -> bool;

/// The resources whose objects kube-apiserver stores without some of the defaults: the phase of a claim, the labels of a
/// job, which are those of its template; and those in which protobuf lacks members, the kinds of claim templates.
const STORED_WITHOUT_DEFAULTS: [(&str, &str); 3] = [
    ("", "persistentvolumeclaims"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
];

/// The strategy of a built-in resource.
#[derive(Debug)]
pub(super) struct Builtin {
    rules: Rules,
    printer: &'static printers::Printer,
    is_known_kind: IsKnownKind,
    /// The conversion between the two representations of the objects, if they have two.
    versions: Option<(&'static VersionPair, bool)>,
    lacks_stored_defaults: bool,
    /// The rules that only this resource has.
    own: Arc<dyn Strategy>,
}

/// Returns the rules that only the resource of this group, version and plural name has.
pub(super) fn of(group: &str, plural: &str, dependencies: &Dependencies) -> Arc<dyn Strategy> {
    let configuration = |kind: &ConfigurationKind| kind.plural() == plural;
    match (group, plural) {
        ("", "limitranges") => Arc::new(core::LimitRanges),
        ("", "namespaces") => Arc::new(core::Namespaces),
        ("", "persistentvolumes") => Arc::new(core::PersistentVolumes),
        ("", "pods") => Arc::new(core::Pods),
        ("", "replicationcontrollers") => Arc::new(core::ReplicationControllers),
        ("", "secrets") => Arc::new(core::Secrets),
        ("", "services") => {
            let ranges = dependencies.service_ranges;
            Arc::new(ServiceStrategy::new(ranges))
        }
        ("admissionregistration.k8s.io", _) => {
            let kind = ConfigurationKind::ALL.into_iter().find(configuration);
            match kind {
                Some(kind) => Arc::new(admission::Configurations(kind)),
                None => Arc::new(Plain),
            }
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            Arc::new(DefinitionStrategy(dependencies.definitions.clone()))
        }
        ("batch", "jobs") => Arc::new(core::Jobs),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            Arc::new(core::CertificateSigningRequests)
        }
        ("resource.k8s.io", "resourceslices") => Arc::new(core::ResourceSlices),
        _ => Arc::new(Plain),
    }
}

impl Builtin {
    /// Creates the strategy of the resource of this group, version and plural name.
    pub(super) fn new(
        (group, version, plural): (&str, &str, &str),
        rules: Rules,
        is_known_kind: IsKnownKind,
        own: Arc<dyn Strategy>,
    ) -> Self {
        Self {
            rules,
            is_known_kind,
            printer: printers::printer(group, plural),
            versions: VersionPair::of(group, version, plural),
            lacks_stored_defaults: STORED_WITHOUT_DEFAULTS.contains(&(group, plural)),
            own,
        }
    }

    fn other_version(&self) -> Option<&'static VersionPair> {
        let (pair, is_stored) = self.versions?;
        (!is_stored).then_some(pair)
    }
}

impl Strategy for Builtin {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn deprecation_warning(&self) -> Option<&str> {
        self.own.deprecation_warning()
    }

    fn is_known_kind(&self, group: &str, version: &str, kind: &str) -> bool {
        (self.is_known_kind)(group, version, kind)
    }

    fn unknown_field_label(&self, resource: &Resource, label: &str) -> String {
        self.own.unknown_field_label(resource, label)
    }

    fn table_columns(&self) -> &[TableColumn] {
        self.printer.columns
    }

    fn printed_fields(&self) -> PrintedFields {
        match self.other_version().and_then(|pair| pair.to_printed) {
            Some(_) => PrintedFields::all_but_managed_fields(),
            None => self.printer.fields.into(),
        }
    }

    fn table_cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        match self.other_version().and_then(|pair| pair.to_printed) {
            Some(to_printed) => (self.printer.cells)(&to_printed(object.clone()), now),
            None => (self.printer.cells)(object, now),
        }
    }

    fn set_defaults(&self, resource: &Resource, object: &mut Value) {
        default(resource, object);
    }

    fn apply_schema(&self, object: &mut Value) -> Result<(), watchet_registry::ApiError> {
        self.own.apply_schema(object)
    }

    fn canonicalize(&self, object: &mut Value) {
        self.own.canonicalize(object);
    }

    fn keeps_form(&self) -> bool {
        self.own.keeps_form()
    }

    fn object_bytes_max(&self) -> usize {
        self.own.object_bytes_max()
    }

    fn default_name(&self) -> Option<String> {
        self.own.default_name()
    }

    fn prepare_for_create(&self, resource: &Resource, user: &UserInfo, object: &mut Value) {
        prepare_create(resource, object, resource.has_status());
        self.own.prepare_for_create(resource, user, object);
        self.own.canonicalize(object);
    }

    fn prepare_for_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        stored: &Value,
        object: &mut Value,
    ) {
        self.own
            .prepare_for_update(resource, subresource, stored, object);
    }

    fn validate(&self, resource: &Resource, object: &Value, causes: &mut Causes) {
        if let Some(fields) = object.as_object() {
            validation::new(resource, fields, causes);
        }
        self.own.validate(resource, object, causes);
    }

    fn validate_update(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        old: &Value,
        new: &Value,
        causes: &mut Causes,
    ) {
        if let (Some(old), Some(new)) = (old.as_object(), new.as_object()) {
            validation::update(resource, subresource, (old, new), causes);
        }
        self.own
            .validate_update(resource, subresource, old, new, causes);
    }

    fn set_derived_status(&self, kinds: &dyn Kinds, subresource: Option<&str>, object: &mut Value) {
        self.own.set_derived_status(kinds, subresource, object);
    }

    fn has_finalizers(&self, object: &Value) -> bool {
        self.own.has_finalizers(object)
    }

    fn grace(&self, stored: &Value, options: &DeleteOptions) -> Grace {
        self.own.grace(stored, options)
    }

    fn default_propagation_warning(&self) -> Option<&'static str> {
        self.own.default_propagation_warning()
    }

    fn begin_deletion(&self, object: &mut Value) {
        self.own.begin_deletion(object);
    }

    fn mark_terminating(&self, object: &mut Value) {
        self.own.mark_terminating(object);
    }

    fn differs_from_storage(&self) -> bool {
        self.other_version().is_some()
    }

    fn to_storage(&self, types: &Arc<Types>, object: Value) -> Value {
        match self.other_version() {
            Some(pair) => (pair.to_storage)(types, object),
            None => object,
        }
    }

    fn convert_from_storage(&self, object: Value) -> Value {
        match self.other_version() {
            Some(pair) => (pair.from_storage)(object),
            None => object,
        }
    }

    fn to_version<'o>(
        &self,
        types: &Arc<Types>,
        object: &'o Value,
        api_version: &str,
    ) -> Cow<'o, Value> {
        match self.versions {
            Some((pair, _)) => pair.to_version(types, object, api_version),
            None => Cow::Borrowed(object),
        }
    }

    fn is_stored_without_defaults(&self) -> bool {
        self.lacks_stored_defaults
    }

    fn upgrade_stored(&self, stored: &[u8]) -> Option<Vec<u8>> {
        self.own.upgrade_stored(stored)
    }

    fn scale_paths(&self) -> ScalePaths {
        self.own.scale_paths()
    }

    fn admission_configuration(&self) -> Option<ConfigurationKind> {
        self.own.admission_configuration()
    }

    fn after_request<'a>(&'a self, written: &'a Object) -> Option<BoxFuture<'a, ()>> {
        self.own.after_request(written)
    }

    fn schema_validator(&self) -> Option<&dyn SchemaValidator> {
        self.own.schema_validator()
    }

    fn allocator(&self) -> Option<&dyn Allocator> {
        self.own.allocator()
    }

    fn virtual_objects(&self) -> Option<&dyn VirtualObjects> {
        self.own.virtual_objects()
    }
}
