//! How good a coded tensor has to be: one error or rate for every class, or an
//! error for each that a model stands equally well.
//!
//! Knows classes and targets; nothing of how either is measured.

use std::fmt;
use trinity_tensor::Class;
use trinity_tensor::codec::Rate;

/// The target of each class.
#[derive(Debug, Clone, PartialEq)]
pub struct Quality {
    /// The target of every class that has none of its own.
    usual: Rate,
    /// Classes with an NMSE of their own.
    own: Vec<(Class, f64)>,
    /// Bits per byte of a language model that each of those costs.
    loss: Option<f64>,
}

impl From<Rate> for Quality {
    fn from(usual: Rate) -> Self {
        Self { usual, own: Vec::new(), loss: None }
    }
}

impl Quality {
    /// An NMSE for each class at which a model loses `loss` bits per byte, and
    /// `usual` for those that no model was asked about.
    pub fn at_loss(loss: f64, own: Vec<(Class, f64)>, usual: Rate) -> Self {
        Self { usual, own, loss: Some(loss) }
    }

    /// What tensors of a class have to meet.
    pub fn of(&self, class: Class) -> Rate {
        let own = self.own.iter().find(|(of, _)| *of == class);
        own.map_or(self.usual, |(_, nmse)| Rate::Nmse(*nmse))
    }

    /// Whether it is a rate rather than an error.
    pub fn is_rate(&self) -> bool {
        matches!(self.usual, Rate::Bits(_))
    }

    /// The largest error that any class may have, where errors are what is asked for.
    pub fn worst_nmse(&self) -> Option<f64> {
        let own = self.own.iter().map(|(_, nmse)| *nmse);
        let usual = match self.usual {
            Rate::Nmse(nmse) => Some(nmse),
            _ => None,
        };
        own.chain(usual).reduce(f64::max)
    }

    /// The targets of these classes, each with the classes that have it.
    pub fn targets(&self, classes: &[Class]) -> Vec<(Rate, Vec<Class>)> {
        let mut targets: Vec<(Rate, Vec<Class>)> = Vec::new();
        for &class in classes {
            let target = self.of(class);
            match targets.iter_mut().find(|(known, _)| *known == target) {
                Some((_, of)) => of.push(class),
                None => targets.push((target, vec![class])),
            }
        }
        targets
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(loss) = self.loss else { return self.usual.fmt(f) };
        write!(f, "a loss of {loss} bits/byte")?;
        for (at, (class, nmse)) in self.own.iter().enumerate() {
            write!(f, "{} {class} at NMSE {nmse:.4}", if at == 0 { ":" } else { "," })?;
        }
        write!(f, "{} other classes at {}", if self.own.is_empty() { ":" } else { ";" }, self.usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_without_an_error_of_its_own_has_the_usual_one() {
        let quality = Quality::at_loss(0.02, vec![(Class::KvCache, 0.03)], Rate::Nmse(0.01));
        assert_eq!(quality.of(Class::KvCache), Rate::Nmse(0.03));
        assert_eq!(quality.of(Class::WeightGradient), Rate::Nmse(0.01));
        let grouped = quality.targets(&[Class::Weight, Class::KvCache, Class::WeightGradient]);
        assert_eq!(grouped[0], (Rate::Nmse(0.01), vec![Class::Weight, Class::WeightGradient]));
        assert_eq!(grouped.len(), 2);
        let said = quality.to_string();
        assert_eq!(said, "a loss of 0.02 bits/byte: kv-cache at NMSE 0.0300; other classes at NMSE 0.01");
        assert_eq!(Quality::from(Rate::Nmse(0.01)).to_string(), Rate::Nmse(0.01).to_string());
    }
}
