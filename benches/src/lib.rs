//! Only benches live here; see `benches/`.
