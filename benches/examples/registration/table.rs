//! The tables, and what follows from them.

use crate::measure::{Costs, HitRate, PLACES, Results};
use crate::show;

/// The whole document.
pub(crate) fn markdown(results: &Results, heading: &str, figure: &str) -> String {
    let costs: String = results.costs.iter().map(cost_line).collect();
    let unmaps: String = results.costs.iter().map(unmap_line).collect();
    let rates: String = results.rates.iter().map(rate_line).collect();
    let each_use = crossover(&results.costs, |costs| costs.each_use);
    let miss = crossover(&results.costs, |costs| costs.miss);
    let hit = crossover(&results.costs, |costs| costs.hit);
    format!(
        "# Registering memory, and finding it registered\n\n{heading}\n\n![Cost by size, and hits by working set]({figure})\n\nMemory of \
         the application's own must be registered before a device reads it. A [cache](internals/memory.md#registration) keeps \
         registrations beyond their use. A *hit* finds the memory registered. A *miss* is the first use of memory that was \
         mapped where other memory had been registered: it ends the old registration, and has the new one watched. Registering \
         is mlock(2) here (`ROCI_DREG_PIN=lock`). *Copied* is a copy by the processor, from memory that its caches may hold.\n\nA hit is cheaper than copying {hit}. A miss is cheaper than copying {miss}, and registering for \
         each use {each_use}.\n\n\
         ## One use, in ns\n\n| | copied | registered for each use | cache miss | cache hit |\n|---|---:|---:|---:|---:|\n\
         {costs}\n## munmap, in ns\n\n\
         | | of memory never adopted | of registered memory | of registered and watched memory |\n\
         |---|---:|---:|---:|\n{unmaps}\n## Hits of a cache of {PLACES} regions\n\n| buffers per place | used at random | \
         used in turn |\n|---|---:|---:|\n{rates}"
    )
}

/// From which size on a way is cheaper than copying.
fn crossover(costs: &[Costs], way: fn(&Costs) -> f64) -> String {
    let dearer = costs.iter().rposition(|costs| way(costs) >= costs.copy);
    match dearer.map_or(costs.first(), |last| costs.get(last + 1)) {
        Some(first) if dearer.is_none() => format!("at any size measured, from {} on", show(first.bytes)),
        Some(first) => format!("from {} on", show(first.bytes)),
        None => format!("at no size up to {}", costs.last().map_or_else(String::new, |costs| show(costs.bytes))),
    }
}

fn cost_line(costs: &Costs) -> String {
    let Costs { bytes, copy, each_use, miss, hit, .. } = costs;
    format!("| {} | {copy:.0} | {each_use:.0} | {miss:.0} | {hit:.1} |\n", show(*bytes))
}

fn unmap_line(costs: &Costs) -> String {
    let [never, registered, watched] = costs.unmap;
    format!("| {} | {never:.0} | {registered:.0} | {watched:.0} |\n", show(costs.bytes))
}

fn rate_line(rate: &HitRate) -> String {
    let HitRate { working_set, at_random, in_turn } = rate;
    format!("| {working_set:.2} | {:.1} % | {:.1} % |\n", at_random * 100.0, in_turn * 100.0)
}
