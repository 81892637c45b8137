//! Tests of the commands that read a server, with the real program: past states, across a restart, with kubectl as the
//! writer; the status and the kubeconfig of a server.

mod past;
mod screen;
mod server;
mod top;

use std::path::Path;

use serde_json::Value;
use tokio::time::timeout;

use crate::harness::{PATIENCE, command};

/// The result of a command.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    /// Returns the output of a command that succeeds.
    fn text(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Returns the lines of JSON.
    fn lines(&self) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).expect("a line is JSON");
        self.out.lines().map(parse).collect()
    }
}

/// Runs `watchet` with a kubeconfig, if it is given.
async fn watchet(kubeconfig: Option<&Path>, args: &[&str]) -> Ran {
    let mut command = command();
    command.args(args);
    if let Some(kubeconfig) = kubeconfig {
        command.arg("--kubeconfig").arg(kubeconfig);
    }
    let ended = timeout(PATIENCE, command.output()).await;
    let output = ended.expect("it ends").expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is UTF-8");
    Ran {
        code: output.status.code().expect("an exit code"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
