//! The clock of a process, which goes over from the kernel's to the time stamp counter when DPDK starts: so this test is alone in one.

use roci_driver::link::Link;
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PendingLink};
use roci_driver::link::udp::UdpLink;
use tempfile::TempDir;

#[test]
fn links_of_all_kinds_have_one_clock_that_never_goes_back() {
    let directory = TempDir::new().expect("a directory");
    let socket = UdpLink::open_on_loopback(None).expect("the loopback interface is up");
    let (mut last, mut pairs) = (socket.now(), Vec::new());
    // Each is opened at another time.
    for number in 0..3 {
        let place = directory.path().join(number.to_string());
        let ends = [true, false].map(|is_server| Attachment::pair(Device::Memif, &place, is_server, [2; 6]));
        let mut pending = ends.map(|end| DpdkLink::begin(&end).expect("a place"));
        while !pending.iter_mut().all(PendingLink::is_up) {
            std::thread::yield_now();
        }
        let pair = pending.map(|end| end.finish().expect("the gate closes"));
        for now in [pair[0].now(), socket.now(), pair[1].now(), socket.now()] {
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        pairs.push(pair);
    }
}
