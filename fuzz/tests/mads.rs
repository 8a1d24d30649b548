//! The target `mads`: what is committed, random bytes, and mixtures of both.

mod common;

#[test]
fn mads() {
    bolero::check!().with_iterations(2000).for_each(roci_fuzz::mads::run);
}

#[test]
fn mads_mixed() {
    common::mix("mads", roci_fuzz::mads::run);
}
