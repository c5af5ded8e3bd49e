//! Two file systems as one: what they have in common, what only the second has, and what clashes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use sha2::{Digest, Sha256};
use tar::{Archive, Builder, Entry, EntryType};

/// What dockerd makes itself in every container.
const MADE: [&str; 5] = [".dockerenv", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab"];
/// Directories that hold nothing of an image.
const MOUNTED: [&str; 3] = ["dev/", "proc/", "sys/"];
/// What may differ without harm: logs, caches, and what was installed how. The first one's stays.
const RECORDS: [&str; 8] = [
    "etc/ld.so.cache",
    "lib/apk/db/",
    "usr/lib/sysimage/",
    "var/cache/",
    "var/lib/apt/",
    "var/lib/dpkg/",
    "var/lib/rpm/",
    "var/log/",
];

/// A file, directory or link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    kind: u8,
    mode: u32,
    owner: (u64, u64),
    link: Option<Vec<u8>>,
    /// Of a regular file.
    digest: Option<[u8; 32]>,
    /// Extended attributes, such as capabilities.
    attributes: Attributes,
}

type Attributes = Vec<(String, Vec<u8>)>;

/// A file system, by path.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
}

/// How two file systems go together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Paths that both have, differently.
    pub clashes: Vec<String>,
    /// Paths that only the second has.
    pub additions: BTreeSet<String>,
    /// C libraries, where they differ.
    pub libraries: Option<(&'static str, &'static str)>,
    /// What mounts of one would hide of the other, in words.
    pub hidden: Vec<String>,
}

impl Tree {
    /// A file or link at a path or below it.
    pub fn first_below(&self, path: &str) -> Option<&str> {
        let path = path.trim_matches('/');
        let at_or_below = |found: &str| {
            let rest = found.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
        };
        let files = self.nodes.iter().filter(|(_, n)| n.kind != EntryType::Directory.as_byte());
        files.map(|(found, _)| found.as_str()).find(|found| at_or_below(found))
    }
}

impl Comparison {
    /// Why they cannot be one; empty if they can.
    pub fn refusals(&self) -> Vec<String> {
        let mut all = self.hidden.clone();
        if let Some((a, b)) = self.libraries {
            all.push(format!("C libraries differ: {a} and {b}"));
        }
        if !self.clashes.is_empty() {
            let shown: Vec<&str> = self.clashes.iter().take(5).map(String::as_str).collect();
            let more = self.clashes.len().saturating_sub(shown.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            all.push(format!("files differ: /{}{more}", shown.join(", /")));
        }
        all
    }
}

/// Reads an exported file system.
///
/// # Errors
/// It is no archive, or ends early.
pub(super) fn read_tree(from: impl Read) -> io::Result<Tree> {
    let mut tree = Tree::default();
    for entry in Archive::new(from).entries()? {
        let mut entry = entry?;
        if let Some(path) = path_of(&entry) {
            if path.contains(char::REPLACEMENT_CHARACTER) {
                let why = format!("a name that is no UTF-8: {path}");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let node = node(&mut entry)?;
            tree.nodes.insert(path, node);
        }
    }
    Ok(tree)
}

/// The path without slashes at its ends; `None` for what is not of the image.
fn path_of<R: Read>(entry: &Entry<'_, R>) -> Option<String> {
    let bytes = entry.path_bytes();
    let path = String::from_utf8_lossy(&bytes);
    let path = path.trim_start_matches("./").trim_matches('/').to_owned();
    let is_made = MADE.contains(&path.as_str());
    let is_mounted = MOUNTED.iter().any(|dir| path.starts_with(dir));
    (!path.is_empty() && !is_made && !is_mounted).then_some(path)
}

fn node<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Node> {
    let header = entry.header();
    let kind = header.entry_type().as_byte();
    let (mode, owner) = (header.mode()? & 0o7777, (header.uid()?, header.gid()?));
    let link = entry.link_name_bytes().map(|name| name.into_owned());
    let attributes = attributes(entry)?;
    let digest = match entry.header().entry_type().is_file() {
        true => {
            let mut hash = Sha256::new();
            io::copy(entry, &mut HashWriter(&mut hash))?;
            Some(hash.finalize().into())
        }
        false => None,
    };
    Ok(Node { kind, mode, owner, link, digest, attributes })
}

fn attributes<R: Read>(entry: &mut Entry<'_, R>) -> io::Result<Attributes> {
    let mut kept = Attributes::new();
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        let extension = extension?;
        let Ok(key) = extension.key() else { continue };
        // The others are written anew where they are needed.
        if key.starts_with("SCHILY.xattr.") {
            kept.push((key.to_owned(), extension.value_bytes().to_vec()));
        }
    }
    kept.sort();
    Ok(kept)
}

struct HashWriter<'a>(&'a mut Sha256);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compares two file systems.
pub(super) fn compare(a: &Tree, b: &Tree) -> Comparison {
    let mut result = Comparison::default();
    for (path, node) in &b.nodes {
        match a.nodes.get(path) {
            None => drop(result.additions.insert(path.clone())),
            Some(known) if is_same(known, node) => {}
            Some(_) if RECORDS.iter().any(|record| path.starts_with(record)) => {}
            Some(_) => result.clashes.push(path.clone()),
        }
    }
    // What lies below a file or link of the first one would end up elsewhere.
    let is_below = |path: &String| {
        let above = path.match_indices('/').map(|(at, _)| &path[..at]);
        let mut above = above.filter_map(|dir| a.nodes.get(dir));
        above.any(|node| node.kind != EntryType::Directory.as_byte())
    };
    result.clashes.extend(result.additions.iter().filter(|p| is_below(p)).cloned());
    result.libraries = match (library(a), library(b)) {
        (Some(a), Some(b)) if a != b => Some((a, b)),
        _ => None,
    };
    result
}

/// Of directories the first one's owner and mode stay, unless the second has its own users write there.
fn is_same(a: &Node, b: &Node) -> bool {
    let are_directories = [a, b].iter().all(|n| n.kind == EntryType::Directory.as_byte());
    // Whoever may write there in the second must in the first.
    let is_as_open = b.mode & !a.mode & 0o022 == 0;
    a == b || are_directories && is_as_open && (b.owner == (0, 0) || a.owner == b.owner)
}

/// By the name of its loader.
fn library(tree: &Tree) -> Option<&'static str> {
    let has = |part: &str| {
        let is_loader = |path: &String| path.contains("lib") && path.contains(part);
        tree.nodes.keys().any(is_loader)
    };
    match (has("/ld-musl-"), has("/ld-linux")) {
        (true, false) => Some("musl"),
        (false, true) => Some("glibc"),
        // Static programs only, or both.
        _ => None,
    }
}

/// Copies what only the second file system has, extended attributes included, without closing the archive.
///
/// # Errors
/// Either side fails.
pub(super) fn copy_additions<W: Write>(
    from: impl Read,
    additions: &BTreeSet<String>,
    to: &mut Builder<W>,
) -> io::Result<()> {
    for entry in Archive::new(from).entries()? {
        let mut entry = entry?;
        let Some(path) = path_of(&entry).filter(|path| additions.contains(path)) else { continue };
        copy(&mut entry, &path, to)?;
    }
    Ok(())
}

fn copy<R: Read, W: Write>(
    entry: &mut Entry<'_, R>,
    path: &str,
    to: &mut Builder<W>,
) -> io::Result<()> {
    let kept = attributes(entry)?;
    if !kept.is_empty() {
        to.append_pax_extensions(kept.iter().map(|(key, value)| (key.as_str(), &value[..])))?;
    }
    let mut header = entry.header().clone();
    // Of very large files the size is in an extension.
    header.set_size(entry.size());
    match entry.link_name_bytes().map(|name| name.into_owned()) {
        Some(link) => {
            let link = String::from_utf8_lossy(&link).into_owned();
            to.append_link(&mut header, path, link)
        }
        None => to.append_data(&mut header, path, entry),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A path, its mode, owner and content; a content of `-> x` is a link, a path that ends in / a directory.
    pub(crate) type Item = (&'static str, u32, u64, &'static str);

    pub(crate) fn archive(items: &[Item]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, mode, owner, content) in items {
            let mut header = tar::Header::new_gnu();
            header.set_mode(*mode);
            header.set_uid(*owner);
            header.set_gid(*owner);
            header.set_size(0);
            if let Some(target) = content.strip_prefix("-> ") {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, path, target).unwrap();
            } else if path.ends_with('/') {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, path, io::empty()).unwrap();
            } else {
                header.set_entry_type(EntryType::Regular);
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    fn compared(a: &[Item], b: &[Item]) -> Comparison {
        compare(&read_tree(&archive(a)[..]).unwrap(), &read_tree(&archive(b)[..]).unwrap())
    }

    #[test]
    fn the_same_base_and_different_programs_go_together() {
        let base: [Item; 4] = [
            ("etc/", 0o755, 0, ""),
            ("etc/passwd", 0o644, 0, "root"),
            ("bin", 0o777, 0, "-> usr/bin"),
            ("usr/bin/", 0o755, 0, ""),
        ];
        let a = [&base[..], &[("web", 0o755, 0, "web"), ("var/log/x", 0o644, 0, "1")]].concat();
        let b = [
            &base[..],
            &[
                ("cart", 0o755, 1000, "cart"),
                ("var/log/x", 0o644, 0, "2"),
                ("etc/hosts", 0o644, 0, "x"),
                ("proc/1", 0o644, 0, ""),
            ],
        ]
        .concat();
        let found = compared(&a, &b);
        assert_eq!(found.refusals(), Vec::<String>::new());
        assert_eq!(found.additions, ["cart".to_owned()].into());
        let mut to = Builder::new(Vec::new());
        copy_additions(&archive(&b)[..], &found.additions, &mut to).unwrap();
        let copied = read_tree(&to.into_inner().unwrap()[..]).unwrap();
        let cart = &copied.nodes["cart"];
        assert_eq!((copied.nodes.len(), cart.mode, cart.owner), (1, 0o755, (1000, 1000)));
    }

    #[test]
    fn what_differs_is_named() {
        let a: [Item; 3] = [
            ("etc/passwd", 0o644, 0, "root"),
            ("lib/ld-musl-x86_64.so.1", 0o755, 0, "m"),
            ("app", 0o777, 0, "-> opt"),
        ];
        let b: [Item; 4] = [
            ("etc/passwd", 0o644, 0, "root app"),
            ("lib64/ld-linux-x86-64.so.2", 0o755, 0, "g"),
            ("app/run", 0o755, 0, "r"),
            ("data/", 0o755, 7, ""),
        ];
        assert_eq!(
            compared(&a, &b).refusals(),
            ["C libraries differ: musl and glibc", "files differ: /etc/passwd, /app/run"]
        );
        // A mode or an owner is a difference, too; of directories only if others than root own it.
        assert_eq!(compared(&[("x", 0o644, 0, "1")], &[("x", 0o600, 0, "1")]).clashes, ["x"]);
        assert_eq!(compared(&[("d/", 0o755, 0, "")], &[("d/", 0o700, 0, "")]).clashes, [""; 0]);
        assert_eq!(compared(&[("d/", 0o755, 0, "")], &[("d/", 0o755, 7, "")]).clashes, ["d"]);
    }

    #[test]
    fn attributes_long_names_and_links_are_kept() {
        let long = "a/".repeat(80) + "file";
        let mut builder = Builder::new(Vec::new());
        builder
            .append_pax_extensions([("SCHILY.xattr.security.capability", &b"\x01\x00\x02"[..])])
            .unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, &long, &b"abc"[..]).unwrap();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::Link);
        header.set_size(0);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_link(&mut header, "hard", &long).unwrap();
        let from = builder.into_inner().unwrap();
        let mut to = Builder::new(Vec::new());
        copy_additions(&from[..], &[long.clone(), "hard".to_owned()].into(), &mut to).unwrap();
        let to = to.into_inner().unwrap();
        let mut archive = Archive::new(&to[..]);
        let mut entries = archive.entries().unwrap();
        let mut first = entries.next().unwrap().unwrap();
        assert_eq!(first.path_bytes(), long.as_bytes());
        let keys: Vec<String> = first
            .pax_extensions()
            .unwrap()
            .unwrap()
            .map(|e| e.unwrap().key().unwrap().to_owned())
            .collect();
        assert!(keys.contains(&"SCHILY.xattr.security.capability".to_owned()), "{keys:?}");
        let second = entries.next().unwrap().unwrap();
        assert_eq!(second.link_name_bytes().unwrap(), long.as_bytes());
    }

    #[test]
    fn what_is_no_archive_is_an_error() {
        assert!(read_tree(&[7_u8; 1024][..]).is_err());
    }
}
