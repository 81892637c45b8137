//! Tests of the parser, the printer, the runner's reports, and the corpus.

use super::*;

fn error(text: &str) -> String {
    Script::parse("x.script", &format!("# A rule.\n{text}\n"))
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    let put = "put pods/a @1 app=web\n";
    let watch = format!("{put}watch w1 pods from=@1\n");
    for (text, place, expected) in [
        ("puts pods/a @1".to_owned(), "2:1", "expected put, delete,"),
        (
            "put pod/a @1".to_owned(),
            "2:5",
            "expected an object such as pods/a",
        ),
        (
            "put pods/a".to_owned(),
            "2:11",
            "expected a name for the version, such as @1, found the end",
        ),
        (
            format!("{put}delete pods/a @1"),
            "3:15",
            "expected a new version, such as @2, found `@1`",
        ),
        (
            format!("{put}watch w1 pods since=@1"),
            "3:15",
            "expected from, namespace, labels",
        ),
        (
            format!("{put}watch w1 pods from=@7"),
            "3:15",
            "the version of a write above, found `from=@7`",
        ),
        (
            format!("{watch}expect w2: ADDED a@1"),
            "4:8",
            "expected the name of an open watch or of a list",
        ),
        (
            format!("{watch}expect w1: CREATED a@1"),
            "4:12",
            "expected ADDED, MODIFIED, DELETED",
        ),
        (
            format!("{watch}expect w1: ADDED a"),
            "4:18",
            "expected an object and its version, such as a@2",
        ),
        (
            format!("{watch}expect w1: ERROR gone"),
            "4:18",
            "expected a code such as 410",
        ),
        (
            format!("{watch}expect w1:"),
            "4:11",
            "expected `: ` and what `w1` receives",
        ),
        (
            format!("{watch}resume w1"),
            "4:8",
            "expected the name of a watch that is paused",
        ),
        (format!("{watch}cut"), "4:1", "needs a line `needs: cut`"),
        (
            "put pods/a-* @1".to_owned(),
            "2:5",
            "or a number of writes such as x200",
        ),
        (
            "put pods/a @1 labels=\"app".to_owned(),
            "2:22",
            "this quote is not closed",
        ),
    ] {
        let found = error(&text);
        assert!(
            found.starts_with(&format!("x.script:{place}: ")),
            "{text}\n{found}"
        );
        assert!(found.contains(expected), "{text}\n{found}");
    }
    let without = Script::parse("x.script", "put pods/a @1\n")
        .unwrap_err()
        .to_string();
    assert!(without.contains("which rule the script shows"), "{without}");
}

#[test]
fn error_shows_the_line_and_a_caret() {
    assert_eq!(
        error("put pods/a @1\ndelete pods/a @1"),
        "x.script:3:15: expected a new version, such as @2, found `@1`\n\
         3 | delete pods/a @1\n  |               ^"
    );
}

#[test]
fn printed_script_parses_to_the_same_actions() {
    let seed = crate::seeds::seed();
    let actions =
        super::model::with_expectations(&random_actions(&mut fastrand::Rng::with_seed(seed), 200));
    let text = Script::print("A rule.", &actions);
    let script = Script::parse("x.script", &text).unwrap_or_else(|error| panic!("{error}"));
    let parsed: Vec<Action> = script.steps.into_iter().map(|step| step.action).collect();
    assert_eq!(parsed, actions);
}

#[test]
fn every_script_prints_as_it_is_parsed() {
    for script in Corpus::load().scripts() {
        let actions: Vec<Action> = script
            .steps
            .iter()
            .map(|step| step.action.clone())
            .collect();
        let printed = Script::print("A rule.", &actions);
        let parsed =
            Script::parse(&script.name, &printed).unwrap_or_else(|error| panic!("{error}"));
        let parsed: Vec<Action> = parsed.steps.into_iter().map(|step| step.action).collect();
        assert_eq!(parsed, actions, "{}", script.name);
    }
}

/// The scripts that not all drivers run, with the number of drivers that do. Add a script only if the other drivers
/// cannot support its needs.
const NOT_ON_ALL_DRIVERS: &[(&str, usize)] = &[
    ("bookmarks.script", 1),
    ("expired-lease.script", 1),
    ("last-bookmark.script", 1),
    ("lost-storage-watch.script", 2),
    ("relist-after-compaction.script", 2),
    ("relist-slow-client.script", 2),
    ("relist-with-history.script", 2),
    ("transaction.script", 1),
];

#[test]
fn every_script_runs_on_all_drivers_unless_it_is_listed() {
    let corpus = Corpus::load();
    for script in corpus.scripts() {
        let runs = |driver: &&DriverInfo| {
            corpus
                .supported_by(driver)
                .any(|other| other.name == script.name)
        };
        let drivers: Vec<_> = DRIVERS.iter().filter(runs).map(|d| d.name).collect();
        let listed = NOT_ON_ALL_DRIVERS
            .iter()
            .find(|(name, _)| *name == script.name);
        let expected = listed.map_or(DRIVERS.len(), |(_, count)| *count);
        assert!(expected > 0, "{} runs on no driver", script.name);
        assert_eq!(
            drivers.len(),
            expected,
            "{} needs {:?} and runs on {drivers:?}",
            script.name,
            script.needs
        );
        let used = script.steps.iter().filter_map(|step| step.action.need());
        assert_eq!(
            script.needs,
            used.collect(),
            "{} declares what its steps need",
            script.name
        );
    }
    for (name, _) in NOT_ON_ALL_DRIVERS {
        let exists = corpus.scripts().any(|script| script.name == *name);
        assert!(
            exists || std::env::var_os("WATCHET_SCRIPT").is_some(),
            "{name} does not exist"
        );
    }
}
