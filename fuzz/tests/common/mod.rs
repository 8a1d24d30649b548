//! Random inputs that get far: pieces of what is committed, noise between them, and some bytes changed.
//!
//! Without a coverage-guided engine, bytes that are all random rarely make two steps in the right order.

use std::fs;

use bolero::{TypeGenerator, produce};

#[derive(Clone, Debug, TypeGenerator)]
struct Mixture {
    #[generator(produce::<Vec<u8>>().with().len(0..8usize))]
    pieces: Vec<u8>,
    #[generator(produce::<Vec<u8>>().with().len(0..1024usize))]
    noise: Vec<u8>,
    #[generator(produce::<Vec<(u16, u8)>>().with().len(0..12usize))]
    changes: Vec<(u16, u8)>,
}

impl Mixture {
    fn input(&self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut noise = self.noise.chunks(self.noise.len() / (self.pieces.len() + 1) + 1);
        let mut input = Vec::new();
        for &piece in &self.pieces {
            input.extend(corpus.get(usize::from(piece) % corpus.len().max(1)).into_iter().flatten());
            // Every other piece follows at once.
            input.extend(noise.next().filter(|_| piece & 1 == 0).unwrap_or_default());
        }
        input.extend(noise.flatten());
        for &(at, byte) in &self.changes {
            let len = input.len().max(1);
            if let Some(changed) = input.get_mut(usize::from(at) % len) {
                *changed = byte;
            }
        }
        input
    }
}

/// Runs `target` on a number of random mixtures of what is committed for it.
pub(crate) fn mix(name: &str, target: fn(&[u8])) {
    let folder = format!("{}/tests/__fuzz__/{name}/corpus", env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(&folder).expect("a committed corpus").map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = files.collect();
    paths.sort();
    let corpus: Vec<_> = paths.iter().map(|path| fs::read(path).expect("readable")).collect();
    bolero::check!()
        .with_type::<Mixture>()
        .with_iterations(2000)
        .with_max_len(4096)
        .for_each(|mixture| target(&mixture.input(&corpus)));
}
