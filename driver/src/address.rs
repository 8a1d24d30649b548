//! What a peer must know to connect: exchanged out of band, as one line of text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use roci_protocol::rc::Dialect;
use roci_protocol::wire::MacAddr;
use roci_protocol::{Mtu, Psn, Qpn};
use thiserror::Error;

/// A queue pair's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// The station.
    pub mac: MacAddr,
    /// The host.
    pub ip: IpAddr,
    /// The queue pair.
    pub qpn: Qpn,
    /// The first PSN that this side sends.
    pub psn: Psn,
    /// The largest path MTU that this side takes.
    pub mtu: Mtu,
    /// READs in flight that this side takes.
    pub max_rd_atomic: u8,
    /// How this side can recover from loss.
    pub dialect: Dialect,
    /// This side wants packets to carry an ICRC; they go without only where neither side wants it.
    pub icrc: bool,
}

/// The text is no address.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("'{0}' is not a queue pair's address")]
pub struct ParseAddressError(String);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mac, ip, qpn, psn, mtu, max_rd_atomic, dialect, icrc } = self;
        let dialect = name_of(*dialect);
        write!(f, "{mac} {ip} {} {} {} {max_rd_atomic} {dialect}", qpn.get(), psn.get(), mtu.bytes())?;
        if *icrc { Ok(()) } else { write!(f, " {NO_ICRC}") }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseAddressError(text.chars().take(80).collect()))
    }
}

fn parse(text: &str) -> Option<Address> {
    let mut words = text.split(' ');
    let mac = words.next()?.parse().ok()?;
    let ip = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse::<u32>().ok().filter(|&n| n < 1 << 24);
    let (qpn, psn) = (Qpn::new(number()?), Psn::new(number()?));
    let mtu = Mtu::from_bytes(number()? as usize)?;
    let max_rd_atomic = words.next()?.parse().ok()?;
    let dialect =
        words.next().and_then(|word| [Dialect::Verbs, Dialect::Rocinante].into_iter().find(|d| name_of(*d) == word))?;
    let icrc = match words.next() {
        None => true,
        Some(NO_ICRC) => false,
        Some(_) => return None,
    };
    words.next().is_none().then_some(Address { mac, ip, qpn, psn, mtu, max_rd_atomic, dialect, icrc })
}

/// The last word of an address whose side wants no ICRC: who does not know the word refuses the address.
const NO_ICRC: &str = "no-icrc";

const fn name_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Verbs => "verbs",
        Dialect::Rocinante => "rocinante",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_text() {
        let mac = MacAddr([2, 0, 0, 0, 0xab, 1]);
        let (qpn, psn) = (Qpn::new(0x1001), Psn::new(0xff_ffff));
        for (ip, icrc) in [("10.0.0.1", true), ("fd00::1", true), ("10.0.0.1", false)] {
            let (ip, mtu, dialect) = (ip.parse().expect("an address"), Mtu::Mtu4096, Dialect::Rocinante);
            let address = Address { mac, ip, qpn, psn, mtu, max_rd_atomic: 16, dialect, icrc };
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn bad_text_is_refused() {
        let good = "02:00:00:00:00:01 10.0.0.1 17 4096 1024 16 verbs";
        assert!(good.parse::<Address>().is_ok_and(|address| address.icrc));
        for bad in ["", "x", "02:00:00:00:00:01", &format!("{good} 1"), &good.replace("17", "16777216")] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        assert!(good.replace("verbs", "slang").parse::<Address>().is_err());
        assert!(format!("{good} no-icrc 1").parse::<Address>().is_err());
        assert!(good.replace("1024", "1000").parse::<Address>().is_err());
    }
}
