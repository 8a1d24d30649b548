//! The matrix of NICs: for every kind two guests, whose NICs are bound to vfio-pci behind an IOMMU, with this stack's own
//! command on each.

pub(crate) mod bench;
mod checks;
pub(crate) mod models;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;

use self::bench::{Bench, BenchFiles, Purpose};
use self::checks::{Figures, STEPS};
use self::models::{MODELS, Model};
use self::table::{NicRow, NicVerdict};
use crate::LabError;

/// What to run, and where results go.
#[derive(Args)]
pub(crate) struct NicOptions {
    /// The guests' kernel.
    #[arg(long)]
    kernel: PathBuf,
    /// The guests' initial disk, with this stack's command in it.
    #[arg(long)]
    initrd: PathBuf,
    /// QEMU; igb needs version 8.
    #[arg(long, default_value = "qemu-system-x86_64")]
    qemu: PathBuf,
    /// Only these NICs, by their names in QEMU.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write the results as a Markdown table to this file, between the two lines that mark its place.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Name the NICs and end.
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(options: &NicOptions) -> Result<ExitCode, LabError> {
    let chosen = chosen(&options.only)?;
    if options.list {
        for model in &chosen {
            println!("{}", model.name);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Vec::new();
    for model in chosen {
        let row = run_model(model, options)?;
        println!("{row}");
        rows.push(row);
    }
    println!("{}", table::text(&rows));
    if let Some(path) = &options.table {
        table::write(path, &rows)?;
    }
    let is_bad = rows.iter().any(|row| matches!(row.verdict, NicVerdict::Failed(_)));
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn chosen(only: &[String]) -> Result<Vec<Model>, LabError> {
    if let Some(unknown) = only.iter().find(|name| !MODELS.iter().any(|model| model.name == **name)) {
        return Err(format!("no NIC is called '{unknown}': see --list").into());
    }
    let is_chosen = |model: &&Model| only.is_empty() || only.iter().any(|name| name == model.name);
    Ok(MODELS.iter().filter(is_chosen).copied().collect())
}

fn run_model(model: Model, options: &NicOptions) -> Result<NicRow, LabError> {
    let started = Instant::now();
    let mut figures = Figures::default();
    let verdict = if bench::knows(&options.qemu, model)? {
        run_steps(model, options, &mut figures)
    } else {
        NicVerdict::Skipped(format!("{} does not emulate it", options.qemu.display()))
    };
    Ok(NicRow { model, verdict, figures, seconds: started.elapsed().as_secs_f64() })
}

fn run_steps(model: Model, options: &NicOptions, figures: &mut Figures) -> NicVerdict {
    let mut steps = || -> Result<(), LabError> {
        let directory = tempfile::tempdir()?;
        let NicOptions { qemu, kernel, initrd, .. } = options;
        let mut bench =
            Bench::start(model, &BenchFiles { qemu, kernel, initrd, directory: directory.path() }, Purpose::Checks)?;
        for (name, step) in STEPS {
            step(&mut bench, figures).map_err(|failure| format!("{name}: {failure}"))?;
            println!("        {}: {name}", model.name);
        }
        Ok(())
    };
    match steps() {
        Ok(()) => NicVerdict::Passed,
        Err(failure) => NicVerdict::Failed(failure.to_string()),
    }
}
