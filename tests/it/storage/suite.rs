//! The list of the storage tests, which every back end runs. The simulation's crate includes this file.

/// Runs every test against a [`Backend`](super::Backend): `storage_suite!(module_name, FixtureType);`, with the arguments
/// of `tokio::test` after the type for another runtime.
macro_rules! storage_suite {
    ($module:ident, $backend:ty) => {
        storage_suite!($module, $backend, flavor = "multi_thread", worker_threads = 2);
    };
    ($module:ident, $backend:ty, $($runtime:tt)+) => {
        mod $module {
            storage_suite! { @cases $backend, [$($runtime)+],
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
    (@cases $backend:ty, $runtime:tt, $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            use crate::storage::Backend as _;
            $(storage_suite! { @case $backend, $runtime, $group, $case })*
        })*
    };
    (@case $backend:ty, [$($runtime:tt)+], $group:ident, $case:ident) => {
        #[tokio::test($($runtime)+)]
        async fn $case() {
            let fixture = <$backend>::start().await;
            crate::storage::$group::$case(fixture.storage()).await;
        }
    };
}
