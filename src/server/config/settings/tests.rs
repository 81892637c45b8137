//! Tests of the table of settings and of the layers.

use super::*;

#[test]
fn spellings_are_derived_from_the_name() {
    let spec = Setting::TlsPrivateKeyFile.spec();
    assert_eq!(spec.env(), "WATCHET_TLS_PRIVATE_KEY_FILE");
    assert_eq!(spec.file_key(), "tlsPrivateKeyFile");
    assert_eq!(Setting::Storage.spec().file_key(), "storage");
}

#[test]
fn every_setting_has_one_row_in_order() {
    for (index, spec) in SPECS.iter().enumerate() {
        assert_eq!(spec.setting as usize, index, "{}", spec.name);
    }
    assert_eq!(Setting::LogFormat as usize + 1, SPECS.len());
}

#[test]
fn the_stronger_layer_wins_in_any_order() {
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
                settings.give(Setting::DataDir, text, source);
            }
            let given = settings.get(Setting::DataDir);
            assert_eq!(
                (given.text.as_str(), given.source),
                layers[upto - 1].clone()
            );
        }
    }
}

#[test]
fn an_empty_value_means_the_default() {
    let mut settings = Settings::default();
    settings.give(Setting::DataDir, "/var/lib/w", Source::Environment);
    settings.give(Setting::DataDir, "", Source::Flag);
    assert_eq!(settings.get(Setting::DataDir).text, "./.watchet");
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
    assert_eq!(settings.get(Setting::SecurePort).text, "1");
}
