//! The storage tests: every rule of the `Storage` trait, run against each back end. Separate modules test what only one
//! back end can do.
//!
//! To add a back end, add a [`Backend`] and a `storage_suite!` line below. Each test has its own store without other
//! writers; it must not assume that revisions are dense or begin at 1.

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

/// A running, empty store, and the directory or process that it needs, for the lifetime of this value.
pub(crate) trait Backend: Send + Sync + Sized {
    /// Starts a store that no other test writes to.
    fn start() -> impl Future<Output = Self> + Send;

    /// The store.
    fn storage(&self) -> Arc<dyn Storage>;
}

/// Runs every test against a [`Backend`]: `storage_suite!(module_name, FixtureType);`.
macro_rules! storage_suite {
    ($module:ident, $backend:ty) => {
        mod $module {
            storage_suite! { @cases $backend,
                writes: [
                    create_then_get,
                    create_refuses_an_existing_key,
                    update_compares_and_swaps,
                    delete_compares_and_swaps,
                    recreated_key_has_a_new_create_revision,
                    missing_keys_refuse_updates_and_deletes,
                    values_are_opaque_bytes,
                    current_revision_follows_writes,
                    concurrent_increments_lose_nothing,
                    too_large_value_is_too_large_error,
                ],
                lists: [
                    lists_are_ordered_and_bounded_by_the_prefix,
                    pages_join_up_to_the_whole,
                    pages_stay_pinned_while_writers_write,
                    old_revisions_show_the_old_state,
                    exact_lists_report_their_revision,
                    list_at_a_future_revision_is_future_error,
                ],
                watches: [
                    catches_up_then_follows,
                    events_carry_previous_values,
                    watch_of_a_prefix_excludes_longer_names,
                    a_single_key_can_be_watched,
                    history_and_live_join_without_gap_or_duplicate,
                    watch_from_a_future_revision_is_future_error,
                    progress_is_not_ahead_of_events,
                    progress_reaches_the_revision_of_a_read,
                    progress_answers_an_idle_watch,
                    list_then_watch_equals_a_later_list,
                    many_watches_see_the_same,
                    expiry_is_a_deletion,
                    update_without_ttl_removes_the_ttl,
                ],
                compaction: [
                    compacted_revisions_cannot_be_listed,
                    watch_from_a_compacted_revision_is_compacted_error,
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
storage_suite!(newest_etcd_backend, crate::storage::etcd::NewestEtcdStore);
