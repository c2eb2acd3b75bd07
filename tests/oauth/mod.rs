//! The authorization server, as clients and browsers see it.

mod register;
