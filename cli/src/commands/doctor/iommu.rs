//! What stands between a bound NIC and all of the machine's memory: IOMMU and vfio.

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;

use super::check::Check;
use super::machine::Machine;
use super::shell::ShellLine;

pub(super) fn checks(machine: &Machine, device: &LinkDevice) -> Vec<Check> {
    let is_needed = matches!(device.dpdk(), Some(Device::Pci(_)));
    let groups = machine.names("/sys/kernel/iommu_groups").len();
    let noiommu = machine.read("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    let is_open = noiommu.trim() == "Y";
    let vendor = machine.read("/proc/cpuinfo");
    let release = machine.read("/proc/sys/kernel/osrelease");
    let modules = machine.read(format!("/lib/modules/{}/modules.dep", release.trim()));
    let has_vfio = machine.exists("/sys/bus/pci/drivers/vfio-pci");
    let has_uio = machine.exists("/sys/bus/pci/drivers/uio_pci_generic");
    vec![
        iommu(is_needed && !is_open && !has_uio, groups, &machine.read("/proc/cmdline"), &vendor, is_open),
        vfio(is_needed && !has_uio, has_vfio, &modules),
    ]
}

fn iommu(is_needed: bool, groups: usize, command_line: &str, cpuinfo: &str, is_open: bool) -> Check {
    if groups > 0 {
        return Check::ok("IOMMU", format!("{groups} groups"));
    }
    let name = "IOMMU";
    if is_open {
        return Check::fact(name, "none, and vfio works without: a bound NIC can reach all memory");
    }
    let option = if cpuinfo.contains("AuthenticAMD") { "amd_iommu=on" } else { "intel_iommu=on" };
    if command_line.split_whitespace().any(|word| word == option) {
        let finding =
            format!("{option} is given, and there is none: the firmware hides it, or this is a virtual machine");
        return Check::lack(is_needed, name, finding, without_iommu()).hint("a bound NIC can then reach all memory");
    }
    let finding = "none: vfio binds NICs only without its protection";
    let remedy = ShellLine::reboot_with(&format!("{option} iommu=pt"));
    Check::lack(is_needed, name, finding, remedy)
        .hint("restarts this machine; if there is none then, 'roci doctor' shows the way without one")
}

/// Lets vfio bind NICs that reach all memory.
fn without_iommu() -> ShellLine {
    let open = ShellLine::write("Y", "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    ShellLine::root(&["modprobe", "vfio"]).then(&open)
}

/// `modules`: what the kernel could load, as depmod lists it.
fn vfio(is_needed: bool, is_loaded: bool, modules: &str) -> Check {
    let name = "vfio-pci";
    if is_loaded {
        return Check::ok(name, "loaded");
    }
    if modules.lines().any(|line| line.split(':').next().is_some_and(|file| file.contains("/vfio-pci.ko"))) {
        return Check::lack(is_needed, name, "not loaded", ShellLine::root(&["modprobe", "vfio-pci"]));
    }
    let install = ShellLine::root(&["apt-get", "install", "linux-image-amd64"]);
    Check::lack(
        is_needed,
        name,
        "this kernel has none: no NIC can be bound",
        install.then(&ShellLine::root(&["reboot"])),
    )
    .hint("restarts this machine; Ubuntu's package is linux-image-generic")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::check::CheckVerdict;
    use super::*;

    #[test]
    fn the_check_reports_an_iommu_or_how_to_enable_one() {
        assert_eq!(iommu(true, 7, "", "", false), Check::ok("IOMMU", "7 groups"));
        let intel = iommu(true, 0, "quiet", "vendor_id : GenuineIntel", false);
        assert_eq!(intel.verdict, CheckVerdict::Missing);
        let line = "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&intel_iommu=on iommu=pt /' /etc/default/grub && sudo update-grub \
                    && sudo reboot";
        assert_eq!(intel.remedy.as_deref(), Some(line));
        assert!(intel.hint.expect("what it does").contains("restarts this machine"));
        assert!(iommu(true, 0, "", "AuthenticAMD", false).remedy.expect("a command").contains("amd_iommu=on"));
        let hidden = iommu(true, 0, "quiet intel_iommu=on", "", false);
        assert!(hidden.finding.contains("virtual machine") && hidden.remedy == Some(without_iommu()));
        let open = "sudo modprobe vfio && echo Y | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode";
        assert_eq!(&*without_iommu(), open);
        assert_eq!(iommu(false, 0, "", "", false).verdict, CheckVerdict::Note);
        assert_eq!(iommu(true, 0, "", "", true).remedy, None);
    }

    #[test]
    fn vfio_is_loaded_loadable_or_lacking() {
        assert_eq!(vfio(true, true, "").verdict, CheckVerdict::Ok);
        let modules = "kernel/drivers/vfio/pci/vfio-pci-core.ko:\nkernel/drivers/vfio/pci/vfio-pci.ko: kernel/x.ko\n";
        assert_eq!(vfio(true, false, modules).remedy.as_deref(), Some("sudo modprobe vfio-pci"));
        let none = vfio(true, false, "kernel/x.ko: kernel/y.ko\n");
        assert_eq!(none.finding, "this kernel has none: no NIC can be bound");
        assert_eq!(none.remedy.as_deref(), Some("sudo apt-get install linux-image-amd64 && sudo reboot"));
    }

    proptest! {
        #[test]
        fn no_text_takes_the_checks_down(text in "\\PC{0,60}", groups in 0usize..3) {
            let _ = (iommu(true, groups, &text, &text, false), vfio(true, false, &text));
        }
    }
}
