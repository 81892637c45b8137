//! `StatusLine`: shows the progress of the simulation in one line of the terminal, updated each second.

use std::convert::Infallible;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use tokio::time::{Instant, interval};
use watchet_client::RestClient;

use super::progress::Progress;
use super::watchers::{DASHBOARD, INFORMER, SLOW_READER};

/// The path of the list of watchers.
const WATCHERS: &str = "/apis/watchet.dev/v1alpha1/watchers";

/// The time between two updates of the line.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// A line on stdout, removed when dropped.
pub(crate) struct StatusLine<'a> {
    client: &'a RestClient,
    progress: &'a Progress,
    bar: ProgressBar,
    /// The number of changes at the last update, and when that was.
    last: (u64, Instant),
}

impl<'a> StatusLine<'a> {
    pub(crate) fn new(client: &'a RestClient, progress: &'a Progress) -> Self {
        let style = ProgressStyle::with_template("{wide_msg}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout())
            .with_style(style.expect("the template is a valid constant"));
        Self {
            client,
            progress,
            bar,
            last: (progress.changes(), Instant::now()),
        }
    }

    /// Updates the line until the future is dropped.
    pub(crate) async fn show(mut self) -> Infallible {
        let mut ticks = interval(UPDATE_INTERVAL);
        // The first tick is immediate.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            // An error is normal while the server shuts down.
            let watchers = self.client.get_json::<Value>(WATCHERS, &[]).await;
            let watchers = watchers.unwrap_or_default();
            let (pods, running) = self.progress.pods();
            let rate = self.rate();
            self.bar.set_message(format!(
                "{pods} pods, {running} running, {rate:.0} changes/s. Events sent: {}",
                text_of_watchers(&watchers)
            ));
        }
    }

    /// Returns the changes per second since the last call.
    fn rate(&mut self) -> f64 {
        let changes = self.progress.changes();
        let (before, at) = std::mem::replace(&mut self.last, (changes, Instant::now()));
        let seconds = self.last.1.duration_since(at).as_secs_f64();
        (changes - before) as f64 / seconds.max(f64::EPSILON)
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the number of events sent to each client, and the phase and the lag of each watch that is not live.
fn text_of_watchers(list: &Value) -> String {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    let texts = [INFORMER, DASHBOARD, SLOW_READER].map(|user_agent| {
        let name = user_agent.trim_start_matches("demo-");
        let watcher = items
            .iter()
            .find(|watcher| watcher["spec"]["userAgent"] == user_agent);
        let Some(Value::Object(status)) = watcher.map(|watcher| &watcher["status"]) else {
            return format!("{name} -");
        };
        let sent = &status["sentEvents"];
        match status["phase"].as_str() {
            Some("Live") | None => format!("{name} {sent}"),
            Some(phase) => format!("{name} {sent} ({phase}, lag {})", status["lag"]["events"]),
        }
    });
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_phase_of_a_slow_watcher_is_shown() {
        let watcher = |user_agent: &str, phase: &str, sent: u32, lag: u32| {
            json!({
                "spec": {"userAgent": user_agent},
                "status": {"phase": phase, "sentEvents": sent, "lag": {"events": lag}},
            })
        };
        let list = json!({"items": [
            watcher("demo-slow-reader", "Parked", 12, 80),
            watcher("kubectl/v1.36.0", "Live", 1, 0),
            watcher("demo-informer", "Live", 420, 3),
        ]});
        assert_eq!(
            text_of_watchers(&list),
            "informer 420, dashboard -, slow-reader 12 (Parked, lag 80)"
        );
    }
}
