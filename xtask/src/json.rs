//! What programs say as JSON, as far as chores need it: a member by its key, no parser.

/// What stands behind a key: a text without its quotes, or a number. Nothing where the key is not there, or the text has
/// signs that JSON escapes.
pub fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let value = text.split_once(&format!("\"{key}\":"))?.1.trim_start();
    match value.strip_prefix('"') {
        Some(value) => value.split_once('"').map(|(value, _)| value).filter(|value| !value.contains('\\')),
        None => value.split([',', '}', '\n']).next().map(str::trim_end),
    }
}
