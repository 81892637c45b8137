//! Checks that the strategy of built-in resources passes on what the strategies of single resources define. A method that
//! it does not forward would silently have its default.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::{ImplItem, Item};

/// The type that wraps the others, and its file.
const WRAPPER: (&str, &str) = ("Builtin", "crates/builtin/src/strategies/mod.rs");

/// The strategies that it does not wrap: of custom resources, of the state of the server, of tests, and the one without
/// methods.
const NOT_WRAPPED: [&str; 4] = ["Custom", "Live", "NameColumn", "Plain"];

/// Returns the methods of each `impl Strategy` in `text`, by type.
fn implementations(text: &str) -> Vec<(String, BTreeSet<String>)> {
    let syntax = syn::parse_file(text).expect("source is Rust");
    let found = syntax.items.into_iter().filter_map(|item| {
        let Item::Impl(item) = item else { return None };
        let implemented = &item.trait_.as_ref()?.1.segments;
        let syn::Type::Path(of) = &*item.self_ty else {
            return None;
        };
        if implemented.last()?.ident != "Strategy" {
            return None;
        }
        let methods = item.items.iter().filter_map(|item| match item {
            ImplItem::Fn(method) => Some(method.sig.ident.to_string()),
            _ => None,
        });
        Some((
            of.path.segments.last()?.ident.to_string(),
            methods.collect(),
        ))
    });
    found.collect()
}

#[test]
fn wrapper_of_built_in_strategies_forwards_their_methods() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut all = BTreeMap::new();
    let mut files = Vec::new();
    super::sources(&root.join("crates"), &mut files);
    for file in files {
        let text = std::fs::read_to_string(&file).expect("source is UTF-8");
        if text.contains("Strategy for") {
            all.extend(implementations(&text));
        }
    }
    let (wrapper, wrapper_file) = WRAPPER;
    let forwarded = all.remove(wrapper).expect("the wrapper exists");
    for name in NOT_WRAPPED {
        all.remove(name).expect("the strategy exists");
    }
    assert!(all.len() > 10, "{all:?}");
    for (name, methods) in all {
        let lost: Vec<_> = methods.difference(&forwarded).collect();
        assert!(
            lost.is_empty(),
            "{wrapper_file} does not forward {lost:?} of {name}: add them to `impl Strategy for {wrapper}`"
        );
    }
}
