//! The command as a user meets it: exit codes, help, pipes.

mod help;
mod support;
