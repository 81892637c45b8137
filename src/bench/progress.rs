//! Progress bars on the terminal, while a load runs; nothing where stderr is no terminal. What they show
//! is not what is measured: they look at counters a few times a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a bar is drawn, a second.
const DRAWS_PER_SECOND: u8 = 4;

/// A bar that counts to `total`, called `what`.
pub(super) fn bar(what: &'static str, total: u64) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
    let style = ProgressStyle::with_template("{prefix:>10} {bar:40} {pos}/{len} {per_sec} {eta}");
    ProgressBar::with_draw_target(Some(total), target)
        .with_style(style.expect("the template is a constant"))
        .with_prefix(what)
}
