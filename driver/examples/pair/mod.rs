//! Two engines of one process over a simulated wire, and a connected queue pair between them: what several examples begin with.

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{CompletionQueue, Engine, PdId, QpParams, QueuePair, WorkCompletion};

/// One of them.
pub(crate) struct End {
    pub(crate) engine: Engine<SimLink>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
}

/// Makes both, connected with each other as these parameters say.
pub(crate) fn connected(params: &QpParams) -> Result<[End; 2], Box<dyn std::error::Error>> {
    let (near, far) = SimLink::pair(&Clock::default());
    let (mut client, mut server) = (Engine::new(1 << 20)?, Engine::new(1 << 20)?);
    client.add_port(near, [10, 0, 0, 1].into(), true);
    server.add_port(far, [10, 0, 0, 2].into(), true);
    let (client_pd, client_cq) = (client.alloc_pd(), client.create_cq(64));
    let (server_pd, server_cq) = (server.alloc_pd(), server.create_cq(64));
    let ours = client.create_qp(0, client_pd, client_cq)?;
    let theirs = server.create_qp(0, server_pd, server_cq)?;
    // Between two processes the addresses travel out of band, or by RDMA-CM.
    let (our_address, their_address) = (client.address_of(&ours, params), server.address_of(&theirs, params));
    let client_qp = client.connect(ours, &their_address, params)?;
    let server_qp = server.connect(theirs, &our_address, params)?;
    Ok([
        End { engine: client, pd: client_pd, cq: client_cq, qp: client_qp },
        End { engine: server, pd: server_pd, cq: server_cq, qp: server_qp },
    ])
}

/// Polls both until a work request of one of them has ended.
pub(crate) fn wait(ends: &mut [End; 2], whose: usize) -> WorkCompletion {
    loop {
        for end in &mut *ends {
            end.engine.poll();
        }
        let end = &mut ends[whose];
        if let Some(done) = end.engine.poll_cq(end.cq) {
            return done;
        }
    }
}
