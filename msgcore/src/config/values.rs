//! Values of knobs, as text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use roci_driver::Mtu;
use roci_driver::link::live::LinkDevice;
use roci_protocol::sim::Faults;
use roci_protocol::wire::MacAddr;

use super::bad_value::BadKnobValue;
use crate::units::{parse_size, show_size};

pub(super) fn number<T: FromStr + PartialOrd + fmt::Display>(text: &str, least: T, most: T) -> Result<T, BadKnobValue> {
    assert!(least <= most, "nothing lies in {least}..{most}");
    let value = text.trim().parse().map_err(|_| BadKnobValue::NotANumber)?;
    if value < least || value > most {
        return Err(BadKnobValue::out_of_range(least, most));
    }
    Ok(value)
}

pub(super) fn optional_number<T: FromStr + PartialOrd + fmt::Display>(
    text: &str,
    least: T,
    most: T,
) -> Result<Option<T>, BadKnobValue> {
    if text.trim().is_empty() { Ok(None) } else { number(text, least, most).map(Some) }
}

pub(super) fn size(text: &str, least: usize, most: usize) -> Result<usize, BadKnobValue> {
    assert!(least <= most, "nothing lies in {least}..{most}");
    let value = parse_size(text).ok_or(BadKnobValue::NotASize)?;
    if value < least || value > most {
        return Err(BadKnobValue::out_of_range(show_size(&least), show_size(&most)));
    }
    Ok(value)
}

/// A size, or `off`.
pub(super) fn optional_size(text: &str, least: usize, most: usize) -> Result<Option<usize>, BadKnobValue> {
    if text.trim() == "off" { Ok(None) } else { size(text, least, most).map(Some) }
}

pub(super) fn show_optional_size(value: &Option<usize>) -> String {
    value.as_ref().map_or_else(|| "off".into(), show_size)
}

/// Reads GASNet's way to say much memory: `512`, `512M` or `2G`; nothing and 0 stand for what is not set.
pub(super) fn megabytes(text: &str) -> Result<Option<u64>, BadKnobValue> {
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
        return Err(BadKnobValue::NotMegabytes);
    }
    let value: Option<u64> = digits.parse().ok().filter(|&value| value <= MOST);
    let value = value.ok_or_else(|| BadKnobValue::out_of_range(0, MOST))?;
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

/// Reads a part of one, such as `0.75`, in thousandths.
pub(super) fn ratio(text: &str) -> Result<u16, BadKnobValue> {
    let value: f64 = text.trim().parse().map_err(|_| BadKnobValue::NotARatio)?;
    let thousandths = (value * 1000.0).round();
    if (1.0..=1000.0).contains(&thousandths) {
        Ok(thousandths as u16)
    } else {
        Err(BadKnobValue::out_of_range(0.001, 1))
    }
}

pub(super) fn show_ratio(thousandths: &u16) -> String {
    (f64::from(*thousandths) / 1000.0).to_string()
}

const MTUS: [&str; 6] = ["256", "512", "1024", "2048", "4096", "8192"];

pub(super) fn parse_mtu(text: &str) -> Result<usize, BadKnobValue> {
    let bytes = parse_size(text).and_then(Mtu::from_bytes);
    bytes.map(Mtu::bytes).ok_or_else(|| BadKnobValue::NoChoice(MTUS.into()))
}

pub(super) fn parse_neighbours(text: &str) -> Result<Vec<(IpAddr, MacAddr)>, BadKnobValue> {
    let parse = |part: &str| {
        let (ip, mac) = part.split_once('=')?;
        Some((ip.trim().parse().ok()?, mac.trim().parse().ok()?))
    };
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    parts.map(|part| parse(part).ok_or_else(|| BadKnobValue::NotAStation(part.into()))).collect()
}

pub(super) fn show_neighbours(neighbours: &[(IpAddr, MacAddr)]) -> String {
    neighbours.iter().map(|(ip, mac)| format!("{ip}={mac}")).collect::<Vec<_>>().join(",")
}

pub(super) fn parse_device(text: &str) -> Result<String, BadKnobValue> {
    text.parse::<LinkDevice>()?;
    Ok(text.into())
}

pub(super) fn parse_optional<T: FromStr>(text: &str) -> Result<Option<T>, BadKnobValue>
where
    BadKnobValue: From<T::Err>,
{
    if text.is_empty() { Ok(None) } else { Ok(Some(text.parse()?)) }
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

pub(super) fn choose<T: Copy>(choices: &Choices<T>, text: &str) -> Result<T, BadKnobValue> {
    let chosen = choices.iter().find(|(name, _)| *name == text.trim()).map(|(_, value)| *value);
    chosen.ok_or_else(|| BadKnobValue::NoChoice(choices.iter().map(|(name, _)| *name).collect()))
}

pub(super) fn name_of<T: PartialEq>(choices: &Choices<T>, value: &T) -> String {
    choices.iter().find(|(_, choice)| choice == value).map_or_else(String::new, |(name, _)| (*name).into())
}
