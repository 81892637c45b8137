//! The conformance suite: the rules of the API for clients. The name of each test has its lines of
//! `docs/conformance.md`, and it runs over every back end. Unit tests cover the rules of one back end, of time, and of
//! the internals of the cache; `checklist` finds them by the same names.
//!
//! Each test has its own server and store (see [`site`]), sends HTTP requests to the server, and can make the store
//! fail or write to it (see [`faults`]).

mod checklist;
mod faults;
mod fields;
pub(crate) mod site;
pub(crate) mod watching;

mod applying;
mod deletes;
mod initial;
mod keys;
mod lifecycle;
mod lists;
mod matrix;
mod model;
pub(crate) mod protobuf;
mod selections;
mod typing;
mod watches;
mod wire;
mod writes;

/// Runs every test against a back end: `conformance_suite!(module_name, FixtureType);`.
macro_rules! conformance_suite {
    ($module:ident, $backend:ty) => {
        mod $module {
            conformance_suite! { @cases $backend,
                keys: [
                    wc_001_empty_keys_are_errors,
                    wc_002_dot_segments_are_errors_and_dotted_names_are_valid,
                    wc_003_keys_outside_of_the_prefix_are_not_served,
                    wc_004_a_list_excludes_namespaces_that_begin_with_its_namespace,
                    wc_005_an_object_is_stored_at_its_path_with_the_revision_of_its_write,
                    wc_006_stored_bytes_have_no_version_and_no_self_link,
                    wc_007_a_list_at_a_malformed_version_is_a_bad_request,
                    wc_008_uid_and_times_of_the_client_are_replaced,
                    wc_009_a_body_of_another_namespace_is_a_bad_request,
                    wc_010_a_body_of_another_name_is_a_bad_request,
                    wc_011_generate_name_creates_names_of_at_most_63_characters,
                    wc_012_eight_collisions_are_a_conflict_with_retry_after,
                    wc_014_status_and_main_resource_are_updated_separately,
                ],
                writes: [
                    wc_020_create_echoes_the_object_with_its_version,
                    wc_021_create_with_a_version_fails_and_stores_nothing,
                    wc_022_create_over_an_existing_name_is_already_exists,
                    wc_023_049_an_object_with_a_ttl_is_deleted_when_it_expires,
                    wc_024_a_get_is_the_latest,
                    wc_025_a_get_at_version_0_reads_the_cache_only,
                    wc_026_a_get_at_a_version_is_that_or_newer,
                    wc_027_a_get_at_the_latest_version_waits_for_it,
                    wc_028_a_get_of_the_future_is_a_timeout_with_a_cause,
                    wc_029_a_get_of_a_missing_object_is_not_found,
                    wc_030_a_dry_run_stores_nothing_and_detects_existing_names,
                    wc_040_a_put_of_a_missing_object_is_not_found_or_creates,
                    wc_041_042_an_update_without_changes_is_not_stored,
                    wc_044_a_uid_in_the_body_is_a_precondition,
                    wc_045_a_conflicting_update_is_retried_on_the_new_object,
                    wc_046_048_an_update_from_a_stale_cache_applies_to_the_stored_object,
                    wc_047_a_rejection_based_on_a_stale_cache_is_retried,
                    wc_050_a_put_at_an_old_version_is_a_conflict,
                    wc_052_json_patches_survive_other_writers,
                ],
                deletes: [
                    wc_060_a_deletion_has_a_revision_of_its_own,
                    wc_061_a_delete_of_a_missing_object_is_not_found,
                    wc_062_073_preconditions_hold_or_conflict,
                    wc_063_064_a_delete_applies_to_the_stored_object,
                    wc_065_a_delete_of_a_deleted_object_in_a_stale_cache_is_not_found,
                    wc_066_067_preconditions_apply_to_the_stored_object,
                    wc_068_070_an_object_with_finalizers_remains_until_they_are_removed,
                    wc_069_removing_the_last_finalizer_deletes,
                    wc_071_an_immediate_delete_returns_a_status_with_details,
                    wc_072_orphan_dependents_with_a_propagation_policy_is_invalid,
                    wc_074_a_collection_delete_applies_selectors_and_returns_the_list,
                    wc_075_136_only_an_unreadable_object_can_be_deleted_unsafely,
                    a_status_of_success_is_negotiated,
                ],
                lists: [
                    wc_080_082_a_list_shows_every_write_finished_before_it,
                    wc_081_cache_and_storage_list_the_same_in_the_same_order,
                    wc_086_an_exact_list_at_a_compacted_version_is_expired,
                    wc_087_an_exact_list_of_the_future_is_too_large,
                    wc_088_not_older_than_the_future_waits_three_seconds,
                    wc_091_version_0_ignores_the_limit,
                    wc_092_to_096_contradictory_list_options_are_invalid,
                    wc_097_098_099_invalid_continue_tokens_are_rejected,
                ],
                fields: [
                    every_selectable_field_selects,
                ],
                matrix: [
                    every_kind_of_list,
                    every_kind_of_get,
                    every_kind_of_watch,
                ],
                model: [
                    reads_and_watches_agree_with_the_model,
                ],
                protobuf: [
                    wc_201_objects_and_lists_in_protobuf,
                    wc_201_special_forms_in_protobuf,
                    wc_201_watches_in_protobuf,
                    wc_201_kinds_without_protobuf_are_json_and_errors_are_protobuf,
                    wc_201_bodies_in_protobuf_are_read_by_their_type,
                    values_of_wrong_types_are_errors_with_the_field,
                ],
                selections: [
                    wc_103_104_105_a_filtered_page_finds_its_match_and_counts_nothing,
                    wc_106_107_an_expired_token_comes_back_with_a_fresh_one,
                    wc_108_tokens_work_on_another_replica_and_after_a_restart,
                    wc_109_a_list_of_one_name_is_that_object_or_none,
                    wc_110_namespaces_and_filters_work_together,
                    wc_111_an_indexed_field_selects_the_same_as_a_scan,
                    wc_112_a_list_over_corrupt_objects_names_them,
                    wc_114_an_empty_list_has_items,
                    wc_115_object_counts_follow_creates_and_deletes,
                    wc_208_an_unknown_field_is_a_bad_request,
                    wc_209_negative_requirements_match_objects_without_the_key,
                    wc_210_a_comma_in_a_field_value_is_escaped,
                    wc_211_a_name_in_the_selector_must_be_that_of_the_path,
                    wc_219_shards_partition_lists_and_watches,
                    wc_220_malformed_shards_are_bad_requests,
                ],
                watches: [
                    wc_120_to_124_events_follow_the_selection,
                    wc_128_129_130_a_watch_before_the_start_of_history_is_one_error,
                    wc_131_a_client_that_disconnects_affects_no_other,
                    wc_132_an_unreadable_value_is_one_error_and_the_end,
                    wc_133_the_events_before_the_end_of_a_watch_are_a_prefix,
                    wc_134_fifty_watches_that_never_read_delay_no_other,
                    wc_137_a_watch_of_one_name_sees_one_object,
                    wc_139_a_malformed_version_is_a_bad_request,
                ],
                initial: [
                    wc_150_version_0_begins_with_the_state_in_key_order,
                    wc_151_without_a_version_the_state_has_every_earlier_write,
                    wc_152_163_a_stream_ends_its_state_with_one_annotated_bookmark,
                    wc_153_161_a_watch_without_bookmarks_gets_none,
                    wc_156_a_stream_waits_for_its_version,
                    wc_157_a_stream_from_the_future_is_one_error_after_three_seconds,
                    wc_158_170_the_end_bookmark_has_the_version_of_the_store,
                    wc_159_a_streaming_list_of_one_name,
                    wc_160_objects_that_change_during_initial_events_follow_in_order,
                    wc_162_the_last_bookmark_comes_two_seconds_before_the_deadline,
                    wc_164_events_and_bookmarks_never_go_back,
                    wc_166_167_contradictory_watch_options_are_invalid,
                    wc_168_without_trusted_progress_storage_begins_the_stream,
                ],
                lifecycle: [
                    wc_180_198_watch_of_a_cache_that_is_not_ready_is_a_429,
                    wc_181_182_small_reads_come_from_storage_until_the_cache_is_ready,
                    wc_183_after_a_stop_watches_end_and_small_reads_continue,
                    wc_189_an_exact_list_beyond_history_comes_from_storage,
                    wc_191_a_cache_that_stays_behind_leaves_consistent_lists_to_storage,
                    unavailable_storage_is_an_error_with_retry_after,
                    an_unknown_outcome_is_an_error_without_retry_after,
                ],
                applying: [
                    every_write_sets_managed_fields,
                    an_applied_null_in_a_map_is_an_empty_string,
                    equal_quantities_in_two_forms_do_not_conflict,
                    wc_053_a_change_of_managed_fields_times_is_not_stored,
                    wc_213_apply_requires_a_manager_and_reports_conflicts,
                    an_invalid_apply_is_rejected,
                    a_dry_run_of_an_apply_stores_nothing,
                    subresources_have_their_own_manager_entries,
                    a_field_that_its_manager_removes_is_defaulted_again,
                    events_of_both_api_groups_can_be_applied,
                ],
                typing: [
                    wc_212_field_validation_ignores_warns_or_rejects,
                    patched_objects_are_decoded_as_their_kind,
                ],
                wire: [
                    wc_200_a_watch_sends_its_headers_before_any_event,
                    wc_202_timeout_seconds_ends_a_watch,
                    wc_203_a_watch_of_tables_has_the_columns_once,
                    wc_204_metadata_only_is_metadata_only,
                    wc_205_unsupported_media_types_are_406_or_415,
                    wc_206_207_large_lists_are_compressed_if_the_client_accepts_gzip,
                    wc_215_a_body_beyond_3_mib_is_too_large,
                    wc_216_discovery_is_tagged,
                    wc_217_218_every_error_body_is_a_complete_status,
                ],
            }
        }
    };
    (@cases $backend:ty, $($group:ident: [$($case:ident),* $(,)?]),* $(,)?) => {
        $(mod $group {
            use crate::conformance::site::Site;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let site = Site::start::<$backend>().await;
                    crate::conformance::$group::$case(&site).await;
                }
            )*
        })*
    };
}

conformance_suite!(memory, crate::storage::fixtures::MemoryStore);
conformance_suite!(embedded, crate::storage::fixtures::EmbeddedStore);
conformance_suite!(etcd, crate::storage::etcd::EtcdStore);
