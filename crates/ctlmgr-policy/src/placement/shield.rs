//! Of placements that are equally good, one in which those of little weight are where it is too full.
//!
//! Who takes whose place without changing overload or cost is as good a guess as any for the objective,
//! and not for them.

use super::layout::{Layout, Score};

/// Swaps equals until none of more weight is on a fuller domain than one of less.
pub(super) fn settle(layout: &mut Layout<'_>) {
    let graph = layout.graph();
    let crowded = |layout: &Layout<'_>, domain: usize| (-layout.room(domain)).max(0);
    if (0..layout.load().len()).all(|d| crowded(layout, d) == 0) {
        return;
    }
    let mut heaviest: Vec<usize> = (0..graph.units.len()).filter(|u| layout.is_free(*u)).collect();
    heaviest.sort_by_key(|u| (std::cmp::Reverse(graph.units[*u].weight), *u));
    for (place, unit) in heaviest.iter().enumerate() {
        let from = layout.at()[*unit];
        let is_equal = |other: &&usize| {
            let to = layout.at()[**other];
            graph.units[**other].weight < graph.units[*unit].weight
                && crowded(layout, to) < crowded(layout, from)
                && layout.may_be(*unit, to)
                && layout.may_be(**other, from)
                && layout.change_of_swap(*unit, **other) == Score::default()
        };
        let roomiest = heaviest[place..]
            .iter()
            .filter(is_equal)
            .min_by_key(|o| (crowded(layout, layout.at()[**o]), graph.units[**o].weight, **o));
        if let Some(other) = roomiest.copied() {
            let to = layout.at()[other];
            layout.shift(*unit, to);
            layout.shift(other, from);
        }
    }
}
