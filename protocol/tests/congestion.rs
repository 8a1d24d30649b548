//! How congestion control shares a simulated link of 10 Gb/s, and what loss costs.
//!
//! The table is a snapshot: a change that moves it is a change to be looked at (`cargo insta review`, or
//! `INSTA_UPDATE=always`). Beside it stand the promises that must hold whatever the numbers are.

use std::fmt::Write;

use roci_protocol::Mtu;
use roci_protocol::rc::Dialect;
use roci_protocol::rc::congestion::Algorithm;
use roci_protocol::sim::{Bottleneck, Shares};

const LOSSES: [f64; 3] = [0.0, 0.001, 0.01];
const CONTROLLED: [Algorithm; 2] = [Algorithm::Dcqcn, Algorithm::Delay];

fn plan(algorithm: Algorithm, senders: usize, loss: f64) -> Bottleneck {
    Bottleneck { algorithm, senders, loss, ..Bottleneck::default() }
}

fn row(table: &mut String, plan: &Bottleneck) {
    let Bottleneck { dialect, algorithm, senders, loss, .. } = plan;
    let (dialect, algorithm) = (format!("{dialect:?}"), format!("{algorithm:?}"));
    let Shares { utilisation, jain, overflows, stats, .. } = plan.run();
    let (goodput, loss, repeated) = (utilisation * 100.0, loss * 100.0, stats.retransmitted_packets);
    writeln!(
        table,
        "{dialect:<9}  {algorithm:<9}  {senders:>7}  {loss:>6.1}  {goodput:>9.0}  {jain:>5.2}  {overflows:>9}  {repeated:>13}"
    )
    .expect("a String takes everything");
}

#[test]
fn the_table() {
    let mut table = String::from("dialect    control    senders  loss %  goodput %   Jain  overflows  retransmitted\n");
    for algorithm in [Algorithm::Unlimited, Algorithm::Dcqcn, Algorithm::Delay] {
        for senders in [1, 2, 8] {
            for loss in LOSSES {
                row(&mut table, &plan(algorithm, senders, loss));
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
fn whoever_comes_late_gets_a_fair_share_and_no_more() {
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
