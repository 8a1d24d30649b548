//! The limits that the documentation gives are those of the code.

use std::collections::BTreeMap;
use std::fs;

use roci_tidy::root;
use syn::{BinOp, Block, Expr, Item, Lit, Stmt};

const PAGE: &str = "docs/limits.md";
/// The cells of a row: the limit, its value, where it is, what is beyond it.
const CELLS: usize = 4;

/// A limit that the code gives a name.
struct Limit {
    what: String,
    value: String,
    name: String,
    file: String,
}

/// The parts of a text that are between backticks.
fn code_words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The cells of a line, if it is a table's.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The rows of all tables, without their headings.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let is_row = |row: &Vec<&str>| !(row[0] == "limit" || row[0].starts_with("---"));
    page.lines().filter_map(cells).filter(is_row).collect()
}

/// The limits with a value, a name and a file; the others are not in this tree's code.
fn limits(page: &str) -> Vec<Limit> {
    let limit = |row: Vec<&str>| {
        assert_eq!(row.len(), CELLS, "{row:?}");
        let (value, place) = (code_words(row[1]), code_words(row[2]));
        let (&value, [name, file]) = (value.first()?, place.as_slice()) else { return None };
        let [what, value, name, file] = [row[0], value, *name, *file].map(str::to_owned);
        Some(Limit { what, value, name, file })
    };
    rows(page).into_iter().filter_map(limit).collect()
}

/// The constants of a file.
fn constants(text: &str) -> BTreeMap<String, Expr> {
    let items = syn::parse_file(text).expect("the tree compiles").items;
    let constant = |item| match item {
        Item::Const(item) => Some((item.ident.to_string(), *item.expr)),
        _ => None,
    };
    items.into_iter().filter_map(constant).collect()
}

/// What a line behind `name: ` initializes: a field's value, or a knob's default.
fn initializer(text: &str, name: &str) -> Option<Expr> {
    let start = format!("{}: ", name.strip_prefix("ROCI_").unwrap_or(name).to_lowercase());
    let rest = text.lines().find_map(|line| line.trim().strip_prefix(&start))?;
    let value = match rest.split_once(" = ") {
        Some((_, knob)) => knob.split_once(", \"")?.0,
        None => rest.strip_suffix(',')?,
    };
    syn::parse_str(value).ok()
}

/// The last expression of a block, which is its value.
fn value_of(block: &Block) -> Option<&Expr> {
    match block.stmts.last()? {
        Stmt::Expr(value, None) => Some(value),
        _ => None,
    }
}

/// Whether a condition is `cfg!(..)`: tests and models may have a smaller limit.
fn is_cfg(condition: &Expr) -> bool {
    matches!(condition, Expr::Macro(condition) if condition.mac.path.is_ident("cfg"))
}

/// The number that an expression is: of a call, such as `Some(4)` or `Duration::from_secs(5)`, its argument.
fn evaluate(value: &Expr, constants: &BTreeMap<String, Expr>) -> Option<i128> {
    let of = |part: &Expr| evaluate(part, constants);
    match value {
        Expr::Lit(value) => match &value.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        Expr::Paren(value) => of(&value.expr),
        Expr::Group(value) => of(&value.expr),
        Expr::Cast(value) => of(&value.expr),
        Expr::Path(value) => of(constants.get(&value.path.get_ident()?.to_string())?),
        Expr::Call(value) => of(value.args.first()?),
        Expr::Block(value) => of(value_of(&value.block)?),
        Expr::If(value) if is_cfg(&value.cond) => of(&value.else_branch.as_ref()?.1),
        Expr::Binary(value) => {
            let (left, right) = (of(&value.left)?, of(&value.right)?);
            match value.op {
                BinOp::Add(_) => left.checked_add(right),
                BinOp::Sub(_) => left.checked_sub(right),
                BinOp::Mul(_) => left.checked_mul(right),
                BinOp::Shl(_) => left.checked_shl(u32::try_from(right).ok()?),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The value that a file gives a constant, a field or a knob.
fn value_in(text: &str, name: &str) -> Option<i128> {
    let constants = constants(text);
    let initial = initializer(text, name);
    evaluate(constants.get(name).or(initial.as_ref())?, &constants)
}

#[test]
fn expressions_are_evaluated_as_the_code_writes_them() {
    let text = "const BITS: u32 = 14;
        const LIMIT: usize = 1 << BITS;
        const SLOTS: usize = if cfg!(test) { 2 } else { 16_384 };
        const WAIT: Duration = Duration::from_secs(5);
        const MOST: u32 = (1 << 23) - 1;
        const TWICE: usize = 2 * LIMIT;";
    let values = ["LIMIT", "SLOTS", "WAIT", "MOST", "TWICE", "NONE"].map(|name| value_in(text, name));
    assert_eq!(values, [Some(16_384), Some(16_384), Some(5), Some((1 << 23) - 1), Some(32_768), None]);
    assert_eq!(value_in("fn new() -> Self {\n    Self {\n        depth: 16,\n    }\n}", "depth"), Some(16));
    let knob = initializer("    credits: u16 = 128, \"messages\", \"2..4096\", parse, show;", "ROCI_CREDITS");
    assert_eq!(evaluate(&knob.expect("a default"), &BTreeMap::new()), Some(128));
}

#[test]
fn every_limit_of_the_documentation_is_that_of_the_code() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let limits = limits(&page);
    let mut wrong = Vec::new();
    for Limit { what, value, name, file } in &limits {
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            wrong.push(format!("{what}: there is no {file}"));
            continue;
        };
        let said = syn::parse_str::<Expr>(value).ok().and_then(|value| evaluate(&value, &BTreeMap::new()));
        let found = value_in(&text, name);
        if said.is_none() || said != found {
            wrong.push(format!("{what}: {value} is {said:?}, and {name} in {file} is {found:?}"));
        }
    }
    assert!(limits.len() > 60, "limits are found: {}", limits.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
