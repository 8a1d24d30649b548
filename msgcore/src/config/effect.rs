//! The values in effect: those that other knobs or the arena bound.

use super::{Config, show_size};
use crate::core::credits::Rule;
use crate::receive_queues::Kind;

/// Unexpected messages take no more than this part of the arena.
pub(crate) const UNEXPECTED_SHARE: usize = 4;

impl Config {
    /// What a knob comes to where that is not its value, for each receive queue where they differ.
    pub fn in_effect(&self, name: &str) -> Option<String> {
        let effect = match name {
            "eager_threshold" => show_size(&self.rules().eager),
            "unexpected_limit" => show_size(&self.unexpected_limit.min(self.arena_size / UNEXPECTED_SHARE)),
            "credits" if self.receive_queues.is_none() => self.receive_queues().get(0)?.kind.granted().to_string(),
            "credit_preserve" => self.of_each_queue(|rule| rule.preserve.max(rule.least)),
            "credit_notify_threshold" => self.of_each_queue(|rule| rule.notify),
            _ => return None,
        };
        let value = super::KNOBS.iter().find(|knob| knob.name == name)?.value(self);
        (effect != value && !effect.is_empty()).then_some(effect)
    }

    /// Of the queues that are a peer's own: the others have no such rule.
    fn of_each_queue(&self, value: impl Fn(&Rule) -> u16) -> String {
        let of_queue = |kind: Kind| Some((kind, kind.own()?.1 as u16));
        let queues = self.receive_queues();
        let own = queues.iter().filter_map(|queue| of_queue(queue.kind));
        let rules = own.map(|(kind, reserve)| {
            Rule::of(kind, reserve.min(255), self.credit_notify_threshold, self.credit_preserve)
        });
        let mut values: Vec<_> = rules.map(|rule| value(&rule).to_string()).collect();
        values.dedup();
        values.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    fn effect(settings: &[(&str, &str)], name: &str) -> Option<String> {
        let mut config = Config::default();
        for (name, value) in settings {
            config.set(name, value, Origin::Code).expect("in range");
        }
        config.in_effect(name)
    }

    #[test]
    fn values_that_others_bound_are_shown_as_they_are_in_effect() {
        for (settings, name, expected) in [
            (&[][..], "eager_threshold", None),
            (&[], "credit_preserve", None),
            (&[], "credit_notify_threshold", Some("19")),
            (&[], "unexpected_limit", None),
            (&[], "credits", None),
            (&[("credits", "2")], "credits", Some("3")),
            (&[("credit_preserve", "1")], "credit_preserve", Some("2")),
            (&[("vbuf_size", "4KiB")], "eager_threshold", Some("4056")),
            (&[("vbuf_size", "256"), ("eager_threshold", "1MiB")], "eager_threshold", Some("54KiB")),
            (&[("credits", "16"), ("credit_preserve", "100")], "credit_preserve", Some("8")),
            (&[("receive_queues", "P,256,4:P,8KiB,64")], "credit_preserve", Some("2, 4")),
            (&[("receive_queues", "S,8KiB,64"), ("credit_preserve", "100")], "credit_preserve", None),
            (&[("credit_notify_threshold", "30")], "credit_notify_threshold", None),
            (&[("credits", "4096")], "credit_notify_threshold", Some("586")),
            (&[("arena_size", "64MiB")], "unexpected_limit", Some("16MiB")),
        ] {
            assert_eq!(effect(settings, name).as_deref(), expected, "{name} of {settings:?}");
        }
    }
}
