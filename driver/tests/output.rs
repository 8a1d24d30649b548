//! Starting DPDK changes nothing about what the process prints.

use std::ffi::CString;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink};

/// What a thread prints while DPDK starts, how, and where to.
type Print = fn(&str);
const PRINTS: [(&str, Print); 2] = [
    ("rust", |line| {
        writeln!(std::io::stdout().lock(), "{line}").expect("stdout is open");
        writeln!(std::io::stderr().lock(), "{line}").expect("stderr is open");
    }),
    ("c", |line| {
        let line = CString::new(format!("{line}\n")).expect("no NUL");
        // SAFETY: the string is NUL-terminated and has no directive; C's streams are locked by themselves.
        unsafe { libc::printf(c"%s".as_ptr(), line.as_ptr()) };
        // To a pipe, C writes when its buffer is full, and that ends within a line, which another thread's would then go on with.
        // SAFETY: no pointer means all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }),
];

#[test]
fn every_line_that_other_threads_print_while_dpdk_starts_arrives() {
    let this = std::env::current_exe().expect("a program");
    let child = Command::new(this)
        .args(["--exact", "prints_while_dpdk_starts", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{out}{err}");
    let count = |text: &str, prefix: &str| text.lines().filter(|line| line.starts_with(prefix)).count();
    let total: usize = out.lines().find_map(|line| line.strip_prefix("rust lines: ")?.parse().ok()).expect("a total");
    assert_eq!((count(&out, "rust "), count(&err, "rust ")), (total + 1, total), "the total is a line of its own");
    let total: usize = out.lines().find_map(|line| line.strip_prefix("c lines: ")?.parse().ok()).expect("a total");
    assert_eq!(count(&out, "c "), total + 1);
    assert!(!err.contains("EAL"), "{err}");
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn prints_while_dpdk_starts() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let printers = PRINTS.map(|(name, print)| {
        thread::spawn(move || {
            let mut count = 0;
            while !IS_OVER.load(Ordering::Acquire) {
                print(&format!("{name} line {count}"));
                count += 1;
                thread::sleep(Duration::from_micros(200));
            }
            (name, count)
        })
    });
    thread::sleep(Duration::from_millis(10));
    let directory = tempfile::tempdir().expect("a directory");
    let ends = [false, true].map(|is_server| {
        Attachment::pair(Device::Memif, &directory.path().join("port"), is_server, [2, 0, 0, 0, 0, u8::from(is_server)])
    });
    DpdkLink::open_all(&ends, Duration::from_mins(1), &mut || false).expect("two ports");
    IS_OVER.store(true, Ordering::Release);
    for printer in printers {
        let (name, count) = printer.join().expect("no panic");
        println!("{name} lines: {count}");
    }
}
