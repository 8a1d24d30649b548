//! Crates, their files, and what those say.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, File, Item};

/// One file of a crate, parsed.
#[derive(Debug)]
pub struct Source {
    /// Its path below the tree's root.
    pub path: PathBuf,
    /// The module that it is, from the crate's root: empty for `lib.rs`.
    pub module: Vec<String>,
    /// Its text.
    pub text: String,
    /// Its items, but for those of tests.
    pub items: Vec<Item>,
}

/// A crate of the tree.
#[derive(Debug)]
pub struct Crate {
    /// Its folder, below the root.
    pub folder: String,
    /// Its files.
    pub sources: Vec<Source>,
}

/// Returns the tree's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is two folders deep").to_owned()
}

/// Returns every Rust file of the tree, tests too, with its path below the root.
pub fn rust_files() -> Vec<PathBuf> {
    let root = root();
    let mut files = Vec::new();
    for entry in fs::read_dir(&root).expect("the root can be read").flatten() {
        let name = entry.file_name();
        if entry.path().is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            collect(&entry.path(), &mut files);
        }
    }
    files.iter().map(|file| file.strip_prefix(&root).expect("it is below").to_owned()).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if entry.file_name() != "target" {
                collect(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

impl Crate {
    /// Reads the crate in a folder below the root.
    pub fn read(folder: &str) -> Self {
        let (root, mut paths) = (root(), Vec::new());
        collect(&root.join(folder).join("src"), &mut paths);
        paths.sort();
        let mut sources: Vec<_> =
            paths.iter().map(|path| Source::read(path, &root, &root.join(folder).join("src"))).collect();
        let tests = sources.iter().flat_map(Source::test_modules).collect::<Vec<_>>();
        sources.retain(|source| !tests.iter().any(|test| source.module.starts_with(test)));
        for source in &mut sources {
            source.items.retain(|item| !attributes(item).iter().any(is_cfg_test));
        }
        Self { folder: folder.to_owned(), sources }
    }
}

impl Source {
    fn read(path: &Path, root: &Path, src: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a source can be read");
        let File { items, .. } = syn::parse_file(&text).expect("the tree compiles");
        let module = path.strip_prefix(src).expect("it is below").with_extension("");
        let mut module: Vec<_> = module.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| ["mod", "lib", "main"].contains(&last.as_str()));
        Self { path: path.strip_prefix(root).expect("it is below").to_owned(), module, text, items }
    }

    /// The modules that this one declares for tests.
    fn test_modules(&self) -> Vec<Vec<String>> {
        let of_item = |item: &Item| match item {
            Item::Mod(module) if module.attrs.iter().any(is_cfg_test) => {
                Some([self.module.clone(), vec![module.ident.to_string()]].concat())
            }
            _ => None,
        };
        self.items.iter().filter_map(of_item).collect()
    }

    /// Lines of the file before its tests.
    pub fn lines(&self) -> usize {
        let tests = self.text.lines().position(|line| line.trim() == "#[cfg(test)]" || line.starts_with("#[cfg(all("));
        // A module of tests that is a file of its own is declared at the top.
        let end = tests.filter(|&at| self.text.lines().skip(at).any(|line| line.starts_with("mod tests {")));
        end.unwrap_or_else(|| self.text.lines().count())
    }
}

/// The attributes of an item.
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an attribute is `#[cfg(..)]` of a condition that only tests meet.
fn is_cfg_test(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let words = list.tokens.to_string();
    list.path.is_ident("cfg")
        && words.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
        && !words.contains("not")
}
