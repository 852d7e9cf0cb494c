//! Breaks the law on purpose, one way at a time, in a copy of the sources, and shows that the tests notice.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::check::Result;
use crate::hygiene;

/// One breakage: `from`, which stands once in `file`, becomes `to`.
struct Mutant {
    /// What is broken, and how.
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Words after `cargo test` that run the tests which have to fail.
    tests: &'static [&'static str],
}

const DECODE: &[&str] = &["--package", "foretoken-decode", "--test", "lossless", "--test", "requests"];
const SAMPLER: &[&str] = &["--package", "foretoken-decode", "--lib", "--test", "sampler", "--test", "lossless"];
const GRAMMAR: &[&str] = &["--package", "foretoken-decode", "--test", "constraint"];
const ACCEPTORS: &[&str] = &["--package", "foretoken-decode", "--test", "acceptors"];
const MODEL: &[&str] = &["--package", "foretoken-model", "--test", "law"];

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "acceptor: follows a guess without comparing its token",
        file: "crates/foretoken-decode/src/acceptors/coupled.rs",
        from: "walk.tree.child(node, token) else",
        to: "walk.tree.children(node).next() else",
        tests: DECODE,
    },
    Mutant {
        name: "path: keeps the parent's node in place of the accepted one",
        file: "crates/foretoken-decode/src/acceptors/walk.rs",
        from: "self.verdict.path.push(child);",
        to: "self.verdict.path.push(child - 1);",
        tests: DECODE,
    },
    Mutant {
        name: "path: a guess hangs below the anchor, whatever its parent",
        file: "crates/foretoken-decode/src/sequence.rs",
        from: "self.placed[guess.parent].expect(\"parents are chosen before children\")",
        to: "self.placed[0].expect(\"parents are chosen before children\")",
        tests: DECODE,
    },
    Mutant {
        name: "rollback: the sampler keeps tokens that were cut off",
        file: "crates/foretoken-decode/src/sampler/history.rs",
        from: "            self.leave(self.tokens.len() - 1);\n        }\n        self.tokens.pop();",
        to: "        }\n        self.tokens.pop();",
        tests: DECODE,
    },
    Mutant {
        name: "rollback: a drafter's look ahead stays in the sampler",
        file: "crates/foretoken-decode/src/sampler/draw.rs",
        from: "(0..depth).for_each(|_| self.sampler.pop());",
        to: "(1..depth).for_each(|_| self.sampler.pop());",
        tests: DECODE,
    },
    Mutant {
        name: "rollback: the cache drops accepted rows of a branch",
        file: "crates/foretoken-model/src/cache.rs",
        from: "if let Place::Staged(_) = self.place(id, node) {",
        to: "if step == 0 && matches!(self.place(id, node), Place::Staged(_)) {",
        tests: MODEL,
    },
    Mutant {
        name: "mask: a row sees one position past its own",
        file: "crates/foretoken-model/src/attend.rs",
        from: "(row.position + 1).saturating_sub",
        to: "(row.position + 2).saturating_sub",
        tests: MODEL,
    },
    Mutant {
        name: "mask: a branch reads the trunk's rows in place of its own",
        file: "crates/foretoken-model/src/attend.rs",
        from: "if (start..end).contains(&logical) {",
        to: "if i > 0 && (start..end).contains(&logical) {",
        tests: MODEL,
    },
    Mutant {
        name: "mask: end tokens are free one position early",
        file: "crates/foretoken-decode/src/sequence.rs",
        from: "let min_position = request.prompt.len() + request.min_tokens;",
        to: "let min_position = request.prompt.len() + request.min_tokens.saturating_sub(1);",
        tests: DECODE,
    },
    Mutant {
        name: "grammar: its mask is not applied",
        file: "crates/foretoken-decode/src/sampler/mod.rs",
        from: "            mask.apply(buffer);",
        to: "            let _ = mask;",
        tests: GRAMMAR,
    },
    Mutant {
        name: "grammar: it is not led back from a branch",
        file: "crates/foretoken-decode/src/constraint/follower.rs",
        from: "            self.constraint.rollback(self.taken.len() - common);",
        to: "",
        tests: GRAMMAR,
    },
    Mutant {
        name: "grammar: the mask of the token before is used again",
        file: "crates/foretoken-decode/src/constraint/follower.rs",
        from: "            self.taken.push(token);\n            self.known = None;",
        to: "            self.taken.push(token);",
        tests: GRAMMAR,
    },
    Mutant {
        name: "grammar: the text ends where it may not",
        file: "crates/foretoken-decode/src/constraint/follower.rs",
        from: "        if self.constraint.may_end() {",
        to: "        if self.constraint.may_end() || masked == Masked::Open {",
        tests: GRAMMAR,
    },
    Mutant {
        name: "grammar: forbidden guesses are run",
        file: "crates/foretoken-decode/src/sequence.rs",
        from: "            let permitted = sampler.permits(token);",
        to: "            let permitted = sampler.permits(token) || path.is_empty();",
        tests: GRAMMAR,
    },
    Mutant {
        name: "rejection: every possible sample is kept",
        file: "crates/foretoken-decode/src/acceptors/rejection.rs",
        from: "let kept = noise(Purpose::Accept) * sample.q.p(sample.token) < p.p(sample.token);",
        to: "let kept = p.p(sample.token) > 0.0;",
        tests: ACCEPTORS,
    },
    Mutant {
        name: "rejection: what takes a sample's place is drawn from p",
        file: "crates/foretoken-decode/src/acceptors/rejection.rs",
        from: "(token, p - q.p(token))",
        to: "(token, p + 0.0 * q.p(token))",
        tests: ACCEPTORS,
    },
    Mutant {
        name: "noise: samples and their acceptance share it",
        file: "crates/foretoken-decode/src/sampler/draw.rs",
        from: "sampler.noise(Purpose::Draft)",
        to: "sampler.noise(Purpose::Accept)",
        tests: ACCEPTORS,
    },
    Mutant {
        name: "noise: neighbouring positions share it",
        file: "crates/foretoken-decode/src/sampler/noise.rs",
        from: "Self(mix64(stream ^ position))",
        to: "Self(mix64(stream ^ (position & !1)))",
        tests: SAMPLER,
    },
    Mutant {
        name: "noise: choices share it",
        file: "crates/foretoken-decode/src/sampler/noise.rs",
        from: "(u64::from(choice) << 8 | purpose as u64)",
        to: "(purpose as u64)",
        tests: SAMPLER,
    },
    Mutant {
        name: "trim: one token past the end is kept",
        file: "crates/foretoken-decode/src/generation.rs",
        from: "verdict.truncate(tree, index + 1);",
        to: "verdict.truncate(tree, index + 2);",
        tests: DECODE,
    },
    Mutant {
        name: "trim: the length cap hides a stop string before it",
        file: "crates/foretoken-decode/src/generation.rs",
        from: "        detokenize.append(token, &mut self.pending);",
        to: "        if self.n_tokens == self.max_tokens {\n            return Some(FinishReason::Length);\n        }\n        detokenize.append(token, &mut self.pending);",
        tests: DECODE,
    },
    Mutant {
        name: "merge: equal tokens below other parents become one",
        file: "crates/foretoken-decode/src/tree.rs",
        from: "self.children(node).find(|&n| self.nodes[n].token == token)",
        to: "(node + 1..self.nodes.len()).find(|&n| self.nodes[n].token == token)",
        tests: DECODE,
    },
];

/// Makes every mutant whose name contains `only`, and fails if one lives.
pub fn run(only: &str) -> Result {
    let tree = hygiene::root().join("target/mutants/tree");
    copy_sources(&tree)?;
    let chosen: Vec<&Mutant> = MUTANTS.iter().filter(|mutant| mutant.name.contains(only)).collect();
    if chosen.is_empty() {
        return Err(format!("no mutant's name contains {only:?}"));
    }
    let mut alive = Vec::new();
    let mut sound: Vec<&[&str]> = Vec::new();
    for mutant in &chosen {
        if !sound.contains(&mutant.tests) {
            test(&tree, mutant.tests, false).map_err(|error| format!("the tests fail without any mutant: {error}"))?;
            sound.push(mutant.tests);
        }
        let started = Instant::now();
        let file = tree.join(mutant.file);
        let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", mutant.file))?;
        if text.matches(mutant.from).count() != 1 {
            return Err(format!("{:?}: its line is not (or no longer) once in {}", mutant.name, mutant.file));
        }
        write(&file, &text.replacen(mutant.from, mutant.to, 1))?;
        let built = test(&tree, mutant.tests, true);
        let survived = built.is_ok() && test(&tree, mutant.tests, false).is_ok();
        write(&file, &text)?;
        built.map_err(|error| format!("{:?} does not compile: {error}", mutant.name))?;
        println!(
            "{}  {}  ({:.0} s)",
            if survived { "ALIVE " } else { "caught" },
            mutant.name,
            started.elapsed().as_secs_f64()
        );
        alive.extend(survived.then_some(mutant.name));
    }
    if !alive.is_empty() {
        return Err(format!("the tests do not notice: {}", alive.join("; ")));
    }
    println!("\nall {} mutants are caught", chosen.len());
    Ok(())
}

/// The files under version control, as they are now; what has not changed keeps its time, so that little is built again.
fn copy_sources(tree: &Path) -> Result {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(hygiene::root()).output();
    let listed = listed.map_err(|error| format!("git ls-files: {error}"))?;
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (hygiene::root().join(name), tree.join(name));
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|old| old == bytes) {
            continue;
        }
        let folder = to.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        fs::write(&to, bytes).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Runs the tests, or only builds them; quiet unless building fails.
fn test(tree: &Path, words: &[&str], only_build: bool) -> Result {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg("test").args(words).current_dir(tree).env("CARGO_TARGET_DIR", tree.with_file_name("build"));
    command.args(["--quiet", "--locked"]);
    if only_build {
        command.arg("--no-run");
    }
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo test {} ({status})", words.join(" "))),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
