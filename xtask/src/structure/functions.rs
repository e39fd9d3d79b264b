//! Functions of a file: how long they are and how much they ask for.

use super::source::block_length;

/// One function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Counted from 1.
    pub line: usize,
    /// Lines from its signature to its closing brace.
    pub lines: usize,
    /// `self` is one of them, as clippy counts.
    pub parameters: usize,
}

/// All functions with a body, nested ones included.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        if code[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[start..];
        let name: String = rest[3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = rest.find('(').filter(|_| !name.is_empty()) else { continue };
        let open = after_generics(rest, 3 + name.len()).unwrap_or(open);
        let list = &rest[open..open + block_length(&rest[open..])];
        let after = open + list.len();
        let Some(body) = rest[after..].find(['{', ';']).map(|at| after + at) else { continue };
        if rest.as_bytes()[body] == b';' {
            continue;
        }
        let end = body + block_length(&rest[body..]);
        found.push(Function {
            name,
            line: code[..start].matches('\n').count() + 1,
            lines: rest[..end].matches('\n').count() + 1,
            parameters: parameters(&list[1..list.len() - 1]),
        });
    }
    found
}

/// Where the parameters open, behind generics that may have parentheses of their own.
fn after_generics(rest: &str, name_end: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (at, byte) in rest.bytes().enumerate().skip(name_end) {
        match byte {
            b'<' => depth += 1,
            b'>' if rest.as_bytes()[at - 1] != b'-' => depth -= 1,
            b'(' if depth == 0 => return Some(at),
            _ => {}
        }
    }
    None
}

/// Commas outside all brackets, and what follows the last.
fn parameters(list: &str) -> usize {
    let (mut depth, mut count, mut pending) = (0i32, 0, false);
    let mut before = ' ';
    for c in list.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            ',' if depth == 0 => {
                count += usize::from(pending);
                pending = false;
                before = c;
                continue;
            }
            _ => {}
        }
        pending |= !c.is_whitespace();
        before = c;
    }
    count + usize::from(pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_parameters_are_counted() {
        let code = "impl A {\n    fn b<F: Fn(u8, u8) -> u8>(\n        &self,\n        c: (u8, u8),\n        f: F,\n    ) -> u8 {\n        0\n    }\n    fn d();\n}\n";
        let expected = Function { name: "b".into(), line: 2, lines: 7, parameters: 3 };
        assert_eq!(functions(code), [expected]);
    }
}
