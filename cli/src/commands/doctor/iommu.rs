//! What stands between a bound NIC and all of the machine's memory: IOMMU and vfio.

use roci_driver::link::dpdk::Device;
use roci_driver::link::live::LinkDevice;

use super::check::Check;
use super::machine::Machine;

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
        return Check::lack(is_needed, name, finding, NOIOMMU);
    }
    let finding = "none: vfio binds NICs only without its protection";
    let remedy = format!(
        "sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{option} iommu=pt /' /etc/default/grub && sudo update-grub && sudo reboot; \
         or, without protection: {NOIOMMU}"
    );
    Check::lack(is_needed, name, finding, remedy)
}

const NOIOMMU: &str = "sudo modprobe vfio && echo Y | sudo tee /sys/module/vfio/parameters/enable_unsafe_noiommu_mode";

/// `modules`: what the kernel could load, as depmod lists it.
fn vfio(is_needed: bool, is_loaded: bool, modules: &str) -> Check {
    let name = "vfio-pci";
    if is_loaded {
        return Check::ok(name, "loaded");
    }
    if modules.lines().any(|line| line.split(':').next().is_some_and(|file| file.contains("/vfio-pci.ko"))) {
        return Check::lack(is_needed, name, "not loaded", "sudo modprobe vfio-pci");
    }
    let remedy = "sudo apt-get install linux-image-amd64 && sudo reboot";
    Check::lack(is_needed, name, "this kernel has none: no NIC can be bound", remedy)
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
        assert!(intel.remedy.expect("a command").contains("/&intel_iommu=on iommu=pt /"));
        assert!(iommu(true, 0, "", "AuthenticAMD", false).remedy.expect("a command").contains("amd_iommu=on"));
        let hidden = iommu(true, 0, "quiet intel_iommu=on", "", false);
        assert!(hidden.finding.contains("virtual machine") && hidden.remedy.as_deref() == Some(NOIOMMU));
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
