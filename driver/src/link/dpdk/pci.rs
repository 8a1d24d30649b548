//! NICs by PCI address: the name, and whether the kernel has let go of the device.
//!
//! DPDK reports only "no port" for a NIC that it cannot use. The kernel's sysfs (its `sysfs-bus-pci` ABI document)
//! shows the reason beforehand.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{Access, access};
use thiserror::Error;

/// Where the kernel shows its devices.
pub(super) const SYSFS: &str = "/sys";
/// Where VFIO's groups are opened.
pub(super) const VFIO: &str = "/dev/vfio";
/// Huge pages of 2 MiB that a NIC wants for its packet buffers, and some for what DPDK keeps beside them.
pub const HUGE_PAGES: u64 = 256;
/// Devices of a PCI bus, and functions of a device.
const DEVICES: u8 = 32;
const FUNCTIONS: u8 = 8;

/// The place of a NIC: domain, bus, device and function, as in `0000:00:04.0`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no PCI address.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("'{0}' is no PCI address such as 0000:00:04.0 or 00:04.0")]
pub struct ParsePciError(String);

impl FromStr for PciAddress {
    type Err = ParsePciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParsePciError(text.into()))
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (rest, function) = text.rsplit_once('.')?;
    let (rest, device) = rest.rsplit_once(':')?;
    let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0000", rest));
    // Domains beyond 16 bits exist: the kernel numbers those of Intel's VMD from 0x10000 on.
    let domain = hex(domain, 4..=8)?;
    let [bus, device, function] = [hex(bus, 2..=2)?, hex(device, 2..=2)?, hex(function, 1..=1)?].map(|part| part as u8);
    (device < DEVICES && function < FUNCTIONS).then_some(PciAddress { domain, bus, device, function })
}

/// Hexadecimal digits and nothing else, so many of them.
fn hex(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let is_hex = digits.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u32::from_str_radix(text, 16).ok().filter(|_| is_hex)
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// Why DPDK cannot have a NIC.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BindingError {
    /// Nothing is there.
    #[error("no PCI device {0}: lspci -D lists those of this host")]
    Missing(PciAddress),
    /// A kernel driver is bound to it, or none is.
    #[error("PCI device {address} is {}, and DPDK needs vfio-pci or uio_pci_generic: roci bind-nic bind {address}", describe_driver(.driver))]
    NotBound {
        /// Where.
        address: PciAddress,
        /// Its driver, if it has one.
        driver: Option<String>,
    },
    /// The kernel holds the device behind an IOMMU, and this user may not open its group.
    #[error("cannot open {path}, PCI device {address}'s IOMMU group: run as root, or as root: chown $USER {path}")]
    NoAccess {
        /// Where.
        address: PciAddress,
        /// The group's file.
        path: String,
    },
    /// DPDK keeps what devices reach in huge pages, and there is none.
    #[error("PCI device {0} needs huge pages, and none is free: roci hugepages set {HUGE_PAGES}")]
    NoHugePages(PciAddress),
}

fn describe_driver(driver: &Option<String>) -> String {
    driver.as_ref().map_or_else(|| "without a driver".into(), |driver| format!("bound to {driver}"))
}

/// How a device gets at memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Addressing {
    /// By virtual addresses, which an IOMMU translates and fences.
    Virtual,
    /// By physical addresses, wherever it likes.
    Physical,
}

impl Addressing {
    /// EAL's word for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Virtual => "--iova-mode=va",
            Self::Physical => "--iova-mode=pa",
        }
    }
}

/// Whether the kernel has left a NIC to user space, and how it reaches memory then. `sysfs` and `vfio` are the folders
/// that the kernel mounts at [`SYSFS`] and [`VFIO`].
pub(super) fn check(sysfs: &Path, vfio: &Path, address: PciAddress) -> Result<Addressing, BindingError> {
    let device = sysfs.join("bus/pci/devices").join(address.to_string());
    if !device.exists() {
        return Err(BindingError::Missing(address));
    }
    let driver = target_name(&device.join("driver"));
    let addressing = match driver.as_deref() {
        Some("vfio-pci") => check_group(&device, vfio, address)?,
        Some("uio_pci_generic" | "igb_uio") => Addressing::Physical,
        _ => return Err(BindingError::NotBound { address, driver }),
    };
    if has_free_huge_pages(sysfs) { Ok(addressing) } else { Err(BindingError::NoHugePages(address)) }
}

/// A group without an IOMMU has a name of its own, and needs physical addresses.
fn check_group(device: &Path, vfio: &Path, address: PciAddress) -> Result<Addressing, BindingError> {
    let group = target_name(&device.join("iommu_group")).unwrap_or_default();
    let (fenced, unfenced) = (vfio.join(&group), vfio.join(format!("noiommu-{group}")));
    let (path, addressing) =
        if unfenced.exists() { (unfenced, Addressing::Physical) } else { (fenced, Addressing::Virtual) };
    if access(&path, Access::READ_OK | Access::WRITE_OK).is_err() {
        return Err(BindingError::NoAccess { address, path: path.display().to_string() });
    }
    Ok(addressing)
}

fn has_free_huge_pages(sysfs: &Path) -> bool {
    let Ok(sizes) = fs::read_dir(sysfs.join("kernel/mm/hugepages")) else { return false };
    sizes.flatten().any(|size| free_pages(&size.path()) > 0)
}

/// Pages of a pool that are neither used nor promised to somebody who has mapped them.
fn free_pages(pool: &Path) -> u64 {
    let count = |name: &str| fs::read_to_string(pool.join(name)).ok().and_then(|text| text.trim().parse::<u64>().ok());
    count("free_hugepages").unwrap_or(0).saturating_sub(count("resv_hugepages").unwrap_or(0))
}

/// The last part of what a symbolic link points at.
fn target_name(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    target.file_name().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// A host with one NIC, as the kernel shows it.
    struct Host(TempDir);

    impl Host {
        fn with(driver: Option<&str>, free_pages: &str) -> Self {
            let host = Self(TempDir::new().expect("a directory"));
            let device = host.sysfs().join("bus/pci/devices/0000:00:04.0");
            let pages = host.sysfs().join("kernel/mm/hugepages/hugepages-2048kB");
            for folder in [&device, &pages, &host.vfio()] {
                fs::create_dir_all(folder).expect("a folder");
            }
            fs::write(pages.join("free_hugepages"), free_pages).expect("a file");
            if let Some(driver) = driver {
                symlink(format!("../../drivers/{driver}"), device.join("driver")).expect("a link");
            }
            symlink("../../../kernel/iommu_groups/7", device.join("iommu_group")).expect("a link");
            host
        }

        fn sysfs(&self) -> std::path::PathBuf {
            self.0.path().join("sys")
        }

        fn vfio(&self) -> std::path::PathBuf {
            self.0.path().join("vfio")
        }

        fn check(&self, address: &str) -> Result<Addressing, String> {
            let address = address.parse().expect("an address");
            check(&self.sysfs(), &self.vfio(), address).map_err(|error| error.to_string())
        }
    }

    #[test]
    fn a_bound_nic_says_how_it_reaches_memory() {
        let host = Host::with(Some("vfio-pci"), "3\n");
        fs::write(host.vfio().join("7"), "").expect("a file");
        assert_eq!(host.check("00:04.0"), Ok(Addressing::Virtual));
        fs::write(host.vfio().join("noiommu-7"), "").expect("a file");
        assert_eq!(host.check("00:04.0"), Ok(Addressing::Physical));
        assert_eq!(Host::with(Some("uio_pci_generic"), "1").check("00:04.0"), Ok(Addressing::Physical));
    }

    #[test]
    fn errors_name_the_remedy() {
        let refused = |host: &Host, address: &str, text: &str| {
            let error = host.check(address).expect_err("it cannot be had");
            assert!(error.contains(text), "{error}");
        };
        refused(&Host::with(None, "1"), "00:05.0", "no PCI device 0000:00:05.0: lspci -D");
        refused(&Host::with(None, "1"), "00:04.0", "is without a driver, and DPDK needs");
        refused(&Host::with(Some("e1000e"), "1"), "00:04.0", "bound to e1000e, and DPDK needs vfio-pci");
        refused(&Host::with(Some("vfio-pci"), "1"), "00:04.0", "vfio/7, PCI device 0000:00:04.0's IOMMU group");
        for pages in ["0\n", "", "many", "-1"] {
            refused(&Host::with(Some("uio_pci_generic"), pages), "00:04.0", "roci hugepages set 256");
        }
    }

    #[test]
    fn pages_that_are_promised_to_others_are_not_free() {
        let host = Host::with(Some("uio_pci_generic"), "3\n");
        let promised = host.sysfs().join("kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
        fs::write(&promised, "2\n").expect("a file");
        assert_eq!(host.check("00:04.0"), Ok(Addressing::Physical));
        fs::write(&promised, "3\n").expect("a file");
        assert!(host.check("00:04.0").is_err());
    }

    #[test]
    fn addresses_are_read_in_both_forms_and_nothing_else_is() {
        for (text, full) in
            [("0000:00:04.0", "0000:00:04.0"), ("af:1F.7", "0000:af:1f.7"), ("10000:01:00.1", "10000:01:00.1")]
        {
            assert_eq!(text.parse::<PciAddress>().expect(text).to_string(), full);
        }
        let wrong = [
            "",
            "00:04",
            "0:4.0",
            "00:20.0",
            "00:04.8",
            "0000:00:04.0,debug=1",
            "00:04.0 ",
            "+0:04.0",
            "000000000:00:04.0",
        ];
        for text in wrong {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_address_reads_back_as_it_was_written(domain: u32, bus: u8, device in 0..DEVICES, function in 0..FUNCTIONS) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = text.parse::<PciAddress>();
        }
    }
}
