//! Live tests: each runs in the guest as root, one after the other, on a fresh boot state.

// libtest runs tests in the order of their names: installation first, removal last.
mod a_install;
mod b_product;
mod c_faults;
mod d_removal;
