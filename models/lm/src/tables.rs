//! The embedding and the head as weights that a codec may replace: a row for
//! every token. One table is both where they are tied.

use crate::linear::Linear;
use crate::{Model, Weight};
use std::sync::Arc;

pub(crate) const EMBEDDING: &str = "embed_tokens.weight";
pub(crate) const HEAD: &str = "lm_head.weight";

impl Model {
    /// The embedding, and the head where it is another table.
    pub(crate) fn tables(&self) -> Vec<Weight> {
        let (rows, cols) = (self.config().vocab_size, self.config().hidden_size);
        let table = |name: &str, values: Vec<f32>| Weight { name: name.into(), rows, cols, values };
        match &self.embedding {
            None => vec![table(EMBEDDING, self.head.to_rows())],
            Some(embedding) => {
                vec![table(EMBEDDING, embedding.to_vec()), table(HEAD, self.head.to_rows())]
            }
        }
    }

    /// Puts other values into a table that [`Model::tables`] listed.
    pub(crate) fn replace_table(&mut self, table: &Weight) {
        match &mut self.embedding {
            Some(embedding) if table.name == EMBEDDING => *embedding = Arc::new(table.values.clone()),
            _ => self.head = Arc::new(Linear::from_rows(table.rows, table.cols, &table.values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{builtin, score};

    #[test]
    fn a_table_that_is_put_back_changes_nothing_and_another_does() {
        let (model, text) = builtin::case(512, 256);
        let scored = |model: &Model| score(model, &text, &crate::NoHooks, &|| ()).unwrap().bits_per_byte;
        for table in model.tables() {
            let mut same = model.clone();
            same.replace_table(&table);
            assert_eq!(scored(&same), scored(&model), "{}", table.name);
            let values = table.values.iter().map(|v| v * 0.5).collect();
            same.replace_table(&Weight { values, ..table.clone() });
            assert_ne!(scored(&same), scored(&model), "{}", table.name);
        }
    }
}
