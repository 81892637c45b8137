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
            "expected the name of an open watch, or of a list",
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
            "expected the name of a watch or handler that is paused",
        ),
        (format!("{watch}cut"), "4:1", "needs a line `needs: cut`"),
        (
            format!("{put}put pods/a @2 spec.nodeName=n1\nput pods/a @3"),
            "3:1",
            "needs a line `needs: storage`",
        ),
        (
            "needs: informer\ninformer i1 pods from=@start".to_owned(),
            "3:18",
            "expected namespace, labels, fields, watch-list=false or resync",
        ),
        (
            "needs: informer\ninformer i1 pods\ninformer i1 pods".to_owned(),
            "4:10",
            "expected a name that is not in use",
        ),
        (
            "needs: informer\nhandler h1 i1".to_owned(),
            "3:12",
            "expected the name of an informer",
        ),
        (
            format!("needs: informer\n{put}informer i1 pods\nhandler h1 i1\nexpect h1: ADDED a@1"),
            "6:12",
            "expected on_add, on_update, on_delete, closed or nothing",
        ),
        (
            format!(
                "needs: informer\n{put}informer i1 pods\nhandler h1 i1\nexpect h1: on_update b@1 a@1"
            ),
            "6:26",
            "expected the old object and the new one",
        ),
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

#[test]
fn scripts_declare_exactly_what_their_steps_need() {
    for script in Corpus::load().scripts() {
        let actions = script.steps.iter().map(|step| &step.action);
        assert_eq!(
            script.needs,
            super::needs::needs(actions),
            "{}",
            script.name
        );
    }
}

/// A script that needs more than intended would silently run on fewer drivers.
#[test]
fn each_driver_runs_its_number_of_scripts() {
    if std::env::var_os("WATCHET_SCRIPT").is_some() {
        return;
    }
    let corpus = Corpus::load();
    let found = DRIVERS.map(|driver| (driver.name, corpus.supported_by(&driver).count()));
    let expected = DRIVERS.map(|driver| (driver.name, driver.scripts));
    assert_eq!(
        found, expected,
        "after a change of the scripts, update DRIVERS"
    );
}
