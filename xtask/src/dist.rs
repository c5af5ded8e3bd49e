//! Packages: `packaging/` mirrors the target file system; the rest is built or generated.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{fresh, man, sh};

/// Programs and where they go.
const PROGRAMS: [(&str, &str); 4] = [
    ("ctlmgr", "usr/bin"),
    ("ctlmgrd", "usr/sbin"),
    ("ctlmgr-docker", "usr/libexec/ctlmgr"),
    ("ctlmgr-runc", "usr/libexec/ctlmgr"),
];

/// Builds the .deb and returns its path.
pub fn run() -> Result<PathBuf> {
    fresh::ensure_compiler()?;
    // The product is what the workspace builds by default.
    sh::run(&mut sh::cargo(&["build", "--release", "--locked"]))?;
    let work = tempfile::tempdir()?;
    let tree = work.path().join("tree");
    for part in ["usr", "lib", "etc"].iter().filter(|p| Path::new("packaging").join(p).exists()) {
        copy_tree(&Path::new("packaging").join(part), &tree.join(part))?;
    }
    for (program, directory) in PROGRAMS {
        let from = target().join("release").join(program);
        install(&from, &tree.join(directory).join(program), 0o755)?;
    }
    install(&init()?, &tree.join("usr/libexec/ctlmgr/ctlmgr-init"), 0o755)?;
    let config = tree.join("etc/ctlmgr/config.d/10-ctlmgr.toml");
    install(Path::new("config/10-ctlmgr.toml"), &config, 0o644)?;
    man::install(&tree)?;
    install(Path::new("CHANGELOG.md"), &tree.join("usr/share/doc/ctlmgr/changelog.md"), 0o644)?;
    control(&tree)?;
    pack(&tree)
}

/// The first process of coalesced containers; static, because nobody knows which C library is there.
fn init() -> Result<PathBuf> {
    let build = ["rustc", "--release", "--locked", "--package", "ctlmgr-init"];
    sh::run(sh::cargo(&build).args(["--", "-C", "target-feature=+crt-static"]))?;
    Ok(target().join("release/ctlmgr-init"))
}

/// The build directory, wherever it was put.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn control(tree: &Path) -> Result<()> {
    let size = sh::output(sh::command(&["du", "-sk"]).arg(tree))?;
    let size = size.split_whitespace().next().unwrap_or("0").to_owned();
    let text = std::fs::read_to_string("packaging/debian/control")?
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
        .replace("@ARCHITECTURE@", &architecture()?)
        .replace("@SIZE@", &size);
    let directory = tree.join("DEBIAN");
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join("control"), text)?;
    for (name, mode) in
        [("conffiles", 0o644), ("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755)]
    {
        install(&Path::new("packaging/debian").join(name), &directory.join(name), mode)?;
    }
    Ok(())
}

fn architecture() -> Result<String> {
    Ok(sh::output(&mut sh::command(&["dpkg", "--print-architecture"]))?.trim().to_owned())
}

fn pack(tree: &Path) -> Result<PathBuf> {
    let directory = target().join("dist");
    std::fs::create_dir_all(&directory)?;
    let name = format!("ctlmgr_{}_{}.deb", env!("CARGO_PKG_VERSION"), architecture()?);
    let package = directory.join(name);
    let build = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build"];
    sh::quiet(sh::command(&build).arg(tree).arg(&package))?;
    Ok(package)
}

/// Copies a file with a mode, making its directory.
pub fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let parent = to.parent().context("a file has a directory")?;
    std::fs::create_dir_all(parent)?;
    std::fs::copy(from, to).with_context(|| format!("failed to copy {}", from.display()))?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in
        std::fs::read_dir(from).with_context(|| format!("failed to list {}", from.display()))?
    {
        let path = entry?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_tree(&path, &to)?,
            false => install(&path, &to, 0o644)?,
        }
    }
    Ok(())
}
