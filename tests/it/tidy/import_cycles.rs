//! Checks that the files of a crate do not import each other in a cycle, so that each can be read after the ones it uses.
//!
//! An import is a path in code, outside of tests, that leads to an item of another file of the crate. Re-exports
//! (`pub use`) are followed to the file that defines the item, and are no imports themselves. Paths in macros are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use syn::visit::Visit;
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// The path of a module below its crate's root: `["rest", "tls"]`.
type ModulePath = Vec<String>;

/// What a module declares.
#[derive(Debug, Default)]
struct Module {
    /// The number of its file.
    file: usize,
    children: BTreeSet<String>,
    /// Names that `use` declares, and the paths as written. Re-exports and private imports alike.
    imports: BTreeMap<String, Vec<String>>,
}

/// The modules and paths of a crate.
#[derive(Debug, Default)]
struct Crate {
    files: Vec<PathBuf>,
    modules: BTreeMap<ModulePath, Module>,
    /// Paths in code: the module where they are, and their segments.
    paths: Vec<(ModulePath, Vec<String>)>,
}

impl Crate {
    /// Reads the crate whose root is the file `lib`.
    fn read(lib: &Path) -> Self {
        let mut found = Self::default();
        found.read_file(
            lib,
            lib.parent().expect("a directory").to_owned(),
            Vec::new(),
        );
        found
    }

    /// Reads `file`, which is the module at `path`. `directory` has the files of its children.
    fn read_file(&mut self, file: &Path, directory: PathBuf, path: ModulePath) {
        let text = std::fs::read_to_string(file).expect("source is UTF-8");
        let syntax = syn::parse_file(&text).expect("source is Rust");
        let number = self.files.len();
        self.files.push(file.to_owned());
        self.read_items(&syntax.items, number, &directory, path);
    }

    fn read_items(&mut self, items: &[Item], file: usize, directory: &Path, path: ModulePath) {
        self.modules.entry(path.clone()).or_default().file = file;
        for item in items {
            match item {
                Item::Mod(module) if is_test(&module.attrs) => {}
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let own = self.modules.get_mut(&path).expect("it was just inserted");
                    own.children.insert(name.clone());
                    let child: ModulePath = [&path[..], std::slice::from_ref(&name)].concat();
                    let below = directory.join(&name);
                    match &module.content {
                        Some((_, items)) => self.read_items(items, file, &below, child),
                        None if below.join("mod.rs").is_file() => {
                            self.read_file(&below.join("mod.rs"), below, child);
                        }
                        None => {
                            self.read_file(&directory.join(format!("{name}.rs")), below, child);
                        }
                    }
                }
                Item::Use(item) => self.read_use(item, &path),
                item => {
                    let mut found = PathsInCode(Vec::new());
                    found.visit_item(item);
                    let paths = found.0.into_iter().map(|segments| (path.clone(), segments));
                    self.paths.extend(paths);
                }
            }
        }
    }

    fn read_use(&mut self, item: &ItemUse, path: &ModulePath) {
        if is_test(&item.attrs) {
            return;
        }
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for (name, segments) in leaves {
            if matches!(item.vis, Visibility::Inherited) {
                self.paths.push((path.clone(), segments.clone()));
            }
            if let Some(name) = name {
                let module = self.modules.get_mut(path).expect("it is being read");
                module.imports.insert(name, segments);
            }
        }
    }

    /// Returns the file that has the item at `segments`, as written in the module at `from`; `None` if it is not in
    /// this crate.
    fn resolve(&self, from: &ModulePath, segments: &[String], depth: usize) -> Option<usize> {
        // A `use` that leads to itself: an external crate, or a name in another namespace.
        if depth > 16 {
            return None;
        }
        let mut at = from.clone();
        let mut rest = segments;
        match segments.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|segment| segment == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                let module = &self.modules[from];
                if !module.children.contains(first) {
                    return self.expand(from, first, &segments[1..], depth);
                }
            }
        }
        while let Some(segment) = rest.first() {
            let module = &self.modules[&at];
            if module.children.contains(segment) {
                at.push(segment.clone());
                rest = &rest[1..];
            } else {
                let expanded = self.expand(&at, segment, &rest[1..], depth);
                return Some(expanded.unwrap_or(module.file));
            }
        }
        Some(self.modules[&at].file)
    }

    /// Follows the `use` that declares `name` in the module at `from`.
    fn expand(
        &self,
        from: &ModulePath,
        name: &str,
        rest: &[String],
        depth: usize,
    ) -> Option<usize> {
        let import = self.modules[from].imports.get(name)?;
        self.resolve(from, &[import, rest].concat(), depth + 1)
    }

    /// Returns which files import which, each with an example.
    fn edges(&self) -> BTreeMap<usize, BTreeMap<usize, String>> {
        let mut edges: BTreeMap<usize, BTreeMap<usize, String>> = BTreeMap::new();
        for (module, segments) in &self.paths {
            let from = self.modules[module].file;
            if let Some(to) = self.resolve(module, segments, 0)
                && to != from
            {
                let examples = edges.entry(from).or_default();
                examples.entry(to).or_insert_with(|| segments.join("::"));
            }
        }
        edges
    }
}

/// Returns true for `#[cfg(test)]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|argument| argument == "test")
    })
}

/// Adds the names that a `use` declares and their paths; no name for `*` and `_`.
fn flatten(
    tree: &UseTree,
    prefix: &mut Vec<String>,
    leaves: &mut Vec<(Option<String>, Vec<String>)>,
) {
    let leaf = |prefix: &[String], segment: &syn::Ident| {
        let mut path = prefix.to_vec();
        if segment != "self" {
            path.push(segment.to_string());
        }
        path
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        UseTree::Name(name) => {
            let path = leaf(prefix, &name.ident);
            leaves.push((path.last().cloned(), path));
        }
        UseTree::Rename(rename) => {
            let name = (rename.rename != "_").then(|| rename.rename.to_string());
            leaves.push((name, leaf(prefix, &rename.ident)));
        }
        UseTree::Glob(_) => leaves.push((None, prefix.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
    }
}

/// Collects the paths of an item.
struct PathsInCode(Vec<Vec<String>>);

impl Visit<'_> for PathsInCode {
    fn visit_path(&mut self, path: &syn::Path) {
        let segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.0.push(segments.collect());
        syn::visit::visit_path(self, path);
    }

    /// `pub(super)` is no import.
    fn visit_visibility(&mut self, _: &Visibility) {}
}

/// Returns the cycles: sets of files each of which imports each, directly or not.
fn cycles(edges: &BTreeMap<usize, BTreeMap<usize, String>>) -> Vec<BTreeSet<usize>> {
    let reachable = |from: usize| {
        let mut found = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for to in edges.get(&file).into_iter().flat_map(BTreeMap::keys) {
                if found.insert(*to) {
                    open.push(*to);
                }
            }
        }
        found
    };
    let reach: BTreeMap<usize, BTreeSet<usize>> =
        edges.keys().map(|file| (*file, reachable(*file))).collect();
    let mut found = BTreeSet::new();
    for (file, targets) in &reach {
        if targets.contains(file) {
            let cycle = targets
                .iter()
                .filter(|target| reach.get(target).is_some_and(|back| back.contains(file)));
            found.insert(cycle.copied().collect::<BTreeSet<usize>>());
        }
    }
    found.into_iter().collect()
}

/// Describes the cycles of the crate at `lib`, one per paragraph, with the imports that make it.
fn described_cycles(lib: &Path) -> Vec<String> {
    let sources = Crate::read(lib);
    let edges = sources.edges();
    let root = lib.parent().expect("a directory");
    let name = |file: usize| {
        let path = &sources.files[file];
        path.strip_prefix(root).expect("below").display()
    };
    let described = cycles(&edges).into_iter().map(|cycle| {
        let mut text = format!("{}: {} files\n", root.display(), cycle.len());
        for file in &cycle {
            for (to, example) in &edges[file] {
                if cycle.contains(to) {
                    writeln!(text, "    {} -> {}  ({example})", name(*file), name(*to))
                        .expect("memory");
                }
            }
        }
        text
    });
    described.collect()
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let mut report = String::new();
    for (_, directory) in super::source_directories() {
        let cycles = described_cycles(&directory.join("lib.rs"));
        cycles.iter().for_each(|cycle| report.push_str(cycle));
    }
    assert!(report.is_empty(), "\n{report}");
}

/// Writes a crate and returns the descriptions of its cycles.
fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    described_cycles(&directory.path().join("lib.rs"))
}

#[test]
fn cycles_are_found_through_imports_paths_and_reexports() {
    let lib = ("lib.rs", "mod a; mod b; pub use b::B;");
    let b = ("b.rs", "pub struct B; fn f() { super::a::g(); }");
    let found = cycles_of(&[lib, ("a.rs", "use crate::B; pub fn g() {}"), b]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("a.rs -> b.rs  (crate::B)"), "{found:?}");
    assert!(found[0].contains("b.rs -> a.rs"), "{found:?}");
    // A module in a directory, and a constant of the parent that is imported through a group.
    let files = [
        ("lib.rs", "mod c;"),
        (
            "c/mod.rs",
            "mod d; const N: usize = 1; fn f() -> usize { d::f() }",
        ),
        ("c/d.rs", "use super::{self as parent, N}; pub fn f() {}"),
    ];
    assert_eq!(cycles_of(&files).len(), 1);
}

#[test]
fn reexports_tests_and_visibilities_are_no_imports() {
    let files = [
        ("lib.rs", "mod a; pub use a::A; pub struct L;"),
        ("a.rs", "pub struct A(crate::L);"),
    ];
    assert_eq!(cycles_of(&files), [""; 0]);
    let files = [
        ("lib.rs", "mod a; mod b; "),
        (
            "a.rs",
            "pub(super) fn f() {} #[cfg(test)] mod tests { use crate::b::g; }",
        ),
        ("b.rs", "use super::a::f; pub(super) fn g() {}"),
    ];
    assert_eq!(cycles_of(&files), [""; 0]);
}
