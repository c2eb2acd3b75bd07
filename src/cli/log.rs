//! The log: what is going on, for operators, on standard error. No line is written before secrets were looked for in it.

use crate::redact::Redactor;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};

/// Begins to write. `RUST_LOG` says what; without it, what an operator wants to see. A panic is told of in the same way.
pub(super) fn start() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,pingora_core=error,rmcp=warn"));
    let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
    // An error means that a log was started before, which is as good.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_terminal)
        .with_writer(|| Redacting(io::stderr()))
        .try_init();
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = Backtrace::capture();
        let mut text = format!("\nthread '{}' {panic}\n", thread.name().unwrap_or("<unnamed>"));
        if backtrace.status() == BacktraceStatus::Captured {
            text.push_str(&format!("{backtrace}\n"));
        }
        // There is nobody to tell that it cannot be told.
        let _ = Redacting(io::stderr()).write_all(text.as_bytes());
    }));
}

/// Writes each text without the secrets in it. `tracing` hands over whole events.
struct Redacting<W>(W);

impl<W: Write> Write for Redacting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.0.write_all(Redactor::of_process().text(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Kept(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'w> MakeWriter<'w> for Kept {
        type Writer = Redacting<Kept>;

        fn make_writer(&'w self) -> Self::Writer {
            Redacting(self.clone())
        }
    }

    /// With colours, where the signs between a name and its value are more than one.
    #[test]
    fn an_event_is_written_whole_without_its_secrets_and_in_one_piece() {
        for is_colourful in [false, true] {
            let kept = Kept::default();
            let log = tracing_subscriber::fmt().with_writer(kept.clone()).with_ansi(is_colourful).finish();
            tracing::subscriber::with_default(log, || {
                tracing::info!(password = "hunter2", n = 3, token = %"hunter3", "a {}", "Bearer hunter4x");
            });
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();

            assert!(!text.contains("hunter") && text.matches("hmac:").count() == 3, "{text}");
            assert!(text.ends_with('\n') && text.contains('3'), "{text}");
        }
    }
}
