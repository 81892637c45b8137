//! The protection controllers: a persistent volume claim is not deleted before the pods that use
//! it, a persistent volume not before its claim, a volume attributes class not before the volumes and
//! claims that name it. All are protected by a finalizer that new objects
//! get at creation; these controllers add it to objects without it and remove it from objects that
//! are no longer in use.

mod attributes_classes;
mod claims;
mod protector;
mod volumes;

pub(super) use attributes_classes::AttributesClasses;
pub(super) use claims::Claims;
pub(super) use volumes::Volumes;
