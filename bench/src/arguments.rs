//! `--name value` on the command line of these tools.

use std::collections::BTreeMap;
use std::str::FromStr;

/// The arguments, by name.
pub struct Arguments(BTreeMap<String, String>);

impl Arguments {
    /// Reads this process's own. A name without a value is a mistake.
    pub fn read() -> anyhow::Result<Arguments> {
        let mut given = std::env::args().skip(1);
        let mut arguments = BTreeMap::new();
        while let Some(name) = given.next() {
            let Some(name) = name.strip_prefix("--") else {
                anyhow::bail!("`{name}` is no argument; they are written --name value");
            };
            let value = given.next().ok_or_else(|| anyhow::anyhow!("--{name} has no value"))?;
            arguments.insert(name.to_owned(), value);
        }
        Ok(Arguments(arguments))
    }

    /// The value of `name`, where it was given. Each is taken once.
    pub fn take<T: FromStr>(&mut self, name: &str) -> anyhow::Result<Option<T>> {
        let Some(text) = self.0.remove(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| anyhow::anyhow!("--{name} {text}: not a value for it"))
    }

    /// Complains of what nobody took.
    pub fn end(self) -> anyhow::Result<()> {
        match self.0.keys().next() {
            Some(name) => anyhow::bail!("there is no --{name}"),
            None => Ok(()),
        }
    }
}
