//! The target `frames`: what is committed, random bytes, and mixtures of both.

mod common;

#[test]
fn frames() {
    bolero::check!().with_iterations(2000).for_each(roci_fuzz::frames::run);
}

#[test]
fn frames_mixed() {
    common::mix("frames", roci_fuzz::frames::run);
}
