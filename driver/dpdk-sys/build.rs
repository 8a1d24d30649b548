//! Finds libdpdk, compares what Rust takes for granted of it with its headers, compiles the shim and links the drivers
//! statically.

#[path = "src/layout.rs"]
#[allow(dead_code, non_camel_case_types, unreachable_pub, reason = "shared with the crate, which uses all of it")]
mod layout;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, exit};

use layout::{roci_port_conf, roci_port_info, rte_ether_addr, rte_mbuf, rte_mbuf_ext_shared_info};

/// The oldest release whose functions the shim calls.
const OLDEST: (u32, u32) = (22, 11);
/// Releases that the tests were run with.
const TESTED: &[(u32, u32)] = &[(22, 11), (23, 11), (24, 11)];

/// Archives in link order: whole, so that the constructors which register buses and drivers survive.
const ARCHIVES: &[&str] = &[
    "common_iavf",
    "bus_vdev",
    "bus_pci",
    "bus_vmbus",
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
    "net_gve",
    "net_bnxt",
    "net_netvsc",
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

/// Whose calls of the kernel are watched (`shim/watched.c`): those of drivers of shared memory, and of EAL's the ones that
/// make memory which can be shared; without, it goes on with memory that cannot.
const WATCHED: &[(&str, &[&str])] = &[
    ("net_memif", CALLS),
    ("net_vhost", CALLS),
    ("net_virtio", CALLS),
    ("vhost", CALLS),
    ("eal", &["memfd_create", "ftruncate64"]),
];
const CALLS: &[&str] =
    &["socket", "connect", "accept", "sendmsg", "recvmsg", "eventfd", "memfd_create", "ftruncate64", "mmap64"];

/// Archives that only newer releases have, which split them off from `eal`.
const NEWER_ARCHIVES: &[&str] = &["log", "argparse"];

/// What the archives need at run time beyond libc.
const LIBRARIES: &[&str] = &["numa", "bsd", "m", "dl", "pthread"];

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=src/layout.rs");
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("DOCS_RS").is_some() {
        // Documentation is made without linking, and where there is no DPDK.
        return;
    }
    let dpdk = probe();
    // Another release may be installed over this one.
    println!("cargo:rerun-if-changed={}", library_directory().join("librte_eal.a").display());
    compile_shim();
    let own = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it"));
    for (archive, calls) in WATCHED {
        watch(archive, calls, &own);
    }
    println!("cargo:rustc-link-search=native={}", own.display());
    for directory in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", directory.display());
    }
    println!("cargo:rustc-link-search=native={}", library_directory().display());
    let newer = NEWER_ARCHIVES.iter().filter(|name| library_directory().join(format!("librte_{name}.a")).exists());
    for archive in ARCHIVES.iter().chain(newer) {
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=rte_{archive}");
    }
    println!("cargo:rustc-link-lib=static:-bundle=roci_dpdk_watched");
    for library in LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

fn probe() -> pkg_config::Library {
    let found = pkg_config::Config::new().cargo_metadata(false).probe("libdpdk");
    let dpdk = found.unwrap_or_else(|cause| {
        fail(&format!("libdpdk was not found: {cause}\nremedy: apt-get install --no-install-recommends libdpdk-dev"))
    });
    let release = release_of(&dpdk.version);
    if release < OLDEST {
        fail(&format!("libdpdk {} was found, but the oldest that serves is {}.{}", dpdk.version, OLDEST.0, OLDEST.1));
    }
    if !TESTED.contains(&release) {
        println!("cargo:warning=libdpdk {} compiles here, but was not tested: {TESTED:?} were", dpdk.version);
    }
    dpdk
}

/// Year and month of a version such as 24.11.4.
fn release_of(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn library_directory() -> PathBuf {
    pkg_config::get_variable("libdpdk", "libdir")
        .unwrap_or_else(|cause| fail(&format!("libdpdk names no libdir: {cause}")))
        .into()
}

/// Leaves a copy of an archive in `directory` that calls the shim where it would call the kernel by libc.
fn watch(archive: &str, calls: &[&str], directory: &Path) {
    let file = format!("librte_{archive}.a");
    let (from, to) = (library_directory().join(&file), directory.join(&file));
    let objcopy = std::env::var_os("OBJCOPY").unwrap_or_else(|| "objcopy".into());
    let mut command = Command::new(objcopy);
    for call in calls {
        let twin = if (archive, *call) == ("net_memif", "sendmsg") { "memif_sendmsg" } else { call };
        command.arg("--redefine-sym").arg(format!("{call}=roci_{twin}"));
    }
    let status = command.arg(from).arg(to).status();
    if !status.as_ref().is_ok_and(ExitStatus::success) {
        fail(&format!(
            "objcopy did not copy {file}: {status:?}\nremedy: apt-get install --no-install-recommends binutils"
        ));
    }
}

/// DPDK's headers demand the very flags that the library was built with (`-march`, `-include rte_config.h`).
fn compile_shim() {
    let mut shim = cc::Build::new();
    let mut watched = cc::Build::new();
    let output = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let flags = output.unwrap_or_else(|cause| fail(&format!("pkg-config did not run: {cause}"))).stdout;
    for build in [&mut shim, &mut watched] {
        for flag in String::from_utf8_lossy(&flags).split_whitespace() {
            build.flag(flag);
        }
        build.include("shim").flag("-Wno-deprecated-declarations");
    }
    shim.files(["shim/packet.c", "shim/port.c", "shim/log.c"]).file(write_checks()).compile("roci_dpdk_shim");
    // The drivers call this one: it is named behind them.
    watched.file("shim/watched.c").cargo_metadata(false).compile("roci_dpdk_watched");
}

/// Writes a C file that does not compile where the installed headers think otherwise than `layout` does.
fn write_checks() -> PathBuf {
    let mut checks = String::from("#include \"shim.h\"\n#include \"declared.h\"\n");
    /// Offsets and sizes of a structure's fields.
    macro_rules! fields {
        ($name:ident: $($field:ident),+) => {$({
            let (at, size) = (std::mem::offset_of!($name, $field), size_of_field(|of: &$name| &of.$field));
            let [name, field] = [stringify!($name), stringify!($field)];
            check(&mut checks, &format!("offsetof(struct {name}, {field})"), at as u64);
            check(&mut checks, &format!("sizeof(((struct {name} *)0)->{field})"), size as u64);
        })+};
    }
    /// Sizes of whole structures.
    macro_rules! sizes {
        ($($name:ident),+) => {$(
            check(&mut checks, concat!("sizeof(struct ", stringify!($name), ")"), size_of::<$name>() as u64);
        )+};
    }
    /// Macros of C.
    macro_rules! values {
        ($($name:ident),+) => {$(check(&mut checks, stringify!($name), layout::$name as u64);)+};
    }
    fields!(rte_mbuf: buf_addr, data_off, nb_segs, ol_flags, pkt_len, data_len, buf_len, next);
    fields!(rte_mbuf_ext_shared_info: free_cb, fcb_opaque, refcnt);
    fields!(rte_ether_addr: addr_bytes);
    fields!(roci_port_info: driver, device, max_queues, max_mtu, max_segments, sends_chains, checks_ip, checks_udp);
    fields!(roci_port_info: spreads_by_address, spreads_by_port);
    fields!(roci_port_conf: mtu, sends_chains, checks_ip, checks_udp, spreads);
    sizes!(rte_mbuf, rte_mbuf_ext_shared_info, rte_ether_addr, roci_port_info, roci_port_conf);
    values!(RTE_PKTMBUF_HEADROOM, RTE_MBUF_F_RX_IP_CKSUM_MASK, RTE_MBUF_F_RX_IP_CKSUM_BAD);
    values!(RTE_MBUF_F_RX_L4_CKSUM_MASK, RTE_MBUF_F_RX_L4_CKSUM_BAD);
    let ports = layout::ROCI_MAX_PORTS;
    writeln!(checks, "_Static_assert(RTE_MAX_ETHPORTS >= {ports}, \"room for {ports} ports\");")
        .expect("a string grows");
    let file = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names it")).join("checks.c");
    std::fs::write(&file, checks).unwrap_or_else(|cause| fail(&format!("{} was not written: {cause}", file.display())));
    file
}

fn check(checks: &mut String, what: &str, expected: u64) {
    writeln!(checks, "_Static_assert({what} == {expected}, \"{what} is {expected} in src/layout.rs\");")
        .expect("a string grows");
}

const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

fn fail(message: &str) -> ! {
    eprintln!("dpdk-sys: {message}");
    exit(1)
}
