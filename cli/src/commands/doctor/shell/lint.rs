//! What tests ask of each line: that a shell reads it, and that it is a command and no prose.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The commands that mend something, or show where it can be mended.
const COMMANDS: [&str; 20] = [
    "apt-get",
    "chmod",
    "echo",
    "export",
    "ip",
    "ip6tables",
    "iptables",
    "modprobe",
    "prlimit",
    "reboot",
    "roci",
    "sed",
    "setcap",
    "sysctl",
    "taskset",
    "tee",
    "top",
    "ulimit",
    "unset",
    "update-grub",
];

/// What joins sentences, and no commands of ours.
const PROSE: [&str; 6] = [", ", "; ", "...", " (", " or ", " and "];

/// Ends the test that has made a line that is no command.
pub(super) fn check(line: &str) {
    static GOOD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut good = GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    if !good.contains(line) {
        if let Some(fault) = fault_of(line) {
            panic!("{line:?} is no command: {fault}");
        }
        good.insert(line.to_owned());
    }
}

fn fault_of(line: &str) -> Option<String> {
    let bare = without_quoted(line);
    let starts = bare.split(" && ").flat_map(|part| part.split(" | ")).map(first_command);
    let unknown = starts.into_iter().find(|word| !COMMANDS.contains(word)).map(|word| format!("{word:?} is none"));
    let prose = || PROSE.into_iter().find(|part| bare.contains(part)).map(|part| format!("it has {part:?}"));
    let blank = || placeholder(&bare).map(|word| format!("{word:?} is to be filled in"));
    let unreadable = || (!is_readable(line)).then(|| "bash cannot read it".to_owned());
    unknown.or_else(prose).or_else(blank).or_else(unreadable)
}

fn first_command(part: &str) -> &str {
    let mut words = part.split_whitespace().skip_while(|&word| word == "sudo");
    words.next().unwrap_or_default()
}

/// The line without what is between single quotes: that is one word, whatever it holds.
fn without_quoted(line: &str) -> String {
    let (mut bare, mut is_quoted) = (String::new(), false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '\\' => drop(letters.next()),
            letter => bare.push(letter),
        }
    }
    bare
}

/// A word in capitals, which stands for a name; variables of ours have an underscore.
fn placeholder(bare: &str) -> Option<&str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_capital = |word: &&str| word.len() > 2 && word.chars().all(|letter| letter.is_ascii_uppercase());
    let words = bare.split(|letter: char| !is_letter(letter) && letter != '$').filter(is_capital);
    words.into_iter().find(|word| !["ACCEPT", "INPUT", "OUTPUT"].contains(word))
}

fn is_readable(line: &str) -> bool {
    let read = Command::new("bash").args(["-n", "-c", line]).output();
    read.expect("bash starts").status.success()
}

#[test]
fn prose_is_no_command() {
    let cases = [
        ("let UDP to port 4791 in (nft list ruleset)", "\"let\" is none"),
        ("sudo let it pass", "\"let\" is none"),
        ("echo Y | give it to root", "\"give\" is none"),
        ("sudo reboot && then do more", "\"then\" is none"),
        ("ip link set eth0 mtu 9000, at both ends", "it has \", \""),
        ("sudo reboot now; export A=1", "it has \"; \""),
        ("roci run -n 2 ...", "it has \"...\""),
        ("ip link (iproute2)", "it has \" (\""),
        ("export A=1 or A=2", "it has \" or \""),
        ("roci info and more", "it has \" and \""),
        ("ip link set dev IFACE mtu 9000", "\"IFACE\" is to be filled in"),
        ("roci doctor --device udp:ADDRESS", "\"ADDRESS\" is to be filled in"),
        ("echo \"a", "bash cannot read it"),
        ("echo 'a", "bash cannot read it"),
        ("", "\"\" is none"),
    ];
    for (line, fault) in cases {
        assert_eq!(fault_of(line).as_deref(), Some(fault), "{line}");
    }
}

#[test]
fn commands_are_commands() {
    let lines = [
        "ip -brief link",
        "export ROCI_ARENA_PAGES=auto",
        "echo \"$USER - memlock unlimited\" | sudo tee /etc/security/limits.d/60-roci.conf",
        "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&quiet /, and' /etc/default/grub && sudo reboot",
        "sudo chmod 1777 'IT'\\''S (IT)'",
        "sudo iptables -I INPUT -p udp --dport 4791 -j ACCEPT",
    ];
    for line in lines {
        assert_eq!(fault_of(line), None, "{line}");
    }
}
