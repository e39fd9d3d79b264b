//! A study as one TOML file: everything that was merged into it, each value
//! with its source.
//!
//! What `trinity sweep FILE.toml` makes of the text is what the study makes of
//! itself. Names of built-in configurations inside scenarios stay names.

use super::Study;
use std::fmt::Write as _;
use trinity_config::Setting;

/// Values and tables by key, in the order they came.
#[derive(Default)]
struct Table<'a> {
    values: Vec<(&'a str, &'a Setting)>,
    tables: Vec<(&'a str, Table<'a>)>,
}

impl<'a> Table<'a> {
    fn put(&mut self, keys: &[&'a str], setting: &'a Setting) {
        let [key, deeper @ ..] = keys else { return };
        if deeper.is_empty() {
            return self.values.push((key, setting));
        }
        match self.tables.iter_mut().find(|(known, _)| known == key) {
            Some((_, table)) => table.put(deeper, setting),
            None => {
                let mut table = Self::default();
                table.put(deeper, setting);
                self.tables.push((key, table));
            }
        }
    }

    /// Whether its members are the items of an array.
    fn is_array(&self) -> bool {
        self.values.is_empty() && self.tables.iter().enumerate().all(|(at, (key, _))| *key == at.to_string())
    }

    fn write(&self, path: &str, text: &mut String) {
        for (key, setting) in &self.values {
            // Writing to memory cannot fail.
            let _ = match &setting.source {
                Some(source) => {
                    let source = source.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    writeln!(text, "{key} = {{ value = {}, source = \"{source}\" }}", setting.value)
                }
                None => writeln!(text, "{key} = {}", setting.value),
            };
        }
        for (key, table) in &self.tables {
            let deeper = if path.is_empty() { (*key).to_owned() } else { format!("{path}.{key}") };
            if table.is_array() {
                for (_, item) in &table.tables {
                    let _ = writeln!(text, "\n[[{deeper}]]");
                    item.write(&deeper, text);
                }
                continue;
            }
            if !table.values.is_empty() {
                let _ = writeln!(text, "\n[{deeper}]");
            }
            table.write(&deeper, text);
        }
    }
}

impl Study {
    /// The study as the text of one file.
    pub fn toml(&self) -> String {
        let settings = self.document.settings();
        let mut root = Table::default();
        for setting in &settings {
            root.put(&setting.path.split('.').collect::<Vec<_>>(), setting);
        }
        let mut text = format!("# {}\n", self.file.title.replace('\n', " "));
        root.write("", &mut text);
        text
    }
}
