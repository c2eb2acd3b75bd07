//! What can be asked for: tools, their arguments, and the action string they make.
//!
//! A tool makes one literal string, word by word: words that stand in the file, and values that a closed set or a pattern
//! lets through. That keeps mistakes away from the host; the boundary is the script there.

use thiserror::Error;

/// The actions file, checked.
#[derive(Debug)]
pub struct Actions {}

/// What is wrong with an actions file, for the person who wrote it.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct Fault {
    /// What, and what to do; with a snippet where it is about YAML.
    pub message: String,
    /// The line it is about, counted from 1, where there is one.
    pub line: Option<u64>,
}

impl Actions {
    /// Reads the text of an actions file.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn parse(text: &str) -> Result<Actions, Fault> {
        let _ = text;
        Ok(Actions {})
    }

    /// The longest time that an action may take.
    pub fn longest(&self) -> std::time::Duration {
        std::time::Duration::from_secs(600)
    }
}
