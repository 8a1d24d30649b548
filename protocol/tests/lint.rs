//! The lint over captures from real peers: two kernels break the rules that rxe is known to break, and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pcap_parser::{Capture, PcapBlock, PcapCapture};
use roci_protocol::lint::{Finding, Lint, Rule};

/// Frames of the captures are this far apart, so that no time that must pass is too short.
const STEP_NS: u64 = 1_000_000_000;

fn captures(prefix: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/rxe");
    let entries = fs::read_dir(folder).expect("the captures").map(|entry| entry.expect("an entry").path());
    let is_meant = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let mut paths: Vec<_> = entries.filter(is_meant).collect();
    paths.sort();
    paths
}

fn findings(path: &Path) -> Vec<Finding> {
    let bytes = fs::read(path).expect("a readable capture");
    let capture = PcapCapture::from_file(&bytes).expect("a classic capture");
    let mut lint = Lint::default();
    let mut at = 0;
    let mut look = |block: &PcapBlock| match block {
        PcapBlock::Legacy(block) => {
            at += STEP_NS;
            lint.look(at, block.data)
        }
        _ => Vec::new(),
    };
    capture.iter().flat_map(|block| look(&block)).collect()
}

fn rules(path: &Path) -> BTreeSet<Rule> {
    findings(path).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn two_kernels_break_the_known_rules_alone() {
    let paths: Vec<_> = ["rc_", "uc_", "ud_", "cm_"].into_iter().flat_map(captures).collect();
    assert!(paths.len() > 30, "only {} captures were there", paths.len());
    for path in paths {
        let unknown: Vec<_> = findings(&path)
            .into_iter()
            .filter(|finding| !matches!(finding.rule, Rule::MigReq | Rule::ResponseOrder))
            .map(|finding| finding.to_string())
            .collect();
        assert_eq!(unknown, Vec::<String>::new(), "{}", path.display());
    }
}

/// Frames that were made to break a rule do so.
#[test]
fn hostile_captures_break_the_rules_that_they_were_made_to_break() {
    let cases = [
        ("host_tver", Rule::Version),
        ("host_unknown_opcode", Rule::Opcode),
        ("host_pkey_limited", Rule::PartitionKey),
        ("host_nak_only_in_multi", Rule::MessageOrder),
        ("host_nak_write_middle_in_send", Rule::MessageOrder),
        ("host_nak_write_len_long", Rule::WriteLength),
    ];
    for (name, rule) in cases {
        let [path] = &captures(name)[..] else { panic!("{name} is one capture") };
        let rules = rules(path);
        assert!(rules.contains(&rule), "{name}: {rules:?}");
    }
}
