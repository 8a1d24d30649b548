//! Which NUMA node a device is near.

use std::path::{Path, PathBuf};

use super::Device;

impl Device {
    /// The NUMA node that the device is near, as sysfs has it. `None` where it is near none or where that is not known:
    /// devices that are memory, machines of one node, EAL lines.
    pub fn numa_node(&self) -> Option<u32> {
        let file = node_file(self)?;
        parse(&std::fs::read_to_string(file).ok()?)
    }
}

/// Where the kernel shows it. A name that is no name of a device leads nowhere.
fn node_file(device: &Device) -> Option<PathBuf> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    match device {
        Device::Pci(address) => Some(Path::new("/sys/bus/pci/devices").join(address.to_string()).join("numa_node")),
        Device::AfPacket(interface) if is_name(interface) => {
            Some(Path::new("/sys/class/net").join(interface).join("device/numa_node"))
        }
        _ => None,
    }
}

/// The kernel writes -1 for a device that is near no node.
fn parse(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_looked_up_where_the_kernel_shows_it() {
        let file = |device: &str| node_file(&device.parse().expect("a device"));
        let pci = Some(PathBuf::from("/sys/bus/pci/devices/0000:00:04.0/numa_node"));
        assert_eq!((file("pci:00:04.0"), file("pci:0000:00:04.0")), (pci.clone(), pci));
        assert_eq!(file("af_packet:eth0"), Some(PathBuf::from("/sys/class/net/eth0/device/numa_node")));
        assert_eq!((file("memif"), file("af_packet:..")), (None, None));
    }

    #[test]
    fn no_node_is_minus_one() {
        assert_eq!((parse("1\n"), parse("-1\n"), parse(""), parse("4294967296")), (Some(1), None, None, None));
    }
}
