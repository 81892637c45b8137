//! The protection controllers: a persistent volume claim is not deleted before the pods that use
//! it, a persistent volume not before its claim, a volume attributes class not before the volumes and
//! claims that refer to it. A finalizer protects these objects. Admission adds it to new objects; these
//! controllers add it to objects without it, and remove it from objects that are being deleted and no longer
//! in use.

mod attributes_classes;
mod claims;
mod protector;
mod volumes;

pub(super) use attributes_classes::AttributesClasses;
pub(super) use claims::Claims;
pub(super) use volumes::Volumes;
