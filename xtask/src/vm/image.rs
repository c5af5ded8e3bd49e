//! The guest's image: Debian with systemd and dockerd, by mmdebstrap and mke2fs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::shape::RELEASE;
use crate::{fresh, sh};

// Everything the image is made from; its hash names the cache entry.
const PACKAGES: &str = "systemd,systemd-sysv,dbus,udev,kmod,linux-image-amd64,initramfs-tools,\
    docker.io,docker-cli,iptables,redis-server,redis-tools,fio,busybox-static,iproute2,procps,\
    qemu-guest-agent,zstd,docker-compose,e2fsprogs,systemd-oomd,oomd,util-linux,\
    rootlesskit,slirp4netns,uidmap,dbus-user-session";
const SETUP: &str = include_str!("../../guest/setup.sh");
pub const FIRST_BOOT: &str = include_str!("../../guest/first-boot.sh");

/// Size of the root disk, in GiB; sparse.
const DISK_GIB: u32 = 4;

/// Files of a built image.
#[derive(Debug, Clone)]
pub struct Image {
    pub directory: PathBuf,
}

impl Image {
    pub fn disk(&self) -> PathBuf {
        self.directory.join("root.img")
    }

    pub fn kernel(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    pub fn initrd(&self) -> PathBuf {
        self.directory.join("initrd")
    }
}

/// Where images and saved states are kept.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|h| PathBuf::from(h).join(".cache"));
    let base = base.or_else(home).context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("ctlmgr-vm"))
}

/// The image with the kernel of a Debian release, built if it is not in the cache.
pub fn ensure(kernel: &str) -> Result<Image> {
    let mut hasher = DefaultHasher::new();
    (RELEASE, PACKAGES, SETUP, FIRST_BOOT, DISK_GIB).hash(&mut hasher);
    if kernel != RELEASE {
        kernel.hash(&mut hasher);
    }
    let directory = cache()?.join(format!("image-{:016x}", hasher.finish()));
    let image = Image { directory };
    if !image.directory.join("complete").exists() {
        build(&image, kernel)?;
        std::fs::write(image.directory.join("complete"), "")?;
    }
    Ok(image)
}

fn build(image: &Image, kernel: &str) -> Result<()> {
    sh::say("building the guest image (about 2 minutes)");
    std::fs::create_dir_all(&image.directory)?;
    let work = tempfile::tempdir_in(&image.directory)?;
    let tree = work.path().join("root");
    let setup = work.path().join("setup.sh");
    std::fs::write(&setup, SETUP)?;
    debootstrap(&tree, &setup, kernel)?;
    copy_kernel(&tree, image)?;
    make_disk(&tree, &image.disk())?;
    sh::quiet(&mut sh::privileged(&["rm", "-rf", &tree.to_string_lossy()]))
}

fn debootstrap(tree: &Path, setup: &Path, kernel: &str) -> Result<()> {
    let mirror = fresh::mirror()?;
    let source = |release: &str| format!("deb {mirror} {release} main");
    let mut include = format!("--include={PACKAGES}");
    let mut sources = vec![source(RELEASE)];
    if kernel != RELEASE {
        include = include.replace("linux-image-amd64", &format!("linux-image-amd64/{kernel}"));
        sources.push(source(kernel));
    }
    // Before the kernel is installed: an initramfs with nothing but what this machine needs.
    let modules = "--essential-hook=mkdir -p \"$1/etc/initramfs-tools/conf.d\"; \
        printf 'MODULES=list\\nCOMPRESS=zstd\\n' >\"$1/etc/initramfs-tools/conf.d/guest.conf\"; \
        printf 'virtio_pci\\nvirtio_blk\\next4\\n' >\"$1/etc/initramfs-tools/modules\"";
    let customize = format!("--customize-hook=sh '{}' \"$1\"", setup.display());
    let tree = tree.to_string_lossy();
    let mut words = vec![
        "mmdebstrap",
        "--variant=minbase",
        "--aptopt=Acquire::Languages \"none\"",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        &include,
        modules,
        &customize,
        RELEASE,
        &tree,
    ];
    words.extend(sources.iter().map(String::as_str));
    sh::quiet(&mut sh::privileged(&words))
}

fn copy_kernel(tree: &Path, image: &Image) -> Result<()> {
    let boot = tree.join("boot");
    for entry in std::fs::read_dir(&boot).context("failed to list /boot of the guest")? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let to = match name.as_str() {
            n if n.starts_with("vmlinuz-") => image.kernel(),
            n if n.starts_with("initrd.img-") => image.initrd(),
            _ => continue,
        };
        let words = ["install", "-m", "644", &path.to_string_lossy(), &to.to_string_lossy()];
        sh::quiet(&mut sh::privileged(&words))?;
    }
    Ok(())
}

fn make_disk(tree: &Path, disk: &Path) -> Result<()> {
    std::fs::File::create(disk)?.set_len(u64::from(DISK_GIB) << 30)?;
    let words = ["mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d"];
    let paths = [&*tree.to_string_lossy(), &*disk.to_string_lossy()];
    sh::quiet(sh::privileged(&[&words[..], &paths].concat()).env("PATH", with_sbin()))
}

fn with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
