//! Faults of the embedded store.

use std::time::Duration;

use watchet_api::ResourceVersion;
use watchet_storage::embedded::SimulatedFault;

use super::super::World;
use super::super::storage::Backend;
use super::Step;
use crate::server::Server;

const FAULTS: [SimulatedFault; 4] = [
    SimulatedFault::Full,
    SimulatedFault::LogSync,
    SimulatedFault::LogTorn,
    SimulatedFault::Data,
];

impl World {
    pub(super) fn inject_disk_fault(&mut self, duration: Duration) {
        if self.random.bool() {
            self.record("power failure", String::new());
            self.lose_power();
            self.after(duration, Step::StartServers);
            return;
        }
        let fault = FAULTS[self.random.usize(..FAULTS.len())];
        self.record("the disk fails", format!("{fault:?}"));
        if let Backend::Embedded(disk) = &self.backend {
            disk.fail(fault);
        }
        let crash = self.random.u8(..4) == 0;
        self.after(duration, Step::HealDisk { crash });
    }

    /// Ends the fault of the disk, after a crash if `crash` is true.
    pub(super) fn heal_disk(&mut self, crash: bool) {
        if crash {
            self.record("power failure while the disk fails", String::new());
            self.lose_power();
        }
        if let Backend::Embedded(disk) = &self.backend {
            disk.fail(SimulatedFault::None);
        }
        self.start_servers();
    }

    /// Ends the process, and loses writes that were not synced.
    fn lose_power(&mut self) {
        if let Backend::Embedded(disk) = &self.backend {
            disk.lose_power(&mut self.random);
        }
        self.kill_process(0);
    }

    /// Compacts the embedded store.
    pub(super) async fn compact_store(&self, at: u64) {
        let storage = self.servers[0].as_ref().and_then(Server::storage);
        if let Some(storage) = storage {
            // It fails if a later revision is compacted, or while the disk fails.
            drop(storage.compact(ResourceVersion::new(at)).await);
        }
    }
}
