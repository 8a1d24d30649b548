//! An engine's registrations of the application's memory: the registration cache, made at its first use, and its configuration.

use std::sync::Arc;

use super::board::WatchTable;
use super::cache::{Cache, CacheLimits};
use super::monitor;
use super::watch::{MonitorChoice, Watch};
use super::{
    AdoptError, ArenaError, Buffer, ForkWatch, MemoryError, MemoryKind, MonitorError, Pinned, RegisterError, Registrar,
    RegistrationStats, UserMemory,
};

/// Whether memory that the application adopts is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pin {
    /// As the links need it. It is registered with devices that read memory themselves; links that copy need nothing:
    /// there is no registration then, and so no cache.
    #[default]
    Auto,
    /// The kernel locks it (mlock(2)), so that no transfer waits for a page. Locks do not nest: with the last registration
    /// of a page ends a lock of the application's own, too.
    Lock,
}

/// How memory of the application's is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistrationConfig {
    /// Whether registrations outlive their use.
    pub cache: bool,
    /// Regions that are registered at once, in use or not.
    pub regions: usize,
    /// Bytes that are registered at once, in use or not.
    pub bytes: usize,
    /// Who watches what is cached.
    pub monitor: MonitorChoice,
    /// What registering is.
    pub pin: Pin,
}

impl Default for RegistrationConfig {
    /// As many regions as libfabric's cache has (MVICH's had 1000), and a gibibyte.
    fn default() -> Self {
        Self { cache: true, regions: 1024, bytes: 1 << 30, monitor: MonitorChoice::Auto, pin: Pin::Auto }
    }
}

/// What registration is, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationInfo {
    /// Who watches cached memory.
    pub monitor: &'static str,
    /// Why there is no monitor, or why nothing is cached.
    pub reason: Option<String>,
    /// Why memory was last not registered.
    pub last_failure: Option<RegisterError>,
}

/// The registrations of an engine.
#[derive(Debug)]
pub(crate) struct Registrations {
    board: Arc<WatchTable>,
    /// Links that copy need none.
    cache: Option<Cache<Box<dyn Registrar>>>,
    /// Adoptions so far; see [`Buffer::of_user`].
    adoptions: u32,
    unregistered: u64,
}

impl Registrations {
    pub(crate) fn new() -> Result<Self, ArenaError> {
        let board = monitor::board().map_err(ArenaError::Page)?;
        Ok(Self { board, cache: None, adoptions: 0, unregistered: 0 })
    }

    /// Ends all registrations, and follows `config` from here on.
    /// `devices` registers memory with those that read it themselves, if there are any.
    pub(crate) fn configure(
        &mut self,
        config: RegistrationConfig,
        devices: Option<Box<dyn Registrar>>,
    ) -> Result<(), MonitorError> {
        let registrar: Option<Box<dyn Registrar>> = match (devices, config.pin) {
            // What a device reads stays where it is: there is nothing left to lock.
            (Some(devices), _) => Some(devices),
            (None, Pin::Lock) => Some(Box::new(Pinned::new(self.board.clone()))),
            (None, Pin::Auto) => None,
        };
        // The old one first: what it has registered, the new one may register again.
        self.cache = None;
        if let Some(registrar) = registrar {
            self.cache = Some(Cache::new(registrar, self.watch(&config)?, config.limits()));
        }
        Ok(())
    }

    fn watch(&self, config: &RegistrationConfig) -> Result<Watch, MonitorError> {
        let choice = if config.cache { config.monitor } else { MonitorChoice::None };
        Watch::new(self.board.clone(), choice)
    }

    /// Whether this process is a forked child of the one that opened the engine.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.board.is_forked()
    }

    /// The same question, for those that hold no engine.
    pub(crate) fn fork_watch(&self) -> ForkWatch {
        ForkWatch::new(self.board.clone())
    }

    /// A buffer of the application's memory, registered where that is needed and possible.
    #[inline]
    pub(crate) fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, AdoptError> {
        let start = memory.start().addr().get();
        let region = match &mut self.cache {
            Some(cache) if !memory.is_empty() => {
                match cache.acquire(start..start.saturating_add(memory.len())) {
                    // A source may lie where nothing can be written, and is copied then.
                    Err(AdoptError::Memory(MemoryError::NotWritable(_))) if memory.kind() == MemoryKind::Source => {
                        self.unregistered += 1;
                        None
                    }
                    acquired => acquired?,
                }
            }
            _ if self.board.is_forked() => return Err(AdoptError::Forked),
            _ => {
                self.unregistered += 1;
                None
            }
        };
        self.adoptions = self.adoptions.wrapping_add(1);
        Ok(Buffer::of_user(memory, self.adoptions, region))
    }

    /// Ends what has become invalid or has been used for the last time.
    #[inline]
    pub(crate) fn tend(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.tend();
        }
    }

    pub(crate) fn stats(&self) -> RegistrationStats {
        let stats = self.cache.as_ref().map_or_else(RegistrationStats::default, Cache::stats);
        RegistrationStats { bypassed: self.unregistered, ..stats }
    }

    pub(crate) fn info(&self) -> RegistrationInfo {
        let Some(cache) = &self.cache else {
            let reason = "the links copy: nothing needs to be registered".to_owned();
            return RegistrationInfo { monitor: "none", reason: Some(reason), last_failure: None };
        };
        let (monitor, reason) = cache.watch().describe();
        RegistrationInfo { monitor, reason: reason.map(str::to_owned), last_failure: cache.last_failure().cloned() }
    }
}

impl RegistrationConfig {
    /// Who would watch memory on this machine, were it registered.
    pub fn probe(&self) -> RegistrationInfo {
        let choice = if self.cache { self.monitor } else { MonitorChoice::None };
        let board = monitor::board().map_err(MonitorError::Start);
        let watch = board.and_then(|board| Watch::new(board, choice));
        let (monitor, reason) = match &watch {
            Ok(watch) => (watch.describe().0, watch.describe().1.map(str::to_owned)),
            Err(error) => ("none", Some(error.to_string())),
        };
        RegistrationInfo { monitor, reason, last_failure: None }
    }

    const fn limits(&self) -> CacheLimits {
        CacheLimits { regions: self.regions, bytes: self.bytes }
    }
}
