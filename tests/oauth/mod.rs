//! The authorization server, from outside: what clients, people and attackers meet.

mod desk;

mod conformance;
mod real_clients;
mod strict_client;
