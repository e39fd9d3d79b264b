//! Numbers as sentences have them: three digits, shares in percent, thousands apart.

/// Three significant digits.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    match magnitude {
        -4..=2 => format!("{value:.*}", (2 - magnitude).max(0) as usize),
        3..=11 => {
            let step = 10f64.powi(magnitude - 2);
            grouped((value / step).round() * step)
        }
        _ => format!("{value:.2e}"),
    }
}

/// A gain: a digit more where it is small.
pub(super) fn times(gain: f64) -> String {
    if (gain - 1.0).abs() < 0.1 { format!("{gain:.3}") } else { significant(gain) }
}

/// A count as it is, anything else in three digits.
pub(super) fn amount(value: f64) -> String {
    let whole = value.round();
    if whole >= 1.0 && (value - whole).abs() < 1e-6 * whole { grouped(whole) } else { significant(value) }
}

/// A share, with as many digits as it needs.
pub(super) fn percent(share: f64) -> String {
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
pub(super) fn chance(share: f64) -> String {
    match share {
        0.0 => "none".into(),
        1.0 => "all".into(),
        share if share < 0.01 => "less than 1 %".into(),
        share if share > 0.99 => "more than 99 %".into(),
        share => format!("{:.0} %", share * 100.0),
    }
}

/// A whole number with its thousands set apart.
pub(super) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && digit.is_ascii_digit() && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
