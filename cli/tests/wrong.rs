//! Wrong command lines and configurations, and what each ends with: one line that says what is wrong and what would be right. The
//! table is tests/wrong.txt, for people to read. `ROCI` is no part of its name: WRITE_WRONG=1 writes it anew.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use common::{command, finish};

/// Words before the command that set variables, as a shell has them.
const WRONG: [&str; 78] = [
    "roci",
    "roci frobnicate",
    "roci rum -n 2 true",
    "roci --frobnicate",
    "roci run",
    "roci run -n 2",
    "roci run -n 0 true",
    "roci run -n two true",
    "roci run -n 2 --nonsense true",
    "roci run -n 2 /nonexistent/program",
    "roci run -n 2 -x NOT_SET_HERE true",
    "roci run -n 2 -x =5 true",
    "roci run -n 2 -hosts node1:0 true",
    "roci run -n 2 -hostfile /nonexistent/hosts true",
    "roci run -n 4 -hosts node1:2 --device memif true",
    "roci run -n 40 --device memif true",
    "roci run -n 2 --output rank.log true",
    "roci run -n 2 --debug true",
    "roci run -n 2 --xterm true",
    "roci run -np 2 -debugger lldb true",
    "TMUX=here roci run -n 2 -hosts node1,node2 -debug true",
    "roci board -np two",
    "roci stat -n 3",
    "roci run -n 4 roci perf tag_lat",
    "roci run -n 2 --wdir /nonexistent/folder true",
    "roci info --port --device infiniband",
    "roci info --port --device udp:10.255.255.254",
    "roci info --port --device af_packet:nic7",
    "roci info --port --device pci:0000:ff:1f.7",
    "roci run -n 2 --faults loss=2 roci soak",
    "roci run -n 2 --faults lost=0.1 roci soak",
    "roci perf",
    "roci perf warp_lat",
    "roci perf tag_lat,",
    "roci perf tag_lat --size 0",
    "roci perf tag_lat --size 8kb,big",
    "roci perf tag_lat --size 1TiB",
    "roci perf tag_lat --iters 0",
    "roci perf tag_lat --iters 5 --duration 1",
    "roci perf tag_lat --duration 0",
    "roci perf tag_lat --bidirectional",
    "roci perf tag_lat --qps 4",
    "roci perf send_bw --qps 128",
    "roci perf write_bw --ud",
    "roci perf send_bw --ud --bidirectional",
    "roci perf send_rate --size 4",
    "roci perf send_lat --engine dedicated",
    "roci perf tag_lat --memory user",
    "roci perf tag_lat --depth 4",
    "roci perf send_bw --depth 1000",
    "roci perf tag_lat --listen nowhere",
    "roci perf tag_lat --once",
    "roci perf tag_lat --device memif 127.0.0.1:4800",
    "roci perf --perftest tag_lat",
    "roci soak",
    "roci exchange",
    "roci decode",
    "roci decode /nonexistent/capture",
    "roci decode Cargo.toml --qpn 0x1000000",
    "roci lint Cargo.toml",
    "roci info warp_speed",
    "roci stat 4194304",
    "roci sim --seeds 9..1",
    "roci completions tcsh",
    "roci run -n 2 --device af_packet:nic7 roci soak",
    "roci run -n 2 --device pci:0000:ff:1f.7 roci soak",
    "roci run -n 2 --device udp:10.255.255.254 roci soak",
    "ROCI_IP=10.255.255.254 roci run -n 2 --device udp roci soak",
    "roci run -n 2 -paramfile /nonexistent/parameters roci soak",
    "roci run -n 2 -paramfile tests/wrong/unquoted roci soak",
    "roci run -n 2 -paramfile tests/wrong/unknown roci soak",
    "roci run -n 2 -paramfile tests/wrong/range roci soak",
    "roci run -n 2 -hostfile tests/wrong/hosts roci soak",
    "roci run -n 2 -hostfile /dev/null roci soak",
    "ROCI_WARP=9 roci info",
    "ROCI_CREDITS=many roci info",
    "ROCI_DEVICE=infiniband roci info",
    "ROCI_EAGER_THRESHOLD=-1 roci info",
];

/// What a line ends with, and its status.
fn said(line: &str) -> String {
    let mut words = line.split(' ').peekable();
    let mut variables = Vec::new();
    while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
        variables.push((name, value));
        words.next();
    }
    assert_eq!(words.next(), Some("roci"), "{line}");
    let arguments: Vec<_> = words.collect();
    let mut command = command(&arguments);
    command.env_remove("DISPLAY").env_remove("TMUX").envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = finish(command.spawn().expect("roci starts"));
    let code = ended.code();
    assert!(code.is_some_and(|code| code != 0), "{line}: {}", ended.stdout);
    format!("$ {line}\n{}\n[status {}]\n", ended.stderr.trim_end(), code.unwrap_or(-1))
}

#[test]
fn each_ends_with_one_clear_line() {
    let mut table = String::new();
    for line in WRONG {
        let said = said(line);
        let complaints = said.lines().skip(1).take_while(|line| !line.starts_with('['));
        let (own, others): (Vec<_>, Vec<_>) = complaints.partition(|line| line.starts_with("roci: "));
        assert!(own.len() == 1 && others.is_empty(), "{said}");
        let _ = writeln!(table, "{said}");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong.txt");
    if std::env::var_os("WRITE_WRONG").is_some() {
        fs::write(&file, &table).expect("the tree can be written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let news: Vec<_> = table.split("\n\n").filter(|entry| !written.contains(entry.trim())).collect();
    assert!(news.is_empty() && written == table, "not as in {}:\n{}", file.display(), news.join("\n\n"));
}
