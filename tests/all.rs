//! The one integration-test binary. This file is its table of contents; `tidy` sees to it that none is forgotten.

mod tidy;
