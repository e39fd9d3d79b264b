//! Programs that tests and comparisons call, and how to get the missing ones.
//!
//! Where a package cannot be had (no apt, no root, no network), that is not a
//! failure: whoever needs it leaves that part out and says so.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
};

/// What went wrong, and whether it is the machine that lacks something.
#[derive(Debug)]
pub enum Failure {
    Missing(String),
    Failed(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

/// Something from outside: how to see that it is there, and the Debian package that brings it.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Programs (any one will do) or, with a leading `/`, files.
    pub found_as: &'static [&'static str],
    /// The package in Debian.
    pub package: &'static str,
}

pub const FFMPEG: Tool = Tool { found_as: &["ffmpeg"], package: "ffmpeg" };
pub const X264: Tool = Tool { found_as: &["x264"], package: "x264" };
pub const X265: Tool = Tool { found_as: &["x265"], package: "x265" };
pub const KVAZAAR: Tool = Tool { found_as: &["kvazaar"], package: "kvazaar" };
pub const LIBDE265: Tool = Tool { found_as: &["libde265-dec265", "dec265"], package: "libde265-examples" };
pub const CHROMIUM: Tool =
    Tool { found_as: &["chromium", "chromium-browser", "google-chrome"], package: "chromium" };
pub const OPENH264: Tool = Tool { found_as: &["/usr/include/wels/codec_api.h"], package: "libopenh264-dev" };
pub const NVENC_HEADERS: Tool =
    Tool { found_as: &["/usr/include/ffnvcodec/nvEncodeAPI.h"], package: "libffmpeg-nvenc-dev" };

pub const CMAKE: Tool = Tool { found_as: &["cmake"], package: "cmake" };
pub const VERILATOR: Tool = Tool { found_as: &["verilator"], package: "verilator" };

impl Tool {
    fn is_here(&self) -> bool {
        self.found_as
            .iter()
            .any(|name| if name.starts_with('/') { Path::new(name).exists() } else { find(name).is_some() })
    }
}

/// Installs those that are missing; returns the ones that stay missing, and why.
pub fn ensure(tools: &[Tool]) -> Vec<(Tool, String)> {
    let missing: Vec<Tool> = tools.iter().copied().filter(|tool| !tool.is_here()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let packages: Vec<&str> = missing.iter().map(|tool| tool.package).collect();
    eprintln!("installing {}", packages.join(" "));
    // All at once is fastest; one by one where a package is not to be had.
    if install(&packages).is_ok() && missing.iter().all(Tool::is_here) {
        return Vec::new();
    }
    let why = |tool: &Tool| match install(&[tool.package]) {
        Ok(()) if tool.is_here() => None,
        Ok(()) => Some(format!("{} brought no {}", tool.package, tool.found_as.join(" or "))),
        Err(reason) => Some(reason),
    };
    missing.into_iter().filter_map(|tool| Some((tool, why(&tool)?))).collect()
}

/// As [`ensure`], for who does without: what stays missing is said.
pub fn ensure_or_say(tools: &[Tool]) {
    for (tool, reason) in ensure(tools) {
        eprintln!("left out: {} ({reason})", tool.found_as[0]);
    }
}

/// Installs Debian packages.
pub fn install(packages: &[&str]) -> Result<(), String> {
    let Some(prefix) = apt_prefix() else {
        return Err("no apt-get here, or no right to use it".into());
    };
    static UPDATED: OnceLock<()> = OnceLock::new();
    UPDATED.get_or_init(|| drop(apt(prefix, &["update", "-qq"])));
    apt(prefix, &[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat())
}

/// The words that make apt-get run as root: none for root, `sudo -n` for who may.
fn apt_prefix() -> Option<&'static [&'static str]> {
    find("apt-get")?;
    let may = || {
        let asked = Command::new("sudo").args(["-n", "true"]).stdin(Stdio::null()).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if is_root {
        Some(&[])
    } else if find("sudo").is_some() && may() {
        Some(&["sudo", "-n"])
    } else {
        None
    }
}

fn apt(prefix: &[&str], args: &[&str]) -> Result<(), String> {
    // Another apt-get ends at some time.
    let own = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"];
    let words = [prefix, &own[..], args].concat();
    let output = output(Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(stderr.lines().find(|line| line.starts_with("E:")).unwrap_or("apt-get failed").to_string())
}

/// The path of a program, as a shell would find it.
pub fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// What became of a command and what it said, however it ended.
pub fn output(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.output().map_err(|error| format!("cannot run {program}: {error}"))
}

/// Runs a command with its output on the terminal; an error names it.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` ended with {status}")),
        Err(error) => Err(format!("cannot run `{line}`: {error}")),
    }
}

/// What a command prints; what it says to people goes to the terminal.
pub fn succeed_with_output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run `{program}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{program}` ended with {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{program}` printed no text"))
}

/// What a command prints; what it says to people is said where it fails.
pub fn printed(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
