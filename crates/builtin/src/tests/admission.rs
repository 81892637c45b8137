//! Tests of what admission plugins read: names that no object can have, and objects that the cache has not received.

use std::time::Duration;

use watchet_admission::cluster::{Cluster as _, Freshness, GroupResource};

use super::*;

const LIMIT_RANGES: GroupResource<'static> = GroupResource::new("", "limitranges");

/// A pod that a client created immediately after a LimitRange sometimes did not get its defaults, because the cache had not
/// received the LimitRange from etcd yet.
#[tokio::test]
async fn cached_lists_have_the_objects_that_this_server_has_created() {
    let config = CacherConfig {
        // As long as the cache is behind, storage answers after this time.
        freshness_timeout: Duration::from_millis(10),
        ..CacherConfig::default()
    };
    let build = |storage, tasks: &Tasks| new_registry(storage, tasks, config, Metrics::new());
    let fixture = Fixture(TestRegistry::start(build).await);
    let limit_ranges = async || {
        let list = fixture
            .registry
            .objects(LIMIT_RANGES, "default", Freshness::Cached);
        list.await.unwrap().len()
    };
    assert_eq!(limit_ranges().await, 0);
    fixture.storage.freeze(true);
    for count in 1..4 {
        fixture
            .create("limitranges", named(&format!("r{count}")))
            .await;
        assert_eq!(limit_ranges().await, count);
    }
    fixture.storage.freeze(false);
    assert_eq!(limit_ranges().await, 3);
}

/// Plugins run before the pod is validated. The response was 500, because a path cannot contain such a name.
#[tokio::test]
async fn a_name_that_no_object_can_have_is_not_found() {
    let fixture = fixture().await;
    let with = |member: &str| {
        let mut pod = pod("a");
        pod["spec"][member] = "/".into();
        pod
    };
    let rejected = fixture.try_create("pods", with("nodeName")).await;
    assert_eq!(causes(rejected.unwrap_err())[0].0, "spec.nodeName");
    let rejected = fixture.try_create("pods", with("priorityClassName")).await;
    match rejected.unwrap_err() {
        ApiError::Forbidden { detail, .. } => {
            assert_eq!(detail, "no PriorityClass with name / was found");
        }
        other => panic!("{other}"),
    }
}
