//! Structured output on real vocabularies: masks that depend on the text alone, errors that name the place, texts that fit
//! their grammar and are the same with and without drafts.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use foretoken_decode::TokenId;
use foretoken_decode::constraint::{Constraint, TokenMask};
use foretoken_decode::sampler::SamplerSettings;
use foretoken_engine::{DraftPolicy, Engine, EngineOptions, Finish, Grammar, ModelFile, Outcome, Request};
use foretoken_formats::chat::Message;
use foretoken_formats::tokenizer::Special;
use foretoken_testkit::{Rng, models};
use serde_json::{Value, json};

const PERSON: &str = r##"{
    "type": "object",
    "properties": {
        "name": { "type": "string", "maxLength": 30 },
        "occupation": { "enum": ["engineer", "teacher", "painter"] },
        "age": { "type": "integer", "minimum": 0, "maximum": 120 },
        "languages": { "type": "array", "items": { "$ref": "#/$defs/language" }, "minItems": 1, "maxItems": 3 },
        "address": {
            "type": "object",
            "properties": { "street_name": { "type": "string", "maxLength": 20 }, "postal_code": { "type": "string", "pattern": "^[0-9]{5}$" } },
            "required": ["street_name", "postal_code"],
            "additionalProperties": false
        }
    },
    "required": ["name", "occupation", "age", "languages", "address"],
    "additionalProperties": false,
    "$defs": { "language": { "type": "string", "maxLength": 12 } }
}"##;

fn grammars() -> Vec<Grammar> {
    vec![
        Grammar::JsonSchema(PERSON.into()),
        Grammar::JsonObject,
        Grammar::Regex(r"(yes|no), because [a-z ]{1,40}\.".into()),
        Grammar::Regex(r"[0-9]{3}-[0-9]{4}( ext\. [0-9]+)?".into()),
        Grammar::Lark("start: \"begin\" (\" \" WORD)+ \" the end\"\nWORD: /[a-zé]{1,8}/".into()),
    ]
}

fn file() -> Option<ModelFile> {
    Some(ModelFile::open(&models::find("smollm2-135m")?).expect("a sound model file"))
}

fn mask(constraint: &mut Box<dyn Constraint>, vocab_size: usize) -> (TokenMask, bool) {
    let mut mask = TokenMask::none(vocab_size);
    constraint.mask(&mut mask).expect("a small grammar");
    (mask, constraint.may_end())
}

/// One token of the mask, most often a short one, so that texts are not all of one kind.
fn pick(mask: &TokenMask, vocab_size: usize, rng: &mut Rng) -> Option<TokenId> {
    let from = rng.below(vocab_size) as TokenId;
    (from..vocab_size as TokenId).chain(0..from).find(|&token| mask.allows(token))
}

#[test]
fn what_a_grammar_says_depends_on_the_text_alone() {
    let Some(file) = file() else { return };
    let vocab_size = file.tokenizer().vocab_size();
    let mut n_forced = 0;
    for (g, grammar) in grammars().iter().enumerate() {
        let fresh = file.constraint(grammar).expect("a sound grammar");
        for walk in 0..8 {
            let mut rng = Rng::new(1000 * g as u64 + walk);
            let mut restless = fresh.clone();
            let mut text: Vec<TokenId> = Vec::new();
            for _ in 0..25 {
                // Asked anything, led astray and back.
                for _ in 0..rng.below(3) {
                    let mut ahead = Vec::new();
                    match rng.below(3) {
                        0 => restless.forced(&mut ahead),
                        1 => drop(mask(&mut restless, vocab_size)),
                        _ => ahead = rng.tokens(3, vocab_size + 5),
                    }
                    let taken = ahead.iter().take_while(|&&token| {
                        let allowed = restless.allows(token);
                        if allowed {
                            restless.advance(token);
                        }
                        allowed
                    });
                    let n = taken.count();
                    n_forced += n;
                    restless.rollback(n);
                }
                let back = rng.below(4).min(text.len());
                if rng.chance(0.3) {
                    restless.rollback(back);
                    text.truncate(text.len() - back);
                }
                let mut straight = fresh.clone();
                text.iter().for_each(|&token| straight.advance(token));
                let expected = mask(&mut straight, vocab_size);
                assert_eq!(mask(&mut restless, vocab_size), expected, "{grammar:?} after {text:?}");
                let Some(token) = pick(&expected.0, vocab_size, &mut rng) else { break };
                assert!(restless.allows(token), "{grammar:?}: what a mask allows can be taken: {token} after {text:?}");
                restless.advance(token);
                text.push(token);
            }
        }
    }
    assert!(n_forced > 100, "{n_forced}");
}

#[test]
fn faults_of_a_grammar_are_named_with_their_place() {
    let Some(file) = file() else { return };
    let message = |grammar: Grammar| match file.constraint(&grammar) {
        Ok(_) => "it was accepted".to_owned(),
        Err(error) => error.to_string(),
    };
    let schema = |text: &str| message(Grammar::JsonSchema(text.into()));
    let wrong = [
        (schema("{\n  \"type\": \"object\",\n  oops\n}"), "line 3 column 3"),
        (
            schema(r#"{"type": "object", "properties": {"a": {"type": "nothing"}}, "required": ["a"]}"#),
            "#/properties/a",
        ),
        (
            schema(r##"{"type": "array", "items": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/gone"}]}}"##),
            "#/items/anyOf/1",
        ),
        (schema(r#"{"properties": {"a": {"type": "string", "pattern": "(["}}, "required": ["a"]}"#), "#/properties/a"),
        (message(Grammar::Regex("a(b".into())), "regular expression"),
        (message(Grammar::Lark("start: \"a\" missing".into())), "missing"),
        (message(Grammar::Lark("start: \"a\n".into())), "grammar"),
        (message(Grammar::Regex("a".repeat(1 << 21))), "at most 8192 are accepted"),
    ];
    for (message, part) in wrong {
        assert!(message.contains(part), "{part} is missing in: {message}");
        assert!(message.len() < 500, "{message}");
    }
}

/// Grammars that strangers may send, each of which has kept a processor busy, or overflowed a stack, in some version of the
/// library. `n` is how large they are.
fn hostile(n: usize) -> Vec<(&'static str, Grammar)> {
    let lark = |text: String| Grammar::Lark(text);
    let schema = |value: Value| Grammar::JsonSchema(value.to_string());
    let rules = |rule: &dyn Fn(usize) -> String, m: usize| (0..m).map(rule).collect::<String>();
    let linked = |m: usize, link: &dyn Fn(Value) -> Value| {
        let mut definitions: serde_json::Map<_, _> =
            (0..m).map(|i| (i.to_string(), link(json!({ "$ref": format!("#/$defs/{}", i + 1) })))).collect();
        definitions.insert(m.to_string(), json!({ "type": "string" }));
        json!({ "$ref": "#/$defs/0", "$defs": definitions })
    };
    let property = |next: Value| json!({ "type": "object", "properties": { "x": next }, "required": ["x"] });
    let twice = |next: Value| json!({ "type": "object", "properties": { "x": { "allOf": [next, next] } } });
    let many = |m: usize, value: &Value| (0..m).map(|i| (format!("p{i}"), value.clone())).collect::<Value>();
    let all = |m: usize, part: &dyn Fn(usize) -> Value| json!({ "allOf": (0..m).map(part).collect::<Vec<_>>() });
    let integer = json!({ "type": "integer" });
    let mut faulty = many(n / 4, &integer);
    faulty["z"] = json!({ "type": "nothing" });
    vec![
        ("a long expression", Grammar::Regex("a".repeat(8 * n))),
        ("many stars", Grammar::Regex("a*".repeat(4 * n))),
        ("many words", Grammar::Regex((0..n).map(|i| format!("ab{i}|")).collect())),
        ("repeats of repeats", Grammar::Regex("(((a{100}){100}){100}){100}".into())),
        ("a far look back", Grammar::Regex(r"(.*a.{200}){3}".into())),
        ("parentheses", lark(format!("start: {}\"a\"{}", "(".repeat(n), ")".repeat(n)))),
        ("a chain of rules", lark(format!("start: a0\n{}a{n}: \"x\"", rules(&|i| format!("a{i}:a{}\n", i + 1), n)))),
        (
            "a chain of terminals",
            lark(format!("start: A0\n{}A{n}: \"x\"", rules(&|i| format!("A{i}:A{}\n", i + 1), n))),
        ),
        (
            "doubling terminals",
            lark(format!("start: A0\n{}A60: \"x\"", rules(&|i| format!("A{i}: A{0} A{0}\n", i + 1), 60))),
        ),
        ("many alternatives", lark(format!("start: \"a\"{}", rules(&|i| format!(" | \"{i}\""), n)))),
        ("many that may be left out", lark(format!("start: {}", "\"a\"? ".repeat(n)))),
        ("rules in themselves", lark("start: start start | \"a\"".into())),
        ("many at once", lark(format!("start: T\nT: /.*a.*/{}", rules(&|i| format!(" & /.*{i}.*/"), 30)))),
        ("a chain of references", schema(linked(n, &|next| next))),
        ("references in properties", schema(linked(n / 2, &property))),
        ("references in alternatives", schema(linked(n / 2, &|next| json!({ "anyOf": [integer, next] })))),
        (
            "references in lists in lists",
            schema(linked(n / 2, &|next| json!({ "items": { "items": { "items": next } } }))),
        ),
        ("references that double", schema(linked(60, &twice))),
        ("many properties", schema(json!({ "type": "object", "properties": many(n, &integer) }))),
        ("a fault among many", schema(json!({ "properties": faulty, "$defs": many(n / 4, &integer) }))),
        ("a long pattern", schema(json!({ "type": "string", "pattern": "a".repeat(8 * n) }))),
        ("a few patterns at once", schema(all(8, &|i| json!({ "type": "string", "pattern": format!(".*{i}.*") })))),
        ("patterns at once", schema(all(20, &|i| json!({ "type": "string", "pattern": format!(".*{i}.*") })))),
        (
            "alternatives of each other",
            schema(all(
                6,
                &|i| json!({ "anyOf": (0..20).map(|j| json!({ "properties": { format!("{i}_{j}"): integer } })).collect::<Vec<_>>() }),
            )),
        ),
        (
            "each against each",
            schema(
                json!({ "oneOf": (0..n / 4).map(|i| json!({ "properties": { "k": { "const": i } } })).collect::<Vec<_>>() }),
            ),
        ),
        (
            "patterns of names",
            schema(
                json!({ "patternProperties": (0..200).map(|i| (format!("^a{i}x"), integer.clone())).collect::<Value>() }),
            ),
        ),
        ("a large list", schema(json!({ "enum": (0..2 * n).map(|i| format!("word {i}")).collect::<Vec<_>>() }))),
        (
            "properties of a constant",
            schema(json!({ "properties": many(n, &integer), "enum": vec![json!({ "a": 1 }); n] })),
        ),
    ]
}

#[test]
fn hostile_grammars_are_compiled_or_refused_soon() {
    let Some(file) = file() else { return };
    let vocab_size = file.tokenizer().vocab_size();
    // The promise is a second for each; a machine that is busy with other tests gets more.
    let soon = |started: Instant| started.elapsed() < Duration::from_secs(10);
    let sizes = [200, 500, 2000, 8000];
    for (what, grammar) in sizes.into_iter().flat_map(hostile) {
        let started = Instant::now();
        let compiled = file.constraint(&grammar);
        let took = started.elapsed();
        assert!(soon(started), "{what}: {took:?}");
        let mut said = String::new();
        match compiled {
            Ok(mut constraint) => {
                let (mut rng, mut slowest) = (Rng::new(7), Duration::ZERO);
                for _ in 0..20 {
                    let started = Instant::now();
                    let mut mask = TokenMask::none(vocab_size);
                    let masked = constraint.mask(&mut mask);
                    let mut ahead = Vec::new();
                    constraint.forced(&mut ahead);
                    slowest = slowest.max(started.elapsed());
                    assert!(soon(started), "{what}: a mask");
                    said = format!("a mask within {slowest:?} {masked:?}");
                    let Some(token) = pick(&mask, vocab_size, &mut rng).filter(|_| masked.is_ok()) else { break };
                    constraint.advance(token);
                }
            }
            Err(error) => {
                said.push_str(&error.to_string());
                assert!(said.len() < 600 && !said.contains("panic"), "{what}: {said}");
            }
        }
        println!("{what}: {took:?}; {said:.150}");
    }
}

fn engine() -> Option<Engine> {
    let path = models::find("smollm2-135m")?;
    let options = EngineOptions { threads: Some(1), context: Some(512), ..EngineOptions::default() };
    Some(Engine::open(&path, options).expect("a sound model file"))
}

fn ask(engine: &mut Engine, question: &str, grammar: &Grammar) -> Request {
    let prompt = engine.file().encode_chat(&[Message::new("user", question)], Special::AsText).expect("it is text");
    Request {
        sampler: SamplerSettings { temperature: 0.0, ..SamplerSettings::default() },
        seed: Some(1),
        max_tokens: Some(150),
        constraint: Some(engine.file().constraint(grammar).expect("a sound grammar")),
        ..Request::new(prompt)
    }
}

fn run(engine: &mut Engine, request: &Request) -> Outcome {
    engine.scheduler().run(request.clone(), |_| ControlFlow::Continue(())).expect("the target keeps its promises")
}

#[test]
fn a_schema_gives_json_that_fits_whatever_drafts() {
    let Some(mut engine) = engine() else { return };
    let question = "Write a JSON object about a person named Ada Lovelace who lives in London.";
    for temperature in [0.0, 1.0] {
        let mut request = ask(&mut engine, question, &Grammar::JsonSchema(PERSON.into()));
        request.sampler.temperature = temperature;
        request.logprobs = Some(1);
        request.draft = DraftPolicy::Off;
        let plain = run(&mut engine, &request);
        assert_eq!(plain.finish_reason, Finish::EndToken, "{}", plain.text);
        let value: serde_json::Value = serde_json::from_str(&plain.text).expect("it is JSON");
        assert!(value["age"].as_u64().is_some_and(|age| age <= 120), "{value}");
        assert_eq!(value["address"]["postal_code"].as_str().map(str::len), Some(5), "{value}");
        request.draft = DraftPolicy::Width(4);
        let together = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let mut methods: Vec<Vec<String>> = engine.drafters().iter().map(|name| together(&[name])).collect();
        methods.push(together(&["suffix", "recycle", "grammar"]));
        if temperature == 0.0 {
            methods.retain(|names| names.iter().any(|name| name == "grammar"));
        }
        for names in methods {
            request.drafters = names;
            let drafted = run(&mut engine, &request);
            assert_eq!(drafted.token_ids, plain.token_ids, "{:?} at {temperature}", request.drafters);
            assert_eq!((&drafted.text, &drafted.logprobs), (&plain.text, &plain.logprobs));
            if request.drafters == ["grammar"] {
                assert!(drafted.acceptance_length > 1.4, "forced tokens come several a pass: {drafted:?}");
                assert_eq!(drafted.accepted, drafted.drafted, "and are all right");
            }
        }
    }
}

#[test]
fn a_stop_string_ends_a_text_before_its_grammar_does() {
    let Some(mut engine) = engine() else { return };
    let grammar = Grammar::Regex(r"(one|two|three|four)( (one|two|three|four)){30}".into());
    let mut request = ask(&mut engine, "Count.", &grammar);
    request.stop = vec!["two".into()];
    let outcome = run(&mut engine, &request);
    assert!(matches!(outcome.finish_reason, Finish::StopString | Finish::EndToken), "{outcome:?}");
    assert!(!outcome.text.contains("two"));
}

#[test]
fn structure_begins_where_free_thought_ends() {
    // A draft may span the marker: what is free before it is bound after it, in the same pass.
    let Some(mut engine) = engine() else { return };
    let lark = concat!(
        "start: thought answer\n",
        "thought[suffix=\"Answer: \"]: /(.|\\n){0,60}/\n",
        "answer: %json { \"type\": \"object\", \"properties\": { \"result\": { \"type\": \"integer\" } }, ",
        "\"required\": [\"result\"], \"additionalProperties\": false }\n",
    );
    let mut request = ask(&mut engine, "What is 2 + 3?", &Grammar::Lark(lark.into()));
    for temperature in [0.0, 0.9] {
        request.sampler.temperature = temperature;
        request.draft = DraftPolicy::Off;
        request.max_tokens = Some(100);
        let plain = run(&mut engine, &request);
        for width in [2, 8] {
            request.draft = DraftPolicy::Width(width);
            request.drafters = vec!["grammar".into(), "recycle".into(), "suffix".into()];
            assert_eq!(run(&mut engine, &request).token_ids, plain.token_ids, "{temperature} {width}");
        }
        if plain.finish_reason == Finish::EndToken {
            let (_, json) = plain.text.split_once("Answer: ").expect("the marker");
            let value: serde_json::Value = serde_json::from_str(json).expect("JSON after it");
            assert!(value["result"].is_i64());
        }
    }
}
