//! The documents of the tree: what they point to is there, their code is as wide as a page, and the book has them all.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use roci_tidy::root;

/// Where the book's chapters are.
const BOOK: &str = "docs";
/// The folders below it that chapters are in, and its own.
const PARTS: [&str; 2] = ["", "internals"];
/// The folders with documents.
const FOLDERS: [&str; 5] = ["", "docs", "docs/internals", "lab", "configs"];
/// Columns of code that a page of the book has beside its sidebar, and one of a forge.
const COLUMNS: usize = 92;
/// Documents that are no chapters: lists that the book is made from.
const NO_CHAPTERS: [&str; 1] = ["SUMMARY.md"];

fn documents_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect();
    found.sort();
    found
}

/// The targets of a text's links and images, but for those on the web and within the document itself.
fn targets(text: &str) -> Vec<String> {
    let ends = text.match_indices("](").filter_map(|(at, _)| {
        let rest = &text[at + 2..];
        rest.find(')').map(|end| &rest[..end])
    });
    let is_local = |target: &&str| !target.contains("://") && !target.starts_with('#') && !target.is_empty();
    ends.filter(is_local).map(|target| target.split('#').next().unwrap_or(target).to_owned()).collect()
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let mut dead = Vec::new();
    let mut seen = 0;
    for folder in FOLDERS {
        for document in documents_in(&root().join(folder)) {
            let text = fs::read_to_string(&document).expect("a document");
            for target in targets(&text) {
                seen += 1;
                if !document.parent().expect("a folder").join(&target).exists() {
                    dead.push(format!("{}: {target}", document.display()));
                }
            }
        }
    }
    assert!(seen > 50, "links are found: {seen}");
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn no_code_of_a_document_is_wider_than_a_page() {
    let mut wide = Vec::new();
    for document in FOLDERS.into_iter().flat_map(|folder| documents_in(&root().join(folder))) {
        let mut is_code = false;
        for (number, line) in (1..).zip(fs::read_to_string(&document).expect("a document").lines()) {
            is_code ^= line.trim_start().starts_with("```");
            if is_code && line.chars().count() > COLUMNS {
                wide.push(format!("{}:{number}: {line}", document.display()));
            }
        }
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn the_book_has_every_document_once() {
    let book = root().join(BOOK);
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("a summary");
    let chapters = targets(&summary);
    let listed: BTreeSet<_> = chapters.iter().cloned().collect();
    assert_eq!(chapters.len(), listed.len(), "a chapter is listed twice");
    let documents = PARTS.into_iter().flat_map(|part| documents_in(&book.join(part)));
    let names = documents.filter_map(|path| Some(path.strip_prefix(&book).ok()?.to_str()?.to_owned()));
    let there: BTreeSet<_> = names.filter(|name| !NO_CHAPTERS.contains(&name.as_str())).collect();
    assert_eq!(listed, there);
}

#[test]
fn the_book_has_no_folder_that_is_not_looked_at() {
    let entries = fs::read_dir(root().join(BOOK)).expect("the book").flatten();
    let folders = entries.filter(|entry| entry.path().is_dir());
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let unknown: Vec<_> = names.filter(|name| !PARTS.contains(&name.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
