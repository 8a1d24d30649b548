//! How congestion control shares a simulated link of 10 Gb/s, and what loss costs.
//!
//! The table is a snapshot: a change that moves it is a change to be looked at (`cargo insta review`, or
//! `INSTA_UPDATE=always`). Beside it stand the promises that must hold whatever the numbers are.

use std::fmt::Write;

use roci_protocol::Mtu;
use roci_protocol::rc::Dialect;
use roci_protocol::rc::congestion::Algorithm;
use roci_protocol::sim::{Bottleneck, Shares, TransferOp};

const LOSSES: [f64; 3] = [0.0, 0.001, 0.01];
const CONTROLLED: [Algorithm; 2] = [Algorithm::Dcqcn, Algorithm::Delay];

fn plan(algorithm: Algorithm, senders: usize, loss: f64) -> Bottleneck {
    Bottleneck { algorithm, senders, loss, ..Bottleneck::default() }
}

fn row(table: &mut String, plan: &Bottleneck) {
    let Bottleneck { dialect, transfer, algorithm, senders, loss, .. } = plan;
    let (dialect, algorithm) = (format!("{dialect:?}"), format!("{algorithm:?}"));
    let transfer = format!("{transfer:?}");
    let Shares { utilisation, jain, overflows, stats, .. } = plan.run();
    let (goodput, loss, repeated) = (utilisation * 100.0, loss * 100.0, stats.retransmitted_packets);
    writeln!(
        table,
        "{dialect:<9}  {transfer:<5}  {algorithm:<9}  {senders:>7}  {loss:>6.1}  {goodput:>9.0}  {jain:>5.2}  {overflows:>9}  {repeated:>13}"
    )
    .expect("a String takes everything");
}

#[test]
fn the_table() {
    let mut table =
        String::from("dialect    moved  control    senders  loss %  goodput %   Jain  overflows  retransmitted\n");
    for algorithm in [Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay] {
        for senders in [1, 2, 8] {
            for loss in LOSSES {
                row(&mut table, &plan(algorithm, senders, loss));
            }
        }
    }
    for algorithm in CONTROLLED {
        for senders in [8, 32] {
            for transfer in [TransferOp::Write, TransferOp::Read] {
                row(&mut table, &Bottleneck { transfer, ..plan(algorithm, senders, 0.0) });
            }
        }
    }
    for loss in LOSSES {
        row(&mut table, &Bottleneck { dialect: Dialect::Verbs, ..plan(Algorithm::Unlimited, 1, loss) });
    }
    insta::assert_snapshot!(table);
}

#[test]
fn eight_senders_share_fairly_and_use_the_link() {
    for (algorithm, mtu, loss, seed) in cases() {
        let shares = Bottleneck { mtu, seed, ..plan(algorithm, 8, loss) }.run();
        let at = format!("{algorithm:?}, {mtu:?}, loss {loss}, seed {seed}: {shares:?}");
        assert!(shares.jain >= 0.95, "{at}");
        assert!(shares.utilisation >= 0.8, "{at}");
    }
}

fn cases() -> impl Iterator<Item = (Algorithm, Mtu, f64, u64)> {
    let with_mtu = |algorithm| [Mtu::Mtu1024, Mtu::Mtu4096].map(|mtu| (algorithm, mtu));
    let with_loss = |(algorithm, mtu)| [0.0, 0.001].map(|loss| (algorithm, mtu, loss));
    let with_seed = |(algorithm, mtu, loss)| [1, 2].map(|seed| (algorithm, mtu, loss, seed));
    CONTROLLED.into_iter().flat_map(with_mtu).flat_map(with_loss).flat_map(with_seed)
}

#[test]
fn a_late_flow_gets_a_fair_share_and_no_more() {
    for algorithm in CONTROLLED {
        let late = Bottleneck { start_within_ns: 10_000_000, ..plan(algorithm, 4, 0.0) };
        let shares = late.run();
        assert!(shares.jain >= 0.95 && shares.utilisation >= 0.8, "{algorithm:?}: {shares:?}");
    }
}

#[test]
fn selective_repeat_bears_loss() {
    for algorithm in [Algorithm::Unlimited, Algorithm::Delay] {
        let [whole, little, much] = LOSSES.map(|loss| plan(algorithm, 1, loss).run());
        assert!(little.utilisation >= 0.9 * whole.utilisation, "{algorithm:?}: {little:?}");
        assert!(much.utilisation >= 0.7 * whole.utilisation, "{algorithm:?}: {much:?}");
    }
}

#[test]
fn selective_repeat_sends_again_what_was_lost_and_little_else() {
    for loss in [0.001, 0.01] {
        let shares = plan(Algorithm::Unlimited, 1, loss).run();
        let Shares { lost, stats, .. } = shares;
        assert!(stats.retransmitted_packets <= lost + lost / 20, "{lost} lost: {stats:?}");
        assert_eq!(stats.local_ack_timeout_err, 0, "{stats:?}");
    }
}

/// 16 MiB over 10 Gb/s with a round trip of 500 us: about 600 packets are on their way.
fn far(transfer: TransferOp, message: u32, loss: f64, seed: u64) -> Shares {
    let total = 16 << 20;
    let plan = Bottleneck {
        transfer,
        message,
        total,
        loss,
        loss_back: loss,
        seed,
        propagation_ns: 250_000,
        window: 1024,
        start_within_ns: 0,
        duration_ns: 400_000_000,
        ..Bottleneck::default()
    };
    plan.run()
}

#[test]
fn loss_on_a_long_path_costs_little_time_and_few_bytes() {
    for transfer in [TransferOp::Write, TransferOp::Read] {
        for message in [16 << 20, 1 << 20, 64 << 10] {
            let whole = far(transfer, message, 0.0, 1);
            // Without loss it takes 15 ms. Where the very last packet is lost a timeout is added, of 1 to 2 ms.
            for (loss, most_ms, most_bytes) in [(0.001, 18.5, 1.05), (0.01, 22.0, 1.08)] {
                for seed in 1..=5 {
                    let shares = far(transfer, message, loss, seed);
                    let ms = shares.finished_ns.map_or(f64::MAX, |ns| ns as f64 / 1e6);
                    let bytes = shares.offered as f64 / whole.offered as f64;
                    let at = format!("{transfer:?} of {message}, loss {loss}, seed {seed}: {ms:.1} ms, x{bytes:.3}");
                    assert!(ms <= most_ms && bytes <= most_bytes, "{at}: {shares:?}");
                }
            }
        }
    }
}

#[test]
fn delay_control_survives_a_path_that_becomes_longer() {
    for (senders, transfer) in [(1, TransferOp::Write), (1, TransferOp::Read), (4, TransferOp::Write)] {
        let longer_from = Some((10_000_000, 40_000));
        let duration_ns = 200_000_000;
        let plan = Bottleneck { transfer, longer_from, duration_ns, ..plan(Algorithm::Delay, senders, 0.0) };
        let shares = plan.run();
        assert!(shares.utilisation >= 0.8 && shares.jain >= 0.95, "{senders} {transfer:?}: {shares:?}");
    }
}
