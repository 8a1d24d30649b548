//! Receivers that are not ready, keys that are wrong, silence: the status that both ends report.

use std::time::Duration;

use roci_driver::{QpParams, SendWr};
use roci_protocol::Rkey;

use super::connected::expect;
use crate::LabError;
use crate::lab::{GuestPair, Lab, PairTerms, pattern};

type Verb = fn(&Lab) -> Result<SendWr, LabError>;

const BAD_KEY: Rkey = Rkey(0x7777_7777);

fn our_status(lab: &mut Lab, due: &str) -> Result<(), LabError> {
    expect("our status", lab.wait()?.status.verbs_name(), due)
}

fn their_status(lab: &mut Lab, due: &str) -> Result<(), LabError> {
    let done = lab.their_completions(1)?.remove(0);
    expect("the guest's status", done["status"].as_str(), due)
}

fn patient(retry_limit: Option<u32>) -> PairTerms {
    let terms = PairTerms::default();
    PairTerms { params: QpParams { rnr_retry_limit: retry_limit, min_rnr_timer: 14, ..terms.params.clone() }, ..terms }
}

pub(super) fn rnr_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { theirs: "min_rnr=14".into(), ..patient(None) })?;
    let target = lab.remote(3000)?;
    let message = lab.buffer(&pattern(9, 3000))?;
    lab.post(pair, SendWr::send(1, message))?;
    lab.idle(Duration::from_millis(100));
    lab.ask(&format!("recv qp={} wr=5 mr={} off=0 len=3000", pair.theirs, target.mr))?;
    lab.wait_ok()?;
    lab.they_succeed()?;
    lab.ask(&format!("check mr={} off=0 len=3000 seed=9", target.mr))?;
    expect("that RNR NAKs came", lab.engine.stats().queue_pairs.rnr_nak > 0, true)
}

pub(super) fn rnr_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&patient(None))?;
    let source = lab.remote(3000)?;
    lab.ask(&format!("fill mr={} off=0 len=3000 seed=8", source.mr))?;
    lab.ask(&format!("send qp={} wr=6 op=send mr={} off=0 len=3000", pair.theirs, source.mr))?;
    lab.idle(Duration::from_millis(100));
    lab.post_recv(pair, 1, 3000)?;
    let done = lab.wait_ok()?;
    expect("the message", done.buffer[..3000] == pattern(8, 3000), true)?;
    lab.they_succeed()?;
    Ok(())
}

pub(super) fn rnr_exhausted_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { theirs: "min_rnr=1".into(), ..patient(Some(3)) })?;
    let message = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::send(1, message))?;
    our_status(lab, "IBV_WC_RNR_RETRY_EXC_ERR")
}

pub(super) fn rnr_exhausted_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms { theirs: "rnr_retry=2".into(), ..patient(None) })?;
    let source = lab.remote(8)?;
    lab.ask(&format!("send qp={} wr=6 op=send mr={} off=0 len=8", pair.theirs, source.mr))?;
    their_status(lab, "IBV_WC_RNR_RETRY_EXC_ERR")
}

pub(super) fn bad_key_ours(lab: &mut Lab) -> Result<(), LabError> {
    let verbs: [Verb; 3] = [
        |lab| Ok(SendWr::write(1, lab.buffer(&[0; 64])?, BAD_KEY, 0)),
        |lab| Ok(SendWr::read(1, lab.buffer(&[0; 64])?, BAD_KEY, 0)),
        |lab| Ok(SendWr::fetch_add(1, lab.buffer(&[0; 8])?, BAD_KEY, 0, 1)),
    ];
    for verb in verbs {
        let pair = lab.connect(&PairTerms::default())?;
        let wr = verb(lab)?;
        lab.post(pair, wr)?;
        our_status(lab, "IBV_WC_REM_ACCESS_ERR")?;
    }
    Ok(())
}

/// Lets the guest try something, and checks that our memory has not changed.
fn refused(lab: &mut Lab, pair: GuestPair, words: &str, status: &str) -> Result<(), LabError> {
    let before = pattern(77, 128);
    let region = lab.region(&before)?;
    let local = lab.remote(256)?;
    let words = words.replace("GOOD", &region.rkey().0.to_string()).replace("BAD", &BAD_KEY.0.to_string());
    lab.ask(&format!("send qp={} wr=6 {words} mr={} off=0", pair.theirs, local.mr))?;
    their_status(lab, status)?;
    expect("that our memory is as before", lab.content(region)? == before, true)
}

pub(super) fn bad_key_theirs(lab: &mut Lab) -> Result<(), LabError> {
    for op in ["op=write len=64", "op=read len=64", "op=fadd add=1"] {
        let pair = lab.connect(&PairTerms::default())?;
        refused(lab, pair, &format!("{op} raddr=0 rkey=BAD"), "IBV_WC_REM_ACCESS_ERR")?;
    }
    Ok(())
}

pub(super) fn out_of_bounds_theirs(lab: &mut Lab) -> Result<(), LabError> {
    for (op, raddr) in [("op=write len=64", 65), ("op=read len=129", 0), ("op=fadd add=1", 128)] {
        let pair = lab.connect(&PairTerms::default())?;
        refused(lab, pair, &format!("{op} raddr={raddr} rkey=GOOD"), "IBV_WC_REM_ACCESS_ERR")?;
    }
    Ok(())
}

pub(super) fn misaligned_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let target = lab.remote(64)?;
    let buffer = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::fetch_add(1, buffer, target.rkey, target.addr + 4, 1))?;
    our_status(lab, "IBV_WC_REM_INV_REQ_ERR")
}

pub(super) fn too_long_ours(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let target = lab.remote(100)?;
    lab.ask(&format!("recv qp={} wr=5 mr={} off=0 len=100", pair.theirs, target.mr))?;
    let message = lab.buffer(&[0; 101])?;
    lab.post(pair, SendWr::send(1, message))?;
    // IBTA asks for an invalid request; rxe says that the fault is its own.
    our_status(lab, "IBV_WC_REM_OP_ERR")
}

pub(super) fn too_long_theirs(lab: &mut Lab) -> Result<(), LabError> {
    let pair = lab.connect(&PairTerms::default())?;
    let source = lab.remote(101)?;
    lab.post_recv(pair, 1, 100)?;
    lab.ask(&format!("send qp={} wr=6 op=send mr={} off=0 len=101", pair.theirs, source.mr))?;
    our_status(lab, "IBV_WC_LOC_LEN_ERR")?;
    their_status(lab, "IBV_WC_REM_INV_REQ_ERR")
}

pub(super) fn silence_ours(lab: &mut Lab) -> Result<(), LabError> {
    let terms = PairTerms::default();
    let params = QpParams { retry_limit: 2, ..terms.params.clone() };
    let pair = lab.connect(&PairTerms { params, ..terms })?;
    lab.lose(Box::new(|_, _| true));
    let message = lab.buffer(&[0; 8])?;
    lab.post(pair, SendWr::send(1, message))?;
    our_status(lab, "IBV_WC_RETRY_EXC_ERR")
}
