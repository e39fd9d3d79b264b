//! Files of other languages: CUDA, SystemVerilog, Python and JavaScript.
//!
//! No parser: a function begins on a line that says so and ends by its indentation, which formatters and
//! reviews keep. Parameters are counted in Python, but for those that go by their names, and in JavaScript; a function of
//! a kernel is part of its caller and takes the caller's registers one by one.

use super::functions::Function;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The languages that are checked beside Rust, by the ending of their files.
pub const ENDINGS: [&str; 5] = ["cu", "sv", "py", "js", "cpp"];

pub fn functions(path: &Path, text: &str) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
    let found = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = begun(ending, line.trim_start())?;
        let parameters = if ["py", "js"].contains(&ending) { parameters(&lines[at..]) } else { 0 };
        Some(Function { name, line: at + 1, lines: length(ending, &lines[at..]), parameters })
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
        "sv" => after(&["function automatic ", "task automatic ", "function ", "task "]).and_then(|_| {
            // What comes back stands before the name.
            line.split(['(', ';']).next()?.split_whitespace().last().map(String::from)
        }),
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

/// Parameters of the function whose signature begins on the first line, up to those that go by their names alone.
fn parameters(lines: &[&str]) -> usize {
    let (mut depth, mut own, mut all) = (0, String::new(), Vec::new());
    for letter in lines.iter().flat_map(|line| line.chars().chain(['\n'])) {
        match letter {
            ')' | ']' | '}' if depth == 1 => break,
            ')' | ']' | '}' => depth -= 1,
            '(' | '[' | '{' => depth += 1,
            ',' if depth == 1 => all.push(std::mem::take(&mut own)),
            _ if depth > 0 => own.push(letter),
            _ => {}
        }
    }
    all.push(own);
    let all = all.iter().map(|own| own.trim()).take_while(|own| !own.starts_with('*'));
    all.filter(|own| !["", "/", "self", "cls"].contains(own)).count()
}

/// The files among those known that a file of Python or JavaScript imports from, wherever in it.
pub fn imports(path: &Path, text: &str, known: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let folder = path.parent().unwrap_or(path);
    let python = path.extension().is_some_and(|ending| ending == "py");
    let found: Vec<PathBuf> = if python {
        let lines: Vec<&str> = text.lines().collect();
        // A package that stands in none: where a place that begins with its name is looked for.
        let is_top = |above: &&Path| {
            known.contains(&above.join("__init__.py"))
                && above.parent().is_some_and(|around| !known.contains(&around.join("__init__.py")))
        };
        let top = folder.ancestors().find(is_top);
        let places = (0..lines.len()).flat_map(|at| python_import(&lines[at..], folder, top));
        // A name is a module of a package, or what the package's own file defines; a compiled one has a stub.
        let file = |module: &Path| {
            let files =
                [module.with_extension("py"), module.with_extension("pyi"), module.join("__init__.py")];
            files.into_iter().find(|file| known.contains(file))
        };
        places.filter_map(|(base, name)| file(&base.join(name)).or_else(|| file(&base))).collect()
    } else {
        let quoted = |line: &str| Some(line.split_once(" from \"./")?.1.split_once('"')?.0.to_owned());
        text.lines().filter_map(quoted).map(|name| folder.join(name)).collect()
    };
    found.into_iter().filter(|file| known.contains(file) && file != path).collect()
}

/// The places and names that `from PLACE import NAMES` at the first line names; places as paths.
fn python_import(lines: &[&str], folder: &Path, top: Option<&Path>) -> Vec<(PathBuf, String)> {
    let Some((place, rest)) =
        lines[0].trim_start().strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
    else {
        return Vec::new();
    };
    let names = if rest.starts_with('(') {
        let whole = [rest].into_iter().chain(lines[1..].iter().copied());
        let mut open = true;
        let inside =
            whole.take_while(|line| std::mem::replace(&mut open, !line.contains(')')) && !line.is_empty());
        inside.collect::<Vec<&str>>().join(" ")
    } else {
        rest.to_owned()
    };
    let module = place.trim_start_matches('.');
    let dots = place.len() - module.len();
    let own = if dots > 0 {
        folder.ancestors().nth(dots - 1)
    } else {
        let first = module.split('.').next().unwrap_or(module);
        top.filter(|top| top.ends_with(first)).and_then(Path::parent)
    };
    let Some(own) = own else { return Vec::new() };
    let base =
        module.split('.').filter(|part| !part.is_empty()).fold(own.to_owned(), |at, part| at.join(part));
    let words = names.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ' ');
    let names = words.filter_map(|word| word.split_whitespace().next());
    names.map(|name| (base.clone(), name.to_owned())).collect()
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
        let wide = "def f(self, a, b: dict[str, int] = {},\n      c=(1, 2), *, d, e): ...\ndef g(a): ...\n";
        let found: Vec<usize> =
            functions(Path::new("a.py"), wide).iter().map(|function| function.parameters).collect();
        assert_eq!(found, [3, 1]);
        let gates = "    function automatic logic f(input a);\n        f = a;\n    endfunction\n";
        assert_eq!(lengths("a.sv", gates), [("f".into(), 3)]);
    }

    #[test]
    fn imports_of_python_and_of_pages_are_followed_to_their_files() {
        let files = [
            "p/__init__.py",
            "p/_a.py",
            "p/_core.pyi",
            "p/q/__init__.py",
            "p/q/_b.py",
            "page/x.js",
            "page/y.js",
        ];
        let known: BTreeSet<PathBuf> = files.iter().map(PathBuf::from).collect();
        let of = |path: &str, text: &str| -> Vec<String> {
            let found = imports(Path::new(path), text, &known);
            found.iter().map(|file| file.display().to_string()).collect()
        };
        assert_eq!(of("p/_a.py", "from . import _core, q\n"), ["p/_core.pyi", "p/q/__init__.py"]);
        let text =
            "def f():\n    from .. import (\n        _a as a,\n        _core,\n    )\nfrom numpy import _b\n";
        assert_eq!(of("p/q/_b.py", text), ["p/_a.py", "p/_core.pyi"]);
        assert_eq!(of("p/q/_b.py", "from .. import Error\n"), ["p/__init__.py"]);
        assert_eq!(of("p/q/_b.py", "from p._a import f\n"), ["p/_a.py"]);
        // Another's package of the name that a folder here has.
        assert!(of("p/q/_b.py", "from q import _b, __init__\n").is_empty());
        assert_eq!(
            of("page/x.js", "import { f } from \"./y.js\";\nimport z from \"./w.js\";\n"),
            ["page/y.js"]
        );
    }
}
