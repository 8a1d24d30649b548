//! Many connections at once: rdma-core's `cmtime` makes them all, and then ends them all.

use std::collections::{BTreeMap, BTreeSet};

use roci_driver::{CmEvent, ConnId, Ending, QueuePair};

use super::connected::expect;
use super::manager::{PORT, ask, ended, event, prepare, service, start, start_listener, until};
use crate::LabError;
use crate::lab::{Lab, V4};

const CROWD: usize = 40;

/// Which connections have come how far.
#[derive(Default)]
struct Crowd {
    open: BTreeMap<ConnId, QueuePair>,
    over: BTreeMap<ConnId, Ending>,
    forgotten: BTreeSet<ConnId>,
}

impl Crowd {
    /// Lets things happen until `is_enough`.
    fn go_on(&mut self, lab: &mut Lab, is_enough: fn(&Self) -> bool) -> Result<(), LabError> {
        while !is_enough(self) {
            match event(lab)? {
                CmEvent::Request { id, place, .. } => {
                    prepare(lab, id, place)?;
                    lab.engine.cm_accept(id, &[])?;
                }
                CmEvent::Replied { id, .. } => lab.engine.cm_confirm(id)?,
                CmEvent::Established { id, qp } => expect("a second opening", self.open.insert(id, qp), None)?,
                CmEvent::Disconnected { id, ending } if self.open.contains_key(&id) => {
                    expect("a second end", self.over.insert(id, ending), None)?;
                }
                CmEvent::TimewaitExit { id } if self.over.contains_key(&id) => {
                    expect("that it was known until now", self.forgotten.insert(id), true)?;
                }
                other => return Err(format!("out of turn: {other:?}").into()),
            }
        }
        Ok(())
    }

    fn all_open(&self) -> bool {
        self.open.len() == CROWD
    }

    fn all_forgotten(&self) -> bool {
        self.forgotten.len() == CROWD
    }

    /// All have ended in this way; their queue pairs go.
    fn disperse(self, lab: &mut Lab, due: Ending) -> Result<(), LabError> {
        self.open.into_values().for_each(|qp| lab.engine.destroy_qp(qp));
        self.over.into_values().try_for_each(|ending| expect("the end", ending, due))
    }
}

/// `cmtime -s` connects all, then disconnects all. Its status is 0 even where connections fail.
pub(super) fn server(lab: &mut Lab) -> Result<(), LabError> {
    let mut crowd = Crowd::default();
    lab.engine.cm_listen(service())?;
    start(lab, &format!("cmtime -s {} -p {PORT} -c {CROWD}", V4.ours))?;
    crowd.go_on(lab, Crowd::all_open)?;
    lab.engine.cm_unlisten(service());
    crowd.go_on(lab, Crowd::all_forgotten)?;
    crowd.disperse(lab, Ending::ByPeer)?;
    let output = ended(lab)?;
    let is_content = output.contains("rc=0") && output.contains("destroy") && !complains(&output);
    expect("that it is content", is_content, true).map_err(|_| output.into())
}

/// `cmtime` grants what is asked for until it is killed; what it complains about is all that it has printed by then.
pub(super) fn client(lab: &mut Lab) -> Result<(), LabError> {
    let mut crowd = Crowd::default();
    start_listener(lab, &format!("cmtime -b {} -p {PORT} -c {CROWD}", V4.theirs))?;
    for _ in 0..CROWD {
        ask(lab, V4, &[])?;
    }
    crowd.go_on(lab, Crowd::all_open)?;
    for id in crowd.open.keys() {
        lab.engine.cm_disconnect(*id, &[])?;
    }
    crowd.go_on(lab, Crowd::all_forgotten)?;
    crowd.disperse(lab, Ending::Confirmed)?;
    expect_alone(lab)?;
    lab.run("kill $(pidof cmtime)")?;
    let output = ended(lab)?;
    let is_content = output.contains("rc=143") && !complains(&output);
    expect("that it is content until it is killed", is_content, true).map_err(|_| output.into())
}

/// Of all that the guest's program had, there is only what listens.
fn expect_alone(lab: &mut Lab) -> Result<(), LabError> {
    lab.run(&until("[ $(rdma resource show cm_id | grep -c cmtime) = 1 ]"))?;
    let left = lab.run("rdma resource show cm_id | grep cmtime; rdma resource show qp | grep cmtime; true")?;
    let is_alone = left.lines().count() == 1 && left.contains("LISTEN");
    expect("that nothing is left", is_alone, true).map_err(|failure| format!("{failure}: {left}").into())
}

/// Its complaints begin with what failed, and name events.
fn complains(output: &str) -> bool {
    ["fail", "error", "event:"].iter().any(|word| output.contains(word))
}
