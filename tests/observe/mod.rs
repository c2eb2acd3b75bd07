//! What an operator sees: a real Prometheus scrapes a gateway under traffic, and every query of every dashboard and every
//! alert is put to it.

mod alerts;
mod board;
mod draw;
mod endings;
mod names;
mod prometheus;
mod scene;
mod shown;
