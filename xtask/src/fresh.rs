//! What a fresh Debian machine lacks, installed by its own package manager.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::sh;

/// Programs needed, and the package each comes from.
const GUEST: [(&str, &str); 3] =
    [("mmdebstrap", "mmdebstrap"), ("mke2fs", "e2fsprogs"), ("qemu-img", "qemu-utils")];
const PACKAGE: [(&str, &str); 3] = [("cc", "gcc"), ("dpkg-deb", "dpkg"), ("gzip", "gzip")];
/// QEMU 7.2 crashes a 6.12 guest under software emulation (cmpxchg16b).
const LEAST_QEMU: u32 = 8;

/// Programs to compile with. Where clang is there the libraries may still lack, see below.
const COMPILER: [(&str, &str); 4] =
    [("cc", "gcc"), ("make", "make"), ("pkg-config", "pkg-config"), ("clang", "clang")];
/// What the loader of eBPF programs is linked with, by its header.
const LIBRARIES: [(&str, &str); 3] =
    [("gelf.h", "libelf-dev"), ("zlib.h", "zlib1g-dev"), ("zstd.h", "libzstd-dev")];

/// Installs what is missing to compile.
pub fn ensure_compiler() -> Result<()> {
    let has_header = |name: &str| Path::new("/usr/include").join(name).exists();
    let lacking = |(_, package): &(&str, &'static str)| *package;
    let programs = COMPILER.iter().filter(|(program, _)| !has(program)).map(lacking);
    let libraries = LIBRARIES.iter().filter(|(header, _)| !has_header(header)).map(lacking);
    install(&programs.chain(libraries).collect::<Vec<_>>())
}

/// Installs what is missing to build and run the guest.
pub fn ensure_guest_tools() -> Result<()> {
    ensure_qemu()?;
    install_missing(&GUEST)
}

/// Installs the reference of `bench place`.
pub fn ensure_metis() -> Result<()> {
    install_missing(&[("gpmetis", "metis")])
}

/// Installs what is missing to build the package.
pub fn ensure_packager() -> Result<()> {
    install_missing(&PACKAGE)
}

fn install_missing(programs: &[(&str, &'static str)]) -> Result<()> {
    let missing = programs.iter().filter(|(program, _)| !has(program));
    install(&missing.map(|(_, package)| *package).collect::<Vec<_>>())
}

fn install(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    sh::say(&format!("installing {}", missing.join(" ")));
    sh::quiet(&mut sh::privileged(&["apt-get", "update"]))?;
    let words = [&["apt-get", "install", "-y", "--no-install-recommends"], missing].concat();
    sh::quiet(sh::privileged(&words).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|d| Path::new(d).join(program).exists())
}

fn qemu_version() -> Option<u32> {
    let text = sh::output(&mut sh::command(&["qemu-system-x86_64", "--version"])).ok()?;
    text.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

/// Debian's mirror, as this machine has it configured.
pub fn mirror() -> Result<String> {
    let format = "$(ORIGIN)|$(CODENAME)|$(REPO_URI)";
    let words = ["apt-get", "indextargets", "--format", format, "Created-By: Packages"];
    let list = |()| sh::output(&mut sh::command(&words));
    let mut text = list(())?;
    if !text.contains("Debian|") {
        sh::quiet(&mut sh::privileged(&["apt-get", "update"]))?;
        text = list(())?;
    }
    let is_main = |code: &str| !code.contains('-') && !code.is_empty();
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, '|');
            let (origin, code, uri) = (parts.next()?, parts.next()?, parts.next()?);
            (origin == "Debian" && is_main(code)).then(|| uri.trim_end_matches('/').to_owned())
        })
        .next()
        .context("no Debian mirror is configured for apt on this machine")
}

fn codename() -> Result<String> {
    let text =
        std::fs::read_to_string("/etc/os-release").context("failed to read /etc/os-release")?;
    let line = text.lines().find_map(|l| l.strip_prefix("VERSION_CODENAME="));
    Ok(line.context("/etc/os-release has no VERSION_CODENAME")?.trim_matches('"').to_owned())
}

/// Installs a QEMU that is new enough, from backports where the release's own is not.
fn ensure_qemu() -> Result<()> {
    if qemu_version().is_some_and(|v| v >= LEAST_QEMU) {
        return Ok(());
    }
    let (mirror, release) = (mirror()?, codename()?);
    sh::say("installing QEMU (from backports on Debian 12)");
    let suites = match release.as_str() {
        "bookworm" => {
            vec![release.clone(), format!("{release}-updates"), format!("{release}-backports")]
        }
        _ => vec![release.clone()],
    };
    // A private list: the machine's own sources stay as they are.
    let dir = tempfile::tempdir()?;
    let lists = dir.path().join("lists");
    std::fs::create_dir_all(lists.join("partial"))?;
    let sources = dir.path().join("sources.list");
    let text: String = suites.iter().map(|s| format!("deb {mirror} {s} main\n")).collect();
    std::fs::write(&sources, text)?;
    open_to_all(dir.path())?;
    let options = [
        format!("Dir::Etc::SourceList={}", sources.display()),
        "Dir::Etc::SourceParts=/dev/null".to_owned(),
        format!("Dir::State::Lists={}", lists.display()),
    ];
    let with: Vec<&str> = options.iter().flat_map(|o| ["-o", o.as_str()]).collect();
    sh::quiet(&mut sh::privileged(&[&["apt-get"], &with[..], &["update"]].concat()))?;
    let suite = suites.last().map_or("", String::as_str);
    let install = ["install", "-y", "--no-install-recommends", "-t", suite];
    let words = [&["apt-get"], &with[..], &install, &["qemu-system-x86", "qemu-utils"]].concat();
    sh::quiet(sh::privileged(&words).env("DEBIAN_FRONTEND", "noninteractive"))?;
    match qemu_version() {
        Some(version) if version >= LEAST_QEMU => Ok(()),
        Some(version) => bail!("QEMU {version} is too old for the guest; {LEAST_QEMU} is needed"),
        None => bail!("QEMU was installed but does not run"),
    }
}

/// apt reads as its own user.
fn open_to_all(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
