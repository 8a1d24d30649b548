//! The target `api`: what is committed, random bytes, and mixtures of both.

mod common;

#[test]
fn api() {
    bolero::check!().with_iterations(2000).for_each(roci_fuzz::api::run);
}

#[test]
fn api_mixed() {
    common::mix("api", roci_fuzz::api::run);
}
