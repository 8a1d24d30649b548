//! Values of knobs, as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use roci_driver::Mtu;
use roci_driver::link::dpdk::Device;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;

use crate::units::{parse_size, show_size};

pub(super) fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, least: T, most: T) -> Result<T, String> {
    let value = text.trim().parse().map_err(|_| "is not a whole number".to_owned())?;
    if value < least || value > most {
        return Err(format!("lies outside {least}..{most}"));
    }
    Ok(value)
}

pub(super) fn optional_number<T: FromStr + PartialOrd + fmt::Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<Option<T>, String> {
    if text.trim().is_empty() { Ok(None) } else { number(text, least, most).map(Some) }
}

pub(super) fn size(text: &str, least: usize, most: usize) -> Result<usize, String> {
    let value = parse_size(text).ok_or("is not a size such as 4096, 8KiB, 1MiB")?;
    if value < least || value > most {
        return Err(format!("lies outside {}..{}", show_size(&least), show_size(&most)));
    }
    Ok(value)
}

/// A size, or `off`.
pub(super) fn optional_size(text: &str, least: usize, most: usize) -> Result<Option<usize>, String> {
    if text.trim() == "off" { Ok(None) } else { size(text, least, most).map(Some) }
}

pub(super) fn show_optional_size(value: &Option<usize>) -> String {
    value.as_ref().map_or_else(|| "off".into(), show_size)
}

/// Reads GASNet's way to say much memory: `512`, `512M` or `2G`; nothing and 0 stand for what is not set.
pub(super) fn megabytes(text: &str) -> Result<Option<u64>, String> {
    const MOST: u64 = 99_999;
    let text = text.trim();
    let (digits, unit) = match text.strip_suffix(['G', 'g']) {
        Some(digits) => (digits, 1 << 30),
        None => (text.strip_suffix(['M', 'm']).unwrap_or(text), 1 << 20),
    };
    if text.is_empty() {
        return Ok(None);
    }
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err("is not a number of megabytes such as 512, 512M or 2G".into());
    }
    let value: Option<u64> = digits.parse().ok().filter(|&value| value <= MOST);
    let value = value.ok_or_else(|| format!("lies outside 0..{MOST}"))?;
    Ok((value > 0).then_some(value * unit))
}

pub(super) fn show_megabytes(bytes: &Option<u64>) -> String {
    const GIB: u64 = 1 << 30;
    match bytes {
        None => String::new(),
        Some(bytes) if bytes.is_multiple_of(GIB) => format!("{}G", bytes / GIB),
        Some(bytes) => format!("{}M", bytes >> 20),
    }
}

pub(super) fn parse_mtu(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text).and_then(Mtu::from_bytes);
    bytes.map(Mtu::bytes).ok_or_else(|| "is not one of 256, 512, 1024, 2048, 4096, 8192".into())
}

pub(super) fn parse_neighbours(text: &str) -> Result<Vec<(IpAddr, MacAddr)>, String> {
    let parse = |part: &str| {
        let (ip, mac) = part.split_once('=')?;
        Some((ip.trim().parse().ok()?, mac.trim().parse().ok()?))
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| parse(part).ok_or_else(|| format!("'{part}' is not of the form IP=MAC"))).collect()
}

pub(super) fn show_neighbours(neighbours: &[(IpAddr, MacAddr)]) -> String {
    neighbours.iter().map(|(ip, mac)| format!("{ip}={mac}")).collect::<Vec<_>>().join(",")
}

pub(super) fn parse_device(text: &str) -> Result<String, String> {
    match text.parse::<Device>() {
        Ok(_) => Ok(text.into()),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn parse_optional<T: FromStr>(text: &str) -> Result<Option<T>, String>
where
    T::Err: fmt::Display,
{
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|error: T::Err| error.to_string()) }
}

pub(super) fn show_optional<T: fmt::Display>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(String::new, T::to_string)
}

pub(super) fn show_faults(faults: &Option<Faults>) -> String {
    let show = |Faults { loss, dup, reorder, corrupt, seed }: &Faults| {
        format!("loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},seed={seed}")
    };
    faults.as_ref().map_or_else(String::new, show)
}

/// Names of a choice, and what they stand for.
pub(super) type Choices<T> = [(&'static str, T)];

pub(super) fn choose<T: Copy>(choices: &Choices<T>, text: &str) -> Result<T, String> {
    let chosen = choices.iter().find(|(name, _)| *name == text.trim()).map(|(_, value)| *value);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    chosen.ok_or_else(|| format!("is not one of {}", names()))
}

pub(super) fn name_of<T: PartialEq>(choices: &Choices<T>, value: &T) -> String {
    choices.iter().find(|(_, choice)| choice == value).map_or_else(String::new, |(name, _)| (*name).into())
}
