//! Live tests: they run as root in a guest, one after the other, and each leaves it as it was. `cargo xtask test` has them in
//! several guests.

// libtest runs tests in the order of their names: installation first, removal last, both in a guest that has never seen
// ctlmgr; and first in another, whose kernel can still empty blocks of memory, what becomes of shares when it gives them
// up. Those of many_domains need another machine.
mod a_capacity;
mod a_install;
mod b_product;
mod c_batches;
mod c_coalesce;
mod c_faults;
mod c_gate;
mod c_making;
mod c_memory;
mod c_needs;
mod c_place;
mod c_rootless;
mod c_rungs;
mod c_starts;
mod c_turns;
mod d_removal;
mod gated;
mod many_domains;
