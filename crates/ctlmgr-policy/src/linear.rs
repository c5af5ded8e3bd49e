//! The solver of linear and integer programs behind good_lp.

#[cfg(feature = "highs")]
pub(crate) use good_lp::highs as solver;
#[cfg(not(feature = "highs"))]
pub(crate) use good_lp::microlp as solver;
