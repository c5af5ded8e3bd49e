//! Swap: how much memory is won by it.
//!
//! # Problem
//! zram keeps in memory, compressed, what leaves memory. Where that hardly compresses a page taken from anybody frees
//! nothing, and costs the processor twice: by what is free in swap there is room for ever, by what is won there is none.
//!
//! # Terms
//! *Gain*: the part of a page that is free memory once it is in swap; all of it on a disk.
//!
//! # Algorithm
//! gain = 1 − what the data takes compressed / data stored, once [`KNOWN`] of data is stored, and a [`SAMPLE`]th of all swap; before
//! that zram counts like a disk. Below [`LEAST`] what is left there counts for no swap at all; above, for as much as it gains.
//!
//! # Properties
//! Room is never more than what is free in swap; without zram it is that; the more of the memory it takes, the less; a disk
//! behind zram counts whatever zram gains.

use ctlmgr_model::{Bytes, HostSample, Percent, Zram};

/// Less than this says nothing of how well what people have there compresses …
const KNOWN: Bytes = Bytes::mib(16);
/// … nor does less than one part in so many of all swap.
const SAMPLE: u64 = 64;
/// A gain below this is not worth what it costs.
const LEAST: Percent = Percent(25);
/// Swap counts as used up below this part of it.
const LAST: Percent = Percent(2);

/// Whether anonymous memory has anywhere to go where that frees memory.
pub(crate) fn has_swap(host: &HostSample) -> bool {
    let vain = vain_zram(host).map_or(Bytes::ZERO, |zram| zram.left);
    host.swap_free - vain > host.swap_total.scaled(LAST)
}

/// Memory that can still be won by swap of which so much must stay free.
pub(crate) fn room(host: &HostSample, to_leave: Bytes) -> Bytes {
    let free = host.swap_free - to_leave;
    let Some(zram) = host.zram else { return free };
    let next = zram.left.min(free);
    let gain = if vain_zram(host).is_some() { Percent(0) } else { gain(host, zram) };
    next.scaled(gain) + (free - next)
}

/// For people: zram that is worth nothing.
pub fn warning(host: &HostSample) -> Option<String> {
    let zram = vain_zram(host)?;
    let rest = match room(host, Bytes::ZERO) {
        Bytes::ZERO => "page cache only, as without swap".to_owned(),
        behind => format!("page cache and the {behind} of swap behind it only"),
    };
    Some(format!(
        "swap is zram, and {} of pages there take {} of memory: to swap out there frees next to nothing, so ctlmgr \
         counts on {rest}",
        zram.stored, zram.used
    ))
}

/// zram that takes about as much memory as it is given.
fn vain_zram(host: &HostSample) -> Option<Zram> {
    host.zram.filter(|zram| gain(host, *zram) < LEAST)
}

fn gain(host: &HostSample, zram: Zram) -> Percent {
    if zram.stored < KNOWN.max(Bytes(host.swap_total.0 / SAMPLE)) {
        return Percent(100);
    }
    let used = u128::from(zram.used.0) * 100 / u128::from(zram.stored.0);
    Percent(100 - u8::try_from(used).unwrap_or(100).min(100))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::host;
    use proptest::prelude::*;

    fn on_zram(stored: u64, used: u64, left: u64) -> HostSample {
        let mut host = host(Bytes::mib(1000), Vec::new(), Vec::new()).host;
        (host.swap_total, host.swap_free) = (Bytes::mib(1000), Bytes::mib(600));
        let mib = Bytes::mib;
        host.zram = Some(Zram { stored: mib(stored), used: mib(used), left: mib(left) });
        host
    }

    #[test]
    fn zram_counts_for_what_it_gains() {
        let room = |host: &HostSample| super::room(host, Bytes::ZERO).0 >> 20;
        assert_eq!(room(&on_zram(100, 40, 600)), 360);
        assert_eq!(room(&on_zram(100, 40, 500)), 400, "a disk behind it");
        let vain = on_zram(100, 98, 600);
        assert_eq!((room(&vain), has_swap(&vain)), (0, false));
        let told = |host: &HostSample, what: &str| warning(host).is_some_and(|w| w.contains(what));
        assert!(
            told(&vain, "100 MiB of pages there take 98 MiB") && told(&vain, "as without swap")
        );
        // A disk behind it has room.
        let behind = on_zram(100, 98, 200);
        assert_eq!((room(&behind), has_swap(&behind)), (400, true));
        assert!(told(&behind, "page cache and the 400 MiB of swap behind it only"));
        let little = on_zram(8, 8, 600);
        assert_eq!((room(&little), has_swap(&little), warning(&little)), (600, true, None));
    }

    proptest! {
        #[test]
        fn room_is_what_is_free_at_most_and_falls_with_what_is_used(
            stored in 0u64..1000, used in 0u64..1000, more in 0u64..100, left in 0u64..600, to_leave in 0u64..700
        ) {
            let mut host = on_zram(stored, used, left);
            let to_leave = Bytes::mib(to_leave);
            let won = room(&host, to_leave);
            prop_assert!(won <= host.swap_free - to_leave);
            prop_assert!(room(&on_zram(stored, used + more, left), to_leave) <= won);
            host.zram = None;
            prop_assert_eq!(room(&host, to_leave), host.swap_free - to_leave);
        }
    }
}
