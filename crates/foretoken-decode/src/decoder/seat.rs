//! A drafter's place in the loop: who asks for it, what came of it.

use crate::budget::{CostModel, DraftCostModel};
use crate::drafters::{Drafter, Retired};
use crate::target::Target;
use crate::trace::Drafting;

/// What came of a drafter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrafterStats {
    /// The drafter's name.
    pub name: &'static str,
    /// Guesses proposed.
    pub proposed: usize,
    /// Of these, tokens that a request's constraint forbids, and what hung below them.
    pub forbidden: usize,
    /// Of the others, tokens outside the vocabulary or chances that are no number.
    pub nonsense: usize,
    /// Of these, too many or too deep.
    pub over_limit: usize,
    /// Sequences it gave up, by reason.
    pub retired: Vec<Retired>,
}

/// A drafter and its books.
pub(super) struct Seat<T: Target> {
    pub drafter: Box<dyn Drafter<T>>,
    pub stats: DrafterStats,
    /// Whether requests that name no drafters ask it.
    pub by_default: bool,
    /// What its drafting takes.
    pub cost: DraftCostModel,
    /// Seconds saved up to ask it although it does not seem to pay.
    pub probing: f64,
    /// Whether drafting takes next to no time, so that it is asked without being weighed.
    pub quick: bool,
    /// What drafting took in this pass, and the seconds that it was expected to take.
    pub spent: Drafting,
    pub predicted: f64,
}

impl<T: Target> Seat<T> {
    pub fn new(drafter: Box<dyn Drafter<T>>, by_default: bool, cost: &CostModel) -> Self {
        let stats = DrafterStats { name: drafter.name(), ..DrafterStats::default() };
        let cost = Self::cost_model(&*drafter, cost);
        Self { drafter, stats, by_default, cost, probing: 0.0, quick: true, spent: Drafting::default(), predicted: 0.0 }
    }

    /// Forgets what its drafting takes, but for what `cost` says.
    pub fn reset_cost(&mut self, cost: &CostModel) {
        self.cost = Self::cost_model(&*self.drafter, cost);
        self.probing = 0.0;
    }

    fn cost_model(drafter: &dyn Drafter<T>, cost: &CostModel) -> DraftCostModel {
        let prior = cost.table().draft.get(drafter.name()).copied().unwrap_or_else(|| drafter.cost());
        DraftCostModel::new(prior, cost.is_fixed())
    }
}
