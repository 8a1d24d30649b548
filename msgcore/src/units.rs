//! Units that people read.

/// Returns the shortest text for a size in bytes: `8KiB`, `1000`.
pub fn show_size(bytes: &usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| *bytes > 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or_else(|| bytes.to_string(), |(shift, name)| format!("{}{name}", bytes >> shift))
}

/// Reads `4096`, `8KiB`, `1MiB` or `2GiB`, and shorter units, such as `8k`, `1MB` or `2G`, which mean the same.
pub fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let value: usize = text[..digits].parse().ok()?;
    let unit: usize = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    value.checked_mul(unit)
}
