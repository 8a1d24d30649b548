//! A command that can be copied into a shell as it stands.

use std::ops::Deref;

/// The shell's own number, which it puts in itself: the one variable that a word of a line may be.
pub(super) const THIS_SHELL: &str = "$$";

/// A line of shell. It is made of words, and a word that a shell would read anything into is quoted: no name of a file or of an
/// interface breaks the line. What is no command goes into a row's hint; where this is compiled for tests, each line is
/// checked when it is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ShellLine(String);

impl ShellLine {
    /// A command and its arguments.
    pub(super) fn run(words: &[&str]) -> Self {
        Self::new(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
    }

    /// A command that root runs.
    pub(super) fn root(words: &[&str]) -> Self {
        Self::run(&[&["sudo"], words].concat())
    }

    /// Writes a word into a file that is root's.
    pub(super) fn write(word: &str, file: &str) -> Self {
        Self::new(format!("echo {} | sudo tee {}", quoted(word), quoted(file)))
    }

    /// Starts this machine anew, with more options for its kernel.
    pub(super) fn reboot_with(options: &str) -> Self {
        let edit = format!("s/^GRUB_CMDLINE_LINUX=\"/&{options} /");
        Self::root(&["sed", "-i", &edit, "/etc/default/grub"])
            .then(&Self::root(&["update-grub"]))
            .then(&Self::root(&["reboot"]))
    }

    /// A line in which the shell puts in more than a word: no name that was read can be in it.
    pub(super) fn fixed(line: &'static str) -> Self {
        Self::new(line.to_owned())
    }

    /// This line, and where it has succeeded, another one.
    pub(super) fn then(self, next: &Self) -> Self {
        Self::new(format!("{} && {}", self.0, next.0))
    }

    fn new(line: String) -> Self {
        #[cfg(test)]
        lint::check(&line);
        Self(line)
    }
}

impl Deref for ShellLine {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+./:=,%@".contains(letter);
    if word == THIS_SHELL || !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod lint;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// What a shell makes of words that are quoted.
    fn read_back(words: &[String]) -> Vec<String> {
        let quoted = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let script = format!("printf '%s\\0' {quoted}");
        let ended = Command::new("bash").args(["-c", &script]).output().expect("bash starts");
        let said = String::from_utf8(ended.stdout).expect("the words that were given");
        said.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_as_people_write_them() {
        assert_eq!(&*ShellLine::run(&["ip", "-brief", "link"]), "ip -brief link");
        assert_eq!(&*ShellLine::run(&["taskset", "-pc", "0-3", THIS_SHELL]), "taskset -pc 0-3 $$");
        assert_eq!(&*ShellLine::write("off", "/sys/a b"), "echo off | sudo tee '/sys/a b'");
        assert_eq!(
            &*ShellLine::reboot_with("quiet splash"),
            "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&quiet splash /' /etc/default/grub && sudo update-grub && sudo reboot"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_reads_back_every_word(words in prop::collection::vec("([ '\"$`*~#;&|\\\\]|\n|[a-z]|\\PC){0,8}", 1..4)) {
            prop_assume!(!words.iter().any(|word| word == THIS_SHELL));
            prop_assert_eq!(read_back(&words), words);
        }
    }
}
