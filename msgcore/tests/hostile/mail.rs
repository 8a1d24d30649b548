//! Mail that no worker would write.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// A line of mail with something of the protocol in it; `address` is one that could be connected.
pub(crate) fn nonsense(dice: &mut StdRng, address: &str) -> String {
    let verb = ["ask", "grant", "refuse", "knock", "gone", "hello", "", "ASK"].choose(dice).expect("some");
    let rest = match dice.random_range(0..7) {
        0 => String::new(),
        1 => address.to_owned(),
        2 => [address; 9].join(";"),
        3 => format!("{address};"),
        4 => spoiled(dice, address),
        5 => "crossed".to_owned(),
        _ => (0..dice.random_range(0..60)).map(|_| dice.random_range(' '..='~')).collect(),
    };
    format!("{verb} {rest}")
}

/// An address with another word in it.
fn spoiled(dice: &mut StdRng, address: &str) -> String {
    let mut words: Vec<&str> = address.split(' ').collect();
    let at = dice.random_range(0..words.len());
    words[at] = ["0", "1", "255", "256", "16777215", "16777216", "-1", "::1", "10.0.0.1", "ff:ff:ff:ff:ff:ff", "8192"]
        .choose(dice)
        .expect("some");
    words.join(" ")
}
