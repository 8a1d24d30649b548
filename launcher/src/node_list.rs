//! Slurm's lists of nodes, and of numbers for them.

use crate::MAX_RANKS;

/// The nodes of a list such as `a1,b2`, `node[03-05,9]` or `rack[1-2]n[1-4]`, in its order; not more than a job can be on. A list that
/// is none has no nodes.
pub(crate) fn nodes(list: &str) -> Vec<String> {
    let nodes = words(list).into_iter().map(expand).collect::<Option<Vec<_>>>().unwrap_or_default();
    nodes.into_iter().flatten().take(MAX_RANKS).collect()
}

/// The numbers of a list such as `2(x3),1`: one for each node.
pub(crate) fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for word in list.split(',') {
        let (number, count) = match word.split_once("(x") {
            Some((number, rest)) => (number, rest.strip_suffix(')')?.parse().ok()?),
            None => (word, 1),
        };
        numbers.extend(std::iter::repeat_n(number.parse::<usize>().ok()?, MAX_RANKS.min(count)));
    }
    Some(numbers)
}

/// What stands between the commas that are outside of brackets.
fn words(list: &str) -> Vec<&str> {
    let mut is_inside = false;
    let is_end = |sign| {
        is_inside = sign == '[' || is_inside && sign != ']';
        sign == ',' && !is_inside
    };
    list.split(is_end).filter(|word| !word.is_empty()).collect()
}

/// The nodes of one word: its last bracket changes first.
fn expand(word: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = word.split_once('[') else { return Some(vec![word.into()]) };
    let (inside, behind) = rest.split_once(']')?;
    let behind = expand(behind)?;
    let mut nodes = Vec::new();
    for range in inside.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let numbers = first.parse::<u64>().ok()?..=last.parse().ok()?;
        for number in numbers.take(MAX_RANKS) {
            nodes.extend(behind.iter().map(|behind| format!("{before}{number:0width$}{behind}")));
            if nodes.len() >= MAX_RANKS {
                return Some(nodes);
            }
        }
    }
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_its_nodes_in_order() {
        for (list, wanted) in [
            ("alone", "alone"),
            ("a1,b2", "a1 b2"),
            ("node[03-05,9]", "node03 node04 node05 node9"),
            ("node[7,9-11],other", "node7 node9 node10 node11 other"),
            ("rack[1-2]n[1-2]", "rack1n1 rack1n2 rack2n1 rack2n2"),
            ("gpu-[01-02].example", "gpu-01.example gpu-02.example"),
            ("", ""),
            ("node[1-2", ""),
            ("node[a-b]", ""),
            ("node[3-1]", ""),
        ] {
            assert_eq!(nodes(list).join(" "), wanted, "{list}");
        }
        for list in ["n[0-18446744073709551615]", "a[1-99999]b[1-99999]c[1-99999]", "a[1-9999],b[1-9999]"] {
            assert_eq!(nodes(list).len(), MAX_RANKS, "{list}");
        }
    }

    #[test]
    fn numbers_are_repeated() {
        assert_eq!(numbers("2(x3),1"), Some(vec![2, 2, 2, 1]));
        assert_eq!(numbers("4"), Some(vec![4]));
        assert_eq!(numbers("1(x99999999)").map(|numbers| numbers.len()), Some(MAX_RANKS));
        for list in ["", "2(x", "2(xa)", "two", "1,,2"] {
            assert_eq!(numbers(list), None, "{list}");
        }
    }
}
