//! Reports as one HTML file: text, tables and charts that need nothing from outside, for any program of the project.
//!
//! A [`Page`] is filled from top to bottom. Everything that is not [`Html`] is text and is escaped. Charts are drawn here,
//! as SVG, so that they show without scripts; a page may bring a script of its own for what has to move.
//!
//! ```
//! use foretoken_report::{Page, Series, Xy};
//!
//! let mut page = Page::new("Training", "a tiny model");
//! page.section("Loss");
//! let losses = vec![(1.0, 4.2), (2.0, 3.1), (3.0, 2.7)];
//! page.chart(&Xy::lines("Loss by step", "step", "nats", vec![Series::new("training", losses)]));
//! assert!(page.render().contains("<svg"));
//! ```

mod axis;
mod bars;
mod html;
mod page;
mod xy;

pub use bars::{Bar, Bars};
pub use html::{Html, escape};
pub use page::Page;
pub use xy::{Series, Xy};

/// Colours that series may have, by index: the page's style knows one for light and one for dark of each.
pub const COLOURS: usize = 12;
