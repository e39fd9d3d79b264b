//! One self-contained `report.html`: prose, tables and Vega-Lite charts.
//!
//! The libraries are inlined, so that a report opens offline from `file://`,
//! in ten years as well as today; a content-security policy in the page forbids
//! it any network access. Knows nothing of what the numbers mean.
//!
//! ```text
//! let mut report = Report::new("Codecs on sample.safetensors");
//! report.paragraph("Bits per value against error.").table("Results", ["codec", "bits"], rows);
//! report.chart("Rate–distortion", json!({ "data": { "values": points }, "mark": "line", … }));
//! report.write(&out.join("report.html"))?;
//! ```

use crate::{failure::Failure, output, plot::Plot, table::Table};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::{
    fmt::Write,
    io::{self, Read},
    path::Path,
};

const STYLE: &str = include_str!("report/style.css");
/// What draws charts, in the order that it loads: packed, it is a third as large in the binary.
const LIBRARIES: [&[u8]; 3] = [
    include_bytes!("../assets/vega.min.js.gz"),
    include_bytes!("../assets/vega-lite.min.js.gz"),
    include_bytes!("../assets/vega-embed.min.js.gz"),
];
const PAGE: &str = include_str!("report/page.js");

/// Vega compiles expressions with `new Function`, hence `unsafe-eval`; nothing
/// may be fetched from anywhere.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; \
                      style-src 'unsafe-inline'; img-src data: blob:";

/// Rows up to which a table lies open.
const OPEN_ROWS: usize = 14;

/// A page under construction; everything appears in the order it was added.
#[derive(Debug, Clone)]
pub struct Report {
    title: String,
    body: String,
    charts: Vec<Value>,
    /// What a click on a point shows, by its index.
    explanations: Option<Value>,
    has_tables: bool,
}

/// A row of bars: a label, its dot, the parts that fill it, and what they say.
#[derive(Debug, Clone)]
pub struct Bar {
    pub label: String,
    pub colour: &'static str,
    /// Shares of the whole width, each with its colour.
    pub parts: Vec<(f64, &'static str)>,
    pub text: String,
}

impl Report {
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            body: String::new(),
            charts: Vec::new(),
            explanations: None,
            has_tables: false,
        }
    }

    /// Starts a section.
    pub fn heading(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.element("h2", text.as_ref())
    }

    pub fn paragraph(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.element("p", text.as_ref())
    }

    pub fn paragraphs<S: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = S>) -> &mut Self {
        texts.into_iter().fold(self, |report, text| report.paragraph(text))
    }

    /// Adds the answer: sentences set apart, the first of them in large.
    pub fn answer<S: AsRef<str>>(&mut self, sentences: impl IntoIterator<Item = S>) -> &mut Self {
        let body: String =
            sentences.into_iter().map(|text| format!("<p>{}</p>\n", escape(text.as_ref()))).collect();
        if !body.is_empty() {
            self.body += &format!("<section class=\"answer\">\n{body}</section>\n");
        }
        self
    }

    /// Adds a table; columns of numbers line up at the right. A long one is
    /// folded. A reader may sort and download it.
    pub fn table<H: AsRef<str>, R: IntoIterator<Item = C>, C: AsRef<str>>(
        &mut self,
        caption: impl AsRef<str>,
        headers: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = R>,
    ) -> &mut Self {
        let head: String =
            headers.into_iter().map(|header| format!("<th>{}</th>", escape(header.as_ref()))).collect();
        let rows: Vec<String> = rows.into_iter().map(|row| format!("<tr>{}</tr>\n", cells(row))).collect();
        let open = if rows.len() <= OPEN_ROWS { " open" } else { "" };
        let count = if open.is_empty() { format!(" ({} rows)", rows.len()) } else { String::new() };
        self.body += &format!(
            "<details class=\"table\"{open}><summary>{}{count}</summary><div>\n\
             <table><thead><tr>{head}</tr></thead>\n<tbody>\n{}</tbody></table></div></details>\n",
            escape(caption.as_ref()),
            rows.concat(),
        );
        self.has_tables = true;
        self
    }

    /// As [`Report::table`], of a table as the terminal shows it.
    pub fn add(&mut self, caption: impl AsRef<str>, table: &Table) -> &mut Self {
        self.table(caption, table.headers(), table.rows())
    }

    /// Adds bars that need no script: a row for each, beneath what their
    /// colours mean.
    pub fn bars(&mut self, caption: impl AsRef<str>, keys: &[(&str, &str)], bars: &[Bar]) -> &mut Self {
        let key = |(name, colour): &(&str, &str)| {
            format!("<span><span class=\"dot\" style=\"background:{colour}\"></span>{}</span>", escape(name))
        };
        let bar = |bar: &Bar| {
            let part = |(share, colour): &(f64, &str)| {
                format!("<span style=\"width:{:.3}%;background:{colour}\"></span>", share * 100.0)
            };
            format!(
                "<div><span class=\"dot\" style=\"background:{}\"></span>{}</div><div class=\"bar\">{}</div><div>{}</div>\n",
                bar.colour,
                escape(&bar.label),
                bar.parts.iter().map(part).collect::<String>(),
                escape(&bar.text),
            )
        };
        self.body += &format!(
            "<figure class=\"split\"><figcaption>{}</figcaption><div class=\"keys\">{}</div>\n\
             <div class=\"bars\">\n{}</div></figure>\n",
            escape(caption.as_ref()),
            keys.iter().map(key).collect::<String>(),
            bars.iter().map(bar).collect::<String>(),
        );
        self
    }

    /// What a click on a point of a chart with `usermeta.explain` shows: for each
    /// index its `axes` (pairs) and `lines` (part, line, value, unit, formula).
    pub fn explanations(&mut self, explanations: Value) -> &mut Self {
        self.explanations = Some(explanations);
        self
    }

    /// Adds a chart from a Vega-Lite specification. The schema, a width that
    /// follows the page and a common look are filled in where it says nothing.
    pub fn chart(&mut self, caption: impl AsRef<str>, mut spec: Value) -> &mut Self {
        if let Some(fields) = spec.as_object_mut() {
            let composed = ["facet", "hconcat", "vconcat", "concat", "repeat"];
            let encodes_facets = fields.get("encoding").is_some_and(|encoding| {
                ["row", "column", "facet"].iter().any(|channel| encoding.get(channel).is_some())
            });
            // Vega-Lite lets only single and layered views follow their container.
            if !encodes_facets && !composed.iter().any(|key| fields.contains_key(*key)) {
                fields.entry("width").or_insert_with(|| json!("container"));
                fields.entry("height").or_insert_with(|| json!(320));
            }
            fields
                .entry("$schema")
                .or_insert_with(|| json!("https://vega.github.io/schema/vega-lite/v5.json"));
        }
        self.body += &format!(
            "<figure class=\"chart\"><figcaption>{}</figcaption><div class=\"plot\" id=\"chart-{}\"></div></figure>\n",
            escape(caption.as_ref()),
            self.charts.len(),
        );
        self.charts.push(spec);
        self
    }

    /// Adds a chart from a [`Plot`], with its static drawing for readers without scripts.
    pub fn plot(&mut self, caption: impl AsRef<str>, plot: &Plot) -> &mut Self {
        self.chart(caption, plot.vega_lite());
        self.body += &format!("<noscript>{}</noscript>\n", plot.svg());
        self
    }

    /// Adds a static picture, given as an SVG element.
    pub fn svg(&mut self, caption: impl AsRef<str>, svg: &str) -> &mut Self {
        self.body += &format!(
            "<figure class=\"picture\"><figcaption>{}</figcaption>{svg}</figure>\n",
            escape(caption.as_ref())
        );
        self
    }

    pub fn html(&self) -> io::Result<String> {
        let title = escape(&self.title);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n{}</main>\n",
            self.body
        );
        let mut script = String::new();
        if !self.charts.is_empty() {
            for library in LIBRARIES {
                page.push_str("<script>\n");
                GzDecoder::new(library).read_to_string(&mut page)?;
                page.push_str("</script>\n");
            }
            let _ = writeln!(script, "const specs = {};", inlined(&Value::from(self.charts.clone())));
        }
        if let Some(explanations) = &self.explanations {
            let _ = writeln!(script, "const explanations = {};", inlined(explanations));
        }
        if self.has_tables || !self.charts.is_empty() {
            let _ = writeln!(page, "<script>\n{script}{PAGE}</script>");
        }
        page.push_str("</body></html>\n");
        Ok(page)
    }

    /// Writes the page, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let page =
            self.html().map_err(|e| Failure::run(format!("cannot unpack the report's libraries: {e}")))?;
        output::write(path, page.as_bytes())
    }

    fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        self.body += &format!("<{tag}>{}</{tag}>\n", escape(text));
        self
    }
}

/// `<` only occurs inside JSON strings; escaped, nothing can close the script element.
fn inlined(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn cells<C: AsRef<str>>(row: impl IntoIterator<Item = C>) -> String {
    row.into_iter()
        .map(|cell| {
            let cell = cell.as_ref();
            let class = if crate::table::is_number(cell) { " class=\"number\"" } else { "" };
            format!("<td{class}>{}</td>", escape(cell))
        })
        .collect()
}

/// Text as it stands in a page or a picture.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests;
