//! The authorization server, from outside: what clients, people and attackers meet.

/// Every page in every state.
mod gallery;

mod pages;
