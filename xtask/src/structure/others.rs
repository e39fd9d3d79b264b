//! Files of other languages: CUDA, SystemVerilog, Python and JavaScript.
//!
//! No parser: a function begins on a line that says so and ends by its indentation, which formatters and
//! reviews keep. Parameters are counted for Rust alone: keywords make many of them readable in Python.

use super::functions::Function;
use std::path::Path;

/// The languages that are checked beside Rust, by the ending of their files.
pub const ENDINGS: [&str; 5] = ["cu", "sv", "py", "js", "cpp"];

/// Functions of a file, by its ending.
pub fn functions(path: &Path, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = begun(ending, line.trim_start())?;
        let lines = length(ending, &lines[at..]);
        Some(Function { name, line: at + 1, lines, parameters: 0 })
    });
    found.collect()
}

/// The name of the function that begins on a line.
fn begun(ending: &str, line: &str) -> Option<String> {
    let after = |words: &[&str]| {
        let rest = words.iter().fold(line, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
        let own: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (rest.len() < line.len() && !own.is_empty()).then_some(own)
    };
    match ending {
        "py" => after(&["async ", "def "]).filter(|_| line.contains("def ")),
        "js" => after(&["export ", "async ", "function "]).filter(|_| line.contains("function ")),
        "sv" => after(&["function automatic ", "task automatic ", "function ", "task "]),
        "cu" => (line.contains("__device__") || line.contains("__global__")).then(|| {
            let before = line.split('(').find(|part| !part.contains("__launch_bounds__")).unwrap_or(line);
            before.split_whitespace().last().unwrap_or("a kernel").to_owned()
        }),
        _ => None,
    }
}

/// Lines of what begins with the first.
fn length(ending: &str, lines: &[&str]) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[0]);
    let beside = |line: &&str| !line.trim().is_empty() && indent(line) <= own;
    let rest = || lines.iter().enumerate().skip(1);
    match ending {
        // The end of a long signature stands below its beginning.
        "py" => {
            let next = rest().find(|(_, line)| beside(line) && !line.trim_start().starts_with(')'));
            let end = next.map_or(lines.len(), |(at, _)| at);
            lines[..end].iter().rposition(|line| !line.trim().is_empty()).map_or(1, |at| at + 1)
        }
        "sv" => rest().find(|(_, line)| beside(line) && line.contains("end")).map_or(1, |(at, _)| at + 1),
        _ if lines[0].contains('{') && lines[0].trim_end().ends_with('}') => 1,
        _ => rest()
            .find(|(_, line)| beside(line) && line.trim_start().starts_with('}'))
            .map_or(1, |(at, _)| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(name: &str, text: &str) -> Vec<(String, usize)> {
        functions(Path::new(name), text).into_iter().map(|own| (own.name, own.lines)).collect()
    }

    #[test]
    fn functions_of_every_language_end_where_they_do() {
        let python = "class A:\n    def f(\n        self,\n    ) -> int:\n        return 1\n\n    async def g(self): ...\n\nx = 1\n";
        assert_eq!(lengths("a.py", python), [("f".into(), 4), ("g".into(), 1)]);
        let page =
            "export async function draw(a) {\n  if (a) {\n    b();\n  }\n}\nfunction c() { return 1; }\n";
        assert_eq!(lengths("a.js", page), [("draw".into(), 5), ("c".into(), 1)]);
        let kernel = "__device__ int twice(int a) {\n    return 2 * a;\n}\nextern \"C\" __global__ void __launch_bounds__(32)\nwhole(int* a) {\n    a[0] = 1;\n}\n";
        let found = lengths("a.cu", kernel);
        assert_eq!((found[0].clone(), found[1].1), (("twice".into(), 3), 4));
        let gates = "    function automatic logic f(input a);\n        f = a;\n    endfunction\n";
        assert_eq!(lengths("a.sv", gates)[0].1, 3);
    }
}
