//! The configuration file: versioned YAML with the flags in camelCase as keys. The values are
//! texts, as on the command line; `server_config` parses them.

use std::path::Path;

use serde_json::Value;

use crate::server::config::flags::Spec;
use crate::server::config::setting_value::{ConfigError, Source, file_key_of, separator_of};
use crate::server::config::settings::Settings;

/// The file's `apiVersion`.
pub(in crate::server) const API_VERSION: &str = "config.watchet.dev/v1alpha1";
/// The file's `kind`.
pub(in crate::server) const KIND: &str = "ServerConfiguration";
/// The similarity above which a known key is suggested for an unknown one.
const SIMILARITY_MIN: f64 = 0.85;
/// The maximum size of the file; a real one has a page.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Adds the file's values to `settings`. `named_by` is the flag or variable that names the file.
///
/// # Errors
/// The file cannot be read, is not valid YAML, or has an unknown key.
pub(in crate::server) fn give(
    settings: &mut Settings,
    path: &Path,
    named_by: &str,
) -> Result<(), ConfigError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        ConfigError::new(format_args!("{named_by} {path:?}: {error}"))
    };
    let size = std::fs::metadata(path).map_err(|error| unreadable(&error))?;
    if size.len() > FILE_BYTES_MAX {
        return Err(unreadable(
            &"is larger than 1 MiB, so it is not a configuration file",
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    give_text(settings, path, &text)
}

fn give_text(settings: &mut Settings, path: &Path, text: &str) -> Result<(), ConfigError> {
    let options = serde_saphyr::options! {
        // YAML 1.1 would read `off` and `yes` as booleans.
        strict_booleans: true,
        // An error message is a single line.
        with_snippet: false,
    };
    let document: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ConfigError::file(path, format_args!("is not valid YAML: {error}")))?;
    let Value::Object(mut keys) = document else {
        return Err(ConfigError::file(
            path,
            format_args!("must be a mapping with apiVersion: {API_VERSION} and kind: {KIND}"),
        ));
    };
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match keys.remove(key) {
            Some(Value::String(value)) if value == expected => {}
            Some(value) => {
                let problem = format_args!("{key} {value}: must be {expected}");
                return Err(ConfigError::file(path, problem));
            }
            None => {
                let problem = format_args!("{key} is missing: add `{key}: {expected}`");
                return Err(ConfigError::file(path, problem));
            }
        }
    }
    for (key, value) in keys {
        let specs = settings.specs();
        let Some(spec) = specs.iter().find(|spec| file_key_of(&spec.name) == key) else {
            return Err(ConfigError::file(path, unknown(&key, specs)));
        };
        let text = scalar(spec, &value)
            .map_err(|problem| ConfigError::file(path, format_args!("{key} {value}: {problem}")))?;
        let (flag, path) = (spec.name.clone(), path.display().to_string());
        settings.give(&flag, text, Source::File(path));
    }
    Ok(())
}

/// Returns the error about an unknown `key`, with the most similar known key.
fn unknown(key: &str, specs: &[Spec]) -> String {
    let plain = |key: &str| key.replace(['-', '_'], "").to_lowercase();
    let known = specs.iter().map(|spec| file_key_of(&spec.name));
    let scored = known.map(|known| (strsim::jaro_winkler(&plain(key), &plain(&known)), known));
    let nearest = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((similarity, known)) if similarity > SIMILARITY_MIN => {
            format!("unknown key {key:?}: did you mean {known:?}?")
        }
        _ => {
            format!("unknown key {key:?}: remove it or see config/watchet.yaml for the known ones")
        }
    }
}

fn scalar(spec: &Spec, value: &Value) -> Result<String, &'static str> {
    let list = spec.is_list;
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Array(items) if list => {
            let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            let texts = texts.ok_or("must be a list of strings")?;
            Ok(texts.join(separator_of(&spec.name)))
        }
        Value::Null => Err("has no value: give one or remove the key"),
        _ if list => Err("must be a list of strings"),
        _ => Err("must be a single value"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: config.watchet.dev/v1alpha1\nkind: ServerConfiguration\n";

    fn parse(text: &str) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        give_text(&mut settings, Path::new("w.yaml"), text).map(|()| settings)
    }

    #[test]
    fn values_are_texts_whatever_their_yaml_type() {
        let text = format!(
            "{HEAD}securePort: 7443\nstorage: \"etcd\"\netcdServers: [http://a:1, \"http://b:1\"]\n\
             durability: off\n"
        );
        let settings = parse(&text).unwrap();
        let text = |flag| settings.text_of(flag);
        assert_eq!(text("secure-port"), "7443");
        assert_eq!(text("storage"), "etcd");
        assert_eq!(text("etcd-servers"), "http://a:1,http://b:1");
        assert_eq!(text("durability"), "off");
    }

    #[test]
    fn invalid_files_are_errors() {
        for (text, expected) in [
            (
                "",
                "w.yaml: must be a mapping with apiVersion: config.watchet.dev/v1alpha1 and kind: ServerConfiguration",
            ),
            (
                "kind: ServerConfiguration",
                "w.yaml: apiVersion is missing: add `apiVersion: config.watchet.dev/v1alpha1`",
            ),
            (
                "apiVersion: v1\nkind: ServerConfiguration",
                r#"w.yaml: apiVersion "v1": must be config.watchet.dev/v1alpha1"#,
            ),
            (
                "apiVersion: config.watchet.dev/v1alpha1\nkind: Pod",
                r#"w.yaml: kind "Pod": must be ServerConfiguration"#,
            ),
            (
                &format!("{HEAD}data-dir: x"),
                r#"w.yaml: unknown key "data-dir": did you mean "dataDir"?"#,
            ),
            (
                &format!("{HEAD}etcdServer: x"),
                r#"w.yaml: unknown key "etcdServer": did you mean "etcdServers"?"#,
            ),
            (
                &format!("{HEAD}colour: blue"),
                r#"w.yaml: unknown key "colour": remove it or see config/watchet.yaml for the known ones"#,
            ),
            (
                &format!("{HEAD}dataDir:"),
                "w.yaml: dataDir null: has no value: give one or remove the key",
            ),
            (
                &format!("{HEAD}dataDir: [a]"),
                r#"w.yaml: dataDir ["a"]: must be a single value"#,
            ),
            (
                &format!("{HEAD}etcdServers: {{a: b}}"),
                r#"w.yaml: etcdServers {"a":"b"}: must be a list of strings"#,
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
        for text in [
            "a: [",
            "a: 1\na: 2",
            &format!("{HEAD}storage: a\nstorage: b"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.starts_with("w.yaml: is not valid YAML: "), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
