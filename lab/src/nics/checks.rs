//! What every NIC must do, step by step; and what it was seen to do.

use std::time::Duration;

use serde_json::Value;

use super::bench::{Bench, MANAGEMENT_AT, judge, management, pause};
use super::models::{Model, UserspaceDriver};
use crate::LabError;
use crate::machine::CommandResult;

/// Jobs run for seconds; under emulation, beside others, they take their time to begin and to end.
const PATIENCE: Duration = Duration::from_mins(3);
/// How long the cable is out, and the heads of frames that a job has sent before that: some hundred frames.
const OUTAGE: Duration = Duration::from_secs(2);
const UNDER_WAY: u64 = 32 << 10;

/// Workers of a process that share a NIC.
const WORKERS: usize = 2;

/// What was measured.
#[derive(Default)]
pub(crate) struct Figures {
    /// Half round trips, median, in microseconds: bare frames, SENDs, tagged messages.
    pub(crate) latency_us: Vec<(String, f64)>,
    /// Tagged messages of 1 KiB, in MB/s.
    pub(crate) rate_mb_s: f64,
    /// Bare frames that were lost on the way.
    pub(crate) raw_lost: u64,
    /// Messages and bytes of the verified job.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// A step: its name in reports, and what it does.
type CheckStep = (&'static str, fn(&mut Bench, &mut Figures) -> Result<(), LabError>);

pub(crate) const STEPS: &[CheckStep] = &[
    ("bind-nic", bind),
    ("perf", perf),
    ("soak", soak),
    ("payloads in place", in_place),
    ("memory that is not mapped", not_mapped),
    ("memory that goes", remapped),
    ("jumbo frames", jumbo),
    ("queues", queues),
    ("link down and up", short_outage),
    ("link down for good", long_outage),
    ("IOMMU", iommu),
    ("unbind", unbind),
];

/// The NIC goes from the kernel to user space; the one that the host lives on does not.
fn bind(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let (address, driver) = (bench.model.address(), bench.model.binding.driver());
    for end in [0, 1] {
        let answer = bench.refused(end, &format!("bind-nic bind {MANAGEMENT_AT}"))?;
        expect_in(&answer, "carries the default route")?;
        bench.run(end, "ip route delete default")?;
        let session = "SSH_CONNECTION='10.0.2.2 4000 10.0.2.15 22'";
        let answer = bench.refused(end, &format!("{session} bind-nic bind {MANAGEMENT_AT}"))?;
        expect_in(&answer, "carries an ssh session")?;
        bench.run(end, &management())?;
        // A NIC that its kernel driver has cannot be opened, and the error says how to change that.
        let answer = bench.refused(end, &format!("roci perf raw_lat --device pci:{address}"))?;
        expect_in(&answer, &format!("roci bind-nic bind {address}"))?;
        let (other, reason) = match bench.model.binding {
            UserspaceDriver::Vfio => (UserspaceDriver::Uio, "behind an IOMMU that translates"),
            UserspaceDriver::Uio => (UserspaceDriver::Vfio, "vfio-pci needs an IOMMU"),
        };
        let answer = bench.refused(end, &format!("bind-nic bind {address} --driver {}", other.driver()))?;
        expect_in(&answer, reason)?;
        let answer = bench.run(end, &format!("bind-nic bind {address} --driver {driver}"))?;
        expect_in(&answer, &format!("bound to {driver}"))?;
        let status = bench.run(end, "bind-nic status")?;
        let row = status.lines().find(|row| row.starts_with(address)).ok_or("bind-nic status lacks the NIC")?;
        expect_in(row, driver)?;
    }
    Ok(())
}

/// Latencies and a rate; everything but bare frames is verified.
fn perf(bench: &mut Bench, figures: &mut Figures) -> Result<(), LabError> {
    // Bare frames that are lost make the command fail, which is its business: they are reported here.
    let ended = bench.job("perf raw_lat --size 64 --iters 300 --json", "", PATIENCE, |_| Ok(()))?;
    let raw = row(&ended[0].output)?;
    figures.raw_lost = number(&raw["errors"])? as u64;
    figures.latency_us.push(("raw_lat".into(), number(&raw["lat_us"]["p50"])?));
    let verified = "perf send_lat,write_lat,read_lat,tag_lat,tag_bw --size 1024 --iters 300 --json";
    let output = bench.good_job(verified, "", PATIENCE)?;
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let row: Value = serde_json::from_str(line)?;
        if number(&row["errors"])? > 0.0 {
            return Err(format!("wrong bytes: {line}").into());
        }
        match row["test"].as_str() {
            Some("tag_bw") => figures.rate_mb_s = number(&row["bw_gbps"])? * 1000.0,
            Some(test) => figures.latency_us.push((test.into(), number(&row["lat_us"]["p50"])?)),
            None => return Err(format!("a row without a test: {line}").into()),
        }
    }
    Ok(())
}

/// Messages of all lengths in both directions, every byte compared.
fn soak(bench: &mut Bench, figures: &mut Figures) -> Result<(), LabError> {
    let output = bench.good_job("soak --seconds 8 --max-size 64KiB --json", "", PATIENCE)?;
    let row = verified(&output)?;
    figures.messages = number(&row["messages"])? as u64;
    figures.bytes = number(&row["bytes"])? as u64;
    Ok(())
}

/// The NIC reads payloads of more than 256 bytes from the arena, which is mapped for it; the rest is copied.
fn in_place(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let command = "soak --seconds 5 --max-size 64KiB --json";
    let ended = bench.job(command, "RUST_LOG=info ROCI_ZCOPY_THRESHOLD=256", PATIENCE, |_| Ok(()))?;
    for CommandResult { output, .. } in &ended {
        expect_in(output, "payloads are sent from where they lie")?;
    }
    verified(&judge(command, ended)?)?;
    from_the_application(bench)
}

/// The same from memory of the application's, which is mapped for the NIC when it is first used, where the IOMMU keeps
/// its pages; elsewhere it is copied.
fn from_the_application(bench: &mut Bench) -> Result<(), LabError> {
    let zero_copy = zero_copy_from_the_application(bench, "")?;
    match bench.model.binding {
        UserspaceDriver::Vfio if zero_copy == 0.0 => Err("the NIC read nothing from the application's memory".into()),
        UserspaceDriver::Uio if zero_copy > 0.0 => Err("without an IOMMU nothing keeps the application's pages".into()),
        _ => Ok(()),
    }
}

/// Memory of the application's that is not mapped for the NIC, because it is more than may be: all of it is copied, and
/// arrives.
fn not_mapped(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let zero_copy = zero_copy_from_the_application(bench, "ROCI_DREG_CACHE_LIMIT=4KiB")?;
    if zero_copy > 0.0 { Err("the NIC read from memory that is not mapped for it".into()) } else { Ok(()) }
}

/// Memory of the application's that is unmapped between messages, and mapped again with other bytes: the NIC's map follows,
/// so no message has bytes of pages that have gone.
fn remapped(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let output = bench.good_program("remapped", "ROCI_ZCOPY_THRESHOLD=256", PATIENCE)?;
    println!("        {}", output.trim());
    if bench.model.binding == UserspaceDriver::Uio {
        return Ok(());
    }
    let answer = row(&output)?;
    let mappings = number(&answer["mappings"])?;
    // What a NIC still holds frames of is copied when it is mapped anew; that is to be the exception.
    let is_followed =
        [&answer["invalidations"], &answer["hits"]].into_iter().all(|count| count.as_f64() > Some(mappings / 2.0));
    if is_followed && number(&answer["zero_copy_frames"])? > 0.0 {
        Ok(())
    } else {
        Err(format!("the NIC's map was not put to the test: {answer}").into())
    }
}

/// Sends, writes and reads memory of the application's, every byte right; returns how many frames rank 0's NIC took
/// from there.
fn zero_copy_from_the_application(bench: &mut Bench, settings: &str) -> Result<f64, LabError> {
    let command = "perf send_bw,write_bw,read_bw --memory user --size 16KiB --iters 200 --json";
    let output = bench.good_job(command, &format!("ROCI_ZCOPY_THRESHOLD=256 {settings}"), PATIENCE)?;
    if output.contains("rte_dev_dma_unmap") {
        return Err(format!("the IOMMU has no map for what was registered: {output}").into());
    }
    let (mut rows, mut zero_copy) = (0, 0.0);
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let row: Value = serde_json::from_str(line)?;
        if number(&row["errors"])? > 0.0 {
            return Err(format!("wrong bytes: {line}").into());
        }
        rows += 1;
        zero_copy += number(&row["zero_copy_frames"])?;
    }
    if rows == 3 { Ok(zero_copy) } else { Err(format!("{rows} rows of results, not 3: {output}").into()) }
}

/// With packets of 4200 bytes the path MTU is 4096.
fn jumbo(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let output = bench.good_job("soak --seconds 3 --max-size 64KiB --json", "ROCI_PORT_MTU=4200", PATIENCE)?;
    verified(&output).map(drop)
}

/// Two workers of one process, each at a queue of the NIC, in each guest; or a refusal that says how many queues there are.
fn queues(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let Model { queues, spreads, .. } = bench.model;
    let address = bench.model.address();
    if queues < WORKERS as u16 {
        let answer = bench.refused(0, &format!("ROCI_QUEUES={WORKERS} ROCI_DEVICE=pci:{address} roci info --port"))?;
        return expect_in(&answer, &format!("{WORKERS} queues are wanted (ROCI_QUEUES), and it has {queues}"));
    }
    let answer = bench.run(0, &format!("ROCI_QUEUES={WORKERS} ROCI_DEVICE=pci:{address} roci info --port --json"))?;
    println!("        {}", answer.trim());
    // Several queue pairs to each peer are as many flows: one queue without any of them is unlikely.
    let settings = "ROCI_ARENA_SIZE=32MiB ROCI_RECEIVE_QUEUES=P,512,32:P,2048,32:P,8192,32";
    let command = "soak --seconds 5 --max-size 32KiB --json";
    for output in bench.job_of_workers(WORKERS, command, settings, PATIENCE)? {
        let rows = output.lines().filter(|line| line.starts_with('{')).map(serde_json::from_str);
        let rows: Vec<Value> = rows.collect::<Result<_, _>>()?;
        let (queues, soaks): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["test"] == "soak_queue");
        for row in &soaks {
            verified(&row.to_string())?;
        }
        for row in &queues {
            println!("        {row}");
            let is_used = !spreads || number(&row["at_queue"])? > 0.0;
            if !is_used || number(&row["to_own_station"])? == 0.0 {
                return Err(format!("a queue that was not used: {row}").into());
            }
        }
        if queues.len() != WORKERS {
            return Err(format!("not every worker has reported its queue: {}", output.trim()).into());
        }
    }
    Ok(())
}

/// The cable is out for less than the retries last: the job notices, and loses nothing.
fn short_outage(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let command = "soak --seconds 12 --max-size 16KiB --json";
    let ended = bench.job(command, "", PATIENCE, |bench| {
        bench.wait_for_traffic(UNDER_WAY)?;
        bench.set_link(1, false)?;
        pause(OUTAGE);
        bench.set_link(1, true)
    })?;
    expect_in(&ended[1].output, "the link is down")?;
    expect_in(&ended[1].output, "the link is up again")?;
    verified(&judge(command, ended)?).map(drop)
}

/// The cable stays out for longer than the retries last: both ranks end, and the reason is named.
fn long_outage(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let command = "soak --seconds 60 --max-size 16KiB --json";
    let retries = "ROCI_RETRY_LIMIT=40 ROCI_ACK_TIMEOUT_MAX_US=200000";
    let ended = bench.job(command, retries, PATIENCE, |bench| {
        bench.wait_for_traffic(UNDER_WAY)?;
        bench.set_link(1, false)
    });
    bench.set_link(1, true)?;
    let [first, second] = ended?;
    if first.code == "0" || second.code == "0" {
        return Err("a rank ended well without a link".into());
    }
    // The rank that gives up first ends the job for the other.
    expect_in(&(first.output + &second.output), "IBV_WC_RETRY_EXC_ERR")
}

/// Devices reached nothing that they were not given: the kernel's log has no fault but those known.
fn iommu(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    if bench.model.binding == UserspaceDriver::Uio {
        return Ok(());
    }
    for end in [0, 1] {
        let log = bench.run(end, "dmesg")?;
        expect_in(&log, "DMAR: Intel(R) Virtualization Technology for Directed I/O")?;
        if let Some(fault) = log.lines().find(|line| is_fault(line, bench.model)) {
            return Err(format!("guest {end}: {fault}").into());
        }
    }
    Ok(())
}

fn is_fault(line: &str, model: Model) -> bool {
    let is_fault = line.contains("DMAR: [") && line.contains("fault addr");
    let is_known = model.reads_of_nothing && line.contains("[DMA Read") && line.contains("fault addr 0x0 ");
    is_fault && !is_known
}

/// The NIC goes back to its kernel driver, and works there.
fn unbind(bench: &mut Bench, _: &mut Figures) -> Result<(), LabError> {
    let (address, module) = (bench.model.address(), bench.model.module);
    for end in [0, 1] {
        let file = match bench.model.binding {
            UserspaceDriver::Vfio => "/dev/vfio/$(ls /dev/vfio | grep -v vfio)".to_owned(),
            UserspaceDriver::Uio => format!("/dev/$(ls /sys/bus/pci/devices/{address}/uio)"),
        };
        let held =
            format!("f={file}; sleep 60 <>$f & p=$!; until [ $(readlink /proc/$p/fd/0) = $f ]; do sleep 1; done");
        let answer = bench.refused(end, &format!("{held}; bind-nic unbind {address}; c=$?; kill $p; exit $c"))?;
        expect_in(&answer, "is in use by process")?;
        bench.run(end, &format!("bind-nic unbind {address}"))?;
        let found = bench.run(end, &format!("ls -d /sys/bus/pci/devices/{address}/net/* /sys/bus/pci/devices/{address}/virtio*/net/* 2>/dev/null || true"))?;
        if found.trim().is_empty() {
            return Err(format!("guest {end}: {module} shows no interface for {address}").into());
        }
    }
    Ok(())
}

/// The one row of a soak, without errors.
fn verified(output: &str) -> Result<Value, LabError> {
    let row = row(output)?;
    if number(&row["errors"])? > 0.0 || number(&row["messages"])? == 0.0 {
        return Err(format!("not all messages were right: {row}").into());
    }
    Ok(row)
}

/// The first object that a command printed.
fn row(output: &str) -> Result<Value, LabError> {
    let line = output.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or_else(|| format!("no row of results: {}", output.trim()))?;
    Ok(serde_json::from_str(line)?)
}

fn number(value: &Value) -> Result<f64, LabError> {
    value.as_f64().ok_or_else(|| format!("'{value}' is no number").into())
}

fn expect_in(text: &str, what: &str) -> Result<(), LabError> {
    if text.contains(what) { Ok(()) } else { Err(format!("'{what}' is not in: {}", text.trim()).into()) }
}

#[cfg(test)]
mod tests {
    use super::super::models::MODELS;
    use super::is_fault;

    #[test]
    fn only_faults_that_are_known_are_let_pass() {
        let model = |name| *MODELS.iter().find(|model| model.name == name).expect("it is in the matrix");
        let at = |addr: &str, kind: &str| {
            format!("[ 8.1] DMAR: [{kind} NO_PASID] Request device [00:10.0] fault addr {addr} [fault reason 0x06] PTE")
        };
        assert!(is_fault(&at("0x0", "DMA Read"), model("e1000")));
        assert!(!is_fault(&at("0x0", "DMA Read"), model("vmxnet3")));
        assert!(is_fault(&at("0x0", "DMA Write"), model("vmxnet3")));
        assert!(is_fault(&at("0x1000", "DMA Read"), model("vmxnet3")));
        assert!(!is_fault("[ 2.3] DMAR: No RMRR found", model("e1000")));
    }
}
