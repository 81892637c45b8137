//! `watchet kubeconfig`: prints the kubeconfig that a server wrote, or merges its entries into another file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::error::CliError;
use super::output;

/// The lists of a kubeconfig, each of entries with a name.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// The arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct KubeconfigArgs {
    /// Data directory of the server
    #[arg(long, value_name = "DIR", default_value = "./.watchet")]
    data_dir: PathBuf,
    /// Merge the entries into FILE and make its context the current one [default: the first file of $KUBECONFIG, else
    /// ~/.kube/config]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    merge: Option<Option<PathBuf>>,
    /// Name of the merged cluster, user and context
    #[arg(
        long,
        value_name = "NAME",
        default_value = "watchet",
        requires = "merge"
    )]
    name: String,
}

/// Runs the command.
pub(crate) fn run(args: &KubeconfigArgs) -> Result<(), CliError> {
    let source = args.data_dir.join("kubeconfig");
    let text = std::fs::read_to_string(&source).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::Missing(format!(
            "{} does not exist: start the server first, or name its data directory with --data-dir",
            source.display()
        )),
        _ => file_error(&source, error),
    })?;
    let Some(target) = &args.merge else {
        return output::print(&text);
    };
    let target = match target {
        Some(file) => file.clone(),
        None => default_file()?,
    };
    let added = parse(&source, &text)?;
    let added = renamed(&added, &args.name).ok_or_else(|| CliError::Content {
        path: source.clone(),
        detail: "its current context, or the cluster or user of that context, does not exist"
            .to_owned(),
    })?;
    let backup = merge_into(&target, &added)?;
    let backup = match backup {
        Some(backup) => format!("; a copy of the previous file is {}", backup.display()),
        None => String::new(),
    };
    let (name, target) = (&args.name, target.display());
    output::print(&format!(
        "Merged the context {name:?} into {target} and made it the current one{backup}\n"
    ))
}

/// Returns the file that `kubectl config` changes.
fn default_file() -> Result<PathBuf, CliError> {
    if let Some(variable) = std::env::var_os("KUBECONFIG") {
        let mut paths = std::env::split_paths(&variable);
        if let Some(first) = paths.find(|path| !path.as_os_str().is_empty()) {
            return Ok(first);
        }
    }
    let home = std::env::home_dir().ok_or(CliError::Value {
        argument: "--merge",
        problem: "there is no home directory: give a file".to_owned(),
    })?;
    Ok(home.join(".kube/config"))
}

fn file_error(path: &Path, error: io::Error) -> CliError {
    CliError::File {
        path: path.to_owned(),
        error,
    }
}

fn parse(path: &Path, text: &str) -> Result<Value, CliError> {
    let invalid = |detail: String| CliError::Content {
        path: path.to_owned(),
        detail: format!("it is not a kubeconfig: {detail}"),
    };
    if text.trim().is_empty() {
        return Ok(json!({"apiVersion": "v1", "kind": "Config"}));
    }
    let options = serde_saphyr::options! { with_snippet: false };
    let parsed: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| invalid(error.to_string()))?;
    let Value::Object(members) = &parsed else {
        return Err(invalid("it is not a mapping".to_owned()));
    };
    let wrong = LISTS.into_iter().find(|list| {
        let entries = members.get(*list);
        !entries.is_none_or(|entries| entries.is_array() || entries.is_null())
    });
    match wrong {
        Some(list) => Err(invalid(format!("{list} is not a list"))),
        None => Ok(parsed),
    }
}

/// Returns the entries of the current context of a server's kubeconfig, all called `name`.
fn renamed(kubeconfig: &Value, name: &str) -> Option<Map<String, Value>> {
    let entry = |list: &str, name: &str| {
        let entries = kubeconfig[list].as_array()?;
        entries.iter().find(|entry| entry["name"] == name).cloned()
    };
    let mut context = entry("contexts", kubeconfig["current-context"].as_str()?)?;
    let mut cluster = entry("clusters", context["context"]["cluster"].as_str()?)?;
    let mut user = entry("users", context["context"]["user"].as_str()?)?;
    context["context"]["cluster"] = json!(name);
    context["context"]["user"] = json!(name);
    for entry in [&mut context, &mut cluster, &mut user] {
        entry["name"] = json!(name);
    }
    let mut renamed = Map::new();
    renamed.insert("clusters".to_owned(), cluster);
    renamed.insert("users".to_owned(), user);
    renamed.insert("contexts".to_owned(), context);
    renamed.insert("current-context".to_owned(), json!(name));
    Some(renamed)
}

/// Adds or replaces one entry of each list, and the current context. All other members remain.
fn merged(mut kubeconfig: Value, added: &Map<String, Value>) -> Value {
    for (member, value) in added {
        if !LISTS.contains(&member.as_str()) {
            kubeconfig[member] = value.clone();
            continue;
        }
        if !kubeconfig[member].is_array() {
            kubeconfig[member] = json!([]);
        }
        let Some(entries) = kubeconfig[member].as_array_mut() else {
            continue;
        };
        match entries
            .iter_mut()
            .find(|entry| entry["name"] == value["name"])
        {
            Some(entry) => *entry = value.clone(),
            None => entries.push(value.clone()),
        }
    }
    kubeconfig
}

/// Merges `added` into the file at `path`, and replaces the file atomically. Returns the path of the copy of the previous file,
/// if there was one.
fn merge_into(path: &Path, added: &Map<String, Value>) -> Result<Option<PathBuf>, CliError> {
    // Replace the target of a symbolic link, not the link.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let failed = |error| file_error(path, error);
    let before = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        before => Some(before.map_err(failed)?),
    };
    let kubeconfig = parse(path, before.as_deref().unwrap_or_default())?;
    let kubeconfig = merged(kubeconfig, added);
    let written = serde_saphyr::to_string(&kubeconfig).map_err(|error| error.to_string());
    // Parse the new text again, to detect an entry that the YAML encoder changed.
    let text = written.and_then(|text| match parse(path, &text) {
        Ok(read) if read == kubeconfig => Ok(text),
        _ => Err("an entry cannot be written as YAML: merge the file by hand".to_owned()),
    });
    let text = text.map_err(|detail| CliError::Content {
        path: path.to_owned(),
        detail,
    })?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let backup = match &before {
        Some(before) => Some(back_up(path, before)?),
        None => None,
    };
    let new = with_suffix(path, ".new");
    let replaced = create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    });
    replaced.map_err(failed)?;
    Ok(backup)
}

/// Copies the previous text to a new file beside the file.
fn back_up(path: &Path, text: &str) -> Result<PathBuf, CliError> {
    let mut number = 0;
    loop {
        let backup = match number {
            0 => with_suffix(path, ".backup"),
            number => with_suffix(path, &format!(".backup-{number}")),
        };
        let mut options = OpenOptions::new();
        let created = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&backup);
        match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            created => {
                let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
                written.map_err(|error| file_error(&backup, error))?;
                return Ok(backup);
            }
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Creates a file that only its owner may read, because it contains credentials.
fn create(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = r#"{"apiVersion":"v1","kind":"Config",
        "clusters":[{"name":"watchet","cluster":{"server":"https://127.0.0.1:1"}}],
        "users":[{"name":"kubernetes-admin","user":{"client-key-data":"S2V5"}}],
        "contexts":[{"name":"watchet","context":{"cluster":"watchet","user":"kubernetes-admin"}}],
        "current-context":"watchet"}"#;

    const OTHER: &str = "# mine\napiVersion: v1\nkind: Config\ncurrent-context: prod\n\
        extensions:\n- name: x\n  extension: {a: 1}\n\
        clusters:\n- name: prod\n  cluster:\n    server: https://prod\n    unknown-key: \"yes\"\n\
        users:\n- name: prod\n  user:\n    token: \"0123\"\n    password: \"no\"\n\
        contexts:\n- context: {cluster: prod, user: prod}\n  name: prod\n";

    fn added(name: &str) -> Map<String, Value> {
        renamed(&parse(Path::new("k"), SERVER).unwrap(), name).unwrap()
    }

    #[test]
    fn a_merge_retains_all_other_entries() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, OTHER).unwrap();
        let backup = merge_into(&path, &added("watchet"))
            .unwrap()
            .expect("a backup");
        assert_eq!(std::fs::read_to_string(backup).unwrap(), OTHER);
        let read = || parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut after = read();
        assert_eq!(after["current-context"], "watchet");
        assert_eq!(
            after["users"][1],
            json!({"name": "watchet", "user": {"client-key-data": "S2V5"}})
        );
        // Without the added entries, it is the previous file.
        after["current-context"] = json!("prod");
        for list in LISTS {
            let entries = after[list].as_array_mut().unwrap();
            assert_eq!(entries.pop().unwrap()["name"], "watchet");
        }
        assert_eq!(after, parse(&path, OTHER).unwrap());

        // A second merge replaces the entries, and makes another backup.
        let second = merge_into(&path, &added("watchet")).unwrap().unwrap();
        assert!(
            second.to_string_lossy().ends_with(".backup-1"),
            "{second:?}"
        );
        assert_eq!(read()["clusters"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_new_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/config");
        assert_eq!(merge_into(&path, &added("a")).unwrap(), None);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            read["contexts"][0]["context"],
            json!({"cluster": "a", "user": "a"})
        );
        assert_eq!(read["kind"], "Config");
    }

    #[test]
    fn an_invalid_file_is_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for text in ["[1, 2]", "clusters: 3", "a: [", "a: 1\na: 2\n"] {
            std::fs::write(&path, text).unwrap();
            let error = merge_into(&path, &added("a")).unwrap_err().to_string();
            assert!(error.contains("it is not a kubeconfig"), "{text}: {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
