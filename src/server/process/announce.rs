//! The announcement on stdout when the server is ready: what was created, and the next command to
//! type.

use std::io::{self, Write};

use crate::server::process::build::Done;

/// Writes the announcement, with the link to the console, if it is served.
///
/// # Errors
/// A write fails.
pub(in crate::server) fn announce(
    out: &mut impl Write,
    done: &Done,
    console: Option<&str>,
) -> io::Result<()> {
    if let Some(dir) = &done.new_ca {
        writeln!(out, "Made a CA and certificates in {}", dir.display())?;
    }
    writeln!(out, "Keeping objects in {}", done.storage)?;
    writeln!(out, "Serving https://{}", done.secure)?;
    if let Some(address) = done.insecure {
        writeln!(out, "Serving http://{address} without authentication")?;
    }
    let kubeconfig = done.kubeconfig.display().to_string();
    writeln!(out, "Wrote an admin credential to {kubeconfig}")?;
    if let Some(link) = console {
        writeln!(out, "Console: {link} (valid once, for 15 minutes)")?;
    }
    writeln!(out, "watchet is ready. You can now use it with:\n")?;
    writeln!(out, "    export KUBECONFIG={}", shell_word(&kubeconfig))?;
    writeln!(out, "    kubectl get namespaces\n")?;
    out.flush()
}

/// Quotes `text` as a shell word.
pub(in crate::server) fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted() {
        let done = Done {
            new_ca: None,
            storage: "memory, which ends with the process".into(),
            kubeconfig: "/home/jane's/w x/kubeconfig".into(),
            secure: "127.0.0.1:6443".parse().unwrap(),
            insecure: Some("127.0.0.1:6080".parse().unwrap()),
        };
        let mut out = Vec::new();
        announce(
            &mut out,
            &done,
            Some("https://127.0.0.1:6443/console/#login=c"),
        )
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "Keeping objects in memory, which ends with the process\n\
             Serving https://127.0.0.1:6443\n\
             Serving http://127.0.0.1:6080 without authentication\n\
             Wrote an admin credential to /home/jane's/w x/kubeconfig\n\
             Console: https://127.0.0.1:6443/console/#login=c (valid once, for 15 minutes)\n\
             watchet is ready. You can now use it with:\n\n\
             \x20   export KUBECONFIG='/home/jane'\\''s/w x/kubeconfig'\n\
             \x20   kubectl get namespaces\n\n"
        );
    }

    #[test]
    fn plain_paths_are_not_quoted() {
        assert_eq!(
            shell_word("/var/lib/w-1/kubeconfig"),
            "/var/lib/w-1/kubeconfig"
        );
    }
}
