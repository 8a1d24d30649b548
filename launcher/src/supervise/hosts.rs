//! Which hosts a job is on, and which of its processes each of them gets.

use std::path::Path;

use rustix::system::uname;

use super::LaunchError;
use crate::{MAX_RANKS, Rank};

/// The processes of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostShare {
    /// Its name for the remote shell; `None` where it is this host.
    pub(crate) name: Option<String>,
    /// The first rank of each process.
    pub(crate) firsts: Vec<Rank>,
}

/// Reads a file of hosts: one a line, as often as it gets processes, or once with `:N` behind it; `#` begins a comment.
///
/// # Errors
/// It cannot be read, names no host, or a line is none.
pub fn read_hostfile(path: &Path) -> Result<Vec<String>, LaunchError> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(LaunchError::system(format!("cannot read the hosts in {shown}")))?;
    let mut hosts = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let found = hosts_of(line)
            .ok_or_else(|| LaunchError::Host { place: format!("{shown}, line {}", number + 1), text: line.into() })?;
        hosts.extend(found);
    }
    if hosts.is_empty() { Err(LaunchError::NoHost(shown.to_string())) } else { Ok(hosts) }
}

/// The hosts in a list with commas.
///
/// # Errors
/// One is none.
pub fn parse_hosts(list: &str) -> Result<Vec<String>, LaunchError> {
    let mut hosts = Vec::new();
    for text in list.split(',') {
        hosts.extend(hosts_of(text).ok_or_else(|| LaunchError::Host { place: "-hosts".into(), text: text.into() })?);
    }
    Ok(hosts)
}

/// `HOST` or `HOST:N`; an IPv6 address is in brackets, or has no number.
fn hosts_of(text: &str) -> Option<impl Iterator<Item = String> + use<>> {
    let is_address = text.parse::<std::net::Ipv6Addr>().is_ok();
    let (name, count) = match text.rsplit_once(':') {
        Some((name, count)) if !is_address => {
            (name, count.parse().ok().filter(|count| (1..=MAX_RANKS).contains(count))?)
        }
        _ => (text, 1),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    // A word that begins like an option would be one of the remote shell's.
    let is_host = !name.is_empty() && !name.starts_with('-') && !name.contains(char::is_whitespace);
    is_host.then(|| std::iter::repeat_n(name.to_owned(), count))
}

/// Gives each process, by its first rank, a host of the list, from its beginning again where it is too short. All are this host's
/// without a list.
pub(crate) fn share_out(hosts: &[String], firsts: impl Iterator<Item = Rank>) -> Vec<HostShare> {
    let mut shares: Vec<HostShare> = Vec::new();
    for (index, first) in firsts.enumerate() {
        let name = hosts.get(index % hosts.len().max(1)).filter(|name| !is_this_host(name)).cloned();
        match shares.iter_mut().find(|share| share.name == name) {
            Some(share) => share.firsts.push(first),
            None => shares.push(HostShare { name, firsts: vec![first] }),
        }
    }
    shares
}

/// Whether a name is this host's for certain, so that no remote shell is needed.
pub(super) fn is_this_host(name: &str) -> bool {
    let own = uname();
    let is_own_name = own.nodename().to_str().is_ok_and(|own| own == name)
        || std::env::var("SLURMD_NODENAME").is_ok_and(|own| own == name);
    is_own_name || name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_hosts_as_often_as_they_get_processes() {
        assert_eq!(parse_hosts("a,b:2,a").expect("hosts"), ["a", "b", "b", "a"]);
        assert_eq!(
            parse_hosts("10.0.0.1:2,fd00::1,[fd00::2]:2").expect("hosts"),
            ["10.0.0.1", "10.0.0.1", "fd00::1", "fd00::2", "fd00::2"]
        );
        for list in ["", "a,,b", "a:0", "a:x", "a:1025", "a:99999999999999999999", "-oProxyCommand=x", "a b", ":2"] {
            assert!(parse_hosts(list).is_err(), "{list}");
        }
    }

    #[test]
    fn a_file_names_one_host_a_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let read = |text: &str| {
            std::fs::write(file.path(), text).expect("room on the disk");
            read_hostfile(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(read("# two hosts\n a \nb:2 # twice\n\na\n").expect("hosts"), ["a", "b", "b", "a"]);
        assert!(read("# none\n").expect_err("no host").contains("names no host"));
        assert!(read("a\nb c\n").expect_err("two words").contains(", line 2: 'b c' is no host"));
    }

    #[test]
    fn the_first_hosts_are_used_and_the_list_begins_again() {
        let shares = |hosts: &[&str], size, workers| {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            let shares = share_out(&hosts, (0..size).step_by(workers));
            shares.into_iter().map(|share| (share.name.unwrap_or("here".into()), share.firsts)).collect::<Vec<_>>()
        };
        assert_eq!(shares(&[], 3, 1), [("here".into(), vec![0, 1, 2])]);
        assert_eq!(shares(&["a", "b", "c"], 2, 1), [("a".into(), vec![0]), ("b".into(), vec![1])]);
        assert_eq!(shares(&["a", "b", "a"], 4, 1), [("a".into(), vec![0, 2, 3]), ("b".into(), vec![1])]);
        assert_eq!(
            shares(&["a", "localhost", "127.0.0.1"], 6, 2),
            [("a".into(), vec![0]), ("here".into(), vec![2, 4])]
        );
    }
}
