//! A source file as the checks see it: comments, literals and tests blanked
//! out, every line where it was. Knows Rust's tokens; knows nothing of modules.

/// The code alone: comments and literals become spaces, line ends stay.
pub fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let length = match literal(&bytes[at..], at.checked_sub(1).map(|before| bytes[before])) {
            Some(length) => length,
            None => {
                out.push(bytes[at]);
                at += 1;
                continue;
            }
        };
        let end = (at + length).min(bytes.len());
        out.extend(bytes[at..end].iter().map(|&b| if b == b'\n' { b } else { b' ' }));
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Length of the comment or literal that starts here, if one does.
fn literal(rest: &[u8], before: Option<u8>) -> Option<usize> {
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(comment_length(rest));
    }
    let in_word = before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    let raw = if rest.starts_with(b"br") { 2 } else { usize::from(rest[0] == b'r') };
    if raw > 0 && !in_word {
        let hashes = rest[raw..].iter().take_while(|&&b| b == b'#').count();
        if rest.get(raw + hashes) == Some(&b'"') {
            let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            let body = raw + hashes + 1;
            let length = rest[body..].windows(end.len()).position(|w| w == end);
            return Some(length.map_or(rest.len(), |length| body + length + end.len()));
        }
    }
    match rest[0] {
        b'"' => Some(quoted_length(rest, b'"')),
        // A lifetime has no closing quote two or three characters on.
        b'\'' if rest.get(1) == Some(&b'\\') => Some(quoted_length(rest, b'\'')),
        b'\'' => (2..=5)
            .find(|&n| rest.get(n) == Some(&b'\''))
            .filter(|&n| std::str::from_utf8(&rest[1..n]).is_ok_and(|text| text.chars().count() == 1))
            .map(|n| n + 1),
        _ => None,
    }
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Block comments nest.
fn comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

pub fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let rest = &out[start..];
        let item = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        let length =
            if rest.as_bytes()[item] == b'{' { item + block_length(&rest[item..]) } else { item + 1 };
        let blank: String = rest[..length].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        out.replace_range(start..start + length, &blank);
    }
    out
}

/// Length of the bracketed text that starts here.
pub fn block_length(code: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_in_literals_and_comments_do_not_count() {
        let text = "fn a<'x>() { let b = '{'; /* } /* { */ */ let c = r#\"}\"#; let d = \"\\\"}\"; } // }\nfn e() {}";
        let code = code(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.matches('}').count(), 2, "{code}");
        assert!(code.contains("fn a<'x>() {"));
        assert_eq!(code.find("fn e"), text.find("fn e"));
    }

    #[test]
    fn tests_leave_blank_lines() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let left = without_tests(code);
        assert_eq!(left.lines().count(), code.lines().count());
        assert!(!left.contains("fn b") && left.contains("fn c"));
    }
}
