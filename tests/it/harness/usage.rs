//! What the process of a server uses: memory, processors, and the async workers.

use std::time::Duration;

use watchet_test_util::scrape::Scrape;

use super::{PATIENCE, Protocol, Server};

/// Waits until the process uses little processor time: work that a write causes may continue after the response.
pub(crate) async fn wait_until_idle(server: &Server) {
    let ticks = || {
        let path = format!("/proc/{}/stat", server.pid());
        let stat = std::fs::read_to_string(path).expect("it runs");
        let (_, fields) = stat.rsplit_once(')').expect("the name of the program");
        let fields = fields.split_whitespace().skip(11).take(2);
        fields
            .map(|n| n.parse::<u64>().expect("a number"))
            .sum::<u64>()
    };
    let idle = async {
        let (mut before, mut idle) = (ticks(), 0);
        // One sample does not suffice: a process that gets no processor uses no time either.
        while idle < 2 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = ticks();
            idle = if now - before <= 3 { idle + 1 } else { 0 };
            before = now;
        }
    };
    tokio::time::timeout(PATIENCE, idle)
        .await
        .expect("it is idle");
}

/// Returns a value of `/proc/PID/status` in KiB.
pub(crate) fn kib(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.pid());
    let status = std::fs::read_to_string(path).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|n| n.parse().ok())
        .expect("a number of KiB")
}

/// Sets the peak memory of the process to its present memory, and returns that in KiB.
pub(crate) fn reset_peak_kib(server: &Server) -> u64 {
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("it runs");
    kib(server, "VmHWM")
}

/// The polls that occupied an async worker for 10 ms or longer.
pub(crate) struct LongPolls {
    all: f64,
    up_to_100_ms: f64,
    up_to_2500_ms: f64,
}

impl LongPolls {
    /// Reads the metric of a server.
    pub(crate) async fn scrape(server: &Server) -> Self {
        let mut wire = server.plain(Protocol::Http1).await;
        let scraped = Scrape::parse(&wire.get("/metrics").await.text());
        let name = "watchet_task_long_poll_duration_seconds";
        let bucket = |le| scraped.sum(&format!("{name}_bucket"), &[le]);
        Self {
            all: scraped.sum(&format!("{name}_count"), &[]),
            up_to_100_ms: bucket(r#"le="0.1""#),
            up_to_2500_ms: bucket(r#"le="2.5""#),
        }
    }

    /// Checks that none was very long. The goal is 100 ms for an optimized build on a machine that does nothing else. This build is not optimized, and the
    /// processors are shared.
    pub(crate) fn check(&self) {
        assert_eq!(
            self.all, self.up_to_2500_ms,
            "a task held an async worker: {self}"
        );
    }
}

impl std::fmt::Display for LongPolls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let over = self.all - self.up_to_100_ms;
        write!(
            f,
            "{} polls of 10 ms or more, {over} of 100 ms or more",
            self.all
        )
    }
}
