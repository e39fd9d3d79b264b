//! Numbers as tables and sentences have them.

/// Three significant digits, without an exponent where that stays short.
pub fn significant(value: f64) -> String {
    three_digits(value, 9, |whole| format!("{whole:.0}"))
}

/// Three significant digits; `whole` writes numbers up to ten to the `longest`.
fn three_digits(value: f64, longest: i32, whole: fn(f64) -> String) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..=longest).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    if magnitude <= 2 {
        return format!("{value:.*}", (2 - magnitude) as usize);
    }
    let step = 10f64.powi(magnitude - 2);
    whole((value / step).round() * step)
}

/// A number with its thousands set apart.
pub fn grouped(number: u64) -> String {
    grouped_digits(&number.to_string())
}

/// A number rounded to a whole one, with its thousands set apart.
pub(crate) fn grouped_whole(value: f64) -> String {
    grouped_digits(&format!("{value:.0}"))
}

/// Digits of a whole number, with its thousands set apart.
fn grouped_digits(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digit.is_ascii_digit() && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits, thousands set apart.
pub(crate) fn significant_grouped(value: f64) -> String {
    three_digits(value, 11, grouped_whole)
}

/// A gain: a digit more where it is small.
pub(crate) fn times(gain: f64) -> String {
    if (gain - 1.0).abs() < 0.1 { format!("{gain:.3}") } else { significant_grouped(gain) }
}

/// A count as it is, anything else in three digits.
pub(crate) fn amount(value: f64) -> String {
    let whole = value.round();
    if whole >= 1.0 && (value - whole).abs() < 1e-6 * whole {
        grouped_whole(whole)
    } else {
        significant_grouped(value)
    }
}

/// A share, with as many digits as it needs.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value.abs() {
        0.0 => "0 %".into(),
        value if value < 0.01 => "less than 0.01 %".into(),
        size if size < 1.0 => format!("{value:.2} %"),
        size if size < 10.0 => format!("{value:.1} %"),
        _ => format!("{value:.0} %"),
    }
}

/// A share of draws: whole percents, and never certain where it is not.
pub(crate) fn chance(share: f64) -> String {
    match share {
        0.0 => "none".into(),
        1.0 => "all".into(),
        share if share < 0.01 => "less than 1 %".into(),
        share if share > 0.99 => "more than 99 %".into(),
        share => format!("{:.0} %", share * 100.0),
    }
}
