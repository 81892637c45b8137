//! The storage test-suite: every rule of the `Storage` trait, written once and run against each
//! back end. It is not about any one back end; what only one can do is tested beside it.
//!
//! Adding a back end is a [`Backend`] fixture and one `storage_suite!` line below. Cases assume a
//! store of their own and no other writer, but not that revisions are dense or begin at 1.

mod compaction;
mod durable;
pub(crate) mod etcd;
mod etcd_cacher;
mod etcd_cacher_faults;
mod etcd_faults;
mod etcd_only;
pub(crate) mod fixtures;
mod lists;
mod model;
pub(crate) mod support;
mod tls;
mod watches;
mod writes;

use std::future::Future;
use std::sync::Arc;

use watchet::storage::Storage;

/// A running, empty store, and what it needs to exist (a directory, a process) for as long as the
/// fixture lives.
pub(crate) trait Backend: Send + Sync + Sized {
    /// Starts a store that no other test writes to.
    fn start() -> impl Future<Output = Self> + Send;

    /// The store.
    fn storage(&self) -> Arc<dyn Storage>;
}

/// Runs every case against a [`Backend`]: `storage_suite!(module_name, FixtureType);`.
macro_rules! storage_suite {
    ($module:ident, $backend:ty) => {
        mod $module {
            storage_suite! { @cases $backend,
                writes: [
                    create_then_get,
                    create_refuses_an_existing_key,
                    update_compares_and_swaps,
                    delete_compares_and_swaps,
                    recreation_begins_a_new_life,
                    missing_keys_refuse_updates_and_deletes,
                    values_are_opaque_bytes,
                    current_revision_follows_writes,
                    concurrent_increments_lose_nothing,
                    too_large_values_are_refused,
                ],
                lists: [
                    lists_are_ordered_and_bounded_by_the_prefix,
                    pages_join_up_to_the_whole,
                    pages_stay_pinned_while_writers_write,
                    old_revisions_show_the_old_state,
                    exact_lists_report_their_revision,
                    future_revisions_are_refused,
                ],
                watches: [
                    catches_up_then_follows,
                    events_carry_previous_values,
                    prefixes_have_borders,
                    a_single_key_can_be_watched,
                    history_and_live_join_without_gap_or_duplicate,
                    future_watches_are_refused,
                    progress_is_not_ahead_of_events,
                    progress_reaches_the_revision_of_a_read,
                    progress_answers_an_idle_watch,
                    list_then_watch_equals_a_later_list,
                    many_watches_see_the_same,
                    expiry_is_a_deletion,
                    an_update_without_ttl_frees_the_key,
                ],
                compaction: [
                    compacted_revisions_cannot_be_listed,
                    compacted_watches_are_refused,
                    live_state_survives_compaction,
                    deleted_keys_can_return_after_compaction,
                    an_idle_watch_survives_compaction,
                ],
                model: [
                    random_operations_agree_with_the_model,
                    concurrent_writers_make_one_history,
                ],
            }
        }
    };
    (@cases $backend:ty, $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            use crate::storage::Backend as _;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let fixture = <$backend>::start().await;
                    crate::storage::$group::$case(fixture.storage()).await;
                }
            )*
        })*
    };
}

storage_suite!(memory, crate::storage::fixtures::MemoryStore);
storage_suite!(embedded, crate::storage::fixtures::EmbeddedStore);
storage_suite!(etcd_backend, crate::storage::etcd::EtcdStore);
