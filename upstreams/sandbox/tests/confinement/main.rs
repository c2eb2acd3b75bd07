//! Commands in the real confinement: bubblewrap, seccomp, Landlock, cgroups, as the user that the gateway would run them
//! as. Where these tests run as root, they hand the folder over as the gateway does.

/// A process that confines commands, as the sandbox upstream does.
mod world;

/// What commands take of a disk, and what the others keep.
mod disk;
/// How commands end.
mod ends;
/// What is left of commands: nothing.
mod leftovers;
/// What commands can reach, where they can reach anything.
mod network;
/// What is one for all users of a kernel, or for all processes of one user.
mod shared;
/// What commands cannot do, and its allowed twin.
mod walls;
/// Real work.
mod work;
