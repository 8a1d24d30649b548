//! PMI-1: lines of `name=value` over a descriptor. It has no document of its own; the requests are those of MPICH's and Slurm's
//! clients, version 1.1.
//!
//! | request | answer |
//! |---|---|
//! | `cmd=init pmi_version=1 pmi_subversion=1` | `cmd=response_to_init rc=0 ..` |
//! | `cmd=get_maxes` | `cmd=maxes kvsname_max=.. keylen_max=.. vallen_max=..` |
//! | `cmd=get_my_kvsname` | `cmd=my_kvsname kvsname=..` |
//! | `cmd=put kvsname=.. key=.. value=..` | `cmd=put_result rc=0 ..` |
//! | `cmd=barrier_in` | `cmd=barrier_out ..`, once all processes have asked |
//! | `cmd=get kvsname=.. key=..` | `cmd=get_result rc=0 value=..` |
//! | `cmd=finalize` | `cmd=finalize_ack ..` |

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use crate::{KEY, PmiError, inherited, number};

/// The longest answer that is read.
const LINE_LIMIT: u64 = 64 << 10;

/// A process's end of PMI-1.
#[derive(Debug)]
pub(crate) struct Pmi1Client<S: Read = File> {
    stream: BufReader<S>,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Pmi1Client {
    pub(crate) fn from_environment() -> Result<Option<Self>, PmiError> {
        let Some(fd) = number("PMI_FD")? else { return Ok(None) };
        let given = |name| number(name)?.ok_or(PmiError::Missing(name));
        let (rank, size) = (given("PMI_RANK")?, given("PMI_SIZE")?);
        if rank >= size {
            return Err(PmiError::Variable { name: "PMI_RANK", value: rank.to_string() });
        }
        let fd = fd.try_into().map_err(|_| PmiError::Variable { name: "PMI_FD", value: fd.to_string() })?;
        Ok(Some(Self { stream: BufReader::new(inherited::take(fd)?), rank, size }))
    }
}

impl<S: Read> Pmi1Client<S>
where
    for<'a> &'a S: Write,
{
    /// The whole conversation.
    pub(crate) fn publish(mut self, text: Option<&str>) -> Result<String, PmiError> {
        self.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init").map_err(|error| match error {
            PmiError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => PmiError::Served,
            error => error,
        })?;
        let longest = self.ask("cmd=get_maxes", "maxes")?.number("vallen_max")?;
        let space = self.ask("cmd=get_my_kvsname", "my_kvsname")?.value("kvsname")?.to_owned();
        if let Some(text) = text {
            // The limit counts the end of a string in C.
            if text.len() >= longest {
                return Err(PmiError::TooLong { len: text.len(), most: longest.saturating_sub(1) });
            }
            self.ask(&format!("cmd=put kvsname={space} key={KEY} value={text}"), "put_result")?;
        }
        self.ask("cmd=barrier_in", "barrier_out")?;
        let found = self.ask(&format!("cmd=get kvsname={space} key={KEY}"), "get_result")?.value("value")?.to_owned();
        self.ask("cmd=finalize", "finalize_ack")?;
        Ok(found)
    }

    /// Asks for something, and checks that the answer is one, and that it grants what was asked for.
    fn ask(&mut self, request: &str, answer: &str) -> Result<PmiReply, PmiError> {
        self.stream.get_ref().write_all(format!("{request}\n").as_bytes())?;
        let mut line = String::new();
        (&mut self.stream).take(LINE_LIMIT).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let reply = PmiReply { request: request.to_owned(), line: line.trim_end().to_owned() };
        let is_granted = reply.find("rc").is_none_or(|code| code == "0");
        if reply.find("cmd") == Some(answer) && is_granted { Ok(reply) } else { Err(reply.refusal()) }
    }
}

/// An answer, with what it answers.
struct PmiReply {
    request: String,
    line: String,
}

impl PmiReply {
    fn find(&self, name: &str) -> Option<&str> {
        self.line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn value(&self, name: &str) -> Result<&str, PmiError> {
        self.find(name).ok_or_else(|| self.refusal())
    }

    fn number(&self, name: &str) -> Result<usize, PmiError> {
        self.value(name)?.parse().map_err(|_| self.refusal())
    }

    fn refusal(&self) -> PmiError {
        PmiError::Answer { request: self.request.clone(), answer: self.line.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// A manager of one process that gives each request of a script its answer, and says what was asked.
    fn manager(answers: Vec<&'static str>) -> (Pmi1Client<UnixStream>, thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let serve = move || {
            let mut lines = BufReader::new(&theirs).lines();
            let mut asked = Vec::new();
            for answer in answers {
                match lines.next() {
                    Some(Ok(line)) => asked.push(line),
                    _ => break,
                }
                (&theirs).write_all(answer.as_bytes()).expect("a client");
            }
            asked
        };
        (Pmi1Client { stream: BufReader::new(ours), rank: 0, size: 1 }, thread::spawn(serve))
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=16\n";
    const NAME: &str = "cmd=my_kvsname kvsname=kvs_7_0\n";

    #[test]
    fn a_text_is_published_and_read_back() {
        let got = "cmd=get_result rc=0 msg=success value=a=b/c,d\n";
        let (client, manager) = manager(vec![
            INIT,
            MAXES,
            NAME,
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out rc=0\n",
            got,
            "cmd=finalize_ack rc=0\n",
        ]);
        assert_eq!(client.publish(Some("a=b/c,d")).expect("granted"), "a=b/c,d");
        let asked = manager.join().expect("no panic");
        let commands: Vec<_> = asked.iter().filter_map(|line| line.split(' ').next()).collect();
        let wanted = ["init", "get_maxes", "get_my_kvsname", "put", "barrier_in", "get", "finalize"];
        assert_eq!(commands, wanted.map(|name| format!("cmd={name}")));
        assert_eq!(asked[3], "cmd=put kvsname=kvs_7_0 key=roci-job value=a=b/c,d");
    }

    #[test]
    fn the_longest_value_counts_the_zero_behind_it() {
        let (client, _manager) = manager(vec![INIT, MAXES, NAME, "cmd=put_result rc=0\n"]);
        let refused = client.publish(Some(&"x".repeat(16))).expect_err("one too long").to_string();
        assert_eq!(refused, "the process manager takes values of 15 bytes at most, and the job's address has 16");
    }

    #[test]
    fn a_second_program_of_a_task_learns_why_it_is_refused() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        drop(theirs);
        let client = Pmi1Client { stream: BufReader::new(ours), rank: 0, size: 1 };
        let refused = client.publish(Some("x")).expect_err("the manager has gone").to_string();
        assert!(refused.contains("perhaps another one has"), "{refused}");
    }

    #[test]
    fn what_is_no_answer_is_named() {
        let complaint = |answers| manager(answers).0.publish(None).expect_err("no answer").to_string();
        for (answers, wanted) in [
            (vec!["cmd=response_to_init rc=-1\n"], "answered 'cmd=response_to_init rc=-1' to 'cmd=init"),
            (vec!["cmd=other rc=0\n"], "answered 'cmd=other rc=0'"),
            (vec!["\n"], "answered '' to"),
            (vec!["cmd=response_to_init rc=0"], "end of file"),
            (vec![INIT, "cmd=maxes vallen_max=many\n"], "answered 'cmd=maxes vallen_max=many' to 'cmd=get_maxes'"),
            (vec![INIT, MAXES, "cmd=my_kvsname\n"], "answered 'cmd=my_kvsname' to"),
            (
                vec![INIT, MAXES, NAME, "cmd=barrier_out\n", "cmd=get_result rc=-1 msg=no\n"],
                "to 'cmd=get kvsname=kvs_7_0",
            ),
        ] {
            let complaint = complaint(answers);
            assert!(complaint.contains(wanted), "{wanted}: {complaint}");
        }
    }
}
