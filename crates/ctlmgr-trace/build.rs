//! Compiles the eBPF programs; they are loaded from memory, so nothing else is installed.

fn main() {
    println!("cargo::rerun-if-changed=bpf");
    #[cfg(feature = "ebpf")]
    compile();
}

#[cfg(feature = "ebpf")]
#[expect(clippy::expect_used, reason = "a build script has nobody to hand an error to")]
fn compile() {
    use std::path::PathBuf;

    use libbpf_cargo::SkeletonBuilder;

    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let include = out.join("include");
    std::fs::create_dir_all(include.join("bpf")).expect("OUT_DIR can be written");
    for (name, text) in libbpf_sys::API_HEADERS {
        std::fs::write(include.join("bpf").join(name), text).expect("OUT_DIR can be written");
    }
    link_zstd();
    for program in ["disk", "traffic"] {
        let include = include.as_os_str();
        SkeletonBuilder::new()
            .source(format!("bpf/{program}.bpf.c"))
            .obj(out.join(format!("{program}.bpf.o")))
            .clang_args([
                "-Wall".as_ref(),
                "-Wextra".as_ref(),
                "-Werror".as_ref(),
                "-I".as_ref(),
                include,
            ])
            .build()
            .expect(
                "clang compiles bpf/*.bpf.c (Debian's clang, libelf-dev and zlib1g-dev are needed)",
            );
    }
}

/// For the tests of this crate; see the build script of ctlmgrd.
#[cfg(feature = "ebpf")]
fn link_zstd() {
    println!("cargo::rerun-if-env-changed=LIBBPF_SYS_LIBRARY_PATH");
    let directories = std::env::var("LIBBPF_SYS_LIBRARY_PATH").unwrap_or_default();
    let archive = directories.split(':').find_map(|d| std::fs::read(format!("{d}/libelf.a")).ok());
    if archive.is_some_and(|archive| archive.windows(5).any(|bytes| bytes == b"ZSTD_")) {
        println!("cargo::rustc-link-arg=-lzstd");
    }
}
