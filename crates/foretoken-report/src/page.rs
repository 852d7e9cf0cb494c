//! The page: its frame, style and scripts.

use serde::Serialize;

use crate::html::{Html, escape};

const STYLE: &str = include_str!("page.css");

/// Nothing from outside: a browser holds the page to it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// One report, filled from top to bottom.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: Html,
    style: String,
    scripts: String,
    in_section: bool,
}

impl Page {
    /// A page with its heading and a line below it.
    pub fn new(title: &str, about: &str) -> Self {
        let mut body = Html::text("h1", title);
        body.push(Html::text("p class=\"about\"", about));
        Self { title: title.into(), body, style: String::new(), scripts: String::new(), in_section: false }
    }

    /// Begins a section.
    pub fn section(&mut self, heading: &str) {
        self.end_section();
        self.body.0.push_str("<section>");
        self.body.push(Html::text("h2", heading));
        self.in_section = true;
    }

    fn end_section(&mut self) {
        if self.in_section {
            self.body.0.push_str("</section>\n");
        }
        self.in_section = false;
    }

    /// A paragraph of text.
    pub fn paragraph(&mut self, text: &str) {
        self.body.push(Html::text("p", text));
    }

    /// Markup.
    pub fn html(&mut self, html: impl Into<Html>) {
        self.body.push(html);
    }

    /// A chart.
    pub fn chart(&mut self, chart: impl Into<Html>) {
        self.body.push(chart);
    }

    /// A table; the first column holds words, the others numbers. It scrolls sideways by itself on a narrow screen.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        let cells = |open: &str, cells: Vec<&str>| {
            Html::element("tr", cells.into_iter().map(|cell| Html::text(open, cell)).collect::<Html>())
        };
        let mut table = Html::element("thead", cells("th", header.to_vec()));
        let rows: Html = rows.iter().map(|row| cells("td", row.iter().map(String::as_str).collect())).collect();
        table.push(Html::element("tbody", rows));
        self.body.push(Html::element("div class=\"wide\" tabindex=\"0\"", Html::element("table", table)));
    }

    /// Rules of style beside the page's own.
    pub fn style(&mut self, rules: &str) {
        self.style.push_str(rules);
    }

    /// A script at the end of the page; it finds `data` as JSON in the element of id `data`. Once a page.
    pub fn script(&mut self, code: &str, data: &impl Serialize) {
        assert!(self.scripts.is_empty(), "a page has one script");
        assert!(!code.contains("</script"), "the script is ours");
        let data = serde_json::to_string(data).expect("our values have string keys and finite numbers");
        // A string in the data shall not end the element it is in.
        let data = data.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
        self.scripts =
            format!("<script type=\"application/json\" id=\"data\">{data}</script>\n<script>{code}</script>\n");
    }

    /// The file.
    pub fn render(mut self) -> String {
        self.end_section();
        let Self { title, body, style, scripts, .. } = self;
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>{STYLE}{style}</style>\n</head>\n\
             <body>\n<main>\n{body}</main>\n{scripts}</body>\n</html>\n",
            escape(title)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bar, Bars, Series, Xy};

    fn page() -> String {
        let mut page = Page::new("A <title>", "about & around");
        page.section("Charts");
        page.paragraph("1 < 2");
        let points = vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, 3.0)];
        page.chart(&Xy::lines("L", "x", "y", vec![Series::new("a<b", points.clone()), Series::new("c", vec![])]));
        page.chart(&Xy::agreement("A", "x", "y", vec![Series::new("a", points)]));
        page.chart(&Bars::new("B", "ms", vec![("one".into(), 1)], vec![Bar::new("<i>", vec![2.5])]));
        page.table(&["what", "n"], &[vec!["<td>".into(), "1".into()]]);
        page.script("document.title;", &"</script><script>alert(1)</script>");
        page.render()
    }

    #[test]
    fn nothing_is_fetched_and_no_text_becomes_markup() {
        let page = page();
        for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "NaN", "inf"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("alert(1)</") && !page.contains("a<b") && !page.contains("<i>"));
        assert!(page.contains("A &#60;title&#62;") && page.contains("1 &#60; 2"));
    }

    #[test]
    fn every_element_that_opens_closes() {
        let page = page();
        for name in [
            "main", "section", "figure", "svg", "g", "table", "tr", "td", "th", "ul", "li", "div", "p", "title", "text",
        ] {
            let count = |tag: String| page.matches(&tag).count();
            let opened = count(format!("<{name}>")) + count(format!("<{name} "));
            assert_eq!(opened, count(format!("</{name}>")), "{name}");
        }
    }
}
