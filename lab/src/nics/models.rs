//! The NICs of the matrix.

/// A kind of NIC that QEMU emulates and DPDK drives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// The row's name.
    pub(crate) name: &'static str,
    /// QEMU's name of the device.
    pub(crate) device: &'static str,
    /// The kernel's module.
    pub(crate) module: &'static str,
    /// DPDK's driver.
    pub(crate) pmd: &'static str,
    /// More words for QEMU's device.
    options: &'static str,
    /// It is a PCI Express device with functions of its own, and wants a port of its own.
    is_express: bool,
    /// Reads of page 0 that its emulation tries at each start, before the driver has programmed the address of its
    /// memory. They are refused, and nothing comes of it.
    pub(crate) reads_of_nothing: bool,
    /// Queues that its driver offers, of those that this matrix would use, and whether the emulation spreads flows over them.
    pub(crate) queues: u16,
    pub(crate) spreads: bool,
    /// What it is bound to: uio_pci_generic is for machines without an IOMMU, and this one has none then.
    pub(crate) binding: UserspaceDriver,
}

/// The driver that gives a NIC to user space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UserspaceDriver {
    Vfio,
    Uio,
}

impl UserspaceDriver {
    pub(crate) const fn driver(self) -> &'static str {
        match self {
            Self::Vfio => "vfio-pci",
            Self::Uio => "uio_pci_generic",
        }
    }
}

const PLAIN: Model = Model {
    name: "",
    device: "",
    module: "",
    pmd: "",
    options: "",
    is_express: false,
    reads_of_nothing: false,
    queues: 1,
    spreads: false,
    binding: UserspaceDriver::Vfio,
};

pub(crate) const MODELS: &[Model] = &[
    Model { name: "e1000", device: "e1000", module: "e1000", pmd: "net_e1000_em", ..PLAIN },
    Model { name: "e1000e", device: "e1000e", module: "e1000e", pmd: "net_e1000_em", ..PLAIN },
    Model {
        name: "igb",
        device: "igb",
        module: "igb",
        pmd: "net_e1000_igb",
        is_express: true,
        queues: 2,
        spreads: true,
        ..PLAIN
    },
    Model {
        name: "vmxnet3",
        device: "vmxnet3",
        module: "vmxnet3",
        pmd: "net_vmxnet3",
        reads_of_nothing: true,
        queues: 2,
        ..PLAIN
    },
    Model {
        name: "virtio-net",
        device: "virtio-net-pci",
        module: "virtio_net",
        pmd: "net_virtio",
        // Only a modern device lets the IOMMU translate.
        options: ",disable-legacy=on,iommu_platform=on,host_mtu=9000",
        ..PLAIN
    },
    Model {
        name: "e1000-uio",
        device: "e1000",
        module: "e1000",
        pmd: "net_e1000_em",
        binding: UserspaceDriver::Uio,
        ..PLAIN
    },
];

impl Model {
    /// Where the NIC under test is, inside.
    pub(crate) const fn address(&self) -> &'static str {
        if self.is_express { "0000:01:00.0" } else { "0000:00:10.0" }
    }

    /// Words for QEMU that make one of these, with the network called "data" behind it.
    pub(crate) fn devices(&self, mac: &str) -> Vec<String> {
        let Self { device, options, is_express, .. } = self;
        let place = if *is_express { "bus=express" } else { "addr=0x10" };
        let port = ["-device", "pcie-root-port,id=express,chassis=1,slot=1,bus=pcie.0,addr=0x10"];
        let nic = ["-device".to_owned(), format!("{device},netdev=data,mac={mac},{place}{options}")];
        let port = port.map(str::to_owned).into_iter().filter(|_| *is_express);
        port.chain(nic).collect()
    }
}

/// The NIC that is quickest under emulation.
pub(crate) fn virtio() -> Model {
    *MODELS.iter().find(|model| model.pmd == "net_virtio").expect("it is in the table")
}
