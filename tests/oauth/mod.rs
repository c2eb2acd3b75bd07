//! The authorization server, from outside: what clients, people and attackers meet.

mod real_clients;
