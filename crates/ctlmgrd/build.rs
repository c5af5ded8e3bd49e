//! From elfutils 0.189 on libelf.a needs zstd, which nothing else here names; its place is last in the
//! linker's arguments.

fn main() {
    println!("cargo::rerun-if-env-changed=LIBBPF_SYS_LIBRARY_PATH");
    let directories = std::env::var("LIBBPF_SYS_LIBRARY_PATH").unwrap_or_default();
    let archive = directories.split(':').find_map(|d| std::fs::read(format!("{d}/libelf.a")).ok());
    let needs_zstd = archive.is_some_and(|a| a.windows(5).any(|bytes| bytes == b"ZSTD_"));
    if needs_zstd && std::env::var_os("CARGO_FEATURE_EBPF").is_some() {
        println!("cargo::rustc-link-arg=-lzstd");
    }
}
