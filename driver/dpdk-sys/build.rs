//! Finds Debian's libdpdk, refuses any other ABI, compiles the shim and links the drivers statically.

use std::process::exit;

/// The ABI that `src/bindings.rs` was generated from.
const DPDK_ABI: &str = "22.11";

/// Archives in link order: whole, so that the constructors which register buses and drivers survive.
const ARCHIVES: &[&str] = &[
    "common_iavf",
    "bus_vdev",
    "bus_pci",
    "mempool_ring",
    "net_memif",
    "net_ring",
    "net_null",
    "net_af_packet",
    "net_vhost",
    "net_virtio",
    "net_e1000",
    "net_igc",
    "net_ixgbe",
    "net_i40e",
    "net_iavf",
    "net_ice",
    "net_ena",
    "net_vmxnet3",
    "vhost",
    "security",
    "cryptodev",
    "dmadev",
    "hash",
    "rcu",
    "pci",
    "ethdev",
    "meter",
    "net",
    "mbuf",
    "mempool",
    "ring",
    "eal",
    "telemetry",
    "kvargs",
    "timer",
];

/// What the archives need at run time beyond libc.
const LIBRARIES: &[&str] = &["numa", "bsd", "m", "dl", "pthread"];

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=build.rs");
    let dpdk = probe();
    compile_shim();
    for directory in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", directory.display());
    }
    println!("cargo:rustc-link-search=native={}", library_directory());
    for archive in ARCHIVES {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=rte_{archive}");
    }
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

fn probe() -> pkg_config::Library {
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = found.unwrap_or_else(|cause| {
        fail(&format!("libdpdk was not found: {cause}\nremedy: apt-get install --no-install-recommends libdpdk-dev"))
    });
    if !dpdk.version.starts_with(DPDK_ABI) {
        fail(&format!(
            "libdpdk {} was found, but these bindings are for {DPDK_ABI}\n\
             remedy: install libdpdk-dev {DPDK_ABI} (Debian 12), or regenerate with scripts/regenerate-bindings",
            dpdk.version
        ));
    }
    dpdk
}

fn library_directory() -> String {
    pkg_config::get_variable("libdpdk", "libdir")
        .unwrap_or_else(|cause| fail(&format!("libdpdk names no libdir: {cause}")))
}

/// DPDK's headers demand the very flags that the library was built with (`-march`, `-include rte_config.h`).
fn compile_shim() {
    let output = std::process::Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let flags = output.unwrap_or_else(|cause| fail(&format!("pkg-config did not run: {cause}"))).stdout;
    let mut build = cc::Build::new();
    for flag in String::from_utf8_lossy(&flags).split_whitespace() {
        build.flag(flag);
    }
    build.file("shim/shim.c").file("shim/log.c").flag("-Wno-deprecated-declarations").compile("roci_dpdk_shim");
}

fn fail(message: &str) -> ! {
    eprintln!("dpdk-sys: {message}");
    exit(1)
}
