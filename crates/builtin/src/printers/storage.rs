//! Printers of volumes, claims, storage classes, attachments and drivers, and of dynamically allocated devices.

use serde_json::Value;

use super::cells::{at, count, created, items, joined, name, quantity, text, text_or};
use super::printer::Fields;
use super::printer::Printer;
use watchet_registry::table_columns::{AGE, NAME, TableColumn};

const VOLUME_MODE: TableColumn =
    TableColumn::wide("VolumeMode", "A file system, or a block device.");
const STORAGE_CLASS: TableColumn = TableColumn::text("StorageClass", "Of which class it is.");
const ATTRIBUTES_CLASS: TableColumn = TableColumn::text(
    "VolumeAttributesClass",
    "Of which class its attributes are.",
);

/// The annotation with the storage class, from before the field existed.
fn class_of(object: &Value) -> &str {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotation
        .as_str()
        .unwrap_or_else(|| text(object, "spec.storageClassName"))
}

/// Returns access modes as `RWO,RWX`, without duplicates and in upstream's order.
fn access_modes(object: &Value, path: &str) -> String {
    let has = |mode| items(object, path).iter().any(|given| given == mode);
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = short.into_iter().filter(|(mode, _)| has(*mode));
    shown.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

fn phase(object: &Value) -> &str {
    match at(object, "metadata.deletionTimestamp").is_null() {
        true => text(object, "status.phase"),
        false => "Terminating",
    }
}

pub(super) const VOLUMES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Capacity", "How much it holds."),
        TableColumn::text("Access Modes", "How it can be mounted."),
        TableColumn::text("Reclaim Policy", "What becomes of it when it is released."),
        TableColumn::text("Status", "Available, Bound, Released or Failed."),
        TableColumn::text("Claim", "Which claim has it."),
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        TableColumn::text("Reason", "Why it failed, in a word for programs."),
        AGE,
        VOLUME_MODE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let claim = at(object, "spec.claimRef");
        let claim = match claim.is_null() {
            true => String::new(),
            false => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
        };
        vec![
            name(object),
            quantity(object, "spec.capacity.storage", "0"),
            access_modes(object, "spec.accessModes").into(),
            text(object, "spec.persistentVolumeReclaimPolicy").into(),
            phase(object).into(),
            claim.into(),
            class_of(object).into(),
            text_or(object, "spec.volumeAttributesClassName", "<unset>").into(),
            text(object, "status.reason").into(),
            created(object, now),
            text_or(object, "spec.volumeMode", "<unset>").into(),
        ]
    },
};

pub(super) const CLAIMS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Status", "Pending, Bound or Lost."),
        TableColumn::text("Volume", "Which volume it has."),
        TableColumn::text("Capacity", "How much that holds."),
        TableColumn::text("Access Modes", "How it can be mounted."),
        STORAGE_CLASS,
        ATTRIBUTES_CLASS,
        AGE,
        VOLUME_MODE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let volume = text(object, "spec.volumeName");
        let (capacity, modes) = match volume.is_empty() {
            true => ("".into(), String::new()),
            false => (
                quantity(object, "status.capacity.storage", "0"),
                access_modes(object, "status.accessModes"),
            ),
        };
        vec![
            name(object),
            phase(object).into(),
            volume.into(),
            capacity,
            modes.into(),
            class_of(object).into(),
            text_or(object, "spec.volumeAttributesClassName", "<unset>").into(),
            created(object, now),
            text_or(object, "spec.volumeMode", "<unset>").into(),
        ]
    },
};

pub(super) const STORAGE_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Provisioner", "Who makes volumes of it."),
        TableColumn::text(
            "ReclaimPolicy",
            "What becomes of them when they are released.",
        ),
        TableColumn::text("VolumeBindingMode", "When a claim gets its volume."),
        TableColumn::text("AllowVolumeExpansion", "Whether claims may grow."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let annotations = &object["metadata"]["annotations"];
        let default = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        let default = default.into_iter().any(|key| annotations[key] == "true");
        let mark = if default { " (default)" } else { "" };
        vec![
            format!("{}{mark}", text(object, "metadata.name")).into(),
            text(object, "provisioner").into(),
            text_or(object, "reclaimPolicy", "Delete").into(),
            text_or(object, "volumeBindingMode", "Immediate").into(),
            (object["allowVolumeExpansion"] == true).into(),
            created(object, now),
        ]
    },
};

pub(super) const ATTRIBUTES_CLASSES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("DriverName", "Which driver it is for."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let driver = text(object, "driverName").into();
        vec![name(object), driver, created(object, now)]
    },
};

pub(super) const ATTACHMENTS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Attacher", "Which driver attaches it."),
        TableColumn::text("PV", "Which volume is attached."),
        TableColumn::text("Node", "Where to."),
        TableColumn::boolean("Attached", "Whether that is done."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            text(object, "spec.attacher").into(),
            text(object, "spec.source.persistentVolumeName").into(),
            text(object, "spec.nodeName").into(),
            (at(object, "status.attached") == true).into(),
            created(object, now),
        ]
    },
};

pub(super) const CSI_NODES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::integer("Drivers", "How many drivers run there."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            count(object, "spec.drivers"),
            created(object, now),
        ]
    },
};

pub(super) const CSI_DRIVERS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::boolean("AttachRequired", "Whether volumes are attached first."),
        TableColumn::boolean(
            "PodInfoOnMount",
            "Whether the driver receives information about the pod.",
        ),
        TableColumn::boolean(
            "StorageCapacity",
            "Whether capacities count when pods are placed.",
        ),
        TableColumn::text("TokenRequests", "Tokens for which audiences it gets."),
        TableColumn::boolean(
            "RequiresRepublish",
            "Whether it is asked again from time to time.",
        ),
        TableColumn::text("Modes", "Which volumes it makes."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let set = |path| (at(object, path) == true).into();
        let audiences = items(object, "spec.tokenRequests").iter();
        let audiences: Vec<&str> = audiences.map(|token| text(token, "audience")).collect();
        let audiences = match audiences.is_empty() {
            true => "<unset>".to_owned(),
            false => audiences.join(","),
        };
        let modes = items(object, "spec.volumeLifecycleModes").iter();
        vec![
            name(object),
            (at(object, "spec.attachRequired") != false).into(),
            set("spec.podInfoOnMount"),
            set("spec.storageCapacity"),
            audiences.into(),
            set("spec.requiresRepublish"),
            joined(modes.filter_map(Value::as_str)).into(),
            created(object, now),
        ]
    },
};

pub(super) const CSI_CAPACITIES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("StorageClassName", "Of which class the capacity is."),
        TableColumn::text("Capacity", "How much can be made."),
    ],
    fields: Fields::AllButManaged,
    cells: |object, _| {
        vec![
            name(object),
            text(object, "storageClassName").into(),
            quantity(object, "capacity", "<unset>"),
        ]
    },
};

pub(super) const RESOURCE_CLAIMS: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("State", "Whether it has its devices, and is in use."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        let deleted = !at(object, "metadata.deletionTimestamp").is_null();
        let allocated = !at(object, "status.allocation").is_null();
        let reserved = !items(object, "status.reservedFor").is_empty();
        let states = [
            (deleted, "deleted"),
            (!deleted && !allocated, "pending"),
            (allocated, "allocated"),
            (allocated && reserved, "reserved"),
        ];
        let states = states.into_iter().filter(|(is, _)| *is);
        let states: Vec<&str> = states.map(|(_, state)| state).collect();
        vec![name(object), states.join(",").into(), created(object, now)]
    },
};

pub(super) const RESOURCE_SLICES: Printer = Printer {
    columns: &[
        NAME,
        TableColumn::text("Node", "Where the devices are."),
        TableColumn::text("Driver", "Which driver has them."),
        TableColumn::text("Pool", "In which pool they are."),
        AGE,
    ],
    fields: Fields::AllButManaged,
    cells: |object, now| {
        vec![
            name(object),
            text(object, "spec.nodeName").into(),
            text(object, "spec.driver").into(),
            text(object, "spec.pool.name").into(),
            created(object, now),
        ]
    },
};
