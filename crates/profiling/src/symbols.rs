//! `Symbols`: resolves addresses of the program to functions, by its symbol table.

use std::collections::HashMap;

/// A function, perhaps inlined into another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// The name in the symbol table.
    pub symbol: Vec<u8>,
    /// The demangled path of the function.
    pub name: String,
    /// The source file; empty if the program has no debug information.
    pub file: String,
    /// The line in the source file; 0 if it is unknown.
    pub line: u32,
}

/// Resolves addresses to functions, and caches the results. Resolving is slow: call it only on threads for blocking work.
#[derive(Debug)]
pub(crate) struct Symbols {
    functions: HashMap<usize, Vec<Function>>,
}

impl Symbols {
    /// Creates an empty cache.
    pub(crate) fn new() -> Self {
        Self {
            functions: HashMap::new(),
        }
    }

    /// Returns the functions whose code is before the return address `address`, the innermost of inlined ones first; none if the
    /// program has no symbol for it.
    pub(crate) fn functions(&mut self, address: usize) -> &[Function] {
        self.functions
            .entry(address)
            .or_insert_with(|| resolve(address))
    }
}

impl Drop for Symbols {
    /// Releases the symbol tables in memory, some MB.
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

fn resolve(address: usize) -> Vec<Function> {
    let mut found = Vec::new();
    backtrace::resolve(address as *mut _, |symbol| {
        let Some(name) = symbol.name() else { return };
        let file = symbol.filename();
        found.push(Function {
            symbol: name.as_bytes().to_vec(),
            // Without the hash at the end.
            name: format!("{name:#}"),
            file: file.map_or_else(String::new, |file| file.display().to_string()),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    found
}
