//! Settings, texts, files and arguments that cannot be: each by its name, with its value and what could be.

use super::Work;

/// A setting, its value, and what is said of it besides both; nothing where the setting is one that does not exist.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("run.steps", "0", "at least 1"),
    ("run.steps", "9223372036854775807", "countable"),
    ("run.windows", "0", "at least 1"),
    ("run.windows", "99999999999", "run.accumulate makes larger steps"),
    ("run.accumulate", "0", "at least 1"),
    ("run.accumulate", "9999999999999", "at most 67108864"),
    ("run.log_every", "0", "at least 1"),
    ("run.evaluate_windows", "0", "run.evaluate_every = 0"),
    ("run.checkpoint_every", "0", "at least 1"),
    ("run.give_up_after", "0", "at least 1"),
    ("run.device", "\"cuda\"", "--features cuda"),
    ("model.vocabulary", "0", "2 to 65536"),
    ("model.vocabulary", "65537", "2 to 65536"),
    ("model.vocabulary", "100", "has a token of"),
    ("model.width", "0", "a multiple of 16 times attention_heads"),
    ("model.width", "40", "a multiple of 16 times attention_heads"),
    ("model.layers", "0", "more than 0"),
    ("model.attention_heads", "0", "at least 1"),
    ("model.kv_heads", "0", "a divisor of attention_heads"),
    ("model.kv_heads", "3", "a divisor of attention_heads"),
    ("model.feed_forward", "0", "at least 1"),
    ("model.context", "0", "1 to 1048576"),
    ("model.context", "9999999999", "1 to 1048576"),
    ("model.rope_theta", "nan", "above 0"),
    ("model.rope_theta", "0.0", "above 0"),
    ("model.norm_eps", "-1.0", "at least 0"),
    ("model.norm_eps", "inf", "at least 0"),
    ("model.heads.n", "0", "1 to 16"),
    ("model.heads.n", "17", "1 to 16"),
    ("loss.lambda", "-1.0", "at least 0"),
    ("loss.lambda", "nan", "at least 0"),
    ("loss.lambda", "inf", "at least 0"),
    ("loss.late_lambda", "-1.0", "at least 0"),
    ("loss.late_from", "3.0", "0 to 1"),
    ("loss.weights.given", "[1.0]", "2 weights, one for each head behind the first"),
    ("loss.weights.given", "[1.0, nan]", "at least 0"),
    ("loss.weights.given", "[0.0, 0.0]", "not all of them 0"),
    ("loss.weights.given", "[3e38, 3e38]", "their sum"),
    ("loss.weights.geometric", "0.0", "above 0"),
    ("loss.curriculum.forward", "2.0", "0 to 1"),
    ("loss.curriculum.reverse", "nan", "0 to 1"),
    ("optimiser.learning_rate", "0.0", "above 0"),
    ("optimiser.learning_rate", "-0.1", "above 0"),
    ("optimiser.learning_rate", "nan", "above 0"),
    ("optimiser.learning_rate", "inf", "above 0"),
    ("optimiser.decay", "1.5", "0 to 1"),
    ("optimiser.final_rate", "2.0", "0 to 1"),
    ("optimiser.momentum", "1.0", "1 excluded"),
    ("optimiser.betas", "[1.0, 0.9]", "1 excluded"),
    ("optimiser.eps", "nan", "at least 0"),
    ("optimiser.weight_decay", "-1.0", "at least 0"),
    ("optimiser.clip", "nan", "at least 0"),
    ("data.held_out", "1.5", "0 to 1"),
    ("data.held_out", "nan", "0 to 1"),
    ("data.max_seen", "2.0", "0 to 1"),
    ("data.max_bytes", "10", "every text would be left out"),
    ("data.bpe", "100", "257 to 65535"),
    ("data.bpe", "300", "as data.bpe says"),
];

/// Settings of the wrong name or type, and what the parser says.
const MISSPELT: &[(&str, &str, &[&str])] = &[
    ("los", "1", &["los", "loss"]),
    ("run.step", "3", &["step", "steps"]),
    ("run.steps", "-1", &["steps = -1"]),
    ("run.steps", "\"many\"", &["many", "u64"]),
    ("run.device", "\"gpu\"", &["gpu", "cpu"]),
    ("run.precision", "\"fp16\"", &["fp16", "bf16"]),
    ("model.heads.kin", "1", &["kin", "kind"]),
    ("model.heads.n", "1.5", &["1.5"]),
    ("model.heads.kind", "\"resblok\"", &["resblok", "resblock"]),
    ("model.heads.unembedding", "\"copied\"", &["copied", "replicated"]),
    ("model.heads.start", "\"zero\"", &["zero", "as_first"]),
    ("loss.weights", "\"equal\"", &["equal", "uniform"]),
    ("loss.curriculum", "\"backward\"", &["backward", "reverse"]),
    ("optimiser.method", "\"adam\"", &["adam", "adamw"]),
    ("optimiser.betas", "[0.9]", &["2"]),
    ("data.source", "[]", &["source", "sources"]),
];

#[test]
fn settings_are_named_with_their_value_and_what_could_be() {
    let work = Work::trained();
    for (setting, value, wanted) in SETTINGS {
        let file = work.change(setting, Some(value));
        let table = setting.rsplit_once('.').map_or(*setting, |(table, _)| table);
        let named =
            if setting.starts_with("loss.weights") || setting.starts_with("loss.curriculum") { table } else { setting };
        let shown = value.trim_matches('"').trim_end_matches(".0").trim_matches(['[', ']']);
        let shown = if shown.contains(['e', ',']) || *wanted == "as data.bpe says" || *wanted == "has a token of" {
            ""
        } else {
            shown
        };
        let named = if *wanted == "as data.bpe says" { "model.vocabulary" } else { named };
        work.refused(&["train", file], &[named, shown, wanted]);
    }
    let heads = [
        ("{ n = 3, kind = \"linear\", from_trunk = true }", "model.heads.from_trunk = true"),
        ("{ n = 3, kind = \"transformer\", from_trunk = true }", "model.layers = 2: more than 2"),
        ("{ n = 3, kind = \"linear\", recursive = true }", "model.heads.recursive = true"),
    ];
    for (value, said) in heads {
        work.refused(&["train", work.change("model.heads", Some(value))], &[said]);
    }
    work.refused(
        &["train", work.change("model.attention_heads", Some("3"))],
        &["model.width = 32", "attention_heads = 3"],
    );
    for setting in ["model.layers", "model.feed_forward"] {
        let file = work.change(setting, Some("99999999999"));
        work.refused(&["train", file], &["model = ", " weights: ", " GB ", setting]);
    }
}

#[test]
fn names_that_do_not_exist_come_with_those_that_do() {
    let work = Work::trained();
    for (setting, value, said) in MISSPELT {
        work.refused(&["train", work.change(setting, Some(value))], &[&["changed.toml: "][..], said].concat());
    }
    for setting in ["run.folder", "run.steps", "model", "model.heads", "loss", "optimiser.learning_rate", "data"] {
        let key = setting.rsplit('.').next().unwrap();
        work.refused(&["train", work.change(setting, None)], &["missing field", key]);
    }
    std::fs::write(work.path("bad.toml"), b"\xff\xfe\0").unwrap();
    work.refused(&["train", "bad.toml"], &["bad.toml", "UTF-8"]);
    work.refused(&["train", "none.toml"], &["none.toml", "No such file"]);
    work.refused(&["train", "data"], &["read data"]);
}

#[test]
fn texts_that_are_not_there_leave_the_token_files() {
    let work = Work::trained();
    let file = |name: &str, content: &[u8]| {
        let path = work.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    };
    file("empty/a.py", b"");
    file("binary/a.py", &[0; 999]);
    file("broken.jsonl", b"{\"text\": \"a\"}\n{\"text\": 3}\n");
    file("latin.jsonl", b"{\"text\": \"\xff\"}\n");
    file("nothing.jsonl", b"");
    let source = |path: &str, more: &str| format!("[{{ path = {path:?}, licence = \"none\"{more} }}]");
    let python = ", extensions = [\"py\"]";
    for (sources, said) in [
        ("[]".to_owned(), &["data.sources", "texts"][..]),
        (source("nowhere", python), &["nowhere", "No such file"]),
        (source("texts/1.py", python), &["texts/1.py", "Not a directory"]),
        (source("texts", ""), &["data.sources", "data.sources.extensions"]),
        (source("texts", ", extensions = [\".py\"]"), &["data.sources", "without a dot"]),
        (source("empty", python), &["data.sources", "1 too short"]),
        (source("binary", python), &["data.sources", "1 not UTF-8 text"]),
        (source("missing.jsonl", ""), &["missing.jsonl", "No such file"]),
        (source("broken.jsonl", ""), &["broken.jsonl", "line 2", "`text` is wanted"]),
        (source("latin.jsonl", ""), &["latin.jsonl", "UTF-8"]),
        (source("nothing.jsonl", ""), &["data.sources"]),
        ("[{ path = \"texts\" }]".to_owned(), &["licence"]),
    ] {
        work.refused(&["prepare", work.change("data.sources", Some(&sources))], said);
    }
    work.refused(
        &["prepare", work.change("data.held_out", Some("0.0"))],
        &["data.held_out = 0", "no package is held out"],
    );
    work.refused(
        &["prepare", work.change("data.held_out", Some("1.0"))],
        &["data.held_out = 1", "all packages are held out"],
    );
    work.refused(&["prepare", work.change("data.folder", Some("\"run.toml\""))], &["run.toml"]);
    work.refused(
        &["train", work.change("data.folder", Some("\"nowhere\""))],
        &["data.folder = nowhere", "foretoken-train prepare"],
    );
    work.refused(&["train", work.change("model.context", Some("9999"))], &["tokens", "for windows of 9999"]);
}

#[test]
fn token_files_and_folders_that_are_broken_are_named() {
    let work = Work::trained();
    let good = work.bytes("data/train.tokens").unwrap();
    let head = |n_tokens: u64, n_documents: u64| {
        [b"FTTOKEN1".to_vec(), n_tokens.to_le_bytes().to_vec(), n_documents.to_le_bytes().to_vec()].concat()
    };
    let foreign = [&good[..good.len() - 2], &700u16.to_le_bytes()].concat();
    for (content, said) in [
        (Vec::new(), "too short"),
        (b"not tokens, not tokens, not tokens".to_vec(), "FTTOKEN1"),
        (good[..good.len() - 10].to_vec(), "do not hold"),
        (head(1 << 62, 1 << 60), "do not hold"),
        (head(0, 1 << 40), "do not hold"),
        (head(0, 0), "0 tokens"),
        (foreign, "model.vocabulary = 256: more than 700"),
    ] {
        std::fs::write(work.path("data/train.tokens"), &content).unwrap();
        work.refused(&["train", "run.toml"], &[said]);
    }
    std::fs::write(work.path("data/train.tokens"), &good).unwrap();
    let other = work.change("run.folder", Some("\"other\""));
    let settings = std::fs::read_to_string(work.path(other)).unwrap();
    for (start, said) in [("nowhere.gguf", "No such file"), ("run.toml", "run.toml")] {
        let settings = settings.replace("[run]", &format!("[run]\nstart = {start:?}"));
        std::fs::write(work.path("start.toml"), settings).unwrap();
        work.refused(&["train", "start.toml"], &[start, said]);
    }
    let wrong = settings.replace("[run]", "[run]\nstart = 3");
    std::fs::write(work.path("start.toml"), wrong).unwrap();
    work.refused(&["train", "start.toml"], &["a file's path, or a list of them"]);
    // A file where the folder should be, and below one.
    for folder in ["\"run.toml\"", "\"texts/1.py/run\"", "\"\""] {
        work.refused(&["train", work.change("run.folder", Some(folder))], &[folder.trim_matches('"')]);
    }
}

#[test]
fn checkpoints_that_are_damaged_or_of_another_model_stay_and_are_named() {
    let work = Work::trained();
    let name = "run/checkpoint.safetensors";
    let good = work.bytes(name).unwrap();
    let mut damaged: Vec<(Vec<u8>, &str)> = [0, 5, 8, 100, good.len() / 2, good.len() - 1]
        .map(|cut| (good[..cut].to_vec(), "not a whole checkpoint"))
        .to_vec();
    for at in [good.len() / 2, good.len() - 1, good.len() - 9999] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x40;
        damaged.push((bytes, "the file is damaged"));
    }
    let step = good.windows(10).position(|part| part == b"\"step\":\"2\"").unwrap();
    let mut later = good.clone();
    later[step + 8] = b'7';
    damaged.push((later, "the file is damaged"));
    damaged.push(([&(1u64 << 62).to_le_bytes(), &good[8..]].concat(), "not a whole checkpoint"));
    for (bytes, said) in damaged {
        std::fs::write(work.path(name), bytes).unwrap();
        for command in [&["train", "run.toml"][..], &["export", "run.toml", "out.gguf"]] {
            work.refused(command, &[name, said, "set another run.folder"]);
        }
    }
    std::fs::write(work.path(name), &good).unwrap();
    for (setting, value) in [
        ("model.heads.n", "2"),
        ("model.width", "64"),
        ("model.layers", "3"),
        ("model.tied", "true"),
        ("model.heads.kind", "\"linear\""),
        ("model.attention_heads", "1"),
        ("model.rope_theta", "500000.0"),
        ("model.norm_eps", "1e-6"),
    ] {
        work.refused(&["train", work.change(setting, Some(value))], &[name, "set another run.folder"]);
    }
    let file = work.change("run.folder", Some("\"other\""));
    for words in [&["evaluate", file][..], &["baseline", file], &["export", file, "out.gguf"]] {
        work.refused(words, &["run.folder = other", "foretoken-train train"]);
    }
    assert!(!work.path("out.gguf").exists());
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    let work = Work::trained();
    for (words, said) in [
        (&["evaluate", "run.toml", "--windows", "0"][..], &["--windows = 0", "at least 1"][..]),
        (&["evaluate", "run.toml", "--texts", "1", "--new", "0"], &["--new = 0", "1 to 32"]),
        (&["evaluate", "run.toml", "--texts", "1", "--new", "99999"], &["--new = 99999", "1 to 32"]),
        (&["evaluate", "run.toml", "--json", "no/where.json"], &["no/where.json", "No such file"]),
        (&["baseline", "run.toml", "--windows", "0"], &["--windows = 0"]),
        (&["baseline", "run.toml", "--train-windows", "0"], &["--train-windows = 0"]),
        (&["prompts", "run.toml", "p.jsonl", "--n", "0"], &["--n = 0"]),
        (&["prompts", "run.toml", "p.jsonl"], &["held-out.tokens", "no Python function with a docstring"]),
        (&["export", "run.toml", "no/where.gguf"], &["no/where.gguf"]),
        (&["export", "run.toml", "run.toml"], &["run.toml"]),
        (&["export", "run.toml", "a.gguf", "--type", "q3"], &["q3", "q8-0"]),
        (&["bench", "--heads", "0"], &["model.heads.n = 0"]),
        (&["bench", "--width", "0"], &["--width = 0"]),
        (&["bench", "--width", "7"], &["model.width = 7"]),
        (&["bench", "--context", "0"], &["model.context = 0"]),
        (&["bench", "--windows", "0"], &["--windows = 0"]),
        (&["bench", "--windows", "99999999999"], &["--windows = 99999999999", "at most"]),
        (&["bench", "--steps", "0"], &["--steps = 0"]),
        (&["bench", "--layers", "9999999"], &["model = ", "weights"]),
        (&["bench", "--kind", "transformer", "--heads", "8", "--from-trunk"], &["model.layers = 6: more than 7"]),
    ] {
        work.refused(words, said);
    }
    assert!(!work.path("p.jsonl").exists() && !work.path("a.gguf").exists());
}
