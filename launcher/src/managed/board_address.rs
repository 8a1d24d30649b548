//! Where a board is, in words that fit a value of any process manager, and a line of ssh's.

use std::net::{IpAddr, SocketAddr};

use crate::Token;

/// Addresses that are published: a value of PMI-1 may be short.
const MOST_ADDRESSES: usize = 4;

/// Where a board is, as rank 0 or a launcher says it to others: `HOST/ADDRESS,ADDRESS/TOKEN`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct BoardAddress {
    /// Its host and network.
    host: String,
    /// Where its board is, on other hosts' way first.
    addresses: Vec<SocketAddr>,
    token: Token,
}

#[derive(Debug)]
pub(crate) struct NoBoardAddress;

impl std::fmt::Display for BoardAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
        write!(f, "{}/{}/{}", self.host, addresses.join(","), self.token.as_str())
    }
}

impl std::str::FromStr for BoardAddress {
    type Err = NoBoardAddress;

    fn from_str(text: &str) -> Result<Self, NoBoardAddress> {
        let mut parts = text.split('/');
        let (host, addresses, token) =
            parts.next().zip(parts.next()).zip(parts.next()).map(|((a, b), c)| (a, b, c)).ok_or(NoBoardAddress)?;
        let addresses =
            addresses.split(',').map(str::parse).collect::<Result<Vec<_>, _>>().map_err(|_| NoBoardAddress)?;
        Ok(Self { host: host.into(), addresses, token: Token::parse(token).ok_or(NoBoardAddress)? })
    }
}

impl BoardAddress {
    /// Of a board that listens at this port of all addresses of this host's.
    pub(crate) fn of_this_host(port: u16, token: Token) -> Self {
        Self { host: this_host(), addresses: own_addresses(port), token }
    }

    /// Where a process of this host finds the board.
    pub(crate) fn addresses_here(&self) -> Vec<SocketAddr> {
        self.addresses_for(&this_host())
    }

    /// Where a process on `host` finds the board. The loopback interface leads to it from its own network alone, and comes last:
    /// the address by which a rank reaches the board becomes its own address over UDP.
    fn addresses_for(&self, host: &str) -> Vec<SocketAddr> {
        let is_near = self.host == host;
        self.addresses.iter().filter(|address| is_near || !address.ip().is_loopback()).copied().collect()
    }

    pub(crate) fn into_token(self) -> Token {
        self.token
    }
}

/// What two processes have in common that reach each other over the loopback interface.
fn this_host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let digits = network.to_string_lossy().chars().filter(char::is_ascii_digit).collect::<String>();
    format!("{}-{digits}", boot.trim())
}

/// Returns addresses of this host's with this port: a few that lead to others first, IPv4 before IPv6, and a loopback one last.
pub fn own_addresses(port: u16) -> Vec<SocketAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut ips: Vec<_> = interfaces.iter().map(if_addrs::Interface::ip).filter(|ip| !is_link_local(*ip)).collect();
    ips.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    let (mut ips, loopback): (Vec<_>, Vec<_>) = ips.into_iter().partition(|ip| !ip.is_loopback());
    ips.truncate(MOST_ADDRESSES - 1);
    ips.extend(loopback.first());
    ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_read_back_and_fits_a_value_of_pmi_1() {
        let addresses =
            vec!["10.0.0.1:4791".parse().expect("an address"), "127.0.0.1:4791".parse().expect("an address")];
        let announced = BoardAddress { host: this_host(), addresses: addresses.clone(), token: Token::random() };
        let text = announced.to_string();
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        assert_eq!(text.parse::<BoardAddress>().expect("one"), announced);
        assert_eq!(announced.addresses_here(), addresses);
        assert_eq!(announced.addresses_for("elsewhere"), addresses[..1]);
        let longest = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().expect("an address");
        let longest = BoardAddress { addresses: vec![longest; MOST_ADDRESSES], ..announced };
        assert!(longest.to_string().len() < 300);
        for text in ["", "host", "host/10.0.0.1:1", "host/10.0.0.1/token", "host/10.0.0.1:1/to ken"] {
            assert!(text.parse::<BoardAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn this_hosts_addresses_end_with_a_loopback_one() {
        let addresses = own_addresses(7);
        assert!(addresses.len() <= MOST_ADDRESSES && addresses.iter().all(|address| address.port() == 7));
        let loopback = addresses.iter().filter(|address| address.ip().is_loopback()).count();
        assert_eq!(addresses.last().map(|address| address.ip().is_loopback()), (loopback > 0).then_some(true));
    }
}
