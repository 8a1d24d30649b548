//! How large things have grown.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ExprMacro, ImplItemFn, Item, ItemFn, ItemMod, ItemStruct, ReturnType, Stmt, Type, Visibility};

use crate::source::Crate;

/// Something that has a size.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sized {
    /// How large it is.
    pub size: usize,
    /// What it is, and where.
    pub what: String,
}

/// The figures of one crate, the largest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Structs, by fields.
    pub structs: Vec<Sized>,
    /// Those of them that hold state: not all of their fields are `pub`.
    pub states: Vec<Sized>,
    /// Functions, by lines.
    pub functions: Vec<Sized>,
    /// Files, by lines before their tests.
    pub files: Vec<Sized>,
    /// Assertions outside of tests.
    pub assertions: usize,
    /// Lines outside of tests.
    pub lines: usize,
    /// Errors that are a text.
    pub string_errors: usize,
    /// Errors whose `Debug` form is derived, which is no sentence.
    pub debug_errors: Vec<String>,
    /// The names of types, with their files.
    pub types: Vec<(String, String)>,
}

impl Figures {
    /// Measures a crate.
    pub fn of(house: &Crate) -> Self {
        let mut figures = Self::default();
        for source in &house.sources {
            let path = source.path.display().to_string();
            let lines = source.lines();
            figures.lines += lines;
            figures.files.push(Sized { size: lines, what: path.clone() });
            let mut measure = Measure { path, figures: &mut figures };
            source.items.iter().for_each(|item| measure.visit_item(item));
        }
        for list in [&mut figures.structs, &mut figures.states, &mut figures.functions, &mut figures.files] {
            list.sort();
            list.reverse();
        }
        figures
    }
}

/// Counts whole words of a text, in whatever case.
pub fn count_words(text: &str, words: &[&str]) -> usize {
    let is_word = |word: &&str| words.iter().any(|other| other.eq_ignore_ascii_case(word));
    text.split(|c: char| !c.is_alphanumeric()).filter(is_word).count()
}

struct Measure<'a> {
    path: String,
    figures: &'a mut Figures,
}

impl Measure<'_> {
    fn note_function(&mut self, name: &impl ToString, body: &impl Spanned, output: &ReturnType) {
        let span = body.span();
        let size = span.end().line - span.start().line + 1;
        self.figures.functions.push(Sized { size, what: format!("{} in {}", name.to_string(), self.path) });
        if let ReturnType::Type(_, output) = output
            && has_string_error(output)
        {
            self.figures.string_errors += 1;
        }
    }

    fn note_type(&mut self, name: &impl ToString) {
        self.figures.types.push((name.to_string(), self.path.clone()));
    }

    fn note_error(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        let derives = attributes.iter().filter(|attribute| attribute.path().is_ident("derive"));
        let words = derives.flat_map(|derive| match &derive.meta {
            syn::Meta::List(list) => list.tokens.clone().into_iter().map(|token| token.to_string()).collect(),
            _ => Vec::new(),
        });
        let words: Vec<_> = words.collect();
        if ["Error", "Debug"].iter().all(|wanted| words.iter().any(|word| word == wanted)) {
            self.figures.debug_errors.push(name.to_string());
        }
    }

    fn note_macro(&mut self, path: &syn::Path) {
        let is_assertion = path.segments.last().is_some_and(|last| last.ident.to_string().contains("assert"));
        self.figures.assertions += usize::from(is_assertion);
    }
}

impl<'ast> Visit<'ast> for Measure<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let what = format!("{} in {}", item.ident, self.path);
        let size = item.fields.len();
        if item.fields.iter().any(|field| !matches!(field.vis, Visibility::Public(_))) {
            self.figures.states.push(Sized { size, what: what.clone() });
        }
        self.figures.structs.push(Sized { size, what });
        self.note_type(&item.ident);
        self.note_error(&item.ident, &item.attrs);
        visit::visit_item_struct(self, item);
    }

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Enum(item) => {
                self.note_type(&item.ident);
                self.note_error(&item.ident, &item.attrs);
            }
            Item::Trait(item) => self.note_type(&item.ident),
            // One that has the name of what it stands for is the same type, with some of its parameters given.
            Item::Type(item) if !is_namesake(&item.ty, &item.ident) => self.note_type(&item.ident),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.note_function(&item.sig.ident, &item.block, &item.sig.output);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.note_function(&item.sig.ident, &item.block, &item.sig.output);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_expr_macro(&mut self, expression: &'ast ExprMacro) {
        self.note_macro(&expression.mac.path);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Macro(statement) = statement {
            self.note_macro(&statement.mac.path);
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.note_macro(&item.mac.path);
    }
}

/// Whether a type is a `Result` whose error is a `String`.
fn has_string_error(output: &Type) -> bool {
    let Type::Path(path) = output else { return false };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else { return false };
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    matches!(arguments.args.last(), Some(syn::GenericArgument::Type(Type::Path(error))) if error.path.is_ident("String"))
}

/// Whether a path ends with this name.
fn is_namesake(ty: &Type, name: &syn::Ident) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == *name))
}
