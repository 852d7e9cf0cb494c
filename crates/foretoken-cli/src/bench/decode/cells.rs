//! The ways in which every prompt is answered, and in which order.

use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{AcceptorKind, Method, Request};

/// One way to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    pub method: Method,
    /// Guesses that every pass checks; `None`: as many as pay.
    pub width: Option<usize>,
    pub temperature: f32,
    /// Index of the plain one at the same temperature, which this is compared with.
    pub plain: usize,
    pub acceptor: AcceptorKind,
}

/// Every method at every width and temperature; the plain one comes first at each temperature, with the acceptor that
/// changes nothing.
pub fn cells(methods: &[Method], widths: &[usize], temperatures: &[f32], acceptor: AcceptorKind) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let widths: Vec<Option<usize>> =
        if widths.is_empty() { vec![None] } else { widths.iter().copied().map(Some).collect() };
    for &temperature in temperatures {
        let plain = cells.len();
        cells.push(Cell { method: Method::None, width: None, temperature, plain, acceptor: AcceptorKind::Coupled });
        for method in methods.iter().filter(|method| **method != Method::None) {
            for &width in &widths {
                let cell = Cell { method: method.clone(), width, temperature, plain, acceptor };
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
    }
    cells
}

impl Cell {
    /// Asks in this way.
    pub fn apply(&self, request: &Request) -> Request {
        let sampler = SamplerSettings { temperature: self.temperature, ..request.sampler.clone() };
        let mut request = Request { sampler, acceptor: self.acceptor, ..request.clone() };
        self.method.apply(self.width, &mut request);
        request
    }
}

/// One answer to give: `(prompt, cell)`.
pub type Step = (usize, usize);

/// The order of answers when drafters forget between them: prompt by prompt, and in turning order, since whoever runs first
/// finds caches cold and clocks low.
pub fn interleaved(prompts: usize, cells: usize, repeats: usize) -> Vec<Step> {
    let mut steps = Vec::with_capacity(prompts * cells * repeats);
    for prompt in 0..prompts {
        for repeat in 0..repeats {
            let turn = (prompt + repeat) % cells;
            steps.extend((0..cells).map(|i| (prompt, (i + turn) % cells)));
        }
    }
    steps
}

/// The order of answers when drafters remember: a method may not see the answers of another.
pub fn one_after_the_other(prompts: usize, cells: usize) -> Vec<Step> {
    (0..cells).flat_map(|cell| (0..prompts).map(move |prompt| (prompt, cell))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn methods(names: &[&str]) -> Vec<Method> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn plain_decoding_comes_first_at_every_temperature() {
        let words = |cells: Vec<Cell>| {
            let word = |c: &Cell| format!("{} {} {}", c.method, c.width.unwrap_or(0), c.plain);
            cells.iter().map(word).collect::<Vec<_>>()
        };
        assert_eq!(
            words(cells(&methods(&["auto", "none", "auto"]), &[], &[0.0], AcceptorKind::Coupled)),
            ["none 0 0", "auto 0 0"]
        );
        assert_eq!(words(cells(&[], &[], &[0.0], AcceptorKind::Coupled)), ["none 0 0"]);
        let all = cells(&methods(&["auto", "suffix"]), &[2, 4], &[0.0, 0.8], AcceptorKind::Rejection);
        let one = ["none 0 0", "auto 2 0", "auto 4 0", "suffix 2 0", "suffix 4 0"];
        assert_eq!(words(all[..5].to_vec()), one);
        assert_eq!(words(all[5..].to_vec()), one.map(|word| word.replace(" 0", " 5").replace("none 5", "none 0")));
    }

    #[test]
    fn everyone_has_every_place() {
        let steps = interleaved(3, 3, 1);
        let firsts: Vec<usize> = steps.iter().step_by(3).map(|step| step.1).collect();
        assert_eq!(firsts, [0, 1, 2]);
        let (mut a, mut b) = (steps, one_after_the_other(3, 3));
        a.sort_unstable();
        b.sort_unstable();
        assert_eq!(a, b);
    }
}
