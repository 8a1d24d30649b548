//! `roci hugepages` and `roci bind-nic`: the scripts of that name, which this program has with it, for who installed nothing else.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::{Failure, FailureContext};

/// A script, and the files that it installs, with the folder of `configs` that they are in.
#[derive(Clone, Copy)]
pub(crate) struct EmbeddedTool {
    name: &'static str,
    script: &'static str,
    folder: &'static str,
    files: &'static [(&'static str, &'static str)],
}

macro_rules! config {
    ($folder:literal, $name:literal) => {
        ($name, include_str!(concat!("../../tools/", $folder, "-configs/", $name)))
    };
}

pub(crate) const HUGEPAGES: EmbeddedTool = EmbeddedTool {
    name: "hugepages",
    script: include_str!("../../tools/hugepages"),
    folder: "hugepages",
    files: &[
        config!("hugepages", "60-roci-hugepages.conf"),
        config!("hugepages", "dev-hugepages1G.mount"),
        config!("hugepages", "dev-hugepages2M.mount"),
        config!("hugepages", "roci-hugepages.service"),
    ],
};

pub(crate) const BIND_NIC: EmbeddedTool = EmbeddedTool {
    name: "bind-nic",
    script: include_str!("../../tools/bind-nic"),
    folder: "nics",
    files: &[config!("nics", "roci-bind-nic@.service")],
};

/// Runs a script. Its exit code becomes this program's.
pub(crate) fn run(tool: EmbeddedTool, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let place = tempfile::tempdir().context("cannot write the script")?;
    let script = unpack(tool, place.path()).context("cannot write the script")?;
    let status = Command::new("bash")
        .arg(script)
        .args(arguments)
        .env("CALLED_AS", format!("roci {}", tool.name))
        .status()
        .context("cannot run bash")?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Writes a script and its files where it looks for them, beside each other as in the repository.
fn unpack(tool: EmbeddedTool, place: &Path) -> std::io::Result<std::path::PathBuf> {
    let (scripts, configs) = (place.join("scripts"), place.join("configs").join(tool.folder));
    fs::create_dir_all(&scripts)?;
    fs::create_dir_all(&configs)?;
    for (name, text) in tool.files {
        fs::write(configs.join(name), text)?;
    }
    let script = scripts.join(tool.name);
    fs::write(&script, tool.script)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    Ok(script)
}
