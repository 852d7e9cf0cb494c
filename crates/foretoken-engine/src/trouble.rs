//! Drafters that do not work: requests go on without their guesses, and whoever runs the program is told once of each.

use std::collections::HashSet;

use foretoken_decode::DrafterStats;

/// What is wrong with a drafter, and how many guesses or texts it was wrong with.
pub fn troubles(stats: &DrafterStats) -> impl Iterator<Item = (&'static str, usize)> {
    let nonsense = ("its guesses are no tokens, or their chances no numbers", stats.nonsense);
    let retired = stats.retired.iter().map(|retired| (retired.reason, retired.sequences));
    std::iter::once(nonsense).chain(retired).filter(|&(_, times)| times > 0)
}

/// Remembers what was told.
#[derive(Debug, Default)]
pub(crate) struct Told(HashSet<(&'static str, &'static str)>);

impl Told {
    /// Warns of what is new.
    pub fn warn<'a>(&mut self, drafters: impl Iterator<Item = &'a DrafterStats>) {
        for stats in drafters {
            for (reason, _) in self.news(stats) {
                tracing::warn!(drafter = stats.name, "guesses are left out, and the text goes on without: {reason}");
            }
        }
    }

    fn news(&mut self, stats: &DrafterStats) -> impl Iterator<Item = (&'static str, usize)> {
        troubles(stats).filter(|(reason, _)| self.0.insert((stats.name, reason)))
    }
}

#[cfg(test)]
mod tests {
    use foretoken_decode::drafters::Retired;

    use super::*;

    #[test]
    fn each_trouble_is_news_once() {
        let mut told = Told::default();
        let mut stats = DrafterStats { name: "draft_model", ..DrafterStats::default() };
        assert_eq!(told.news(&stats).count(), 0);
        stats.retired.push(Retired { reason: "its cache is full", sequences: 2 });
        assert_eq!(told.news(&stats).collect::<Vec<_>>(), [("its cache is full", 2)]);
        stats.nonsense = 3;
        assert_eq!(told.news(&stats).map(|(_, times)| times).collect::<Vec<_>>(), [3]);
        assert_eq!(told.news(&stats).count(), 0);
        stats.name = "suffix";
        assert_eq!(told.news(&stats).count(), 2);
    }
}
