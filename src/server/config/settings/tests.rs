//! Tests of the table of settings and of the layers.

use super::*;
use crate::server::config::setting_value::file_key_of;

#[test]
fn spellings_are_derived_from_the_name() {
    let flag = "tls-private-key-file";
    assert_eq!(variable_of(flag), "WATCHET_TLS_PRIVATE_KEY_FILE");
    assert_eq!(file_key_of(flag), "tlsPrivateKeyFile");
    assert_eq!(file_key_of("storage"), "storage");
}

/// Deserializing the flags panics if a field has no value of its name.
#[test]
fn every_flag_has_a_value() {
    let flags = Settings::default().flags();
    assert_eq!(flags.bind_address.text, "127.0.0.1");
    assert_eq!(flags.bind_address.name(), "--bind-address");
    assert_eq!(flags.tls_cert_file.non_empty(), None);
}

#[test]
fn the_stronger_layer_overrides_in_any_order() {
    let layers = [
        ("d", Source::Default),
        ("file", Source::File("w.yaml".into())),
        ("env", Source::Environment),
        ("flag", Source::Flag),
    ];
    for upto in 1..=layers.len() {
        for reversed in [false, true] {
            let mut order: Vec<_> = layers[..upto].to_vec();
            if reversed {
                order.reverse();
            }
            let mut settings = Settings::default();
            for (text, source) in order {
                settings.give("data-dir", text, source);
            }
            let given = settings.flags().data_dir;
            let expected = layers[upto - 1].clone();
            assert_eq!((given.text.as_str(), given.source), expected);
        }
    }
}

#[test]
fn an_empty_value_means_the_default() {
    let mut settings = Settings::default();
    settings.give("data-dir", "/var/lib/w", Source::Environment);
    settings.give("data-dir", "", Source::Flag);
    assert_eq!(settings.flags().data_dir.text, "./.watchet");
}

#[test]
fn unknown_variables_are_returned() {
    let mut settings = Settings::default();
    let variables = [
        ("WATCHET_DATADIR", "x"),
        ("WATCHET_SECURE_PORT", "1"),
        ("WATCHET_CONFIG", "f"),
        ("HOME", "/"),
    ];
    let unknown =
        settings.give_environment(variables.map(|(k, v)| (k.into(), v.into())).into_iter());
    assert_eq!(unknown, ["WATCHET_DATADIR"]);
    assert_eq!(settings.flags().secure_port.text, "1");
}
