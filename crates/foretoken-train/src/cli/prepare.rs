//! `prepare`: texts to token files and a recipe.

use std::path::PathBuf;

use foretoken_train::TrainError;
use foretoken_train::data::{Prepared, prepare};
use foretoken_train::trainer::Settings;

/// Reads the run's sources, leaves out duplicates, holds packages out and writes the token files and the recipe.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run's TOML file.
    config: PathBuf,
}

pub fn run(args: &Args) -> Result<(), TrainError> {
    let settings = Settings::read(&args.config)?;
    let recipe = prepare(&settings.data)?;
    let [train, held_out] = recipe.n_tokens;
    let [train_texts, held_out_texts] = recipe.n_documents;
    println!("training: {train} tokens in {train_texts} texts");
    println!("held out: {held_out} tokens in {held_out_texts} texts of {} packages", recipe.held_out_packages.len());
    for (reason, n) in &recipe.left_out {
        println!("left out: {n} ({reason})");
    }
    println!("recipe: {}", Prepared::in_folder(&settings.data.folder).recipe.display());
    Ok(())
}
