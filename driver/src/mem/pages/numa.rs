//! Memory near the port: which NUMA node, and the policy that the kernel was given.

use std::fmt;

use memmap2::MmapRaw;

use super::read;

/// Where the pages of an arena are taken from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Placement {
    /// There is one NUMA node.
    OneNode,
    /// The port's node is unknown: the kernel takes that of the processor which touches a page first.
    Unknown,
    /// Preferred is the port's node; where it is full, the kernel takes another.
    Node(u32),
    /// The kernel did not take the port's node, for this reason.
    Refused(u32, String),
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneNode => f.write_str("the only NUMA node"),
            Self::Unknown => f.write_str("any NUMA node: the port's is not known"),
            Self::Node(node) => write!(f, "NUMA node {node}, the port's"),
            Self::Refused(node, why) => write!(f, "any NUMA node: the kernel refused {node}, the port's: {why}"),
        }
    }
}

/// NUMA nodes that a mask names at most; the kernel knows no more.
const NODES: usize = 1024;
const BITS: usize = u64::BITS as usize;

/// Sets the node that the pages of a mapping come from, before they are touched.
pub(super) fn place(map: &MmapRaw, node: Option<u32>) -> Placement {
    let online = nodes(&read("/sys/devices/system/node/online"));
    match node {
        // A kernel without NUMA shows no list.
        _ if online.len() <= 1 => Placement::OneNode,
        None => Placement::Unknown,
        Some(node) if !online.contains(&node) => Placement::Refused(node, format!("online are {online:?}")),
        Some(node) => match prefer(map, node) {
            Ok(()) => Placement::Node(node),
            Err(error) => Placement::Refused(node, error.to_string()),
        },
    }
}

/// The numbers in a list of the kernel's, such as `0-1,4`; what is none of its lists names no node.
fn nodes(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        ((last as usize) < NODES).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Prefers a node for a mapping (`mbind`, MPOL_PREFERRED), which neither libc nor rustix wraps.
fn prefer(map: &MmapRaw, node: u32) -> std::io::Result<()> {
    let mut mask = [0u64; NODES / BITS];
    let word = mask.get_mut(node as usize / BITS).ok_or(std::io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node as usize % BITS);
    // SAFETY: the call changes from where the kernel takes pages of `map`, which is ours and that long, and none of its
    // bytes; it reads `NODES` bits of `mask`, which has them (it wants the number of bits plus one), and keeps nothing.
    let status = unsafe {
        libc::syscall(libc::SYS_mbind, map.as_mut_ptr(), map.len(), libc::MPOL_PREFERRED, mask.as_ptr(), NODES + 1, 0)
    };
    if status == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use memmap2::MmapOptions;
    use proptest::prelude::*;

    use super::*;

    fn mapping() -> MmapRaw {
        MmapOptions::new().len(1 << 16).map_anon().expect("memory").into()
    }

    #[test]
    fn lists_of_nodes_are_read_and_nonsense_names_none() {
        assert_eq!(nodes("0\n"), [0]);
        assert_eq!(nodes("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(nodes(""), []);
        assert_eq!(nodes("x,3-,-,2-1,0-99999999999"), []);
    }

    #[test]
    fn a_node_that_there_is_can_be_preferred_and_one_that_there_is_not_is_refused() {
        let online = nodes(&read("/sys/devices/system/node/online"));
        let Some(&node) = online.first() else {
            eprintln!("skipped: this kernel has no NUMA");
            return;
        };
        prefer(&mapping(), node).expect("it is online");
        assert!(prefer(&mapping(), 1023).is_err());
        assert!(prefer(&mapping(), u32::MAX).is_err());
    }

    #[test]
    fn a_single_node_is_no_choice() {
        let is_single = nodes(&read("/sys/devices/system/node/online")).len() <= 1;
        assert_eq!(place(&mapping(), Some(0)) == Placement::OneNode, is_single);
        assert_eq!(place(&mapping(), None), if is_single { Placement::OneNode } else { Placement::Unknown });
    }

    proptest! {
        #[test]
        fn no_list_takes_the_parser_down(text in "[-,0-9 x\n]{0,40}") {
            prop_assert!(nodes(&text).into_iter().all(|node| (node as usize) < NODES));
        }
    }
}
