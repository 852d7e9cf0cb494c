//! A run that stops and resumes is the run that never stopped; broken steps move nothing.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::{CheckpointFile, Outcome, Peers, Settings, Trainer, train};
use crate::TrainError;
use crate::data::{Prepared, RepeatsConfig, TokenWriter};
use crate::optim::Optimiser;

fn settings(folder: &Path) -> Settings {
    let data = folder.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let mut writer = TokenWriter::default();
    for i in 0..40 {
        writer.push(format!("def f{i}(x):\n    return x + {i}\n").repeat(6).as_bytes());
    }
    let files = Prepared::in_folder(&data);
    writer.write(&files.train).unwrap();
    writer.write(&files.held_out).unwrap();
    let text = format!(
        r#"
        [run]
        folder = {run:?}
        steps = 12
        windows = 2
        accumulate = 2
        log_every = 3
        evaluate_every = 6
        evaluate_windows = 5
        checkpoint_every = 4
        [model]
        vocabulary = 256
        width = 32
        layers = 2
        attention_heads = 2
        kv_heads = 1
        feed_forward = 48
        context = 32
        heads = {{ n = 3, kind = "resblock" }}
        [loss]
        lambda = 1.0
        weights = {{ geometric = 0.5 }}
        [optimiser]
        learning_rate = 0.01
        warm_up = 2
        [data]
        folder = {data:?}
        "#,
        run = folder.join("run"),
    );
    let path = folder.join("run.toml");
    std::fs::write(&path, text).unwrap();
    Settings::read(&path).unwrap()
}

fn weights(trainer: &Trainer) -> Vec<Vec<u32>> {
    let params = trainer.params();
    params.iter().map(|(id, _)| params.host(id).iter().map(|x| x.to_bits()).collect()).collect()
}

/// With texts of the model's own in half of its windows.
fn with_repeats(folder: &Path) -> Settings {
    let texts = folder.join("own.jsonl");
    let line = serde_json::json!({"prompt": "def f1(x):\n", "text": "    return x\n".repeat(4)});
    std::fs::write(&texts, line.to_string()).unwrap();
    Settings { repeats: Some(RepeatsConfig { texts, share: 0.5, weight: 1.0 }), ..settings(folder) }
}

#[test]
fn texts_of_its_own_are_among_what_a_run_learns_from() {
    let folder = crate::scratch::Scratch::new();
    let [with, without] = [with_repeats(folder.path()), settings(folder.path())];
    let first = |settings| {
        let mut trainer = Trainer::open(settings).unwrap();
        (0..3).map(|_| trainer.step().unwrap().0).collect::<Vec<_>>()
    };
    assert_ne!(first(&with), first(&without));
    // Where they are gone, the run cannot go on, and what it made can still be measured.
    Trainer::open(&with).unwrap().save().unwrap();
    std::fs::remove_file(folder.path().join("own.jsonl")).unwrap();
    assert!(Trainer::open(&with).err().unwrap().to_string().contains("own.jsonl"));
    assert!(Trainer::open_trained(&with).is_ok());
}

#[test]
fn a_resumed_run_is_bit_equal_and_learns() {
    let settings = with_repeats;
    let (whole, parts) = (crate::scratch::Scratch::new(), crate::scratch::Scratch::new());
    let never = AtomicBool::new(false);
    let mut trainer = Trainer::open(&settings(whole.path())).unwrap();
    let mut entries = Vec::new();
    let mut keep = |_: u64, entry: Option<&super::Entry>| entries.extend(entry.cloned());
    assert_eq!(train(&mut trainer, &never, &mut keep).unwrap(), Outcome::Finished);
    let kinds: Vec<_> = entries.iter().map(|e| (e.step, e.kind.as_str())).collect();
    assert_eq!(kinds, [(3, "train"), (6, "train"), (6, "held_out"), (9, "train"), (12, "train"), (12, "held_out")]);
    assert!(entries[4].loss[0] < entries[0].loss[0] && entries[4].top_1[0] > entries[0].top_1[0]);
    assert!(entries[5].loss.iter().all(|loss| *loss > 0.0 && *loss < 6.0));

    // Killed after 7 steps: the checkpoint is of step 4, and the log holds lines behind it.
    let settings = settings(parts.path());
    let mut killed = Trainer::open(&settings).unwrap();
    let stop = AtomicBool::new(false);
    for _ in 0..7 {
        if killed.n_steps() == 4 {
            killed.save().unwrap();
        }
        killed.step().unwrap();
    }
    drop(killed);
    let mut resumed = Trainer::open(&settings).unwrap();
    assert_eq!(resumed.n_steps(), 4);
    // Asked to stop at once, it saves what it has; then it goes on to the end.
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(train(&mut resumed, &stop, &mut |_, _| ()).unwrap(), Outcome::Stopped);
    let mut resumed = Trainer::open(&settings).unwrap();
    train(&mut resumed, &never, &mut |_, _| ()).unwrap();
    assert_eq!(weights(&resumed), weights(&trainer));
    let log = std::fs::read_to_string(parts.path().join("run/log.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 5);
}

#[test]
fn settings_that_cannot_be_are_named_with_what_could() {
    let folder = crate::scratch::Scratch::new();
    let good = settings(folder.path());
    let refused = |setting: &str, change: &dyn Fn(&mut Settings)| {
        let mut settings = good.clone();
        change(&mut settings);
        let error = Trainer::open(&settings).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.starts_with(&format!("{setting} = ")), "{setting}: {error}");
    };
    refused("run.windows", &|s| s.run.windows = 99_999_999_999);
    refused("run.windows", &|s| s.run.windows = 0);
    refused("run.give_up_after", &|s| s.run.give_up_after = 0);
    refused("model.vocabulary", &|s| s.model.vocabulary = 100);
    refused("model.vocabulary", &|s| s.model.vocabulary = 1 << 17);
    refused("model.context", &|s| s.model.context = 0);
    refused("model.feed_forward", &|s| s.model.feed_forward = 0);
    refused("model.rope_theta", &|s| s.model.rope_theta = f64::NAN);
    refused("model.norm_eps", &|s| s.model.norm_eps = -1.0);
    refused("loss.lambda", &|s| s.loss.lambda = f32::NAN);
    refused("loss.weights", &|s| s.loss.weights = crate::loss::Weights::Given(vec![f32::INFINITY, 1.0]));
    refused("optimiser.clip", &|s| s.optimiser.clip = f32::NAN);
    refused("optimiser.weight_decay", &|s| s.optimiser.weight_decay = -1.0);
    refused("data.held_out", &|s| s.data.held_out = 1.5);
    refused("data.max_bytes", &|s| s.data.max_bytes = 0);
    assert!(Trainer::open(&good).is_ok());
}

#[test]
fn a_checkpoint_that_cannot_be_replaced_stays() {
    let folder = crate::scratch::Scratch::new();
    let settings = settings(folder.path());
    let mut trainer = Trainer::open(&settings).unwrap();
    trainer.step().unwrap();
    trainer.save().unwrap();
    let path = settings.run.folder.join("checkpoint.safetensors");
    let before = std::fs::read(&path).unwrap();
    // Where the new one would be written there is a folder.
    std::fs::create_dir(path.with_extension("partial")).unwrap();
    trainer.step().unwrap();
    let error = trainer.save().unwrap_err().to_string();
    assert!(error.contains("checkpoint.safetensors: could not be replaced") && error.contains("as it was"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

/// One of several processes that are threads: they meet at every sum.
struct Threads {
    rank: usize,
    shared: std::sync::Arc<Shared>,
}

struct Shared {
    count: usize,
    meet: std::sync::Barrier,
    sums: std::sync::Mutex<Vec<f32>>,
}

impl Peers for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.shared.count
    }

    fn sum(&self, values: &mut [f32]) {
        let Shared { count, meet, sums } = &*self.shared;
        // In the order of the ranks, as one process would.
        for rank in 0..*count {
            if rank == self.rank {
                let mut sums = sums.lock().unwrap();
                match rank {
                    0 => *sums = values.to_vec(),
                    _ => sums.iter_mut().zip(&*values).for_each(|(sum, value)| *sum += value),
                }
            }
            meet.wait();
        }
        values.copy_from_slice(&sums.lock().unwrap());
        meet.wait();
    }
}

#[test]
fn processes_that_share_a_step_give_the_curve_of_one() {
    let (alone, shared) = (crate::scratch::Scratch::new(), crate::scratch::Scratch::new());
    let never = AtomicBool::new(false);
    let curve = |trainer: &mut Trainer| {
        let mut entries = Vec::new();
        train(trainer, &never, &mut |_, entry| entries.extend(entry.cloned())).unwrap();
        (entries, weights(trainer))
    };
    let (expected, expected_weights) = curve(&mut Trainer::open(&settings(alone.path())).unwrap());
    let settings = settings(shared.path());
    let meet = Shared { count: 2, meet: std::sync::Barrier::new(2), sums: std::sync::Mutex::default() };
    let meet = std::sync::Arc::new(meet);
    let found = std::thread::scope(|scope| {
        let run = |rank| {
            let (peers, settings, curve) = (Threads { rank, shared: meet.clone() }, &settings, &curve);
            scope.spawn(move || curve(&mut Trainer::open_among(settings, Box::new(peers)).unwrap()))
        };
        [0, 1].map(run).map(|thread| thread.join().unwrap())
    });
    assert_eq!(found[0].1, found[1].1, "the same update everywhere");
    let evaluations = |entries: &[super::Entry]| entries.iter().filter(|entry| entry.kind == "held_out").count();
    assert_eq!([evaluations(&found[0].0), evaluations(&found[1].0)], [2, 0]);
    for (entry, expected) in found[0].0.iter().zip(&expected) {
        let same = entry.loss.iter().zip(&expected.loss).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(same && entry.step == expected.step, "{entry:?} {expected:?}");
    }
    let value = |bits: &u32| f32::from_bits(*bits);
    let pairs = found[0].1.iter().flatten().zip(expected_weights.iter().flatten());
    assert!(pairs.into_iter().all(|(a, b)| (value(a) - value(b)).abs() < 1e-3));
    let odd = Threads {
        rank: 0,
        shared: std::sync::Arc::new(Shared { count: 3, meet: std::sync::Barrier::new(3), sums: Default::default() }),
    };
    let message = Trainer::open_among(&settings, Box::new(odd)).err().unwrap().to_string();
    assert!(message.contains("run.accumulate"), "{message}");
}

#[test]
fn steps_that_are_not_finite_are_skipped_and_end_the_run() {
    let folder = crate::scratch::Scratch::new();
    let mut trainer = Trainer::open(&settings(folder.path())).unwrap();
    trainer.step().unwrap();
    trainer.save().unwrap();
    let id = trainer.params().find("layers.0.qkv").unwrap();
    let n = trainer.params().spec(id).len();
    trainer.params_mut().set(id, vec![f32::NAN; n]);
    let before = weights(&trainer);
    for _ in 0..4 {
        assert!(!trainer.step().unwrap().1.applied);
    }
    assert_eq!(weights(&trainer), before);
    assert!(matches!(trainer.step(), Err(TrainError::NotFinite { skipped: 5 })));
    assert_eq!((trainer.n_skipped(), Trainer::open(&settings(folder.path())).unwrap().n_steps()), (5, 1));
}

#[test]
fn checkpoints_of_other_models_and_broken_ones_are_refused() {
    let folder = crate::scratch::Scratch::new();
    let mut settings = settings(folder.path());
    let trainer = Trainer::open(&settings).unwrap();
    trainer.save().unwrap();
    settings.model.heads.n = 2;
    let message = Trainer::open(&settings).err().unwrap().to_string();
    assert!(message.contains("another model"), "{message}");
    let file = CheckpointFile::in_folder(&settings.run.folder);
    let bytes = std::fs::read(file.path()).unwrap();
    for cut in [0, 7, 200, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(file.path(), &bytes[..cut]).unwrap();
        let mut params = trainer.params().clone();
        let mut optimiser = Optimiser::new(&params);
        assert!(file.load(&settings.model, &mut params, Some(&mut optimiser)).is_err(), "{cut} bytes");
    }
}

#[test]
fn unknown_settings_are_refused() {
    let folder = crate::scratch::Scratch::new();
    settings(folder.path());
    let path = folder.path().join("run.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("warm_up", "warmup");
    std::fs::write(&path, text).unwrap();
    let message = Settings::read(&path).unwrap_err().to_string();
    assert!(message.contains("warmup") && message.contains("warm_up"), "{message}");
}
