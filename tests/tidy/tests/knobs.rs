//! Knobs: each has a reader. A field that only the configuration's own methods read counts where one of them is called from
//! elsewhere.

use std::collections::BTreeSet;

use roci_tidy::{Crate, Source};
use syn::visit::{self, Visit};
use syn::{ExprField, ExprMethodCall, ExprPath, ImplItem, Item, Member};

/// The fields that code reads, and the functions that it calls.
#[derive(Default)]
struct Uses {
    fields: BTreeSet<String>,
    calls: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_expr_field(&mut self, field: &'ast ExprField) {
        if let Member::Named(name) = &field.member {
            self.fields.insert(name.to_string());
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        self.calls.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_path(&mut self, path: &'ast ExprPath) {
        self.calls.extend(path.path.segments.last().map(|last| last.ident.to_string()));
        visit::visit_expr_path(self, path);
    }
}

/// The names in the table, a row each: `    name: Type = default, ...`.
fn knobs(msgcore: &Crate) -> Vec<String> {
    let table = msgcore.sources.iter().find(|source| source.module == ["config", "knobs"]).expect("the table");
    let rows = table.text.lines().skip_while(|line| !line.starts_with("knobs! {"));
    let rows = rows.filter(|line| line.starts_with("    ") && line.contains(" = "));
    rows.filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned())).collect()
}

/// The methods in these files, and what each uses.
fn methods<'a>(sources: impl Iterator<Item = &'a Source>) -> Vec<(String, Uses)> {
    let mut methods = Vec::new();
    for item in sources.flat_map(|source| &source.items) {
        let Item::Impl(block) = item else { continue };
        for function in &block.items {
            if let ImplItem::Fn(function) = function {
                let mut uses = Uses::default();
                uses.visit_impl_item_fn(function);
                methods.push((function.sig.ident.to_string(), uses));
            }
        }
    }
    methods
}

#[test]
fn every_knob_has_a_reader() {
    let msgcore = Crate::read("msgcore");
    let is_configuration = |source: &&Source| source.module.first().is_some_and(|first| first == "config");
    let mut used = Uses::default();
    for house in ["driver", "cli", "benches"].map(Crate::read).iter().chain([&msgcore]) {
        let outside = house.sources.iter().filter(|source| house.folder != "msgcore" || !is_configuration(source));
        outside.flat_map(|source| &source.items).for_each(|item| used.visit_item(item));
    }
    // A method of the configuration may call another one.
    let mut methods = methods(msgcore.sources.iter().filter(is_configuration));
    while let Some(at) = methods.iter().position(|(name, _)| used.calls.contains(name)) {
        let (_, uses) = methods.swap_remove(at);
        used.fields.extend(uses.fields);
        used.calls.extend(uses.calls);
    }
    let knobs = knobs(&msgcore);
    assert!(knobs.len() > 40, "{} knobs are not all", knobs.len());
    let unread: Vec<_> = knobs.iter().filter(|knob| !used.fields.contains(*knob)).collect();
    assert!(unread.is_empty(), "{unread:?} of {} knobs have no reader", knobs.len());
}
