//! Which file of a crate imports from which.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Item, ItemMod, Path, UseTree};

use crate::source::{Crate, attributes};

/// An import: the first file names something of the second.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Import {
    /// Who imports.
    pub from: usize,
    /// Whose.
    pub to: usize,
    /// What.
    pub name: String,
}

/// The imports between a crate's files; both are named by their place in [`Crate::sources`].
#[derive(Debug)]
pub struct Graph {
    /// Every import.
    pub imports: BTreeSet<Import>,
    files: usize,
}

impl Graph {
    /// Reads the imports of a crate. A name that a module passes on is its maker's.
    pub fn of(house: &Crate) -> Self {
        let modules: BTreeMap<_, _> =
            house.sources.iter().enumerate().map(|(index, source)| (source.module.clone(), index)).collect();
        let passed_on: Vec<_> = house.sources.iter().map(|source| passed_on(&source.items)).collect();
        let names = Names { modules, passed_on };
        let mut imports = BTreeSet::new();
        for (from, source) in house.sources.iter().enumerate() {
            let mut paths = Paths::default();
            source.items.iter().for_each(|item| paths.visit_item(item));
            for path in paths.found {
                let Some(path) = absolute(&path, &source.module) else { continue };
                if let Some((to, name)) = names.maker(&path, 0)
                    && to != from
                {
                    imports.insert(Import { from, to, name });
                }
            }
        }
        Self { imports, files: house.sources.len() }
    }

    /// Forgets what files take from the module that they are in: a part may know its whole.
    #[must_use]
    pub fn without_ancestors(mut self, house: &Crate) -> Self {
        let module = |file: usize| &house.sources[file].module;
        self.imports.retain(|import| !module(import.from).starts_with(module(import.to)));
        self
    }

    /// Returns the groups of files that reach each other, of two or more (strongly connected components, by search from every
    /// file).
    pub fn circles(&self) -> Vec<Vec<usize>> {
        let reach: Vec<_> = (0..self.files).map(|file| self.reachable(file)).collect();
        let mut circles = Vec::new();
        let mut seen = BTreeSet::new();
        for file in 0..self.files {
            let circle: Vec<_> =
                (0..self.files).filter(|&other| reach[file].contains(&other) && reach[other].contains(&file)).collect();
            if circle.len() > 1 && seen.insert(circle.clone()) {
                circles.push(circle);
            }
        }
        circles
    }

    fn reachable(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for next in self.imports.iter().filter(|import| import.from == at).map(|import| import.to) {
                if reached.insert(next) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// Who makes a name.
struct Names {
    modules: BTreeMap<Vec<String>, usize>,
    /// By file: names that it takes from elsewhere and passes on, `*` for all of a module.
    passed_on: Vec<Vec<(String, Vec<String>)>>,
}

impl Names {
    /// The file that makes what a path from the crate's root names, and its name there.
    fn maker(&self, path: &[String], depth: usize) -> Option<(usize, String)> {
        let module = (0..=path.len()).rev().find(|&len| self.modules.contains_key(&path[..len]))?;
        let file = self.modules[&path[..module]];
        let Some(name) = path.get(module) else { return Some((file, "*".into())) };
        let source = &path[..module];
        for (passed, origin) in &self.passed_on[file] {
            if depth < 8
                && (passed == name || passed == "*")
                && let Some(mut origin) = absolute(origin, source)
            {
                if passed == "*" {
                    origin.push(name.clone());
                }
                return self.maker(&origin, depth + 1);
            }
        }
        Some((file, name.clone()))
    }
}

/// The names of `pub use`, with their origins.
fn passed_on(items: &[Item]) -> Vec<(String, Vec<String>)> {
    let mut names = Vec::new();
    for item in items {
        if let Item::Use(item) = item
            && !matches!(item.vis, syn::Visibility::Inherited)
        {
            flatten(&item.tree, &mut Vec::new(), &mut |path, name| names.push((name, path)));
        }
    }
    names
}

fn flatten(tree: &UseTree, prefix: &mut Vec<String>, found: &mut impl FnMut(Vec<String>, String)) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, prefix, found)),
        UseTree::Glob(_) => found(prefix.clone(), "*".into()),
        UseTree::Name(name) => {
            let path = [prefix.clone(), vec![name.ident.to_string()]].concat();
            found(path, name.ident.to_string());
        }
        UseTree::Rename(rename) => {
            let path = [prefix.clone(), vec![rename.ident.to_string()]].concat();
            found(path, rename.rename.to_string());
        }
    }
}

/// A path from the crate's root; `None` for one that leads out of the crate, or that is not known to stay in it.
fn absolute(path: &[String], module: &[String]) -> Option<Vec<String>> {
    let mut rest = path.iter().peekable();
    let mut base = match rest.peek()?.as_str() {
        "crate" => {
            rest.next();
            Vec::new()
        }
        "self" => {
            rest.next();
            module.to_vec()
        }
        "super" => module.to_vec(),
        _ => module.to_vec(),
    };
    while rest.next_if(|part| *part == "super").is_some() {
        base.pop()?;
    }
    base.extend(rest.filter(|part| *part != "self").cloned());
    Some(base)
}

/// The paths that code names.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let is_test = attributes(&Item::Mod(module.clone())).iter().any(|attribute| attribute.path().is_ident("cfg"));
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // What is passed on is no need of this file's.
        if matches!(item.vis, syn::Visibility::Inherited) {
            flatten(&item.tree, &mut Vec::new(), &mut |path, _| self.add(path));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let parts: Vec<_> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if parts.len() > 1 {
            self.add(parts);
        }
        visit::visit_path(self, path);
    }
}

impl Paths {
    fn add(&mut self, path: Vec<String>) {
        if path.first().is_some_and(|first| ["crate", "super", "self"].contains(&first.as_str())) {
            self.found.push(path);
        } else if path.len() > 1 && path[0].chars().next().is_some_and(char::is_lowercase) {
            // A child module's, or another crate's: the former is known by its name.
            self.found.push([vec!["self".to_owned()], path].concat());
        }
    }
}
