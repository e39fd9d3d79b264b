//! The explorer's page as a server hands it out: the files of `web/page`, as
//! they are. What bundles them into one file is `web/build.mjs`.

/// What the page computes with, as it is today.
pub const SOURCES: &str = env!("TRINITY_PAGE_SOURCES");

/// One file of the page.
#[derive(Debug)]
pub struct Resource {
    pub kind: &'static str,
    pub text: &'static str,
}

macro_rules! scripts {
    ($($name:literal)+) => { [$(($name, include_str!(concat!("../../../../web/page/", $name)))),+] };
}

const SCRIPTS: [(&str, &str); 12] = scripts!(
    "answers.js" "badges.js" "controls.js" "engine.js" "format.js" "main.js" "odds.js" "plot.js" "save.js" "serve.js"
    "state.js" "tensors.js"
);
const STYLE: &str = include_str!("../../../../web/page/style.css");

/// The file at a path, without the page itself.
pub fn resource(path: &str) -> Option<Resource> {
    let name = path.strip_prefix('/')?;
    if name == "style.css" {
        return Some(Resource { kind: "text/css; charset=utf-8", text: STYLE });
    }
    let (_, text) = SCRIPTS.iter().find(|(own, _)| *own == name)?;
    Some(Resource { kind: "text/javascript; charset=utf-8", text })
}

/// The page: its style and script are asked for, its model is the command.
pub fn index() -> String {
    let page = include_str!("../../../../web/page/index.html");
    page.replace("<style>/*STYLE*/</style>", "<link rel=\"stylesheet\" href=\"style.css\">")
        .replace("<script>/*SCRIPT*/</script>", "<script type=\"module\" src=\"main.js\"></script>")
        .replace("/*MODEL*/", "")
        .replace("/*SOURCES*/", SOURCES)
        .replace("script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; worker-src blob:", "script-src 'self'")
        .replace("style-src 'unsafe-inline'", "style-src 'self' 'unsafe-inline'; connect-src 'self'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_the_page_is_filled_and_its_policy_lets_it_ask_us_alone() {
        let page = index();
        assert!(!page.contains("/*"), "{page}");
        for needed in ["src=\"main.js\"", "href=\"style.css\"", "connect-src 'self'", "script-src 'self'"] {
            assert!(page.contains(needed), "no {needed} in {page}");
        }
        assert!(!page.contains("wasm"), "{page}");
    }

    #[test]
    fn every_script_that_a_script_imports_is_served() {
        let mut seen = vec!["main.js".to_string()];
        let mut at = 0;
        while let Some(name) = seen.get(at).cloned() {
            at += 1;
            let script = resource(&format!("/{name}")).unwrap_or_else(|| panic!("{name} is not served"));
            let imports = script.text.lines().filter(|line| line.starts_with("import "));
            for other in imports.filter_map(|line| line.split("\"./").nth(1)?.split('"').next()) {
                if !seen.iter().any(|own| own == other) {
                    seen.push(other.into());
                }
            }
        }
        assert!(seen.len() > 8, "{seen:?}");
        assert!(resource("/index.html").is_none() && resource("/../Cargo.toml").is_none());
    }
}
